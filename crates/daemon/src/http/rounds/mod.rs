//! Rounds that are over: what was decided at some moment, and why.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::{RequestDenial, live_status};
use crate::context::DaemonContext;
use crate::redaction::{ApiReader, RedactionFilter};
use infill_api::{DEFAULT_ROUNDS, Hidden, MAX_ROUNDS, RoundView, RoundsQuery, RoundsView, SCHEMA};
use infill_model::UnixTime;
use infill_store::{RoundRecord, RoundsFilter};

/// `GET /v1/rounds`: the newest first.
pub(crate) async fn list_rounds(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<RoundsQuery>, QueryRejection>,
) -> Result<Json<RoundsView>, RequestDenial> {
    let Query(RoundsQuery { before, limit }) = query?;
    let limit = limit.unwrap_or(DEFAULT_ROUNDS);
    if limit > MAX_ROUNDS {
        let what = format!("limit {limit}: more than {MAX_ROUNDS} rounds at once");
        return Err(RequestDenial::new(StatusCode::BAD_REQUEST, what));
    }
    let asked = RoundsFilter { until: before.map(|t| t + -1), limit };
    let rounds = context.store.list_rounds(&asked).await?;
    // Their notes name jobs by numbers only, and a line does not say whose they were.
    let sight = RedactionFilter::new(&viewer, context.doors.private_data(), &|_| None);
    Ok(Json(sight.redact_rounds(RoundsView { schema: SCHEMA, rounds })))
}

/// `GET /v1/rounds/{at}`: the last round at that moment or before it.
pub(crate) async fn get_round_at(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    at: Result<Path<i64>, PathRejection>,
) -> Result<Json<RoundView>, RequestDenial> {
    let Path(at) = at?;
    let at = UnixTime(at);
    let found = context.store.round_at(at).await?;
    let round = found.map(to_round_view).ok_or_else(|| {
        RequestDenial::new(StatusCode::NOT_FOUND, format!("no round of {at} or before it is kept"))
    })?;
    Ok(Json(live_status::visible_round(&context, &viewer, round)))
}

/// How long each stage took is not kept.
fn to_round_view(round: RoundRecord) -> RoundView {
    let RoundRecord { at: _, plan, report, acted } = round;
    RoundView {
        schema: SCHEMA,
        plan,
        report,
        acting: acted,
        hidden: Hidden::default(),
        secs: BTreeMap::new(),
    }
}
