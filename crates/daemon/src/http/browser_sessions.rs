//! Sessions of browsers: how one begins with a link, and how it ends: by its reader, by an order, or because
//! the account is gone.

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
use infill_slurm::identity::{name_of, uid_of};
use infill_store::StoreError;

use super::signed_requests::VerifiedOrder;
use super::{JsonBody, RequestDenial, auth, browser_guard, random};

/// For so long somebody waits until sessions are kept for the next daemon.
const SAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How often it is looked whether the accounts are still there. Who is missing twice in a row is gone: a name
/// service that does not answer now is none that has forgotten anybody.
const ACCOUNT_CHECK_INTERVAL: Duration = Duration::from_secs(20 * 60);

/// How often sessions that have ended are struck from the store, if that failed.
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
        .doors
        .links
        .redeem_secret(&request.ticket, now)
        .ok_or_else(RequestDenial::not_authenticated)?;
    let secret = random::new_secret()?;
    let sessions = &context.doors.sessions;
    tracing::info!(uid = %person.uid, "a browser reads");
    sessions.add_session(&secret, person.clone(), now);
    // Where they are not kept they ask for a new link of the next daemon.
    let _ = try_save(&context).await;
    Ok(Json(WebSession { secret, user: person.name, lasts_secs: sessions.lifetime().as_secs() }))
}

/// `POST /v1/web/logout`: ends the session whose secret is shown.
pub(crate) async fn log_out(
    State(context): State<Arc<DaemonContext>>,
    headers: HeaderMap,
) -> Result<StatusCode, RequestDenial> {
    let person = context.doors.sessions.redeem_secret(&auth::bearer_secret(&headers)?, Instant::now());
    let person = person.ok_or_else(RequestDenial::not_authenticated)?;
    tracing::info!(uid = %person.uid, "a browser reads no more");
    save_ended(&context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/web/revoke`: ends all sessions of a user, and the links that were not opened yet.
pub(crate) async fn revoke_sessions(
    State(context): State<Arc<DaemonContext>>,
    VerifiedOrder { uid, order: request, .. }: VerifiedOrder<RevokeRequest>,
) -> Result<Json<RevokedSessions>, RequestDenial> {
    let whose = match &request.user {
        None => Some(uid),
        Some(name) => uid_of(name).await,
    };
    if whose != Some(uid) {
        auth::require_operator(&context, uid).await?;
    }
    // By the name as well: the account may be gone, or have another number now.
    let name = request.user.as_deref();
    let is_theirs = |person: &AuthenticatedUser| {
        Some(person.uid) == whose || name.is_some_and(|name| person.name.as_deref() == Some(name))
    };
    context.doors.links.end_matching(is_theirs);
    let sessions = context.doors.sessions.end_matching(is_theirs);
    tracing::info!(%uid, user = ?request.user, sessions, "sessions of browsers were ended");
    save_ended(&context).await?;
    Ok(Json(RevokedSessions { sessions: u32::try_from(sessions).unwrap_or(u32::MAX) }))
}

/// Strikes what has ended from the store.
async fn save_ended(context: &DaemonContext) -> Result<(), RequestDenial> {
    context.doors.unstruck.store(true, Ordering::Relaxed);
    let what = "the sessions have ended; the store does not answer, and until it does a daemon that starts would know them";
    try_save(context).await.map_err(|()| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, what))
}

/// Keeps the sessions for the next daemon on this store, if that can be done soon.
async fn try_save(context: &DaemonContext) -> Result<(), ()> {
    match tokio::time::timeout(SAVE_TIMEOUT, save_sessions(context)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(e)) => tracing::warn!("the sessions of browsers are not kept: {e}"),
        Err(_) => tracing::warn!("the sessions of browsers are not kept: the store does not answer"),
    }
    Err(())
}

async fn save_sessions(context: &DaemonContext) -> Result<(), StoreError> {
    let _turn = context.saving.sessions.lock().await;
    let kept = context.doors.sessions.serialize_active(Instant::now(), clock::now());
    context.store.put_setting(SESSIONS_SETTING, &kept).await?;
    context.doors.unstruck.store(false, Ordering::Relaxed);
    Ok(())
}

/// Ends the sessions of accounts that are gone, and strikes what has ended, for as long as the daemon runs.
pub(crate) async fn watch_accounts(context: Arc<DaemonContext>) {
    let mut missing = BTreeSet::new();
    let mut looked = Instant::now();
    loop {
        tokio::time::sleep(SAVE_RETRY_INTERVAL).await;
        if looked.elapsed() >= ACCOUNT_CHECK_INTERVAL {
            missing = check_accounts(&context, &missing, name_of).await;
            looked = Instant::now();
        }
        if context.doors.unstruck.load(Ordering::Relaxed) {
            // It is tried again.
            let _ = try_save(&context).await;
        }
    }
}

/// Looks once whether the accounts of those who read are there, by what tells the login name of a user.
/// `missing` were not at the last look; those who are not now are returned.
pub(crate) async fn check_accounts(
    context: &DaemonContext,
    missing: &BTreeSet<UserId>,
    lookup: impl AsyncFn(UserId) -> Option<String>,
) -> BTreeSet<UserId> {
    let mut still = BTreeSet::new();
    for person in context.doors.sessions.active_users(Instant::now()) {
        // Who never had a name cannot lose it.
        let Some(name) = &person.name else { continue };
        // Each is a process.
        let Ok(_turn) = context.doors.gates.people.acquire().await else { break };
        let found = lookup(person.uid).await;
        if found.as_ref() == Some(name) {
            continue;
        }
        if found.is_none() && !missing.contains(&person.uid) {
            still.insert(person.uid);
            continue;
        }
        let is_theirs = |other: &AuthenticatedUser| *other == person;
        context.doors.links.end_matching(is_theirs);
        context.doors.sessions.end_matching(is_theirs);
        context.doors.unstruck.store(true, Ordering::Relaxed);
        tracing::info!(uid = %person.uid, "the account is gone, and its sessions of browsers have ended");
    }
    still
}
