//! A day at a glance, for the head of the page.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;

use super::concurrency::{internal_error, run_limited};
use super::{RequestDenial, report};
use crate::context::DaemonContext;
use crate::hour_cache::{self, HoursRequest};
use crate::timeline::{self, HOUR_SECS, UsageHour, hour_of};
use infill_api::{
    DelaySummary, MAX_DAY_SECS, MAX_DELAYS, MAX_TIMELINE_SECS, SCHEMA_VERSION, SummaryQuery, SummaryView,
};
use infill_model::{MainDelay, NodeTimeUsage, UnixTime, clock::now};

/// A summary is made again after this many seconds, for all readers together.
const KEPT_SECS: i64 = 10;

/// A wait above this counts as a delay, seconds, as in `infill report`.
const DELAY_SECS: f64 = 1.0;

/// `GET /v1/summary`. The answer is the same for all readers, because it names no user.
pub(crate) async fn get_summary(
    State(context): State<Arc<DaemonContext>>,
    query: Result<Query<SummaryQuery>, QueryRejection>,
) -> Result<impl IntoResponse, RequestDenial> {
    let Query(query) = query?;
    let now = now();
    let age = now.0.saturating_sub(query.day.0);
    if !(0..=MAX_DAY_SECS).contains(&age) {
        let what = format!("day: expected a time at most {MAX_DAY_SECS} seconds ago, not {age}");
        return Err(RequestDenial::new(StatusCode::BAD_REQUEST, what));
    }
    let snapshot_at = *context.response_cache.snapshot_times.borrow();
    let made_for = UnixTime(snapshot_at.0 - snapshot_at.0.rem_euclid(KEPT_SECS));
    let answer = context.response_cache.summaries.entry_for(made_for, query);
    let making = build_summary(context.clone(), query.day, now);
    let body = answer.get_or_try_init(|| run_limited(&context.access.sums, making)).await?.clone();
    Ok(([(CONTENT_TYPE, "application/json")], body))
}

async fn build_summary(
    context: Arc<DaemonContext>,
    day: UnixTime,
    now: UnixTime,
) -> Result<Bytes, RequestDenial> {
    let store = context.store.as_ref();
    let begin = hour_of(day);
    let end = now + 1;
    let hours = (MAX_DAY_SECS / HOUR_SECS) as u32 + 2;
    let spent = store.node_time_by_hour(begin, end, hours).await?;
    let spent = spent.iter().fold(NodeTimeUsage::default(), |sum, (_, spent)| sum.sum_with(spent));
    let delays = store.delays_between(day, end, MAX_DELAYS).await?;
    let recent = context.lock_state().recent_hours();
    let newest = recent.last();
    let view = SummaryView {
        schema: SCHEMA_VERSION,
        day,
        seen: newest.map(|hour| hour.from + i64::from(hour.secs)),
        since: first_data(&context, now).await?,
        nodes: newest.map(|hour| timeline::count_nodes(hour)).unwrap_or_default(),
        uses: report::sum_usage(&context, begin, end).await?,
        spent,
        delays: summarize_delays(&delays, context.config.safety.max_delay_secs),
        rescales: store.count_rescales(day, end).await?,
    };
    serde_json::to_vec(&view).map(Bytes::from).map_err(internal_error)
}

/// The time of the earliest data that a timeline may show.
async fn first_data(context: &DaemonContext, now: UnixTime) -> Result<Option<UnixTime>, RequestDenial> {
    let recent = context.lock_state().recent_hours();
    let earliest = hour_of(now + -MAX_TIMELINE_SECS);
    let hours = hour_cache::usage_by_hour(context.store.as_ref(), &recent, earliest, now + 1).await?;
    let Some((begin, _)) = hours.first() else { return Ok(None) };
    let keep_days = context.config.store.keep_node_days;
    let request = HoursRequest { recent, from: *begin, to: *begin + HOUR_SECS, now, keep_days };
    let first = context.response_cache.timelines.hours_between(context.store.as_ref(), request).await?;
    Ok(Some(first.first().and_then(|hour| UsageHour::first_known(hour)).unwrap_or(*begin)))
}

fn summarize_delays(delays: &[MainDelay], limit_secs: f64) -> Option<DelaySummary> {
    let mut waits: Vec<f64> = delays.iter().map(|delay| delay.secs).collect();
    waits.sort_by(f64::total_cmp);
    let max_secs = *waits.last()?;
    let rank = (waits.len() * 99).div_ceil(100).saturating_sub(1);
    Some(DelaySummary {
        jobs: waits.len() as u32,
        delayed: waits.iter().filter(|secs| **secs > DELAY_SECS).count() as u32,
        p99_secs: waits.get(rank).copied().unwrap_or(max_secs),
        max_secs,
        limit_secs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    #[test]
    fn delays_are_counted_and_ranked() {
        let delay = |secs| MainDelay { job: JobId(1), at: UnixTime(0), secs, planned: false };
        assert_eq!(summarize_delays(&[], 30.0), None);
        let waits: Vec<MainDelay> = (1..=200).rev().map(|n| delay(f64::from(n) / 100.0)).collect();
        let expected =
            DelaySummary { jobs: 200, delayed: 100, p99_secs: 1.98, max_secs: 2.0, limit_secs: 30.0 };
        assert_eq!(summarize_delays(&waits, 30.0), Some(expected));
        let one = DelaySummary { jobs: 1, delayed: 0, p99_secs: 0.5, max_secs: 0.5, limit_secs: 30.0 };
        assert_eq!(summarize_delays(&[delay(0.5)], 30.0), Some(one));
    }
}
