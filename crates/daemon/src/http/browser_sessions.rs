//! Sessions of browsers. A session begins with a link. It ends when its reader logs out, when a command
//! revokes it, or when its account is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use crate::context::DaemonContext;
use crate::session_store::{AuthenticatedUser, SESSIONS_SETTING};
use infill_api::{RevokeRequest, RevokedSessions, SessionRequest, WebSession};
use infill_model::{UserId, clock};
use infill_slurm::identity::{look_up_uid, name_of};
use infill_store::StoreError;

use super::signed_requests::VerifiedRequest;
use super::{JsonBody, RequestDenial, auth, browser_guard, random};

/// Longest time that a request waits until the sessions are saved for the next daemon.
const SAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How often accounts are checked. An account that is missing twice in a row counts as gone. Once is not
/// enough, because the name service may just not answer.
const ACCOUNT_CHECK_INTERVAL: Duration = Duration::from_secs(20 * 60);

/// How often a failed removal of ended sessions from the store is tried again.
const SAVE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// `POST /v1/web/sessions`.
pub(crate) async fn open_session(
    State(context): State<Arc<DaemonContext>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<SessionRequest>,
) -> Result<Json<WebSession>, RequestDenial> {
    browser_guard::check_host_name(&context.config, &headers)?;
    let now = Instant::now();
    let person = context
        .access
        .links
        .redeem_secret(&request.ticket, now)
        .ok_or_else(RequestDenial::not_authenticated)?;
    let secret = random::new_secret()?;
    let sessions = &context.access.sessions;
    tracing::info!(uid = %person.uid, "a browser session begins");
    sessions.add_session(&secret, person.clone(), now);
    // If this fails, the reader needs a new link after the next daemon takes over.
    let _ = try_save(&context).await;
    Ok(Json(WebSession { secret, user: person.name, lasts_secs: sessions.lifetime().as_secs() }))
}

/// `POST /v1/web/logout`: ends the session whose secret the request carries.
pub(crate) async fn log_out(
    State(context): State<Arc<DaemonContext>>,
    headers: HeaderMap,
) -> Result<StatusCode, RequestDenial> {
    let person = context.access.sessions.redeem_secret(&auth::bearer_secret(&headers)?, Instant::now());
    let person = person.ok_or_else(RequestDenial::not_authenticated)?;
    tracing::info!(uid = %person.uid, "a browser session ends");
    save_ended(&context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/web/revoke`: ends all browser sessions of a user, and invalidates links that were not opened
/// yet.
pub(crate) async fn revoke_sessions(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<RevokeRequest>,
) -> Result<Json<RevokedSessions>, RequestDenial> {
    let name = request.user.as_deref();
    let owner = match name {
        None => Ok(Some(uid)),
        Some(name) => look_up_uid(name).await,
    };
    let known_owner = owner.as_ref().ok().copied().flatten();
    if known_owner != Some(uid) {
        auth::require_operator(&context, uid).await?;
    }
    // What has this name ends also without an answer of the name service.
    let sessions = end_sessions_of(&context, known_owner, name).await?;
    tracing::info!(%uid, user = ?request.user, sessions, "browser sessions were revoked");
    owner.map_err(|e| auth::name_service_silent(&e))?;
    Ok(Json(RevokedSessions { sessions: u32::try_from(sessions).unwrap_or(u32::MAX) }))
}

/// Ends a user's sessions, and invalidates links that were not opened yet. Returns the number of sessions.
pub(crate) async fn end_sessions_of(
    context: &DaemonContext,
    owner: Option<UserId>,
    name: Option<&str>,
) -> Result<usize, RequestDenial> {
    context.access.links.end_matching(|person| belongs_to(person, owner, name));
    let sessions = context.access.sessions.end_matching(|person| belongs_to(person, owner, name));
    save_ended(context).await?;
    Ok(sessions)
}

/// Whether a session belongs to this user. The name counts too, because the account may be gone, or have
/// another number now.
fn belongs_to(person: &AuthenticatedUser, owner: Option<UserId>, name: Option<&str>) -> bool {
    Some(person.uid) == owner || name.is_some_and(|name| person.name.as_deref() == Some(name))
}

/// Removes ended sessions from the store.
async fn save_ended(context: &DaemonContext) -> Result<(), RequestDenial> {
    context.access.saved_sessions_stale.store(true, Ordering::Relaxed);
    let what = "the sessions have ended, but the store does not answer: a daemon that starts before it does \
                would accept them again";
    try_save(context).await.map_err(|()| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, what))
}

/// Saves the sessions for the next daemon. Gives up after [`SAVE_TIMEOUT`].
async fn try_save(context: &DaemonContext) -> Result<(), ()> {
    match tokio::time::timeout(SAVE_TIMEOUT, save_sessions(context)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(e)) => tracing::warn!("cannot save the browser sessions: {e}"),
        Err(_) => tracing::warn!("cannot save the browser sessions: the store does not answer"),
    }
    Err(())
}

async fn save_sessions(context: &DaemonContext) -> Result<(), StoreError> {
    let _lock = context.save_locks.sessions.lock().await;
    let saved = context.access.sessions.serialize_active(Instant::now(), clock::now());
    context.store.put_setting(SESSIONS_SETTING, &saved).await?;
    context.access.saved_sessions_stale.store(false, Ordering::Relaxed);
    Ok(())
}

/// Ends the sessions of accounts that are gone, and removes ended sessions from the store. Never returns.
pub(crate) async fn watch_accounts(context: Arc<DaemonContext>) {
    let mut missing = BTreeSet::new();
    let mut last_check = Instant::now();
    loop {
        tokio::time::sleep(SAVE_RETRY_INTERVAL).await;
        if last_check.elapsed() >= ACCOUNT_CHECK_INTERVAL {
            missing = check_accounts(&context, &missing, name_of).await;
            last_check = Instant::now();
        }
        if context.access.saved_sessions_stale.load(Ordering::Relaxed) {
            // A failure is logged, and the next pass tries again.
            let _ = try_save(&context).await;
        }
    }
}

/// Checks once whether the accounts of all browser sessions still exist. `lookup` returns a user's login
/// name. `missing`: the accounts that were missing at the last check. Returns those that are missing now for
/// the first time.
pub(crate) async fn check_accounts(
    context: &DaemonContext,
    missing: &BTreeSet<UserId>,
    lookup: impl AsyncFn(UserId) -> Option<String>,
) -> BTreeSet<UserId> {
    let mut newly_missing = BTreeSet::new();
    for person in context.access.sessions.active_users(Instant::now()) {
        // A user who never had a name cannot lose it.
        let Some(name) = &person.name else { continue };
        // Each look-up is a process.
        let Ok(_permit) = context.access.limits.people.acquire().await else { break };
        let found = lookup(person.uid).await;
        if found.as_ref() == Some(name) {
            continue;
        }
        if found.is_none() && !missing.contains(&person.uid) {
            newly_missing.insert(person.uid);
            continue;
        }
        context.access.links.end_matching(|other| *other == person);
        context.access.sessions.end_matching(|other| *other == person);
        context.access.saved_sessions_stale.store(true, Ordering::Relaxed);
        tracing::info!(uid = %person.uid, "an account is gone, and its browser sessions have ended");
    }
    newly_missing
}
