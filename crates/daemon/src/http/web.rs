//! The page: what a browser loads, and links to it.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;

use crate::context::Context;
use crate::passes::Person;
use infill_api::{Link, LinkRequest};
use infill_slurm::identity::name_of;

use super::orders::Order;
use super::{Denial, random};

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
