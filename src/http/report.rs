//! What came of lending idle nodes: numbers of the store, for reports.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::Denial;
use crate::api::{LONGEST_REPORT_SECS, MOST_DELAYS, ReportQuery, ReportView, SCHEMA, UsesView};
use crate::clock::now;
use crate::daemon::context::Context;
use crate::daemon::sight::{Class, Sight, Viewer};
use crate::daemon::timelines::Stretch;
use crate::model::{Lend, UnixTime};
use crate::timeline::{PARTS, hour_of};

/// `GET /v1/report`.
pub async fn report(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> Result<Json<ReportView>, Denial> {
    let Query(ReportQuery { from, to }) = query?;
    let secs = to.0.saturating_sub(from.0);
    if !(1..=LONGEST_REPORT_SECS).contains(&secs) || from.0 < 0 {
        let what = format!("from, to: expected 1 to {LONGEST_REPORT_SECS} seconds, not {secs}");
        return Err(Denial::new(StatusCode::BAD_REQUEST, what));
    }
    // The store answers rounds first: one reader of much at a time.
    let stops = |_| Denial::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon stops");
    let _turn = context.doors.sums.acquire().await.map_err(stops)?;
    let begin = hour_of(from);
    let spent = context.store.spent(begin, to).await?;
    let delays = context.store.delays(from, to, MOST_DELAYS).await?;
    let delays_cut = delays.len() >= MOST_DELAYS as usize;
    let delays = delays.into_iter().map(|delay| (delay.secs, delay.planned)).collect();
    let uses = uses(&context, from, to).await?;
    let (partition, prices) = (context.config.slurm.partition.clone(), context.config.report.clone());
    let private = context.doors.private();
    let is_partial = Class::of(&viewer, private) != Class::All;
    let lends_parts = context.config.gaps.lend != Lend::Nodes;
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
    Ok(Json(Sight::new(&viewer, private, &|_| None).report(view)))
}

/// Sums of the hours that are kept.
async fn uses(context: &Context, from: UnixTime, to: UnixTime) -> Result<UsesView, Denial> {
    let recent = context.state().recent_hours();
    let stretch = Stretch { recent, from, to, now: now() }.kept(&context.config.store);
    let hours = context.timelines.sums(context.store.as_ref(), stretch).await?;
    let sum = |view: UsesView, (_, sums): &(UnixTime, [f64; PARTS])| {
        let [main, malleable, idle, wanted, refused, down] = *sums;
        UsesView {
            hours: view.hours + 1,
            main_secs: view.main_secs + main,
            malleable_secs: view.malleable_secs + malleable,
            idle_secs: view.idle_secs + idle,
            wanted_secs: view.wanted_secs + wanted,
            refused_secs: view.refused_secs + refused,
            down_secs: view.down_secs + down,
        }
    };
    Ok(hours.iter().fold(UsesView::default(), sum))
}
