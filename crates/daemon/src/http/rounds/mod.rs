//! Past rounds: what each decided, and why.

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
use infill_api::{
    DEFAULT_ROUNDS, HiddenCounts, MAX_ROUNDS, RoundView, RoundsQuery, RoundsView, SCHEMA_VERSION,
};
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
        let what = format!("limit: expected at most {MAX_ROUNDS} rounds at once, not {limit}");
        return Err(RequestDenial::new(StatusCode::BAD_REQUEST, what));
    }
    let filter = RoundsFilter { until: before.map(|at| at + -1), limit };
    let rounds = context.store.list_rounds(&filter).await?;
    // Notes name jobs only by numbers, and these rows do not contain the jobs' owners.
    let redaction = RedactionFilter::new(&viewer, context.access.private_data(), &|_| None);
    Ok(Json(redaction.redact_rounds(RoundsView { schema: SCHEMA_VERSION, rounds })))
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
        RequestDenial::new(StatusCode::NOT_FOUND, format!("the store has no round of {at} or before"))
    })?;
    Ok(Json(live_status::visible_round(&context, &viewer, round)))
}

/// The durations of the stages are not stored, so `secs` is empty.
fn to_round_view(round: RoundRecord) -> RoundView {
    let RoundRecord { at: _, plan, report, acted } = round;
    RoundView {
        schema: SCHEMA_VERSION,
        plan,
        report,
        acting: acted,
        hidden: HiddenCounts::default(),
        secs: BTreeMap::new(),
    }
}
