//! Who speaks: whoever speaks first by a credential, which is checked here; people who change something by
//! one with each request ([`super::orders`]). Readers are in [`super::readers`].

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::agent_channels::{AgentPass, ProvedRequest};
use crate::context::DaemonContext;
use infill_api::headers;
use infill_model::{Credential, JobId, Secret, UserId, bound_payload, hello_payload};
use infill_slurm::identity::{IdentityError, name_of, own_uid, uid_of};

use super::RequestDenial;
use super::sealed_sessions::SessionSlot;

/// Longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 256;

/// Longest nonce that is looked at.
const MAX_NONCE_BYTES: usize = 128;

/// Longest wait for a turn at a gate. Agents and people try again.
pub(crate) const GATE_PATIENCE: Duration = Duration::from_secs(10);

/// The bearer token of a request.
pub(crate) fn bearer_secret(headers: &HeaderMap) -> Result<Secret, RequestDenial> {
    let value = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
    let token = value.and_then(|v| v.strip_prefix("Bearer ")).filter(|t| t.len() <= MAX_TOKEN_BYTES);
    token.map(|t| Secret(t.to_owned())).ok_or_else(RequestDenial::not_authenticated)
}

/// By what an agent is known: its session, or its secret.
pub(crate) fn agent_pass(
    headers: &HeaderMap,
    proved: Option<&ProvedRequest>,
) -> Result<AgentPass, RequestDenial> {
    match proved {
        Some(proved) => Ok(AgentPass::Session(proved.clone())),
        None => bearer_secret(headers).map(AgentPass::Bearer),
    }
}

/// What somebody shows who speaks first.
#[derive(Clone, Debug)]
pub(crate) struct PresentedCredential {
    /// Proof of who speaks.
    pub credential: Credential,
    /// Bound into it.
    pub nonce: String,
    /// Of an agent.
    pub job: Option<JobId>,
    /// Which daemon it is for, as `HOST:PORT`. Those who are older do not say.
    pub to: Option<String>,
    /// Digest of the order that is given.
    pub order: Option<String>,
}

impl PresentedCredential {
    /// What stands in headers.
    pub(crate) fn from_headers(sent: &HeaderMap) -> Result<PresentedCredential, RequestDenial> {
        let text = |name: &str| sent.get(name).and_then(|v| v.to_str().ok());
        let value = text(AUTHORIZATION.as_str()).and_then(|v| v.split_once(' '));
        let (scheme, secret) = value.ok_or_else(RequestDenial::not_authenticated)?;
        let secret = Secret(secret.to_owned());
        let credential = match scheme {
            headers::MUNGE_SCHEME => Credential::Munge(secret),
            headers::JWT_SCHEME => Credential::Jwt(secret),
            _ => return Err(RequestDenial::not_authenticated()),
        };
        let nonce =
            text(headers::NONCE).filter(|n| n.len() <= MAX_NONCE_BYTES).unwrap_or_default().to_owned();
        let to = text(headers::TO).map(str::to_owned);
        Ok(PresentedCredential { credential, nonce, job: None, to, order: None })
    }

    /// Refuses what does not say which daemon it is for.
    pub(crate) fn require_target(self) -> Result<PresentedCredential, RequestDenial> {
        if self.to.is_some() { Ok(self) } else { Err(RequestDenial::not_authenticated()) }
    }

    /// What the credential must carry. Each part of it is one word.
    fn expected_payload(&self, purpose: &str) -> Result<String, RequestDenial> {
        let Some(to) = &self.to else { return Ok(hello_payload(purpose, self.job, &self.nonce)) };
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        match is_word(to) && is_word(&self.nonce) {
            true => Ok(bound_payload(purpose, self.job, &self.nonce, to, self.order.as_deref())),
            false => Err(RequestDenial::not_authenticated()),
        }
    }
}

/// The user who made a credential for this purpose, and the session that the answer opens to them if they
/// say which daemon they mean.
pub(crate) async fn verify_proof(
    context: &DaemonContext,
    gate: &Semaphore,
    slot: &SessionSlot,
    purpose: &str,
    shown: &PresentedCredential,
) -> Result<(UserId, Option<String>), RequestDenial> {
    let payload = shown.expected_payload(purpose)?;
    let PresentedCredential { credential, nonce, job, to, .. } = shown;
    let refused = |e: IdentityError| {
        tracing::warn!(purpose, job = job.map(tracing::field::display), "a proof was refused: {e}");
        RequestDenial::from(e)
    };
    // A check of a token waits for Slurm, which may be slow: bogus ones must not keep others waiting.
    let gate = match credential {
        Credential::Munge(_) => gate,
        Credential::Jwt(_) => &context.doors.gates.tokens,
    };
    // Each check is a process or a request of its own, and so is each seal.
    let _turn = acquire_permit(gate, GATE_PATIENCE).await.map_err(refused)?;
    let uid = context.identity.verify_credential(credential, &payload).await.map_err(refused)?;
    let Some(to) = to else { return Ok((uid, None)) };
    // Also who is refused shall know by whom.
    let session = slot.open_session(context, (uid, credential), *job, nonce).await?;
    if !context.doors.is_own_address(to) {
        tracing::warn!(purpose, %uid, to, "a proof was refused: it is for another daemon");
        let what = format!("{to:?} is no name of this daemon (daemon.names names more)");
        return Err(RequestDenial::new(StatusCode::MISDIRECTED_REQUEST, what));
    }
    Ok((uid, Some(session)))
}

/// A turn at a gate, if it comes within this time.
pub(crate) async fn acquire_permit(
    gate: &Semaphore,
    patience: Duration,
) -> Result<SemaphorePermit<'_>, IdentityError> {
    let crowded = || IdentityError::Unavailable("too many wait to be checked".to_owned());
    let turn = tokio::time::timeout(patience, gate.acquire()).await;
    turn.map_err(|_| crowded())?.map_err(|_| crowded())
}

impl From<IdentityError> for RequestDenial {
    /// Only that nobody can tell now is said: the same proof may be good later.
    fn from(e: IdentityError) -> RequestDenial {
        match e {
            IdentityError::Unavailable(_) => {
                RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "cannot check who speaks; try again")
            }
            _ => RequestDenial::not_authenticated(),
        }
    }
}

/// Root and the daemon's own user.
pub(crate) fn is_daemon_user(uid: UserId) -> bool {
    is_root_or(own_uid(), uid)
}

fn is_root_or(own: UserId, uid: UserId) -> bool {
    uid.0 == 0 || uid == own
}

/// Refuses whoever is no administrator.
pub(crate) async fn require_admin(context: &DaemonContext, uid: UserId) -> Result<(), RequestDenial> {
    if is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, "a request was refused: no administrator");
    Err(RequestDenial::new(StatusCode::FORBIDDEN, "only administrators may do that"))
}

/// Refuses whoever neither administers nor is one of Slurm's operators.
pub(crate) async fn require_operator(context: &DaemonContext, uid: UserId) -> Result<(), RequestDenial> {
    let is_operator = name_of(uid).await.is_some_and(|name| context.doors.is_operator(&name));
    if is_operator || is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, "a request was refused: neither administrator nor operator");
    let what = "only administrators and Slurm's operators may end other users' sessions";
    Err(RequestDenial::new(StatusCode::FORBIDDEN, what))
}

/// Root, the daemon's own user, and those whom the configuration names.
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

/// Refuses whoever is no administrator and reaches for what is not theirs alone. `None` stands for
/// everybody's.
pub(crate) async fn require_owner(
    context: &DaemonContext,
    uid: UserId,
    owners: Option<BTreeSet<&str>>,
) -> Result<(), RequestDenial> {
    let one = owners.as_ref().filter(|o| o.len() == 1).and_then(|o| o.first());
    let own = match one {
        Some(name) => uid_of(name).await == Some(uid),
        None => false,
    };
    if own || is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, ?owners, "a request was refused: not their own, and not an administrator");
    let what = "only administrators may change other users' profiles (--me chooses your own)";
    Err(RequestDenial::new(StatusCode::FORBIDDEN, what))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn root_and_the_daemons_user_are_its_own_and_others_are_not() {
        let is_own = |uid| is_root_or(UserId(977), UserId(uid));
        assert_eq!([0, 977, 978].map(is_own), [true, true, false]);
    }

    #[tokio::test]
    async fn a_crowd_at_one_gate_waits_and_is_sent_away_and_keeps_the_other_free() {
        let doors = crate::access_control::AccessControl::new(crate::daemon_names::DaemonNames::new(
            &Default::default(),
        ));
        let patience = Duration::from_millis(50);
        let mut inside = Vec::new();
        while let Ok(turn) = acquire_permit(&doors.gates.people, patience).await {
            inside.push(turn);
            assert!(inside.len() <= 4, "each is a process");
        }
        let denial = RequestDenial::from(acquire_permit(&doors.gates.people, patience).await.unwrap_err());
        assert_eq!(denial.into_response().status(), StatusCode::SERVICE_UNAVAILABLE, "the proof may be good");
        let gates = &doors.gates;
        for other in [&gates.hellos, &gates.health, &gates.tokens, &gates.long] {
            assert!(acquire_permit(other, patience).await.is_ok(), "each has a gate of its own");
        }
        inside.pop();
        assert!(acquire_permit(&doors.gates.people, patience).await.is_ok());
    }
}
