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

use crate::context::DaemonContext;
use crate::hour_cache::HoursRequest;
use crate::redaction::{ApiReader, RedactionFilter, VisibilityClass};
use crate::response_cache::MapCacheKey;
use crate::timeline;
use crate::timeline::{MapRequest, MapRows, USE_KINDS, UsageHour, UsageMap};
use infill_api::{
    LONGEST_TIMELINE_SECS, MOST_CELLS, MOST_PIXELS, NodeRow, SCHEMA, TimelineQuery, TimelineRows,
    TimelineView,
};
use infill_model::{JobId, PrivateData, UnixTime, UserId, clock::now};

use super::concurrency::{internal_error, run_blocking, run_limited};
use super::{RequestDenial, check_span};

/// Longest wait for something new.
const NEWS_TIMEOUT: Duration = Duration::from_secs(25);

/// Shares are told in so many steps.
const SHARE_STEPS: f32 = 15.0;

/// `GET /v1/timeline`.
pub async fn get_timeline(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<TimelineQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, RequestDenial> {
    let Query(query) = query?;
    check_query(&query)?;
    if let Some(after) = query.after {
        let mut looked = context.told.looked.subscribe();
        // Whoever has waited for long enough gets what there is.
        let _ = tokio::time::timeout(NEWS_TIMEOUT, looked.wait_for(|at| *at > after)).await;
    }
    let packed = accepts_gzip(&headers);
    let recent = context.lock_state().recent_hours();
    let private = context.doors.private_data();
    let asked = MapCacheKey {
        query: TimelineQuery { after: None, ..query },
        class: VisibilityClass::for_reader(&viewer, private),
        packed,
    };
    let answer = context.told.maps.entry_for(known_until(&recent), asked);
    // Some tens of megabytes, and a part of a second.
    let making =
        || run_limited(&context.doors.fits, render_timeline(context.clone(), viewer, private, asked, recent));
    let body = answer.get_or_try_init(making).await?.clone();
    let head = [(CONTENT_TYPE, "application/json"), (VARY, "accept-encoding")];
    Ok((head, packed.then_some([(CONTENT_ENCODING, "gzip")]), body).into_response())
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).is_some_and(|v| v.contains("gzip"))
}

/// Until when something is known.
fn known_until(recent: &[Arc<UsageHour>]) -> UnixTime {
    recent.last().map_or(UnixTime(0), |hour| hour.from + i64::from(hour.secs))
}

async fn render_timeline(
    context: Arc<DaemonContext>,
    viewer: ApiReader,
    private: PrivateData,
    MapCacheKey { query, packed, .. }: MapCacheKey,
    recent: Vec<Arc<UsageHour>>,
) -> Result<Bytes, RequestDenial> {
    let seen = known_until(&recent);
    let from = query.nodes_since.map_or(query.from, |since| since.min(query.from));
    let keep_days = context.config.store.keep_node_days;
    let stretch = HoursRequest { recent, from, to: query.to, now: now(), keep_days };
    let hours = context.told.timelines.hours_between(context.store.as_ref(), stretch).await?;
    // Of nodes that are private only all together are shown.
    let is_whole = private.nodes && !viewer.all;
    let planned = context.lock_state().planned_uses(seen, now());
    let making = run_blocking(move || {
        let mut map = timeline::build_map(&hours, &planned, &to_map_request(&query, is_whole));
        let owners = map_owners(&context, &map);
        RedactionFilter::new(&viewer, private, &|job| owners.get(&job).copied().flatten())
            .redact_map(&mut map);
        encode_body(&timeline_view(&query, seen, map), packed)
    });
    Ok(making.await?.map_err(internal_error)?.into())
}

/// Whose the jobs of a map are.
fn map_owners(context: &DaemonContext, map: &UsageMap) -> BTreeMap<JobId, Option<UserId>> {
    let jobs = map.malleable_jobs();
    let state = context.lock_state();
    jobs.into_iter().map(|job| (job, state.job_owner(job))).collect()
}

fn check_query(query: &TimelineQuery) -> Result<(), RequestDenial> {
    let bad = |what: String| Err(RequestDenial::new(StatusCode::BAD_REQUEST, what));
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

fn to_map_request(query: &TimelineQuery, is_whole: bool) -> MapRequest {
    let TimelineQuery { from, to, columns, .. } = *query;
    match is_whole {
        true => MapRequest { from, to, first: 0, count: usize::MAX, rows: 1, columns },
        false => {
            let count = query.count.unwrap_or(usize::MAX);
            MapRequest { from, to, first: query.first, count, rows: query.rows, columns }
        }
    }
}

fn timeline_view(query: &TimelineQuery, seen: UnixTime, map: UsageMap) -> TimelineView {
    let UsageMap { nodes, first, count, rows } = map;
    let rows = match rows {
        MapRows::Nodes(rows) => TimelineRows::Nodes {
            rows: rows
                .into_iter()
                .map(|(node, runs): (_, Vec<timeline::UsageRun>)| NodeRow {
                    node,
                    runs: runs.into_iter().map(|run| (run.from, run.to, run.used.to_code())).collect(),
                })
                .collect(),
        },
        MapRows::Mixtures { nodes, shares } => {
            let shares = base64::engine::general_purpose::STANDARD.encode(pack_shares(&shares));
            TimelineRows::Mixtures { rows: nodes, columns: query.columns, shares }
        }
    };
    TimelineView { schema: SCHEMA, from: query.from, to: query.to, seen, nodes, first, count, rows }
}

/// Two shares a byte.
fn pack_shares(shares: &[f32]) -> Vec<u8> {
    const { assert!(USE_KINDS.is_multiple_of(2)) };
    let step = |share: f32| (share * SHARE_STEPS).round() as u8;
    shares.chunks_exact(2).map(|two| step(two[0]) << 4 | step(two[1])).collect()
}

fn encode_body(view: &TimelineView, packs: bool) -> std::io::Result<Vec<u8>> {
    let text = serde_json::to_vec(view)?;
    if !packs {
        return Ok(text);
    }
    let mut packed = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    packed.write_all(&text)?;
    packed.finish()
}
