//! What kind of failure a request to slurmrestd ended in: on the way there, or by what Slurm says.

use reqwest::StatusCode;

use super::field::{WireNumber, WireObject, WireText};
use super::wire::{ResponseEnvelope, WireError};
use crate::SlurmError;
use infill_model::error_causes;

/// Longest text of a failure that is passed on.
const MAX_TEXT: usize = 500;

/// Slurm's error numbers that decide what we do. From its `slurm_errno.h`; stable over all releases.
pub(super) mod errno {
    /// The job is unknown.
    pub(crate) const INVALID_JOB_ID: i64 = 2017;
    /// The job has ended, or is about to.
    pub(crate) const ALREADY_DONE: i64 = 2021;
    /// The token was not taken. Comes with HTTP 401, 500 or 511, by release.
    pub(crate) const AUTHENTICATION: i64 = 1007;
    /// Not allowed.
    pub(crate) const ACCESS_DENIED: i64 = 2002;
    /// The job is between two states; try again.
    pub(crate) const TRANSITION_STATE: i64 = 2020;
    /// The backup controller is in standby.
    pub(crate) const IN_STANDBY: i64 = 2033;
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Nothing was sent: trying again is always safe.
    Unsent,
    /// Slurm or the way to it is ailing.
    Transient,
    /// Slurm did not answer in time.
    TimedOut,
    /// The token was not taken.
    Unauthenticated,
    /// We may not.
    Denied,
    /// slurmrestd has no such URL: another version runs there now.
    NoSuchUrl,
    /// Slurm knows no such job.
    NoSuchJob,
    /// The job has ended already.
    AlreadyDone,
    /// Slurm says no.
    Permanent,
}

/// A failed request.
#[derive(Debug)]
pub(super) struct RequestFailure {
    pub kind: FailureKind,
    pub what: String,
}

impl RequestFailure {
    pub(super) fn new(kind: FailureKind, what: impl Into<String>) -> RequestFailure {
        let what: String = what.into();
        RequestFailure { kind, what: what.chars().take(MAX_TEXT).collect() }
    }

    /// The error as everybody else sees it.
    pub(super) fn into_slurm_error(self, doing: impl Into<String>) -> SlurmError {
        let doing = doing.into();
        let what = self.what;
        match self.kind {
            FailureKind::Unsent | FailureKind::Transient | FailureKind::TimedOut | FailureKind::NoSuchUrl => {
                SlurmError::Transient { doing, what }
            }
            FailureKind::Unauthenticated | FailureKind::Denied => SlurmError::Denied { doing, what },
            FailureKind::NoSuchJob | FailureKind::AlreadyDone | FailureKind::Permanent => {
                SlurmError::Permanent { doing, what }
            }
        }
    }
}

/// A failure on the way.
pub(super) fn transport_failure(e: &reqwest::Error) -> RequestFailure {
    let kind = match e {
        e if e.is_connect() => FailureKind::Unsent,
        e if e.is_timeout() => FailureKind::TimedOut,
        e if e.is_builder() => FailureKind::Permanent,
        _ => FailureKind::Transient,
    };
    RequestFailure::new(kind, error_causes::error_chain(e))
}

/// Slurm's own errors first, whatever the status says: HTTP 200 can carry errors, and 500 a plain refusal.
pub(super) fn check_response(status: StatusCode, body: &[u8]) -> Result<(), RequestFailure> {
    let envelope = serde_json::from_slice::<ResponseEnvelope<'_>>(body).ok();
    let error = envelope.as_ref().and_then(|e| e.errors.as_ref()?.first());
    let (code, text) = match error {
        Some(WireObject::Value(error)) => describe_error(error),
        Some(_) => (None, "an error that cannot be read".to_owned()),
        None => match envelope.as_ref().and_then(kill_failure) {
            Some(failure) => failure,
            None if status.is_success() => return Ok(()),
            None => (None, String::from_utf8_lossy(&body[..body.len().min(MAX_TEXT)]).trim().to_owned()),
        },
    };
    let what = if status.is_success() { text } else { format!("{text} (HTTP {})", status.as_u16()) };
    Err(RequestFailure::new(classify_failure(status, code, &what, envelope.is_some()), what))
}

fn describe_error(error: &WireError<'_>) -> (Option<i64>, String) {
    let code = if let WireNumber::Value(n) = error.error_number { Some(n).filter(|n| *n != 0) } else { None };
    let part = |t: &WireText<'_>| match t {
        WireText::Value(s) if !s.is_empty() && s != "No error" => Some(s.to_string()),
        _ => None,
    };
    let text = [part(&error.description), part(&error.error)].into_iter().flatten().collect::<Vec<_>>();
    let text = if text.is_empty() { "unknown error".to_owned() } else { text.join(": ") };
    (code, code.map_or(text.clone(), |code| format!("{text} ({code})")))
}

/// A cancel answers 200 without errors and tells in `status` what it could not do.
fn kill_failure(envelope: &ResponseEnvelope<'_>) -> Option<(Option<i64>, String)> {
    let failed = envelope.status.as_ref()?.iter().find_map(|s| match s {
        WireObject::Value(s) => match &s.error {
            WireObject::Value(e) if !matches!(e.code, WireNumber::Value(0) | WireNumber::Unset) => Some(e),
            _ => None,
        },
        WireObject::Unset | WireObject::Bad => None,
    })?;
    let code = if let WireNumber::Value(n) = failed.code { Some(n) } else { None };
    let text =
        if let WireText::Value(s) = &failed.message { s.to_string() } else { "unknown error".to_owned() };
    Some((code, format!("{text} ({})", code.unwrap_or(-1))))
}

fn classify_failure(status: StatusCode, code: Option<i64>, what: &str, is_slurms: bool) -> FailureKind {
    let lower = what.to_ascii_lowercase();
    if status == StatusCode::UNAUTHORIZED || lower.contains("authentication") {
        return FailureKind::Unauthenticated;
    }
    if status == StatusCode::TOO_MANY_REQUESTS || lower.contains("rate limit") || lower.contains("backoff") {
        return FailureKind::Transient;
    }
    match code {
        Some(errno::AUTHENTICATION) => FailureKind::Unauthenticated,
        Some(errno::INVALID_JOB_ID) => FailureKind::NoSuchJob,
        Some(errno::ALREADY_DONE) => FailureKind::AlreadyDone,
        Some(errno::ACCESS_DENIED) => FailureKind::Denied,
        Some(errno::TRANSITION_STATE | errno::IN_STANDBY) => FailureKind::Transient,
        // Failures to reach slurmctld (1800..1999, and the system's own numbers), and "unspecified" (-1).
        Some(-1 | 1..=199 | 1800..=1999) => FailureKind::Transient,
        Some(_) => FailureKind::Permanent,
        None if status == StatusCode::FORBIDDEN => FailureKind::Denied,
        None if status == StatusCode::NOT_FOUND && !is_slurms => FailureKind::NoSuchUrl,
        None if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => FailureKind::Transient,
        None => FailureKind::Permanent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: &str) -> String {
        match check_response(StatusCode::from_u16(status).unwrap(), body.as_bytes()) {
            Ok(()) => "ok".to_owned(),
            Err(f) => format!("{:?}: {}", f.kind, f.what),
        }
    }

    fn errors(code: i64, error: &str) -> String {
        format!(r#"{{"errors":[{{"description":"update failed","error":"{error}","error_number":{code}}}]}}"#)
    }

    #[test]
    fn slurms_errors_count_more_than_the_status() {
        assert_eq!(judged(200, r#"{"errors":[],"warnings":[{"description":"odd"}]}"#), "ok");
        assert_eq!(judged(200, r#"{"errors":null}"#), "ok");
        let gone = judged(404, &errors(2017, "Invalid job id specified"));
        assert_eq!(gone, "NoSuchJob: update failed: Invalid job id specified (2017) (HTTP 404)");
        assert!(judged(200, &errors(2002, "Access/permission denied")).starts_with("Denied"));
        assert!(judged(500, &errors(2018, "Invalid node name specified")).starts_with("Permanent"));
        assert!(judged(500, &errors(1007, "Protocol authentication error")).starts_with("Unauthenticated"));
        assert!(judged(200, &errors(1802, "Unable to contact slurm controller")).starts_with("Transient"));
        let busy = r#"{"errors":[],"status":[{"error":{"code":2021,"message":"Job/step already done"}}]}"#;
        assert_eq!(judged(200, busy), "AlreadyDone: Job/step already done (2021)");
        assert_eq!(judged(200, r#"{"errors":[],"status":[{"error":{"code":0}}]}"#), "ok");
    }

    #[test]
    fn without_slurms_words_the_status_decides() {
        assert!(judged(404, "Unable find requested URL.").starts_with("NoSuchUrl"));
        assert!(judged(401, "").starts_with("Unauthenticated"));
        assert!(judged(429, "slow down").starts_with("Transient"));
        assert!(judged(503, "<html>").starts_with("Transient"));
        assert!(judged(400, "Unable to parse query.").starts_with("Permanent"));
    }
}
