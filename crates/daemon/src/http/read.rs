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

use crate::context::Context;
use crate::sight::{Class, Sight, Viewer};
use crate::told::Stand;
use crate::views::WhichNodes;
use crate::{metrics, rounds, views};
use infill_api::{Generations, RoundView, SCHEMA, Status, StatusQuery};
use infill_model::{JobId, PrivateData, UnixTime, clock::now};

use super::Denial;
use super::access::may_read_metrics;
use super::turns::broken;

/// How many times as long as a plan took it is until the next one: whoever asks for one after the other has a
/// fifth of a processor at most.
const REST_A_COST: u32 = 4;

/// The longest that somebody waits for that.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A round older than so many poll intervals means that the daemon is not well.
const STALE_ROUNDS: f64 = 10.0;

/// `GET /healthz`: 200 while rounds go on.
pub(crate) async fn healthz(State(context): State<Arc<Context>>) -> Result<&'static str, Denial> {
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
pub(crate) async fn numbers(
    State(context): State<Arc<Context>>,
    request: Request,
) -> Result<impl IntoResponse, Denial> {
    may_read_metrics(context.config.http.metrics, &request)?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], context.metrics.text()))
}

/// `GET /v1/status`; `?nodes=false`: without the nodes; `?shared=true`: made once for all who see the same.
pub(crate) async fn status(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Response, Denial> {
    let Query(query) = query?;
    let private = context.doors.private();
    let which = if query.nodes { WhichNodes::All } else { WhichNodes::None };
    if !query.shared {
        return Ok(Json(seen_by(&context, &viewer, private, which)).into_response());
    }
    let (at, stand) = stand(&context);
    let answer = context.told.statuses.of(at, (query, Class::of(&viewer, private), stand));
    let body = answer
        .get_or_try_init(async || {
            serde_json::to_vec(&seen_by(&context, &viewer, private, which)).map(Bytes::from)
        })
        .await
        .map_err(broken)?;
    Ok(([(CONTENT_TYPE, "application/json")], body.clone()).into_response())
}

/// When something was last found out or planned, and what else a status must show at once.
fn stand(context: &Context) -> (UnixTime, Stand) {
    let looked = *context.told.looked.borrow();
    let state = context.state();
    let round = state.round.as_ref().map_or(UnixTime(0), |round| round.report.at);
    (looked.max(round), Stand { round, control: state.control, problems: state.health.sentences() })
}

/// What a reader may see of the present.
pub(crate) fn seen_by(
    context: &Context,
    viewer: &Viewer,
    private: PrivateData,
    which: WhichNodes<'_>,
) -> Status {
    let state = context.state();
    let status = views::status(&state, which, now());
    Sight::new(viewer, private, &|job| state.owner(job)).status(status)
}

/// `GET /v1/round`: the last round.
pub(crate) async fn round(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
) -> Result<Json<RoundView>, Denial> {
    let round = context.state().round.clone();
    let round = round.ok_or_else(|| Denial::new(StatusCode::NOT_FOUND, "no round yet"))?;
    Ok(Json(shown(&context, &viewer, round)))
}

/// What a reader may see of a round.
pub(crate) fn shown(context: &Context, viewer: &Viewer, round: RoundView) -> RoundView {
    // Whose jobs they were then: their numbers may be others' by now.
    let owners = round.report.owners.clone();
    let owner = |job| owners.get(&job).copied();
    Sight::new(viewer, context.doors.private(), &owner).round(round)
}

/// `GET /v1/plan`: a round on the last trusted snapshot, computed now and not carried out.
pub(crate) async fn plan(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
) -> Result<Json<RoundView>, Denial> {
    let busy = |_| Denial::new(StatusCode::TOO_MANY_REQUESTS, "another plan is being computed; try again");
    let turn = context.doors.planning.clone().try_lock_owned().map_err(busy)?;
    // A reader who hangs up has the plan computed all the same: the rest that follows is due.
    let planned = tokio::spawn(plan_in_turn(context.clone(), turn)).await;
    let view = planned.map_err(broken)??;
    Ok(Json(shown(&context, &viewer, view)))
}

/// Computes a plan once the last one is long enough ago.
async fn plan_in_turn(
    context: Arc<Context>,
    mut rested: OwnedMutexGuard<Option<Instant>>,
) -> Result<RoundView, Denial> {
    if let Some(rested) = *rested {
        tokio::time::sleep_until(rested.into()).await;
    }
    let began = Instant::now();
    let question = context.state().question(true, now());
    let none = || Denial::new(StatusCode::SERVICE_UNAVAILABLE, "no trusted snapshot yet");
    let question = question.ok_or_else(none)?;
    let view = rounds::answer(&context.doors.planner, context.config.clone(), question).await;
    *rested = Some(Instant::now() + (began.elapsed() * REST_A_COST).min(LONGEST_REST));
    let mut view = view.map_err(|e| {
        // It names jobs and nodes that the reader may not see.
        tracing::error!("there is no plan to show: {e}");
        Denial::new(StatusCode::INTERNAL_SERVER_ERROR, "the round failed: the daemon's log says why")
    })?;
    view.report.owners = context.state().owners(&view.report);
    Ok(view)
}

/// `GET /v1/jobs/{id}/generations`.
pub(crate) async fn generations(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    Path(id): Path<u32>,
) -> Result<Json<Generations>, Denial> {
    let (job, private) = (JobId(id), context.doors.private());
    let list = Generations { schema: SCHEMA, generations: context.store.generations(job).await? };
    let now_there = {
        let state = context.state();
        state.fleet.about(job).map(|about| (state.owner(job), about.submitted_at))
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
    let sight = Sight::new(&viewer, private, &owner_of);
    Ok(Json(sight.generations(job, submitted, list)))
}
