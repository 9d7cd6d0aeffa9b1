//! The timeline: what nodes were used for.

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
use serde::Serialize;

use crate::context::DaemonContext;
use crate::hour_cache::HoursRequest;
use crate::redaction::{ApiReader, RedactionFilter, VisibilityClass};
use crate::response_cache::MapCacheKey;
use crate::timeline;
use crate::timeline::{MapRequest, MapRows, USE_KINDS, UsageHour, UsageMap, UsageRun};
use infill_api::{
    MAX_TIMELINE_CELLS, MAX_TIMELINE_PIXELS, MAX_TIMELINE_SECS, NodeRow, SCHEMA_VERSION, TimelineQuery,
    TimelineRows, TimelineView,
};
use infill_model::{JobId, PrivateData, UnixTime, UserId, clock::now};

use super::concurrency::{internal_error, run_blocking, run_limited};
use super::{RequestDenial, auth, check_span};

/// Longest time that a request waits for a new snapshot.
const NEWS_TIMEOUT: Duration = Duration::from_secs(25);

/// Shares are sent as whole numbers from 0 to this.
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
        let mut snapshot_times = context.response_cache.snapshot_times.subscribe();
        // After the timeout, the reader gets the present data.
        let _ = tokio::time::timeout(NEWS_TIMEOUT, snapshot_times.wait_for(|at| *at > after)).await;
    }
    let packed = accepts_gzip(&headers);
    let recent = context.lock_state().recent_hours();
    let private = context.access.private_data();
    let key = MapCacheKey {
        query: TimelineQuery { after: None, ..query },
        class: VisibilityClass::for_reader(&viewer, private),
        packed,
    };
    let answer = context.response_cache.maps.entry_for(known_until(&recent), key);
    // Rendering takes some tens of megabytes and a part of a second, so it is limited.
    let body = answer
        .get_or_try_init(|| {
            let rendering = render_timeline(context.clone(), viewer, private, key, recent);
            run_limited(&context.access.fits, rendering)
        })
        .await?
        .clone();
    let head = [(CONTENT_TYPE, "application/json"), (VARY, "accept-encoding")];
    Ok((head, packed.then_some([(CONTENT_ENCODING, "gzip")]), body).into_response())
}

pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    auth::header_text(headers, ACCEPT_ENCODING.as_str()).is_some_and(|value| value.contains("gzip"))
}

/// The end of the recorded uses.
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
    let request = HoursRequest { recent, from, to: query.to, now: now(), keep_days };
    let hours = context.response_cache.timelines.hours_between(context.store.as_ref(), request).await?;
    // Where nodes are private, only the mixture of all nodes is shown.
    let hides_nodes = private.nodes && !viewer.all;
    let planned = context.lock_state().planned_uses(seen, now());
    let rendering = run_blocking(move || {
        let mut map = timeline::build_map(&hours, &planned, &to_map_request(&query, hides_nodes));
        let owners = map_owners(&context, &map);
        RedactionFilter::new(&viewer, private, &|job| owners.get(&job).copied().flatten())
            .redact_map(&mut map);
        encode_body(&timeline_view(&query, seen, map), packed)
    });
    Ok(rendering.await?.map_err(internal_error)?.into())
}

/// The owners of the malleable jobs on a map.
pub(super) fn map_owners(context: &DaemonContext, map: &UsageMap) -> BTreeMap<JobId, Option<UserId>> {
    let jobs = map.malleable_jobs();
    let state = context.lock_state();
    jobs.into_iter().map(|job| (job, state.job_owner(job))).collect()
}

fn check_query(query: &TimelineQuery) -> Result<(), RequestDenial> {
    check_span(query.from, query.to, MAX_TIMELINE_SECS)?;
    let reach = query.nodes_since.map_or(0, |since| query.to.0.saturating_sub(since.0));
    if reach > MAX_TIMELINE_SECS {
        let what =
            format!("nodes_since: expected at most {MAX_TIMELINE_SECS} seconds before to, not {reach}");
        return Err(RequestDenial::new(StatusCode::BAD_REQUEST, what));
    }
    for (name, count) in [("rows", query.rows), ("columns", query.columns)] {
        if !(1..=MAX_TIMELINE_PIXELS).contains(&count) {
            let what = format!("{name}: expected 1 to {MAX_TIMELINE_PIXELS}, not {count}");
            return Err(RequestDenial::new(StatusCode::BAD_REQUEST, what));
        }
    }
    if query.rows * query.columns > MAX_TIMELINE_CELLS {
        let what = format!("rows, columns: expected at most {MAX_TIMELINE_CELLS} cells");
        return Err(RequestDenial::new(StatusCode::BAD_REQUEST, what));
    }
    Ok(())
}

/// `hides_nodes`: whether all nodes must be shown as one mixture.
fn to_map_request(query: &TimelineQuery, hides_nodes: bool) -> MapRequest {
    let TimelineQuery { from, to, columns, .. } = *query;
    if hides_nodes {
        return MapRequest { from, to, first: 0, count: usize::MAX, rows: 1, columns };
    }
    let count = query.count.unwrap_or(usize::MAX);
    MapRequest { from, to, first: query.first, count, rows: query.rows, columns }
}

fn timeline_view(query: &TimelineQuery, seen: UnixTime, map: UsageMap) -> TimelineView {
    let UsageMap { nodes, first, count, rows } = map;
    let rows = match rows {
        MapRows::Nodes(rows) => TimelineRows::Nodes {
            rows: rows.into_iter().map(|(node, runs)| NodeRow { node, runs: usage_runs(runs) }).collect(),
        },
        MapRows::Mixtures { nodes, shares } => {
            let shares = base64::engine::general_purpose::STANDARD.encode(pack_shares(&shares));
            TimelineRows::Mixtures { rows: nodes, columns: query.columns, shares }
        }
    };
    TimelineView { schema: SCHEMA_VERSION, from: query.from, to: query.to, seen, nodes, first, count, rows }
}

/// Uses as numbers, for a reader.
pub(super) fn usage_runs(runs: Vec<UsageRun>) -> Vec<(u32, u32, u64)> {
    runs.into_iter().map(|run| (run.from, run.to, run.used.to_code())).collect()
}

/// Packs two shares into each byte, four bits each.
fn pack_shares(shares: &[f32]) -> Vec<u8> {
    const { assert!(USE_KINDS.is_multiple_of(2)) };
    shares.chunks_exact(2).map(|pair| to_share_step(pair[0]) << 4 | to_share_step(pair[1])).collect()
}

fn to_share_step(share: f32) -> u8 {
    (share * SHARE_STEPS).round() as u8
}

/// The answer as JSON, compressed if the reader takes that.
pub(super) fn encode_body(view: &impl Serialize, compress: bool) -> std::io::Result<Vec<u8>> {
    let text = serde_json::to_vec(view)?;
    if !compress {
        return Ok(text);
    }
    let mut packed = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    packed.write_all(&text)?;
    packed.finish()
}
