//! Classifies failed requests to slurmrestd: failures of the transport, and errors that Slurm reports.

use reqwest::StatusCode;

use super::field::{WireNumber, WireObject, WireText};
use super::wire::{ResponseEnvelope, WireError};
use crate::SlurmError;
use infill_model::error_causes;

/// Most characters of a failure's text that are passed on.
const MAX_TEXT: usize = 500;

/// The Slurm error numbers that infill treats specially. From `slurm_errno.h`; stable over all releases.
pub(super) mod errno {
    /// The job is unknown.
    pub(crate) const INVALID_JOB_ID: i64 = 2017;
    /// The job has ended, or is about to.
    pub(crate) const ALREADY_DONE: i64 = 2021;
    /// Slurm refused the token. Comes with HTTP 401, 500 or 511, by release.
    pub(crate) const AUTHENTICATION: i64 = 1007;
    /// This user has no permission.
    pub(crate) const ACCESS_DENIED: i64 = 2002;
    /// The job is between two states; try again.
    pub(crate) const TRANSITION_STATE: i64 = 2020;
    /// The backup controller is in standby.
    pub(crate) const IN_STANDBY: i64 = 2033;
}

/// The kind of a failure. It decides whether another try is safe and useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The request was not sent: trying again is always safe.
    Unsent,
    /// Slurm or the connection has a problem that may pass.
    Transient,
    /// Slurm did not answer in time.
    TimedOut,
    /// Slurm refused the token.
    Unauthenticated,
    /// infill's user has no permission.
    Denied,
    /// slurmrestd has no such URL: it now runs another version.
    NoSuchUrl,
    /// Slurm knows no such job.
    NoSuchJob,
    /// The job has ended already.
    AlreadyDone,
    /// Slurm refused the request, and would refuse it again.
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

    /// The error as other modules see it. `doing` says which operation failed.
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

/// The failure for an error of the HTTP client.
pub(super) fn transport_failure(e: &reqwest::Error) -> RequestFailure {
    let kind = match e {
        e if e.is_connect() => FailureKind::Unsent,
        e if e.is_timeout() => FailureKind::TimedOut,
        e if e.is_builder() => FailureKind::Permanent,
        _ => FailureKind::Transient,
    };
    RequestFailure::new(kind, error_causes::error_chain(e))
}

/// Checks a response for errors. Slurm's own errors count more than the HTTP status: 200 can carry errors,
/// and 500 a plain refusal.
///
/// # Errors
/// The failure that Slurm's errors or the HTTP status describe.
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
    let parts: Vec<&str> = [&error.description, &error.error].into_iter().filter_map(error_text).collect();
    let text = if parts.is_empty() { "unknown error".to_owned() } else { parts.join(": ") };
    match code {
        Some(code) => (Some(code), format!("{text} ({code})")),
        None => (None, text),
    }
}

fn error_text<'t>(text: &'t WireText<'_>) -> Option<&'t str> {
    match text {
        WireText::Value(text) if !text.is_empty() && text != "No error" => Some(text),
        _ => None,
    }
}

/// The code and the text of a failed cancel. A cancel answers 200 without errors and reports failures in
/// `status`.
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

/// `is_from_slurm`: whether the body is an answer of Slurm, and not of the web server alone.
fn classify_failure(status: StatusCode, code: Option<i64>, what: &str, is_from_slurm: bool) -> FailureKind {
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
        None if status == StatusCode::NOT_FOUND && !is_from_slurm => FailureKind::NoSuchUrl,
        None if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => FailureKind::Transient,
        None => FailureKind::Permanent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(status: u16, body: &str) -> String {
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
        assert_eq!(checked(200, r#"{"errors":[],"warnings":[{"description":"odd"}]}"#), "ok");
        assert_eq!(checked(200, r#"{"errors":null}"#), "ok");
        let gone = checked(404, &errors(2017, "Invalid job id specified"));
        assert_eq!(gone, "NoSuchJob: update failed: Invalid job id specified (2017) (HTTP 404)");
        assert!(checked(200, &errors(2002, "Access/permission denied")).starts_with("Denied"));
        assert!(checked(500, &errors(2018, "Invalid node name specified")).starts_with("Permanent"));
        assert!(checked(500, &errors(1007, "Protocol authentication error")).starts_with("Unauthenticated"));
        assert!(checked(200, &errors(1802, "Unable to contact slurm controller")).starts_with("Transient"));
        let busy = r#"{"errors":[],"status":[{"error":{"code":2021,"message":"Job/step already done"}}]}"#;
        assert_eq!(checked(200, busy), "AlreadyDone: Job/step already done (2021)");
        assert_eq!(checked(200, r#"{"errors":[],"status":[{"error":{"code":0}}]}"#), "ok");
    }

    #[test]
    fn without_slurms_words_the_status_decides() {
        assert!(checked(404, "Unable find requested URL.").starts_with("NoSuchUrl"));
        assert!(checked(401, "").starts_with("Unauthenticated"));
        assert!(checked(429, "slow down").starts_with("Transient"));
        assert!(checked(503, "<html>").starts_with("Transient"));
        assert!(checked(400, "Unable to parse query.").starts_with("Permanent"));
    }
}
