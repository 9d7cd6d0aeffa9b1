//! Verification of credentials. The first request of a client carries one, and so does each request that
//! changes something ([`super::signed_requests`]). Readers are in [`super::reader_auth`].

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::agent_channels::{AgentPass, ProvedRequest};
use crate::context::DaemonContext;
use infill_model::{Credential, JobId, Secret, UserId};
use infill_slurm::identity::{IdentityError, name_of, own_uid, uid_of};

use super::RequestDenial;
pub(crate) use super::presented_credential::{PresentedCredential, header_text};
use super::sealed_sessions::SessionSlot;

/// Longest token that is accepted.
const MAX_TOKEN_BYTES: usize = 256;

/// Longest wait for a permit to check a credential. Clients try again afterwards.
pub(crate) const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The bearer token of a request.
pub(crate) fn bearer_secret(headers: &HeaderMap) -> Result<Secret, RequestDenial> {
    let token = header_text(headers, AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let token = token.filter(|token| token.len() <= MAX_TOKEN_BYTES);
    token.map(|token| Secret(token.to_owned())).ok_or_else(RequestDenial::not_authenticated)
}

/// What identifies an agent: its session, or its secret.
pub(crate) fn agent_pass(
    headers: &HeaderMap,
    proved: Option<&ProvedRequest>,
) -> Result<AgentPass, RequestDenial> {
    match proved {
        Some(proved) => Ok(AgentPass::Session(proved.clone())),
        None => bearer_secret(headers).map(AgentPass::Bearer),
    }
}

/// The result of a successful check.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedIdentity {
    /// The user who made the credential.
    pub uid: UserId,
    /// The session that the answer opens; `None` where the credential names no daemon.
    pub session: Option<String>,
}

/// Verifies a credential for this purpose. Opens a session, if the credential names this daemon.
pub(crate) async fn verify_proof(
    context: &DaemonContext,
    limit: &Semaphore,
    slot: &SessionSlot,
    purpose: &str,
    presented: &PresentedCredential,
) -> Result<VerifiedIdentity, RequestDenial> {
    let payload = presented.expected_payload(purpose)?;
    // The check of a token may wait long for Slurm. A separate limit keeps false tokens from delaying others.
    let limit = match presented.credential {
        Credential::Munge(_) => limit,
        Credential::Jwt(_) => &context.access.limits.tokens,
    };
    // Each check is a process or a request of its own, and so is each seal.
    let permit = acquire_permit(limit, PERMIT_TIMEOUT).await;
    let _permit = permit.map_err(|e| proof_denial(purpose, presented.job, e))?;
    let verified = context.identity.verify_credential(&presented.credential, &payload).await;
    let uid = verified.map_err(|e| proof_denial(purpose, presented.job, e))?;
    let Some(to) = &presented.to else { return Ok(VerifiedIdentity { uid, session: None }) };
    // The session is opened before the refusal below, so that the refusal is signed too.
    let session = slot.open_session(context, uid, presented).await?;
    if !context.access.is_own_address(to) {
        tracing::warn!(purpose, %uid, to, "a proof was refused: it is for another daemon");
        let what = format!("{to:?} is not a name of this daemon (add it to daemon.names if it should be)");
        return Err(RequestDenial::new(StatusCode::MISDIRECTED_REQUEST, what));
    }
    Ok(VerifiedIdentity { uid, session: Some(session) })
}

fn proof_denial(purpose: &str, job: Option<JobId>, e: IdentityError) -> RequestDenial {
    tracing::warn!(purpose, job = job.map(tracing::field::display), "a proof was refused: {e}");
    RequestDenial::from(e)
}

/// Waits for a permit, at most for `timeout`.
pub(crate) async fn acquire_permit(
    limit: &Semaphore,
    timeout: Duration,
) -> Result<SemaphorePermit<'_>, IdentityError> {
    match tokio::time::timeout(timeout, limit.acquire()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => {
            Err(IdentityError::Unavailable("too many credentials wait to be checked".to_owned()))
        }
    }
}

impl From<IdentityError> for RequestDenial {
    /// Reveals only whether a check was possible. If it was not, the same proof may succeed later.
    fn from(e: IdentityError) -> RequestDenial {
        match e {
            IdentityError::Unavailable(_) => {
                RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "cannot check the proof now; try again")
            }
            _ => RequestDenial::not_authenticated(),
        }
    }
}

/// Whether this is root or the daemon's own user.
pub(crate) fn is_daemon_user(uid: UserId) -> bool {
    is_root_or(own_uid(), uid)
}

fn is_root_or(own: UserId, uid: UserId) -> bool {
    uid.0 == 0 || uid == own
}

/// Refuses users who are not administrators.
pub(crate) async fn require_admin(context: &DaemonContext, uid: UserId) -> Result<(), RequestDenial> {
    if is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, "a request was refused: the user is not an administrator");
    Err(RequestDenial::new(StatusCode::FORBIDDEN, "only administrators may do that"))
}

/// Refuses users who are neither administrators nor operators of Slurm.
pub(crate) async fn require_operator(context: &DaemonContext, uid: UserId) -> Result<(), RequestDenial> {
    let is_operator = name_of(uid).await.is_some_and(|name| context.access.is_operator(&name));
    if is_operator || is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, "a request was refused: the user is neither an administrator nor an operator");
    let what = "only administrators and Slurm's operators may end other users' sessions";
    Err(RequestDenial::new(StatusCode::FORBIDDEN, what))
}

/// The answer when the daemon cannot know whether a user exists.
pub(crate) fn name_service_silent(why: &IdentityError) -> RequestDenial {
    tracing::warn!("a user cannot be looked up: {why}");
    let what = "the name service of the daemon's host does not say whether this user exists; try again";
    RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, what)
}

/// Whether this is root, the daemon's own user, or an administrator in the configuration.
pub(crate) async fn is_admin(context: &DaemonContext, uid: UserId) -> bool {
    if is_daemon_user(uid) {
        return true;
    }
    for name in &context.config.daemon.admins {
        if uid_of(name).await == Some(uid) {
            return true;
        }
    }
    false
}

/// Refuses users who are not administrators and want to change profiles of others. `owners`: the owners of
/// these profiles; `None` stands for all users.
pub(crate) async fn require_owner(
    context: &DaemonContext,
    uid: UserId,
    owners: Option<BTreeSet<&str>>,
) -> Result<(), RequestDenial> {
    let only_owner = owners.as_ref().filter(|owners| owners.len() == 1).and_then(|owners| owners.first());
    let is_own = match only_owner {
        Some(name) => uid_of(name).await == Some(uid),
        None => false,
    };
    if is_own || is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, ?owners, "a request was refused: only owners and administrators may change profiles");
    let what = "only administrators may change other users' profiles (--me chooses your own)";
    Err(RequestDenial::new(StatusCode::FORBIDDEN, what))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn root_and_the_daemons_user_are_its_own_and_others_are_not() {
        assert_eq!([0, 977, 978].map(|uid| is_root_or(UserId(977), UserId(uid))), [true, true, false]);
    }

    #[tokio::test]
    async fn many_checks_of_one_kind_wait_and_do_not_delay_other_kinds() {
        let names = crate::daemon_names::DaemonNames::new(&Default::default());
        let limits = crate::access_control::AccessControl::new(names).limits;
        let timeout = Duration::from_millis(50);
        let mut permits = Vec::new();
        while let Ok(permit) = acquire_permit(&limits.people, timeout).await {
            permits.push(permit);
            assert!(permits.len() <= 4, "each check is a process");
        }
        let denial = RequestDenial::from(acquire_permit(&limits.people, timeout).await.unwrap_err());
        assert_eq!(
            denial.into_response().status(),
            StatusCode::SERVICE_UNAVAILABLE,
            "the proof may be valid"
        );
        for other in [&limits.hellos, &limits.health, &limits.tokens, &limits.long] {
            assert!(acquire_permit(other, timeout).await.is_ok(), "each kind has a limit of its own");
        }
        permits.pop();
        assert!(acquire_permit(&limits.people, timeout).await.is_ok());
    }
}
