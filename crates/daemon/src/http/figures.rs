//! Drawings over time: what nodes were used for, what became of the time that malleable jobs held, how long
//! main jobs waited for them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::context::DaemonContext;
use crate::hour_cache;
use crate::redaction::ApiReader;
use crate::response_cache::FigureCacheKey;
use crate::timeline::{HOUR_SECS, hour_of};
use infill_api::{FigureKind, FigureQuery, FigureView, LONGEST_FIGURE_SECS, MOST_DELAYS, SCHEMA};
use infill_model::{MainDelay, NodeTimeUsage, UnixTime, clock::now};
use infill_present::charts::{StackedArea, TimeFigure, TimeMarks};

use super::concurrency::{internal_error, run_blocking, run_limited};
use super::{RequestDenial, check_span, parse_zone};

/// Parts that the time is divided into at most: more would not be told apart.
const MAX_INTERVALS: f64 = 336.0;

/// Most dots: of more, those that waited longest.
const MAX_DOTS: usize = 5000;

/// A name and its colour: red, green, blue.
type FigureSeries = (&'static str, (u8, u8, u8));

/// What nodes are used for, in the order of [`crate::timeline::USE_KINDS`], with colours.
const USE_SERIES: [FigureSeries; 6] = [
    ("main jobs", (140, 149, 159)),
    ("malleable jobs", (115, 43, 202)),
    ("idle", (255, 224, 130)),
    ("wanted soon", (242, 168, 58)),
    ("refused", (220, 200, 160)),
    ("down", (59, 64, 70)),
];

/// What becomes of node-time.
const NODE_TIME_SERIES: [FigureSeries; 4] = [
    ("steps", (30, 130, 70)),
    ("steps at sizes that are tried", (120, 190, 120)),
    ("starts and changes", (242, 168, 58)),
    ("the same, for main jobs or after losses", (200, 70, 30)),
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
    let is_private = context.doors.private_data().jobs && !viewer.all;
    let asked = FigureCacheKey { kind, query, is_private };
    let answer = context.told.figures.entry_for(*context.told.looked.borrow(), asked);
    let body = answer
        .get_or_try_init(|| run_limited(&context.doors.sums, render_figure(context.clone(), asked)))
        .await?
        .clone();
    Ok(([(CONTENT_TYPE, "application/json")], body))
}

async fn render_figure(
    context: Arc<DaemonContext>,
    FigureCacheKey { kind, query, is_private }: FigureCacheKey,
) -> Result<Bytes, RequestDenial> {
    let mut found = load_figure(&context, kind, &query).await?;
    if let FigureSource::Delays(delays) = &mut found
        && is_private
    {
        // The very second tells which job it was.
        delays.iter_mut().for_each(|delay| delay.at = hour_of(delay.at).max(query.from));
    }
    let view = run_blocking(move || found.to_view(kind, &query)).await?.map_err(internal_error)?;
    serde_json::to_vec(&view).map(Bytes::from).map_err(internal_error)
}

fn check_query(query: &FigureQuery) -> Result<(), RequestDenial> {
    check_span(query.from, query.to, LONGEST_FIGURE_SECS)?;
    parse_zone(query.zone).map(drop)
}

/// What is known of a stretch of time: sums of hours, or what happened. Nothing of it names anybody.
enum FigureSource {
    Hours(Vec<(UnixTime, Vec<f64>)>),
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
            let most = (LONGEST_FIGURE_SECS / HOUR_SECS) as u32 + 1;
            let ends =
                |s: NodeTimeUsage| vec![s.useful_secs, s.probing_secs, s.rescale_secs, s.preempted_secs];
            let hours = store.node_time_by_hour(begin, to, most).await?;
            FigureSource::Hours(hours.into_iter().map(|(begin, spent)| (begin, ends(spent))).collect())
        }
        FigureKind::Delays => FigureSource::Delays(store.delays_between(from, to, MOST_DELAYS).await?),
    })
}

impl FigureSource {
    fn to_view(&self, kind: FigureKind, query: &FigureQuery) -> anyhow::Result<FigureView> {
        match self {
            FigureSource::Hours(hours) if kind == FigureKind::Nodes => {
                area_figure("Nodes", &USE_SERIES, hours, query)
            }
            FigureSource::Hours(hours) => area_figure(
                "Nodes that malleable jobs had, by what became of their time",
                &NODE_TIME_SERIES,
                hours,
                query,
            ),
            FigureSource::Delays(delays) => dot_figure(delays, query),
        }
    }
}

/// Numbers of nodes, hour by hour or, of a longer stretch, by several hours.
fn area_figure(
    title: &str,
    kinds: &[FigureSeries],
    hours: &[(UnixTime, Vec<f64>)],
    query: &FigureQuery,
) -> anyhow::Result<FigureView> {
    let begin = hour_of(query.from).0;
    let hours_asked = query.to.secs_since(UnixTime(begin)) / HOUR_SECS as f64;
    let part_secs = (hours_asked / MAX_INTERVALS).ceil().max(1.0) as i64 * HOUR_SECS;
    let parts = (query.to.0 - 1 - begin) / part_secs + 1;
    let mut means = vec![vec![0.0; kinds.len()]; parts as usize];
    for (from, secs) in hours {
        let part = (from.0 - begin) / part_secs;
        let Some(means) = usize::try_from(part).ok().and_then(|part| means.get_mut(part)) else { continue };
        // Of the part that goes on only what is over counts.
        let begin = begin + part * part_secs;
        let over = (now().0 - begin).clamp(1, part_secs) as f64;
        means.iter_mut().zip(secs).for_each(|(mean, secs)| *mean += secs / over);
    }
    let from = UnixTime(begin);
    let to = UnixTime(begin + parts * part_secs);
    let area = |(kind, (name, colour)): (usize, &FigureSeries)| StackedArea {
        name,
        colour: *colour,
        values: means.iter().map(|means| means[kind]).collect(),
    };
    let marks = TimeMarks::Areas(kinds.iter().enumerate().map(area).collect());
    let drawing = TimeFigure { title, unit: "nodes", from, to, zone_secs: query.zone, marks };
    let row = |(part, means): (usize, &Vec<f64>)| {
        let at = begin + part as i64 * part_secs;
        std::iter::once(json!(at))
            .chain(means.iter().map(|mean| json!(round_to_cents(*mean))))
            .collect::<Vec<Value>>()
    };
    let heads =
        std::iter::once("from").chain(kinds.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    let svg = Some(drawing.to_svg()?);
    let rows = means.iter().enumerate().map(row).collect();
    Ok(FigureView { schema: SCHEMA, title: title.to_owned(), heads, rows, svg })
}

fn dot_figure(delays: &[MainDelay], query: &FigureQuery) -> anyhow::Result<FigureView> {
    let title = "Seconds that main jobs waited for nodes of malleable ones";
    let mut worst: Vec<&MainDelay> = delays.iter().collect();
    worst.sort_by(|a, b| b.secs.total_cmp(&a.secs));
    worst.truncate(MAX_DOTS);
    worst.sort_by_key(|delay| delay.at);
    let dots: Vec<(UnixTime, f64)> = worst.iter().map(|delay| (delay.at, delay.secs)).collect();
    let from = query.from;
    let to = query.to;
    let zone_secs = query.zone;
    let drawing = TimeFigure { title, unit: "seconds", from, to, zone_secs, marks: TimeMarks::Dots(&dots) };
    let why = |planned| if planned { "a planned start" } else { "a preemption" };
    let heads = ["at", "seconds", "for"].map(str::to_owned).to_vec();
    let svg = Some(drawing.to_svg()?);
    let rows = worst
        .into_iter()
        .map(|delay: &MainDelay| {
            vec![json!(delay.at), json!(round_to_cents(delay.secs)), json!(why(delay.planned))]
        })
        .collect();
    Ok(FigureView { schema: SCHEMA, title: title.to_owned(), heads, rows, svg })
}

fn round_to_cents(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
