//! The HTTP API: agents, the command line, Prometheus.
//!
//! Reading is open to all who reach the port, as `squeue` is; it shows nothing of a user's command or
//! environment. Agents prove who they are with MUNGE (or a Slurm JWT) and then carry a secret; people who
//! change something prove it with each request.

mod agents;
mod auth;
mod control;
mod profiles;
mod read;
mod rounds;
mod standby;

pub use standby::standby_router;

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};

use crate::api::{ErrorBody, routes};
use crate::daemon::context::Context;
use crate::store::StoreError;

/// Largest body of a request. A report of 256 events takes less than 64 KiB.
const MAX_BODY: usize = 256 * 1024;

/// All routes.
pub fn router(context: Arc<Context>) -> Router {
    Router::new()
        .route(routes::HEALTHZ, get(read::healthz))
        .route(routes::METRICS, get(read::numbers))
        .merge(api(context.clone()))
        .fallback(|| async { Denial::new(StatusCode::NOT_FOUND, "no such resource") })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(context)
}

/// What only the daemon that leads answers.
fn api(context: Arc<Context>) -> Router<Arc<Context>> {
    Router::new()
        .route(routes::STATUS, get(read::status))
        .route(routes::ROUND, get(read::round))
        .route(routes::ROUNDS, get(rounds::list))
        .route(routes::ROUND_AT, get(rounds::at))
        .route(routes::PLAN, get(read::plan))
        .route(routes::GENERATIONS, get(read::generations))
        .route(routes::PROFILES, get(profiles::list))
        .route(routes::PROFILE_HISTORY, get(profiles::history))
        .route(routes::FORGET_PROFILES, post(profiles::forget))
        .route(
            routes::IMPORT_PROFILES,
            post(profiles::import).layer(DefaultBodyLimit::max(profiles::MAX_IMPORT_BODY)),
        )
        .route(routes::CONTROL, post(control::control))
        .route(routes::AGENT_HELLO, post(agents::hello))
        .route(routes::AGENT_POLL, post(agents::poll))
        .route(routes::AGENT_REPORT, post(agents::report))
        .route_layer(middleware::from_fn_with_state(context, standby::leader_only))
}

/// A refused request.
#[derive(Debug)]
pub struct Denial {
    status: StatusCode,
    what: String,
}

impl Denial {
    /// A refusal with a reason that the caller may know.
    pub fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Denial { status, what: what.into() }
    }

    /// 401, and no word about why: that would be information.
    pub fn unproved() -> Self {
        Denial::new(StatusCode::UNAUTHORIZED, "not proved")
    }
}

impl IntoResponse for Denial {
    fn into_response(self) -> Response {
        (self.status, axum::Json(ErrorBody { error: self.what })).into_response()
    }
}

impl From<QueryRejection> for Denial {
    fn from(e: QueryRejection) -> Self {
        Denial::new(e.status(), e.body_text())
    }
}

impl From<PathRejection> for Denial {
    fn from(e: PathRejection) -> Self {
        Denial::new(e.status(), e.body_text())
    }
}

impl From<StoreError> for Denial {
    /// Whatever the store says, the answer may be had later.
    fn from(e: StoreError) -> Self {
        Denial::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string())
    }
}

impl From<JsonRejection> for Denial {
    fn from(e: JsonRejection) -> Self {
        Denial::new(e.status(), e.body_text())
    }
}

/// A JSON body whose rejection is a [`Denial`].
pub struct Body<T>(pub T);

impl<S, T> FromRequest<S> for Body<T>
where
    S: Send + Sync,
    axum::Json<T>: FromRequest<S, Rejection = JsonRejection>,
{
    type Rejection = Denial;

    async fn from_request(request: Request, state: &S) -> Result<Self, Denial> {
        let axum::Json(value) = axum::Json::<T>::from_request(request, state).await?;
        Ok(Body(value))
    }
}
