//! The answers of a daemon that stands by, or that may have lost the lead.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::route_access::may_read_metrics;
use super::{RequestDenial, openapi};
use crate::context::DaemonContext;
use crate::metrics;
use crate::metrics::DaemonMetrics;
use infill_api::routes;
use infill_model::MetricsAccess;

/// The routes of a daemon that stands by: its health, its metrics, and the description of the routes. All
/// others refer to the leading daemon.
pub(crate) fn standby_router(readers: MetricsAccess) -> Router {
    let metrics = DaemonMetrics::default();
    metrics.leading.set(0);
    let text = metrics.encode_text();
    let get_metrics = get(async move |request: Request| {
        may_read_metrics(readers, &request).map(|()| ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
    });
    Router::new()
        .route(routes::HEALTHZ, get(|| async { "standby\n" }))
        .route(routes::METRICS, get_metrics)
        .route(routes::OPENAPI, get(openapi::get_document))
        .fallback(|| async { standby_denial() })
        // Each answer closes its connection. Otherwise later requests on it would still come to this router.
        .layer(map_response(|mut response: Response| async {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response
        }))
}

/// Refuses requests while the daemon may have lost the lead, even if it lost the lead during the request.
pub(crate) async fn leader_only(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
    next: Next,
) -> Response {
    if !context.leadership.may_act() {
        return standby_denial().into_response();
    }
    let answer = next.run(request).await;
    if context.leadership.may_act() { answer } else { standby_denial().into_response() }
}

fn standby_denial() -> RequestDenial {
    RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "this daemon is on standby: another one leads")
}
