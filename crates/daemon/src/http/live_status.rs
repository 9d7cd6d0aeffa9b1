//! The present state for readers, and the health and metrics that need no proof of identity.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use tokio::sync::OwnedMutexGuard;

use crate::context::DaemonContext;
use crate::redaction::{ApiReader, RedactionFilter, VisibilityClass};
use crate::response_cache::StatusVersion;
use crate::views::WhichNodes;
use crate::{metrics, rounds, views};
use infill_api::{DaemonStatus, GenerationsView, RoundView, SCHEMA_VERSION, StatusQuery};
use infill_model::{JobId, PrivateData, UnixTime, clock::now};

use super::RequestDenial;
use super::concurrency::internal_error;
use super::route_access::may_read_metrics;

/// The pause after a plan in units of its duration. So readers who request plans in a loop use at most a
/// fifth of a processor.
const PAUSE_PER_PLAN: u32 = 4;

/// Longest pause after a plan.
const MAX_PLAN_PAUSE: Duration = Duration::from_secs(5);

/// The daemon counts as unhealthy when the last round is older than this many poll intervals.
const STALE_ROUNDS: f64 = 10.0;

/// `GET /healthz`: 200 while rounds go on.
pub(crate) async fn get_health(
    State(context): State<Arc<DaemonContext>>,
) -> Result<&'static str, RequestDenial> {
    let state = context.lock_state();
    let last = state.round.as_ref().map_or(state.started_at, |round| round.report.at);
    // At least a minute is allowed, because a busy slurmctld may be slow.
    let max_age = (STALE_ROUNDS * context.config.daemon.poll_interval_secs).max(60.0);
    if now().secs_since(last) > max_age {
        return Err(RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, format!("no round since {last}")));
    }
    Ok("ok\n")
}

/// `GET /metrics`.
pub(crate) async fn get_metrics(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
) -> Result<impl IntoResponse, RequestDenial> {
    may_read_metrics(context.config.http.metrics, &request)?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], context.metrics.encode_text()))
}

/// `GET /v1/status`. With `?nodes=false` it has no nodes. With `?shared=true` the answer may be one that was
/// made for another reader who may see the same.
pub(crate) async fn get_status(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Response, RequestDenial> {
    let Query(query) = query?;
    let private = context.access.private_data();
    let which = if query.nodes { WhichNodes::All } else { WhichNodes::None };
    if !query.shared {
        return Ok(Json(visible_status(&context, &viewer, private, which)).into_response());
    }
    let (at, version) = status_version(&context);
    let key = (query, VisibilityClass::for_reader(&viewer, private), version);
    let answer = context.response_cache.statuses.entry_for(at, key);
    let body = answer
        .get_or_try_init(async || {
            serde_json::to_vec(&visible_status(&context, &viewer, private, which)).map(Bytes::from)
        })
        .await
        .map_err(internal_error)?;
    Ok(([(CONTENT_TYPE, "application/json")], body.clone()).into_response())
}

/// When the last snapshot was read or the last round planned, and what else a status must show at once.
fn status_version(context: &DaemonContext) -> (UnixTime, StatusVersion) {
    let snapshot_at = *context.response_cache.snapshot_times.borrow();
    let state = context.lock_state();
    let round = state.round.as_ref().map_or(UnixTime(0), |round| round.report.at);
    let problems = state.health.problem_sentences();
    (snapshot_at.max(round), StatusVersion { round, control: state.control.state, problems })
}

/// The present status with everything removed that the reader may not see.
pub(crate) fn visible_status(
    context: &DaemonContext,
    viewer: &ApiReader,
    private: PrivateData,
    which: WhichNodes<'_>,
) -> DaemonStatus {
    let state = context.lock_state();
    let status = views::status_view(&state, which, now());
    RedactionFilter::new(viewer, private, &|job| state.job_owner(job)).redact_status(status)
}

/// `GET /v1/round`: the last round.
pub(crate) async fn get_round(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
) -> Result<Json<RoundView>, RequestDenial> {
    let round = context.lock_state().round.clone();
    let round = round.ok_or_else(|| RequestDenial::new(StatusCode::NOT_FOUND, "no round yet"))?;
    Ok(Json(visible_round(&context, &viewer, round)))
}

/// A round with everything removed that the reader may not see.
pub(crate) fn visible_round(context: &DaemonContext, viewer: &ApiReader, round: RoundView) -> RoundView {
    // The owners at that time count, because Slurm may have given the same numbers to other jobs since.
    let owners = round.report.owners.clone();
    let private = context.access.private_data();
    RedactionFilter::new(viewer, private, &|job| owners.get(&job).copied()).redact_round(round)
}

/// `GET /v1/plan`: plans a round on the last trusted snapshot, without carrying it out.
pub(crate) async fn get_plan(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
) -> Result<Json<RoundView>, RequestDenial> {
    let lock = context.access.planning.clone().try_lock_owned().map_err(|_| {
        RequestDenial::new(StatusCode::TOO_MANY_REQUESTS, "another plan is being computed; try again")
    })?;
    // The plan is computed even if the reader hangs up, so that the pause after it applies.
    let planned = tokio::spawn(plan_after_pause(context.clone(), lock)).await;
    let view = planned.map_err(internal_error)??;
    Ok(Json(visible_round(&context, &viewer, view)))
}

/// Computes a plan after the pause that follows the last one.
async fn plan_after_pause(
    context: Arc<DaemonContext>,
    mut next_start: OwnedMutexGuard<Option<Instant>>,
) -> Result<RoundView, RequestDenial> {
    if let Some(next_start) = *next_start {
        tokio::time::sleep_until(next_start.into()).await;
    }
    let began = Instant::now();
    let input = context.lock_state().round_input(true, now());
    let input = input
        .ok_or_else(|| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "no trusted snapshot yet"))?;
    let view = rounds::plan_round(&context.access.planner, context.config.clone(), input).await;
    *next_start = Some(Instant::now() + (began.elapsed() * PAUSE_PER_PLAN).min(MAX_PLAN_PAUSE));
    let mut view = view.map_err(|e| {
        // The error may name jobs and nodes that the reader may not see, so it is only logged.
        tracing::error!("cannot compute a plan for a reader: {e}");
        RequestDenial::new(StatusCode::INTERNAL_SERVER_ERROR, "the round failed: see the daemon's log")
    })?;
    view.report.owners = context.lock_state().job_owners(&view.report);
    Ok(view)
}

/// `GET /v1/jobs/{id}/generations`.
pub(crate) async fn list_generations(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    id: Result<Path<u32>, PathRejection>,
) -> Result<Json<GenerationsView>, RequestDenial> {
    let Path(id) = id?;
    let job = JobId(id);
    let private = context.access.private_data();
    let list =
        GenerationsView { schema: SCHEMA_VERSION, generations: context.store.list_generations(job).await? };
    let present = {
        let state = context.lock_state();
        state.fleet.job_details(job).map(|details| (state.job_owner(job), details.submitted_at))
    };
    let (owner, submitted) = match (present, list.generations.last()) {
        (Some((owner, submitted)), _) => (owner, Some(submitted)),
        // The round that led to the job's last generation names its owner.
        (None, Some(last)) if !viewer.all && private.jobs => {
            let round = context.store.round_at(last.started_at).await?;
            (round.and_then(|round| round.report.owners.get(&job).copied()), None)
        }
        (None, _) => (None, None),
    };
    let view = RedactionFilter::new(&viewer, private, &|_| owner).redact_generations(job, submitted, list);
    Ok(Json(view))
}
