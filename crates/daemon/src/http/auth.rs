//! Who speaks: agents by their secrets, which are made, read from the header and compared here; people who
//! change something by a credential with each request. Readers are in [`super::readers`].

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::context::Context;
use infill_model::{Credential, Secret, UserId, hello_payload};
use infill_slurm::identity::{IdentityError, name_of, own_uid, uid_of};

use super::Denial;

/// Bytes of a secret: 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// Longest token that is looked at.
const MAX_TOKEN: usize = 256;

/// Longest wait for a turn at a gate. Agents and people try again.
const GATE_PATIENCE: Duration = Duration::from_secs(10);

/// A fresh secret.
pub(crate) fn new_secret() -> Result<Secret, Denial> {
    let mut bytes = [0_u8; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| {
        tracing::error!("no random numbers to be had: {e}");
        Denial::new(StatusCode::SERVICE_UNAVAILABLE, "no random numbers")
    })?;
    Ok(Secret(bytes.iter().map(|b| format!("{b:02x}")).collect()))
}

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Secret, Denial> {
    let value = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
    let token = value.and_then(|v| v.strip_prefix("Bearer ")).filter(|t| t.len() <= MAX_TOKEN);
    token.map(|t| Secret(t.to_owned())).ok_or_else(Denial::unproved)
}

/// The user who made this credential for this purpose.
pub(crate) async fn proved(
    context: &Context,
    purpose: &str,
    credential: &Credential,
    nonce: &str,
) -> Result<UserId, Denial> {
    let payload = hello_payload(purpose, None, nonce);
    verified(context, &context.doors.people, credential, &payload).await.map_err(|e| {
        tracing::warn!(purpose, "a request was refused: {e}");
        Denial::from(e)
    })
}

/// Has a credential checked, in its turn: each check is a process or a request of its own.
pub(crate) async fn verified(
    context: &Context,
    gate: &Semaphore,
    credential: &Credential,
    payload: &str,
) -> Result<UserId, IdentityError> {
    let _turn = turn_at(gate, GATE_PATIENCE).await?;
    context.identity.verify(credential, payload).await
}

/// A turn at a gate, if it comes within this time.
async fn turn_at(gate: &Semaphore, patience: Duration) -> Result<SemaphorePermit<'_>, IdentityError> {
    let crowded = || IdentityError::Unavailable("too many wait to be checked".to_owned());
    let turn = tokio::time::timeout(patience, gate.acquire()).await;
    turn.map_err(|_| crowded())?.map_err(|_| crowded())
}

impl From<IdentityError> for Denial {
    /// Only that nobody can tell now is said: the same proof may be good later.
    fn from(e: IdentityError) -> Denial {
        match e {
            IdentityError::Unavailable(_) => {
                Denial::new(StatusCode::SERVICE_UNAVAILABLE, "cannot check who speaks; try again")
            }
            _ => Denial::unproved(),
        }
    }
}

/// Root and the daemon's own user.
pub(crate) fn is_own(uid: UserId) -> bool {
    is_root_or(own_uid(), uid)
}

fn is_root_or(own: UserId, uid: UserId) -> bool {
    uid.0 == 0 || uid == own
}

/// Refuses whoever is no administrator.
pub(crate) async fn administers(context: &Context, uid: UserId) -> Result<(), Denial> {
    if is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, "a request was refused: no administrator");
    Err(Denial::new(StatusCode::FORBIDDEN, "only administrators may do that"))
}

/// Refuses whoever neither administers nor is one of Slurm's operators.
pub(crate) async fn oversees(context: &Context, uid: UserId) -> Result<(), Denial> {
    let is_operator = name_of(uid).await.is_some_and(|name| context.doors.is_operator(&name));
    if is_operator || is_admin(context, uid).await {
        return Ok(());
    }
    tracing::warn!(%uid, "a request was refused: neither administrator nor operator");
    let what = "only administrators and Slurm's operators may end other users' sessions";
    Err(Denial::new(StatusCode::FORBIDDEN, what))
}

/// Root, the daemon's own user, and those whom the configuration names.
async fn is_admin(context: &Context, uid: UserId) -> bool {
    if is_own(uid) {
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
pub(crate) async fn owns(
    context: &Context,
    uid: UserId,
    owners: Option<BTreeSet<&str>>,
) -> Result<(), Denial> {
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
    Err(Denial::new(StatusCode::FORBIDDEN, what))
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
        let doors = crate::doors::Doors::default();
        let patience = Duration::from_millis(50);
        let mut inside = Vec::new();
        while let Ok(turn) = turn_at(&doors.people, patience).await {
            inside.push(turn);
            assert!(inside.len() <= 4, "each is a process");
        }
        let denial = Denial::from(turn_at(&doors.people, patience).await.unwrap_err());
        assert_eq!(denial.into_response().status(), StatusCode::SERVICE_UNAVAILABLE, "the proof may be good");
        assert!(turn_at(&doors.hellos, patience).await.is_ok(), "agents have a gate of their own");
        inside.pop();
        assert!(turn_at(&doors.people, patience).await.is_ok());
    }
}
