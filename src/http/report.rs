//! What came of lending idle nodes: numbers of the store, for reports.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::Denial;
use crate::api::{MOST_DELAYS, ReportQuery, ReportView, SCHEMA};
use crate::daemon::context::Context;
use crate::daemon::sight::{Sight, Viewer};

/// `GET /v1/report`.
pub async fn report(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> Result<Json<ReportView>, Denial> {
    let Query(ReportQuery { from, to }) = query?;
    if from >= to {
        return Err(Denial::new(
            StatusCode::BAD_REQUEST,
            format!("from {}: expected a moment before {}", from.0, to.0),
        ));
    }
    let spent = context.store.spent(from, to).await?;
    let delays = context.store.delays(from, to, MOST_DELAYS).await?;
    let delays = delays.into_iter().map(|delay| (delay.secs, delay.planned)).collect();
    let view = ReportView { schema: SCHEMA, from, to, spent, delays };
    Ok(Json(Sight::new(&viewer, context.doors.private(), &|_| None).report(view)))
}
