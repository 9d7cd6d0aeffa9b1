//! What came of lending idle nodes: numbers of the store, for reports.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};

use super::turns::in_turn;
use super::{Denial, check_span};
use crate::context::Context;
use crate::sight::{Class, Sight, Viewer};
use crate::timeline::hour_of;
use crate::timelines;
use infill_api::{LONGEST_REPORT_SECS, MOST_DELAYS, ReportQuery, ReportView, SCHEMA, UsesView};
use infill_model::{LendingMode, NodeUsageSecs, UnixTime};

/// `GET /v1/report`.
pub(crate) async fn report(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> Result<Json<ReportView>, Denial> {
    let Query(ReportQuery { from, to }) = query?;
    check_span(from, to, LONGEST_REPORT_SECS)?;
    // The store answers rounds first: one reader of much at a time.
    let found = found(context.clone(), viewer, from, to, MOST_DELAYS);
    Ok(Json(in_turn(&context.doors.sums, found).await?))
}

/// What is known of this time, with so many delays at most.
pub(super) async fn found(
    context: Arc<Context>,
    viewer: Viewer,
    from: UnixTime,
    to: UnixTime,
    most_delays: u32,
) -> Result<ReportView, Denial> {
    let begin = hour_of(from);
    let spent = context.store.spent(begin, to).await?;
    // One more than is shown tells whether there were more.
    let mut delays = context.store.delays(from, to, most_delays.saturating_add(1)).await?;
    let delays_cut = delays.len() > most_delays as usize;
    delays.truncate(most_delays as usize);
    let delays = delays.into_iter().map(|delay| (delay.secs, delay.planned)).collect();
    let uses = uses(&context, begin, to).await?;
    let (partition, prices) = (context.config.slurm.partition.clone(), context.config.report.clone());
    let private = context.doors.private();
    let is_partial = Class::of(&viewer, private) != Class::All;
    let lends_parts = context.config.gaps.lend != LendingMode::Nodes;
    let view = ReportView {
        schema: SCHEMA,
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
    Ok(Sight::new(&viewer, private, &|_| None).report(view))
}

/// Sums of the hours that begin in this time.
async fn uses(context: &Context, from: UnixTime, to: UnixTime) -> Result<UsesView, Denial> {
    let recent = context.state().recent_hours();
    let hours = timelines::uses(context.store.as_ref(), &recent, from, to).await?;
    let sum = |view: UsesView, (_, secs): &(UnixTime, NodeUsageSecs)| UsesView {
        hours: view.hours + 1,
        secs: view.secs.sum_with(secs),
    };
    Ok(hours.iter().fold(UsesView::default(), sum))
}
