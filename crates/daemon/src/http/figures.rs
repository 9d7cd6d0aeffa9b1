//! Drawings over time: what nodes were used for, what node-time of malleable jobs was used for, and how long
//! main jobs waited for nodes of malleable jobs.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::json;

use crate::context::DaemonContext;
use crate::hour_cache;
use crate::redaction::ApiReader;
use crate::response_cache::FigureCacheKey;
use crate::timeline::{HOUR_SECS, hour_of};
use infill_api::{FigureKind, FigureQuery, FigureView, MAX_DELAYS, MAX_FIGURE_SECS, SCHEMA_VERSION};
use infill_model::{MainDelay, NodeTimeUsage, UnixTime, clock::now};
use infill_present::charts::{StackedArea, TimeFigure, TimeMarks};

use super::concurrency::{internal_error, run_blocking, run_limited};
use super::{RequestDenial, check_span, parse_zone};

/// Most intervals of a drawing. More could not be distinguished.
const MAX_INTERVALS: f64 = 336.0;

/// Most dots of a drawing. The longest delays are drawn.
const MAX_DOTS: usize = 5000;

/// A name and its colour: red, green, blue.
type FigureSeries = (&'static str, (u8, u8, u8));

/// What nodes are used for, in the order of the parts of a mixture ([`crate::timeline::USE_KINDS`]).
const USE_SERIES: [FigureSeries; 6] = [
    ("main jobs", (140, 149, 159)),
    ("malleable jobs", (115, 43, 202)),
    ("idle", (255, 224, 130)),
    ("wanted soon", (242, 168, 58)),
    ("refused", (220, 200, 160)),
    ("down", (59, 64, 70)),
];

/// What node-time is used for.
const NODE_TIME_SERIES: [FigureSeries; 4] = [
    ("steps", (30, 130, 70)),
    ("steps at sizes that are tried", (120, 190, 120)),
    ("starts and changes", (242, 168, 58)),
    ("starts and changes for main jobs or after losses", (200, 70, 30)),
];

/// `GET /v1/figures/{kind}`.
pub(crate) async fn get_figure(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    kind: Result<Path<FigureKind>, PathRejection>,
    query: Result<Query<FigureQuery>, QueryRejection>,
) -> Result<impl IntoResponse, RequestDenial> {
    let Path(kind) = kind?;
    let Query(query) = query?;
    check_query(&query)?;
    let is_private = context.access.private_data().jobs && !viewer.all;
    let key = FigureCacheKey { kind, query, is_private };
    let snapshot_at = *context.response_cache.snapshot_times.borrow();
    let answer = context.response_cache.figures.entry_for(snapshot_at, key);
    let body = answer
        .get_or_try_init(|| run_limited(&context.access.sums, render_figure(context.clone(), key)))
        .await?
        .clone();
    Ok(([(CONTENT_TYPE, "application/json")], body))
}

async fn render_figure(
    context: Arc<DaemonContext>,
    FigureCacheKey { kind, query, is_private }: FigureCacheKey,
) -> Result<Bytes, RequestDenial> {
    let mut source = load_figure(&context, kind, &query).await?;
    if let FigureSource::Delays(delays) = &mut source
        && is_private
    {
        // The exact second would identify the job, so times are rounded down to the hour.
        for delay in delays {
            delay.at = hour_of(delay.at).max(query.from);
        }
    }
    let view = run_blocking(move || source.to_view(kind, &query)).await?.map_err(internal_error)?;
    serde_json::to_vec(&view).map(Bytes::from).map_err(internal_error)
}

fn check_query(query: &FigureQuery) -> Result<(), RequestDenial> {
    check_span(query.from, query.to, MAX_FIGURE_SECS)?;
    parse_zone(query.zone).map(drop)
}

/// The data of a drawing. It names no user.
enum FigureSource {
    /// Node-seconds of each hour by kind, with the begin of the hour.
    Hours(Vec<(UnixTime, Vec<f64>)>),
    /// Delays of main jobs.
    Delays(Vec<MainDelay>),
}

async fn load_figure(
    context: &DaemonContext,
    kind: FigureKind,
    query: &FigureQuery,
) -> Result<FigureSource, RequestDenial> {
    let store = context.store.as_ref();
    let FigureQuery { from, to, .. } = *query;
    Ok(match kind {
        FigureKind::Nodes => {
            let recent = context.lock_state().recent_hours();
            let hours = hour_cache::usage_by_hour(store, &recent, hour_of(from), to).await?;
            FigureSource::Hours(
                hours.into_iter().map(|(begin, used)| (begin, used.to_array().to_vec())).collect(),
            )
        }
        FigureKind::NodeTime => {
            let begin = hour_of(from);
            let max_hours = (MAX_FIGURE_SECS / HOUR_SECS) as u32 + 1;
            let hours = store.node_time_by_hour(begin, to, max_hours).await?;
            FigureSource::Hours(
                hours.into_iter().map(|(begin, spent)| (begin, secs_by_use(&spent))).collect(),
            )
        }
        FigureKind::Delays => FigureSource::Delays(store.delays_between(from, to, MAX_DELAYS).await?),
    })
}

/// Node-seconds in the order of [`NODE_TIME_SERIES`].
fn secs_by_use(spent: &NodeTimeUsage) -> Vec<f64> {
    vec![spent.useful_secs, spent.probing_secs, spent.rescale_secs, spent.preempted_secs]
}

impl FigureSource {
    fn to_view(&self, kind: FigureKind, query: &FigureQuery) -> anyhow::Result<FigureView> {
        match self {
            FigureSource::Hours(hours) if kind == FigureKind::Nodes => {
                area_figure("Nodes", &USE_SERIES, hours, query)
            }
            FigureSource::Hours(hours) => area_figure(
                "Nodes that malleable jobs had, by what their time was used for",
                &NODE_TIME_SERIES,
                hours,
                query,
            ),
            FigureSource::Delays(delays) => dot_figure(delays, query),
        }
    }
}

/// Draws mean numbers of nodes by kind, for each hour or, in a longer stretch, for each interval of several
/// hours.
fn area_figure(
    title: &str,
    kinds: &[FigureSeries],
    hours: &[(UnixTime, Vec<f64>)],
    query: &FigureQuery,
) -> anyhow::Result<FigureView> {
    let begin = hour_of(query.from).0;
    let requested_hours = query.to.secs_since(UnixTime(begin)) / HOUR_SECS as f64;
    let interval_secs = (requested_hours / MAX_INTERVALS).ceil().max(1.0) as i64 * HOUR_SECS;
    let intervals = (query.to.0 - 1 - begin) / interval_secs + 1;
    let mut means = vec![vec![0.0; kinds.len()]; intervals as usize];
    for (from, secs) in hours {
        let interval = (from.0 - begin) / interval_secs;
        let Some(means) = usize::try_from(interval).ok().and_then(|index| means.get_mut(index)) else {
            continue;
        };
        // Only the elapsed part of the present interval counts.
        let interval_begin = begin + interval * interval_secs;
        let elapsed = (now().0 - interval_begin).clamp(1, interval_secs) as f64;
        means.iter_mut().zip(secs).for_each(|(mean, secs)| *mean += secs / elapsed);
    }
    let mut areas = Vec::new();
    for (kind, (name, colour)) in kinds.iter().enumerate() {
        let values = means.iter().map(|means| means[kind]).collect();
        areas.push(StackedArea { name, colour: *colour, values });
    }
    let drawing = TimeFigure {
        title,
        unit: "nodes",
        from: UnixTime(begin),
        to: UnixTime(begin + intervals * interval_secs),
        zone_secs: query.zone,
        marks: TimeMarks::Areas(areas),
    };
    let mut rows = Vec::new();
    for (interval, means) in means.iter().enumerate() {
        let mut row = vec![json!(begin + interval as i64 * interval_secs)];
        row.extend(means.iter().map(|mean| json!(round_to_cents(*mean))));
        rows.push(row);
    }
    let heads =
        std::iter::once("from").chain(kinds.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    let svg = Some(drawing.to_svg()?);
    Ok(FigureView { schema: SCHEMA_VERSION, title: title.to_owned(), heads, rows, svg })
}

fn dot_figure(delays: &[MainDelay], query: &FigureQuery) -> anyhow::Result<FigureView> {
    let title = "Seconds that main jobs waited for nodes of malleable jobs";
    let mut worst: Vec<&MainDelay> = delays.iter().collect();
    worst.sort_by(|a, b| b.secs.total_cmp(&a.secs));
    worst.truncate(MAX_DOTS);
    worst.sort_by_key(|delay| delay.at);
    let dots: Vec<(UnixTime, f64)> = worst.iter().map(|delay| (delay.at, delay.secs)).collect();
    let drawing = TimeFigure {
        title,
        unit: "seconds",
        from: query.from,
        to: query.to,
        zone_secs: query.zone,
        marks: TimeMarks::Dots(&dots),
    };
    let heads = ["at", "seconds", "for"].map(str::to_owned).to_vec();
    let svg = Some(drawing.to_svg()?);
    let mut rows = Vec::new();
    for delay in worst {
        let cause = if delay.planned { "a planned start" } else { "a preemption" };
        rows.push(vec![json!(delay.at), json!(round_to_cents(delay.secs)), json!(cause)]);
    }
    Ok(FigureView { schema: SCHEMA_VERSION, title: title.to_owned(), heads, rows, svg })
}

fn round_to_cents(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
