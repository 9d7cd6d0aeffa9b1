//! Sessions of browsers: how one begins with a link, and how it ends: by its reader, by an order, or because
//! the account is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use crate::context::Context;
use crate::passes::{Person, SESSIONS_SETTING};
use infill_api::{RevokeRequest, Revoked, Session, SessionRequest};
use infill_model::{UserId, clock};
use infill_slurm::identity::{name_of, uid_of};
use infill_store::StoreError;

use super::orders::Order;
use super::{Body, Denial, auth, browsers, random};

/// For so long somebody waits until sessions are kept for the next daemon.
const KEEPING: Duration = Duration::from_secs(2);

/// How often it is looked whether the accounts are still there. Who is missing twice in a row is gone: a name
/// service that does not answer now is none that has forgotten anybody.
const LOOK: Duration = Duration::from_secs(20 * 60);

/// How often sessions that have ended are struck from the store, if that failed.
const STRIKE: Duration = Duration::from_secs(60);

/// `POST /v1/web/sessions`.
pub(crate) async fn session(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    Body(request): Body<SessionRequest>,
) -> Result<Json<Session>, Denial> {
    browsers::came_by_our_name(&context.config, &headers)?;
    let now = Instant::now();
    let person = context.doors.links.redeem(&request.ticket, now).ok_or_else(Denial::unproved)?;
    let (secret, sessions) = (random::new_secret()?, &context.doors.sessions);
    tracing::info!(uid = %person.uid, "a browser reads");
    sessions.admit(&secret, person.clone(), now);
    // Where they are not kept they ask for a new link of the next daemon.
    let _ = keep_soon(&context).await;
    Ok(Json(Session { secret, user: person.name, lasts_secs: sessions.lasts().as_secs() }))
}

/// `POST /v1/web/logout`: ends the session whose secret is shown.
pub(crate) async fn log_out(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
) -> Result<StatusCode, Denial> {
    let person = context.doors.sessions.redeem(&auth::bearer(&headers)?, Instant::now());
    let person = person.ok_or_else(Denial::unproved)?;
    tracing::info!(uid = %person.uid, "a browser reads no more");
    ended(&context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/web/revoke`: ends all sessions of a user, and the links that were not opened yet.
pub(crate) async fn revoke(
    State(context): State<Arc<Context>>,
    Order { uid, order: request, .. }: Order<RevokeRequest>,
) -> Result<Json<Revoked>, Denial> {
    let whose = match &request.user {
        None => Some(uid),
        Some(name) => uid_of(name).await,
    };
    if whose != Some(uid) {
        auth::oversees(&context, uid).await?;
    }
    // By the name as well: the account may be gone, or have another number now.
    let name = request.user.as_deref();
    let is_theirs = |person: &Person| {
        Some(person.uid) == whose || name.is_some_and(|name| person.name.as_deref() == Some(name))
    };
    context.doors.links.end(is_theirs);
    let sessions = context.doors.sessions.end(is_theirs);
    tracing::info!(%uid, user = ?request.user, sessions, "sessions of browsers were ended");
    ended(&context).await?;
    Ok(Json(Revoked { sessions: u32::try_from(sessions).unwrap_or(u32::MAX) }))
}

/// Strikes what has ended from the store.
async fn ended(context: &Context) -> Result<(), Denial> {
    context.doors.unstruck.store(true, Ordering::Relaxed);
    let what = "the sessions have ended; the store does not answer, and until it does a daemon that starts would know them";
    let denied = |()| Denial::new(StatusCode::SERVICE_UNAVAILABLE, what);
    keep_soon(context).await.map_err(denied)
}

/// Keeps the sessions for the next daemon on this store, if that can be done soon.
async fn keep_soon(context: &Context) -> Result<(), ()> {
    match tokio::time::timeout(KEEPING, keep(context)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(e)) => tracing::warn!("the sessions of browsers are not kept: {e}"),
        Err(_) => tracing::warn!("the sessions of browsers are not kept: the store does not answer"),
    }
    Err(())
}

async fn keep(context: &Context) -> Result<(), StoreError> {
    let _turn = context.saving.sessions.lock().await;
    let kept = context.doors.sessions.kept(Instant::now(), clock::now());
    context.store.put_setting(SESSIONS_SETTING, &kept).await?;
    context.doors.unstruck.store(false, Ordering::Relaxed);
    Ok(())
}

/// Ends the sessions of accounts that are gone, and strikes what has ended, for as long as the daemon runs.
pub(crate) async fn watch(context: Arc<Context>) {
    let mut missing = BTreeSet::new();
    let mut looked = Instant::now();
    loop {
        tokio::time::sleep(STRIKE).await;
        if looked.elapsed() >= LOOK {
            missing = look(&context, &missing, name_of).await;
            looked = Instant::now();
        }
        if context.doors.unstruck.load(Ordering::Relaxed) {
            // It is tried again.
            let _ = keep_soon(&context).await;
        }
    }
}

/// Looks once whether the accounts of those who read are there, by what tells the login name of a user.
/// `missing` were not at the last look; those who are not now are returned.
pub(crate) async fn look(
    context: &Context,
    missing: &BTreeSet<UserId>,
    lookup: impl AsyncFn(UserId) -> Option<String>,
) -> BTreeSet<UserId> {
    let mut still = BTreeSet::new();
    for person in context.doors.sessions.people(Instant::now()) {
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
        let is_theirs = |other: &Person| *other == person;
        context.doors.links.end(is_theirs);
        context.doors.sessions.end(is_theirs);
        context.doors.unstruck.store(true, Ordering::Relaxed);
        tracing::info!(uid = %person.uid, "the account is gone, and its sessions of browsers have ended");
    }
    still
}
