//! What nodes were used for over time.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::context::Context;
use crate::sight::{Class, Sight, Viewer};
use crate::timeline;
use crate::timeline::{Asked, Hour, Map, PARTS, Rows};
use crate::timelines::Stretch;
use crate::told::MapAsked;
use infill_api::{
    LONGEST_TIMELINE_SECS, MOST_CELLS, MOST_PIXELS, NodeRow, SCHEMA, TimelineQuery, TimelineRows,
    TimelineView,
};
use infill_model::{JobId, PrivateData, UnixTime, UserId, clock::now};

use super::turns::{broken, computed, in_turn};
use super::{Denial, check_span};

/// Longest wait for something new.
const PATIENCE: Duration = Duration::from_secs(25);

/// Shares are told in so many steps.
const STEPS: f32 = 15.0;

/// `GET /v1/timeline`.
pub async fn timeline(
    State(context): State<Arc<Context>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<TimelineQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Denial> {
    let Query(query) = query?;
    check(&query)?;
    if let Some(after) = query.after {
        let mut looked = context.told.looked.subscribe();
        // Whoever has waited for long enough gets what there is.
        let _ = tokio::time::timeout(PATIENCE, looked.wait_for(|at| *at > after)).await;
    }
    let packed = accepts_gzip(&headers);
    let (recent, private) = (context.state().recent_hours(), context.doors.private());
    let asked = MapAsked {
        query: TimelineQuery { after: None, ..query },
        class: Class::of(&viewer, private),
        packed,
    };
    let answer = context.told.maps.of(seen(&recent), asked);
    // Some tens of megabytes, and a part of a second.
    let making = || in_turn(&context.doors.fits, made(context.clone(), viewer, private, asked, recent));
    let body = answer.get_or_try_init(making).await?.clone();
    let head = [(CONTENT_TYPE, "application/json"), (VARY, "accept-encoding")];
    Ok((head, packed.then_some([(CONTENT_ENCODING, "gzip")]), body).into_response())
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).is_some_and(|v| v.contains("gzip"))
}

/// Until when something is known.
fn seen(recent: &[Arc<Hour>]) -> UnixTime {
    recent.last().map_or(UnixTime(0), |hour| hour.from + i64::from(hour.secs))
}

async fn made(
    context: Arc<Context>,
    viewer: Viewer,
    private: PrivateData,
    MapAsked { query, packed, .. }: MapAsked,
    recent: Vec<Arc<Hour>>,
) -> Result<Bytes, Denial> {
    let seen = seen(&recent);
    let from = query.nodes_since.map_or(query.from, |since| since.min(query.from));
    let keep_days = context.config.store.keep_node_days;
    let stretch = Stretch { recent, from, to: query.to, now: now(), keep_days };
    let hours = context.told.timelines.between(context.store.as_ref(), stretch).await?;
    // Of nodes that are private only all together are shown.
    let is_whole = private.nodes && !viewer.all;
    let planned = context.state().planned(seen, now());
    let making = computed(move || {
        let mut map = timeline::map(&hours, &planned, &asked(&query, is_whole));
        let owners = owners(&context, &map);
        Sight::new(&viewer, private, &|job| owners.get(&job).copied().flatten()).map(&mut map);
        body(&view(&query, seen, map), packed)
    });
    Ok(making.await?.map_err(broken)?.into())
}

/// Whose the jobs of a map are.
fn owners(context: &Context, map: &Map) -> BTreeMap<JobId, Option<UserId>> {
    let jobs = map.jobs();
    let state = context.state();
    jobs.into_iter().map(|job| (job, state.owner(job))).collect()
}

fn check(query: &TimelineQuery) -> Result<(), Denial> {
    let bad = |what: String| Err(Denial::new(StatusCode::BAD_REQUEST, what));
    check_span(query.from, query.to, LONGEST_TIMELINE_SECS)?;
    let before = query.nodes_since.map_or(0, |since| query.to.0.saturating_sub(since.0));
    if before > LONGEST_TIMELINE_SECS {
        return bad(format!(
            "nodes_since: expected at most {LONGEST_TIMELINE_SECS} seconds before to, not {before}"
        ));
    }
    for (name, count) in [("rows", query.rows), ("columns", query.columns)] {
        if !(1..=MOST_PIXELS).contains(&count) {
            return bad(format!("{name}: expected 1 to {MOST_PIXELS}, not {count}"));
        }
    }
    if query.rows * query.columns > MOST_CELLS {
        return bad(format!("rows, columns: expected at most {MOST_CELLS} cells"));
    }
    Ok(())
}

fn asked(query: &TimelineQuery, is_whole: bool) -> Asked {
    let TimelineQuery { from, to, columns, .. } = *query;
    match is_whole {
        true => Asked { from, to, first: 0, count: usize::MAX, rows: 1, columns },
        false => {
            let count = query.count.unwrap_or(usize::MAX);
            Asked { from, to, first: query.first, count, rows: query.rows, columns }
        }
    }
}

fn view(query: &TimelineQuery, seen: UnixTime, map: Map) -> TimelineView {
    let Map { nodes, first, count, rows } = map;
    let rows = match rows {
        Rows::Nodes(rows) => {
            let row = |(node, runs): (_, Vec<timeline::Run>)| NodeRow {
                node,
                runs: runs.into_iter().map(|run| (run.from, run.to, run.used.code())).collect(),
            };
            TimelineRows::Nodes { rows: rows.into_iter().map(row).collect() }
        }
        Rows::Mixtures { nodes, shares } => {
            let shares = base64::engine::general_purpose::STANDARD.encode(packed(&shares));
            TimelineRows::Mixtures { rows: nodes, columns: query.columns, shares }
        }
    };
    TimelineView { schema: SCHEMA, from: query.from, to: query.to, seen, nodes, first, count, rows }
}

/// Two shares a byte.
fn packed(shares: &[f32]) -> Vec<u8> {
    const { assert!(PARTS.is_multiple_of(2)) };
    let step = |share: f32| (share * STEPS).round() as u8;
    shares.chunks_exact(2).map(|two| step(two[0]) << 4 | step(two[1])).collect()
}

fn body(view: &TimelineView, packs: bool) -> std::io::Result<Vec<u8>> {
    let text = serde_json::to_vec(view)?;
    if !packs {
        return Ok(text);
    }
    let mut packed = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    packed.write_all(&text)?;
    packed.finish()
}
