//! The web page: its files, and links to it.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;

use crate::context::DaemonContext;
use crate::session_store::AuthenticatedUser;
use infill_api::{LinkRequest, WebLink};
use infill_slurm::identity::name_of;

use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, random};

/// The page loads from and sends to this daemon alone, and no other page may frame it.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page's script: its files one after the other, so that the page is there after one request.
const SCRIPT: &str = concat!(
    include_str!("page/script/base.js"),
    include_str!("page/script/requests.js"),
    include_str!("page/script/map.js"),
    include_str!("page/script/drawing.js"),
    include_str!("page/script/summary.js"),
    include_str!("page/script/charts.js"),
    include_str!("page/script/jobs.js"),
    include_str!("page/script/detail.js"),
    include_str!("page/script/link.js"),
    include_str!("page/script/main.js"),
);

/// One of the page's files.
fn page_file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers: [(HeaderName, &str); 6] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Another version of the daemon may have another page.
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    (headers, text)
}

/// `GET /`.
pub(crate) async fn get_page() -> impl IntoResponse {
    page_file("text/html; charset=utf-8", include_str!("page/index.html"))
}

/// `GET /page.js`.
pub(crate) async fn get_script() -> impl IntoResponse {
    page_file("text/javascript; charset=utf-8", SCRIPT)
}

/// `GET /page.css`.
pub(crate) async fn get_style() -> impl IntoResponse {
    page_file("text/css; charset=utf-8", include_str!("page/page.css"))
}

/// `POST /v1/web/links`.
pub(crate) async fn create_link(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, .. }: VerifiedRequest<LinkRequest>,
) -> Result<Json<WebLink>, RequestDenial> {
    let ticket = random::new_secret()?;
    let links = &context.access.links;
    links.add_session(&ticket, AuthenticatedUser { uid, name: name_of(uid).await }, Instant::now());
    Ok(Json(WebLink { ticket, lasts_secs: links.lifetime().as_secs() }))
}
