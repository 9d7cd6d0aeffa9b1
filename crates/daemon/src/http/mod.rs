//! The HTTP API: agents, the command line, Prometheus.
//!
//! - Readers prove their identity with MUNGE or a Slurm JWT, unless the site opens reading to everyone. They
//!   see what Slurm's `PrivateData` allows. No reader sees a user's command or environment.
//! - Agents prove their identity in the same way. Afterwards they sign with a session key, or send a secret.
//! - Requests that change something carry a proof each.
//!
//! The table of [`routes`] lists all paths and who may use them.

mod agents;
mod auth;
mod browser_guard;
pub(crate) mod browser_sessions;
mod collectives;
mod concurrency;
mod connection_limit;
mod connection_table;
mod control;
mod day_summary;
mod explain;
mod extended_jobs;
mod figures;
mod forget_user;
mod history;
mod job_lanes;
mod live_status;
mod node_history;
mod openapi;
mod presented_credential;
mod profiles;
pub(crate) mod proxy;
mod random;
mod reader_auth;
mod report;
mod rounds;
mod route_access;
mod routes;
mod sealed_sessions;
mod signed_requests;
mod standby;
mod stream;
#[cfg(test)]
mod tests;
mod timeline;
mod web_page;

pub use connection_table::ConnectionLimits;
pub(crate) use standby::standby_router;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::{Router, middleware};
use chrono::FixedOffset;
use tokio::net::TcpListener;

use crate::context::DaemonContext;
use crate::tls::TlsFiles;
use infill_api::ErrorBody;
use infill_model::UnixTime;
use infill_store::StoreError;

/// Largest body of a request. A report of 256 events takes less than 64 KiB.
const MAX_BODY: usize = 256 * 1024;

/// The last second of the year 9999. Later times are refused.
const LATEST_TIME: UnixTime = UnixTime(253_402_300_799);

/// Largest offset of a time zone from UTC, seconds.
const FURTHEST_ZONE_SECS: u32 = 14 * 3600;

/// Longest wait for a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// The router with all routes.
pub fn build_router(context: Arc<DaemonContext>) -> Router {
    routes::all_routes(&context)
        .fallback(|| async { RequestDenial::new(StatusCode::NOT_FOUND, "no such resource") })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(context)
}

/// Serves plain HTTP on a listener until `stop`, within the limits on connections.
///
/// # Errors
/// When the server ends by itself.
pub async fn serve_plain(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    serve_with_tls(listener, router, limits, None, stop).await
}

/// Serves HTTP until `stop`, in TLS where there is a certificate.
pub(crate) async fn serve_with_tls(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    tls: Option<Arc<TlsFiles>>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = router.layer(middleware::from_fn(connection_limit::track_request));
    let service = router.into_make_service_with_connect_info::<connection_limit::ConnectionHandle>();
    axum::serve(connection_limit::LimitedListener::new(listener, limits, tls), service)
        .with_graceful_shutdown(stop)
        .await
}

/// A refused request.
#[derive(Debug)]
pub(crate) struct RequestDenial {
    status: StatusCode,
    what: String,
    /// When the client may try again, for the header `Retry-After`.
    after: Option<Duration>,
}

impl RequestDenial {
    /// A refusal with a reason that the client may see.
    pub fn new(status: StatusCode, what: impl Into<String>) -> Self {
        RequestDenial { status, what: what.into(), after: None }
    }

    /// 429: the client asks too often, and may try again after this time.
    pub fn too_often(what: impl Into<String>, after: Duration) -> Self {
        RequestDenial { after: Some(after), ..RequestDenial::new(StatusCode::TOO_MANY_REQUESTS, what) }
    }

    /// 401 without a reason, because the reason would help an attacker.
    pub fn not_authenticated() -> Self {
        RequestDenial::new(StatusCode::UNAUTHORIZED, "not proved")
    }
}

impl IntoResponse for RequestDenial {
    fn into_response(self) -> Response {
        // Whole seconds, rounded up, and at least one.
        let after = self.after.map(|after| [(RETRY_AFTER, after.as_secs().saturating_add(1).to_string())]);
        (self.status, after.map(AppendHeaders), axum::Json(ErrorBody { error: self.what })).into_response()
    }
}

impl From<QueryRejection> for RequestDenial {
    fn from(e: QueryRejection) -> Self {
        RequestDenial::new(e.status(), e.body_text())
    }
}

impl From<PathRejection> for RequestDenial {
    fn from(e: PathRejection) -> Self {
        RequestDenial::new(e.status(), e.body_text())
    }
}

impl From<StoreError> for RequestDenial {
    /// A failure of the store may pass, so the client may try again later.
    fn from(e: StoreError) -> Self {
        RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string())
    }
}

impl From<JsonRejection> for RequestDenial {
    fn from(e: JsonRejection) -> Self {
        RequestDenial::new(e.status(), e.body_text())
    }
}

/// Refuses a stretch of time that is empty, longer than `longest` seconds, or outside the years 1970 to 9999.
fn check_span(from: UnixTime, to: UnixTime, longest: i64) -> Result<(), RequestDenial> {
    let secs = to.0.saturating_sub(from.0);
    if (1..=longest).contains(&secs) && from.0 >= 0 && to <= LATEST_TIME {
        return Ok(());
    }
    let what = format!("from, to: expected 1 to {longest} seconds in the years 1970 to 9999, not {secs}");
    Err(RequestDenial::new(StatusCode::BAD_REQUEST, what))
}

/// The time zone that is this many seconds ahead of UTC.
fn parse_zone(secs: i64) -> Result<FixedOffset, RequestDenial> {
    let in_range = i32::try_from(secs).ok().filter(|secs| secs.unsigned_abs() <= FURTHEST_ZONE_SECS);
    in_range.and_then(FixedOffset::east_opt).ok_or_else(|| {
        let what = format!("zone: expected at most {FURTHEST_ZONE_SECS} seconds, not {secs}");
        RequestDenial::new(StatusCode::BAD_REQUEST, what)
    })
}

/// A JSON body whose rejection is a [`RequestDenial`].
pub(crate) struct JsonBody<T>(pub T);

impl<S, T> FromRequest<S> for JsonBody<T>
where
    S: Send + Sync,
    axum::Json<T>: FromRequest<S, Rejection = JsonRejection>,
{
    type Rejection = RequestDenial;

    async fn from_request(request: Request, state: &S) -> Result<Self, RequestDenial> {
        let guard = request.extensions().get::<Arc<connection_limit::RequestGuard>>().cloned();
        let body = read_body(BODY_TIMEOUT, request, state).await?;
        if let Some(guard) = guard {
            guard.mark_received();
        }
        Ok(JsonBody(body))
    }
}

/// Reads a request's body, if it arrives before the timeout.
async fn read_body<T, S>(timeout: Duration, request: Request, state: &S) -> Result<T, RequestDenial>
where
    S: Send + Sync,
    axum::Json<T>: FromRequest<S, Rejection = JsonRejection>,
{
    let body = tokio::time::timeout(timeout, axum::Json::<T>::from_request(request, state)).await;
    let axum::Json(value) = body.map_err(|_| body_timeout())??;
    Ok(value)
}

/// 408: the body of a request did not arrive in time.
fn body_timeout() -> RequestDenial {
    RequestDenial::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not arrive in time")
}

#[cfg(test)]
mod body_timeouts {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_arrive_is_refused() {
        async fn echo_number(request: Request) -> Result<String, RequestDenial> {
            let number = read_body::<u32, _>(Duration::from_millis(50), request, &()).await?;
            Ok(number.to_string())
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", axum::routing::post(echo_number));
        tokio::spawn(async move { axum::serve(listener, router).await });
        for (body, expected) in [("12", "HTTP/1.1 200 "), ("1", "HTTP/1.1 408 ")] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let head =
                "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n";
            client.write_all(format!("{head}Content-Length: 2\r\n\r\n{body}").as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(expected), "{answer}");
        }
    }
}
