//! Explains why a job or a node has what it has. `infill explain` prints these lines.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::concurrency::{run_blocking, run_limited};
use super::{RequestDenial, live_status, parse_zone};
use crate::context::DaemonContext;
use crate::redaction::ApiReader;
use crate::views::WhichNodes;
use infill_api::{ExplainQuery, ExplainView, SCHEMA_VERSION};
use infill_model::{JobId, clock::now};
use infill_present::phrases::{DisplayClock, explain};

/// `GET /v1/explain/{subject}`. The subject is a malleable job, one of its wings, or a node.
pub(crate) async fn explain_subject(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    subject: Result<Path<String>, PathRejection>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<ExplainView>, RequestDenial> {
    let Path(subject) = subject?;
    let Query(query) = query?;
    let when = DisplayClock { now: now(), zone: parse_zone(query.zone)? };
    let limit = context.access.fits.clone();
    let explaining =
        async move { run_blocking(move || explanation_lines(&context, &viewer, &subject, when)).await? };
    Ok(Json(ExplainView { schema: SCHEMA_VERSION, lines: run_limited(&limit, explaining).await? }))
}

fn explanation_lines(
    context: &DaemonContext,
    viewer: &ApiReader,
    subject: &str,
    when: DisplayClock,
) -> Result<Vec<String>, RequestDenial> {
    let job = subject.parse().ok().map(JobId);
    let which = if job.is_some() { WhichNodes::None } else { WhichNodes::Called(subject) };
    let status = live_status::visible_status(context, viewer, context.access.private_data(), which);
    let round = context.lock_state().round.clone();
    let explained = match job {
        Some(id) => explain::explain_job(id, &status, round, Vec::new()),
        None => explain::explain_node(subject, status, round),
    };
    let mut explained = explained.ok_or_else(unknown_subject)?;
    // A wing may only be explained to readers who may see its lead.
    explained.round = explained.round.map(|round| live_status::visible_round(context, viewer, round));
    let is_in_round = explained.round.as_ref().is_some_and(|round| !round.report.jobs.is_empty());
    if explained.job.is_none() && explained.node.is_none() && !is_in_round {
        return Err(unknown_subject());
    }
    Ok(explain::explanation_lines(&explained, subject, when))
}

fn unknown_subject() -> RequestDenial {
    RequestDenial::new(StatusCode::NOT_FOUND, "infill knows no such job or node")
}
