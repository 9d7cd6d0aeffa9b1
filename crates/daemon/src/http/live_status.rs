//! What readers see of the present, and what anybody may see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
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
use infill_api::{DaemonStatus, GenerationsView, RoundView, SCHEMA, StatusQuery};
use infill_model::{JobId, PrivateData, UnixTime, clock::now};

use super::RequestDenial;
use super::concurrency::internal_error;
use super::route_access::may_read_metrics;

/// How many times as long as a plan took it is until the next one: whoever asks for one after the other has a
/// fifth of a processor at most.
const PAUSE_PER_COST: u32 = 4;

/// The longest that somebody waits for that.
const MAX_PLAN_PAUSE: Duration = Duration::from_secs(5);

/// A round older than so many poll intervals means that the daemon is not well.
const STALE_ROUNDS: f64 = 10.0;

/// `GET /healthz`: 200 while rounds go on.
pub(crate) async fn get_health(
    State(context): State<Arc<DaemonContext>>,
) -> Result<&'static str, RequestDenial> {
    let state = context.lock_state();
    let last = state.round.as_ref().map_or(state.started_at, |r| r.report.at);
    // A minute is allowed in any case: a busy slurmctld may be slow.
    let stale = (STALE_ROUNDS * context.config.daemon.poll_interval_secs).max(60.0);
    if now().secs_since(last) > stale {
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

/// `GET /v1/status`; `?nodes=false`: without the nodes; `?shared=true`: made once for all who see the same.
pub(crate) async fn get_status(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Response, RequestDenial> {
    let Query(query) = query?;
    let private = context.doors.private_data();
    let which = if query.nodes { WhichNodes::All } else { WhichNodes::None };
    if !query.shared {
        return Ok(Json(visible_status(&context, &viewer, private, which)).into_response());
    }
    let (at, stand) = status_version(&context);
    let answer =
        context.told.statuses.entry_for(at, (query, VisibilityClass::for_reader(&viewer, private), stand));
    let body = answer
        .get_or_try_init(async || {
            serde_json::to_vec(&visible_status(&context, &viewer, private, which)).map(Bytes::from)
        })
        .await
        .map_err(internal_error)?;
    Ok(([(CONTENT_TYPE, "application/json")], body.clone()).into_response())
}

/// When something was last found out or planned, and what else a status must show at once.
fn status_version(context: &DaemonContext) -> (UnixTime, StatusVersion) {
    let looked = *context.told.looked.borrow();
    let state = context.lock_state();
    let round = state.round.as_ref().map_or(UnixTime(0), |round| round.report.at);
    (
        looked.max(round),
        StatusVersion { round, control: state.control, problems: state.health.problem_sentences() },
    )
}

/// What a reader may see of the present.
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

/// What a reader may see of a round.
pub(crate) fn visible_round(context: &DaemonContext, viewer: &ApiReader, round: RoundView) -> RoundView {
    // Whose jobs they were then: their numbers may be others' by now.
    let owners = round.report.owners.clone();
    let owner = |job| owners.get(&job).copied();
    RedactionFilter::new(viewer, context.doors.private_data(), &owner).redact_round(round)
}

/// `GET /v1/plan`: a round on the last trusted snapshot, computed now and not carried out.
pub(crate) async fn get_plan(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
) -> Result<Json<RoundView>, RequestDenial> {
    let turn = context.doors.planning.clone().try_lock_owned().map_err(|_| {
        RequestDenial::new(StatusCode::TOO_MANY_REQUESTS, "another plan is being computed; try again")
    })?;
    // A reader who hangs up has the plan computed all the same: the rest that follows is due.
    let planned = tokio::spawn(plan_after_pause(context.clone(), turn)).await;
    let view = planned.map_err(internal_error)??;
    Ok(Json(visible_round(&context, &viewer, view)))
}

/// Computes a plan once the last one is long enough ago.
async fn plan_after_pause(
    context: Arc<DaemonContext>,
    mut rested: OwnedMutexGuard<Option<Instant>>,
) -> Result<RoundView, RequestDenial> {
    if let Some(rested) = *rested {
        tokio::time::sleep_until(rested.into()).await;
    }
    let began = Instant::now();
    let question = context.lock_state().round_input(true, now());
    let question = question
        .ok_or_else(|| RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "no trusted snapshot yet"))?;
    let view = rounds::plan_round(&context.doors.planner, context.config.clone(), question).await;
    *rested = Some(Instant::now() + (began.elapsed() * PAUSE_PER_COST).min(MAX_PLAN_PAUSE));
    let mut view = view.map_err(|e| {
        // It names jobs and nodes that the reader may not see.
        tracing::error!("there is no plan to show: {e}");
        RequestDenial::new(StatusCode::INTERNAL_SERVER_ERROR, "the round failed: the daemon's log says why")
    })?;
    view.report.owners = context.lock_state().job_owners(&view.report);
    Ok(view)
}

/// `GET /v1/jobs/{id}/generations`.
pub(crate) async fn list_generations(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    Path(id): Path<u32>,
) -> Result<Json<GenerationsView>, RequestDenial> {
    let job = JobId(id);
    let private = context.doors.private_data();
    let list = GenerationsView { schema: SCHEMA, generations: context.store.list_generations(job).await? };
    let now_there = {
        let state = context.lock_state();
        state.fleet.job_details(job).map(|about| (state.job_owner(job), about.submitted_at))
    };
    let (owner, submitted) = match (now_there, list.generations.last()) {
        (Some((owner, submitted)), _) => (owner, Some(submitted)),
        // The round that led to its last generation says whose it was.
        (None, Some(last)) if !viewer.all && private.jobs => {
            let round = context.store.round_at(last.started_at).await?;
            (round.and_then(|r| r.report.owners.get(&job).copied()), None)
        }
        (None, _) => (None, None),
    };
    let owner_of = |_| owner;
    let sight = RedactionFilter::new(&viewer, private, &owner_of);
    Ok(Json(sight.redact_generations(job, submitted, list)))
}
