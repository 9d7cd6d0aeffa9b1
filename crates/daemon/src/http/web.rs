//! The page: what a browser loads, links to it, and the sessions of those who open one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName};
use axum::response::IntoResponse;

use crate::context::Context;
use crate::passes::{Person, SESSIONS_SETTING};
use infill_api::{Link, LinkRequest, Session, SessionRequest};
use infill_model::clock;
use infill_slurm::identity::name_of;
use infill_store::StoreError;

use super::orders::Order;
use super::{Body, Denial, browsers, random};

/// For so long a browser waits until its session is kept for the next daemon.
const KEEPING: Duration = Duration::from_secs(2);

/// The page loads and asks nobody but this daemon, and stands in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One of the page's files.
fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers: [(HeaderName, &str); 6] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Another version of the daemon has another page.
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    (headers, text)
}

/// `GET /`.
pub(crate) async fn page() -> impl IntoResponse {
    file("text/html; charset=utf-8", include_str!("page/index.html"))
}

/// `GET /page.js`.
pub(crate) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("page/page.js"))
}

/// `GET /page.css`.
pub(crate) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

/// `POST /v1/web/links`.
pub(crate) async fn link(
    State(context): State<Arc<Context>>,
    Order { uid, .. }: Order<LinkRequest>,
) -> Result<Json<Link>, Denial> {
    let (ticket, links) = (random::new_secret()?, &context.doors.links);
    links.admit(&ticket, Person { uid, name: name_of(uid).await }, Instant::now());
    Ok(Json(Link { ticket, lasts_secs: links.lasts().as_secs() }))
}

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
    // The next daemon on this store knows them, too. Where that fails now they ask for a new link then.
    match tokio::time::timeout(KEEPING, keep(&context, now)).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::warn!("a browser's session is not kept: {e}"),
        Err(_) => tracing::warn!("a browser's session is not kept: the store does not answer"),
    }
    Ok(Json(Session { secret, user: person.name, lasts_secs: sessions.lasts().as_secs() }))
}

async fn keep(context: &Context, now: Instant) -> Result<(), StoreError> {
    // The last one to be written has all of them.
    let _turn = context.saving.sessions.lock().await;
    let kept = context.doors.sessions.kept(now, clock::now());
    context.store.put_setting(SESSIONS_SETTING, &kept).await
}
