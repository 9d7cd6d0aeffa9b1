//! Why a job or a node has what it has, in the words of `infill explain`.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::turns::{computed, in_turn};
use super::{Denial, read, zone};
use crate::context::Context;
use crate::sight::Viewer;
use crate::views::WhichNodes;
use infill_api::{ExplainQuery, ExplainView, SCHEMA};
use infill_model::{JobId, clock::now};
use infill_present::words::{When, explain};

/// `GET /v1/explain/{subject}`: of a malleable job, its wings, or a node.
pub(crate) async fn explained(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    subject: Result<Path<String>, PathRejection>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<ExplainView>, Denial> {
    let (Path(subject), Query(query)) = (subject?, query?);
    let when = When { now: now(), zone: zone(query.zone)? };
    let gate = context.doors.fits.clone();
    let saying = async move { computed(move || words(&context, &viewer, &subject, when)).await? };
    Ok(Json(ExplainView { schema: SCHEMA, lines: in_turn(&gate, saying).await? }))
}

fn words(context: &Context, viewer: &Viewer, subject: &str, when: When) -> Result<Vec<String>, Denial> {
    let job = subject.parse().ok().map(JobId);
    let which = if job.is_some() { WhichNodes::None } else { WhichNodes::Called(subject) };
    let status = read::seen_by(context, viewer, context.doors.private(), which);
    let round = context.state().round.clone();
    let explained = match job {
        Some(id) => explain::of_job(id, &status, round, Vec::new()),
        None => explain::of_node(subject, status, round),
    };
    let unknown = || Denial::new(StatusCode::NOT_FOUND, "infill knows no such job or node");
    let mut explained = explained.ok_or_else(unknown)?;
    // Of a job that is hidden its lead is no more told than itself.
    explained.round = explained.round.map(|round| read::shown(context, viewer, round));
    let is_told = explained.round.as_ref().is_some_and(|round| !round.report.jobs.is_empty());
    if explained.job.is_none() && explained.node.is_none() && !is_told {
        return Err(unknown());
    }
    Ok(explain::lines(&explained, subject, when))
}
