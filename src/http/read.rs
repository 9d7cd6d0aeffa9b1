//! What anybody may read.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::api::{Generations, RoundView, SCHEMA, Status};
use crate::clock::now;
use crate::daemon::context::Context;
use crate::daemon::{metrics, rounds, views};
use crate::model::JobId;

use super::Denial;

/// A round older than so many poll intervals means that the daemon is not well.
const STALE_ROUNDS: f64 = 10.0;

/// `GET /healthz`: 200 while rounds go on.
pub async fn healthz(State(context): State<Arc<Context>>) -> Result<&'static str, Denial> {
    let state = context.state();
    let last = state.round.as_ref().map_or(state.started_at, |r| r.report.at);
    // A minute is allowed in any case: a busy slurmctld may be slow.
    let stale = (STALE_ROUNDS * context.config.daemon.poll_interval_secs).max(60.0);
    if now().secs_since(last) > stale {
        return Err(Denial::new(StatusCode::SERVICE_UNAVAILABLE, format!("no round since {last}")));
    }
    Ok("ok\n")
}

/// `GET /metrics`.
pub async fn numbers(State(context): State<Arc<Context>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], context.metrics.text())
}

/// `GET /v1/status`.
pub async fn status(State(context): State<Arc<Context>>) -> Json<Status> {
    Json(views::status(&context.state(), now()))
}

/// `GET /v1/round`: the last round.
pub async fn round(State(context): State<Arc<Context>>) -> Result<Json<RoundView>, Denial> {
    let round = context.state().round.clone();
    round.map(Json).ok_or_else(|| Denial::new(StatusCode::NOT_FOUND, "no round yet"))
}

/// `GET /v1/plan`: a round on the last trusted snapshot, computed now and not carried out.
pub async fn plan(State(context): State<Arc<Context>>) -> Result<Json<RoundView>, Denial> {
    let busy = |_| Denial::new(StatusCode::TOO_MANY_REQUESTS, "another plan is being computed; try again");
    let _turn = context.planning.try_lock().map_err(busy)?;
    let question = context.state().question(true, now());
    let none = || Denial::new(StatusCode::SERVICE_UNAVAILABLE, "no trusted snapshot yet");
    let question = question.ok_or_else(none)?;
    let view = rounds::answer(context.config.clone(), question).await;
    view.map(Json).map_err(|e| Denial::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
}

/// `GET /v1/jobs/{id}/generations`.
pub async fn generations(
    State(context): State<Arc<Context>>,
    Path(id): Path<u32>,
) -> Result<Json<Generations>, Denial> {
    let list = context.store.generations(JobId(id)).await?;
    Ok(Json(Generations { schema: SCHEMA, generations: list }))
}
