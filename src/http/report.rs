//! What came of lending idle nodes: numbers of the store, for reports.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::Denial;
use crate::api::{MOST_DELAYS, ReportQuery, ReportView, SCHEMA, UsesView};
use crate::clock::now;
use crate::daemon::context::Context;
use crate::daemon::sight::{Sight, Viewer};
use crate::daemon::timelines::Stretch;
use crate::model::UnixTime;
use crate::timeline::PARTS;

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
    let uses = uses(&context, from, to).await?;
    let (partition, prices) = (context.config.slurm.partition.clone(), context.config.report.clone());
    let view = ReportView { schema: SCHEMA, from, to, partition, prices, spent, uses, delays };
    Ok(Json(Sight::new(&viewer, context.doors.private(), &|_| None).report(view)))
}

/// Sums of the hours that are kept.
async fn uses(context: &Context, from: UnixTime, to: UnixTime) -> Result<UsesView, Denial> {
    let under_way = context.state().chronicle.hour();
    let stretch = Stretch { under_way, from, to, now: now() }.kept(&context.config.store);
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
