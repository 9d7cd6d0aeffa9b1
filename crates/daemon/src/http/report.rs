//! Numbers from the store for reports: how lent nodes were used.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};

use super::concurrency::run_limited;
use super::{RequestDenial, check_span};
use crate::context::DaemonContext;
use crate::hour_cache;
use crate::redaction::{ApiReader, RedactionFilter, VisibilityClass};
use crate::timeline::hour_of;
use infill_api::{MAX_DELAYS, MAX_REPORT_SECS, ReportQuery, ReportView, SCHEMA_VERSION, UsesView};
use infill_model::{LendingMode, UnixTime};

/// `GET /v1/report`.
pub(crate) async fn get_report(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> Result<Json<ReportView>, RequestDenial> {
    let Query(ReportQuery { from, to }) = query?;
    check_span(from, to, MAX_REPORT_SECS)?;
    // Only one reader of long sums at a time, so that the store answers rounds quickly.
    let building = build_report(context.clone(), viewer, from, to, MAX_DELAYS);
    Ok(Json(run_limited(&context.access.sums, building).await?))
}

/// Builds the report on a stretch of time, with at most `most_delays` delays.
pub(super) async fn build_report(
    context: Arc<DaemonContext>,
    viewer: ApiReader,
    from: UnixTime,
    to: UnixTime,
    most_delays: u32,
) -> Result<ReportView, RequestDenial> {
    let begin = hour_of(from);
    let spent = context.store.sum_node_time(begin, to).await?;
    // One more row than is shown reveals whether there are more.
    let mut delays = context.store.delays_between(from, to, most_delays.saturating_add(1)).await?;
    let delays_cut = delays.len() > most_delays as usize;
    delays.truncate(most_delays as usize);
    let delays = delays.into_iter().map(|delay| (delay.secs, delay.planned)).collect();
    let uses = sum_usage(&context, begin, to).await?;
    let partition = context.config.slurm.partition.clone();
    let prices = context.config.report.clone();
    let private = context.access.private_data();
    let is_partial = VisibilityClass::for_reader(&viewer, private) != VisibilityClass::All;
    let lends_parts = context.config.gaps.lend != LendingMode::Nodes;
    let view = ReportView {
        schema: SCHEMA_VERSION,
        from,
        to,
        partition,
        is_partial,
        lends_parts,
        prices,
        spent,
        uses,
        delays,
        delays_cut,
    };
    Ok(RedactionFilter::new(&viewer, private, &|_| None).redact_report(view))
}

/// Sums up the hours that begin in this stretch of time.
pub(super) async fn sum_usage(
    context: &DaemonContext,
    from: UnixTime,
    to: UnixTime,
) -> Result<UsesView, RequestDenial> {
    let recent = context.lock_state().recent_hours();
    let hours = hour_cache::usage_by_hour(context.store.as_ref(), &recent, from, to).await?;
    let mut sums = UsesView::default();
    for (_, secs) in &hours {
        sums.hours += 1;
        sums.secs = sums.secs.sum_with(secs);
    }
    Ok(sums)
}
