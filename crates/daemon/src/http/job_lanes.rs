//! Sizes of malleable jobs over time, and why they changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::response::IntoResponse;
use bytes::Bytes;

use super::concurrency::{internal_error, run_blocking, run_limited};
use super::timeline::{accepts_gzip, encode_body};
use super::{RequestDenial, check_span};
use crate::context::DaemonContext;
use crate::hour_cache::HoursRequest;
use crate::redaction::{ApiReader, RedactionFilter, VisibilityClass};
use crate::response_cache::LanesCacheKey;
use crate::state::DaemonState;
use crate::timeline::{self, SizeSpan};
use infill_api::{
    JobLane, LaneChange, LanesQuery, LanesView, MAX_LANE_CHANGES, MAX_LANE_SPANS, MAX_LANES,
    MAX_TIMELINE_SECS, SCHEMA_VERSION,
};
use infill_model::{
    EndedJob, GenerationRecord, JobId, PrivateData, UnixTime, clock::now, generations_of_last_job,
};

/// Number of ended jobs whose names are looked up.
const MAX_ENDED_NAMES: u32 = 500;

/// `GET /v1/lanes`.
pub(crate) async fn get_lanes(
    State(context): State<Arc<DaemonContext>>,
    Extension(viewer): Extension<ApiReader>,
    query: Result<Query<LanesQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, RequestDenial> {
    let Query(query) = query?;
    check_span(query.from, query.to, MAX_TIMELINE_SECS)?;
    let private = context.access.private_data();
    let class = VisibilityClass::for_reader(&viewer, private);
    let snapshot_at = *context.response_cache.snapshot_times.borrow();
    let packed = accepts_gzip(&headers);
    let key = LanesCacheKey { query, class, packed };
    let answer = context.response_cache.lanes.entry_for(snapshot_at, key);
    let rendering = render_lanes(context.clone(), viewer, private, key);
    let body = answer.get_or_try_init(|| run_limited(&context.access.fits, rendering)).await?.clone();
    let head = [(CONTENT_TYPE, "application/json"), (VARY, "accept-encoding")];
    Ok((head, packed.then_some([(CONTENT_ENCODING, "gzip")]), body))
}

async fn render_lanes(
    context: Arc<DaemonContext>,
    viewer: ApiReader,
    private: PrivateData,
    LanesCacheKey { query, packed, .. }: LanesCacheKey,
) -> Result<Bytes, RequestDenial> {
    let LanesQuery { from, to } = query;
    let store = context.store.as_ref();
    let generations = store.generations_between(from, to, MAX_LANE_CHANGES).await?;
    let ended = store.recent_ended_jobs(MAX_ENDED_NAMES).await?;
    let recent = context.lock_state().recent_hours();
    let seen = recent.last().map_or(UnixTime(0), |hour| hour.from + i64::from(hour.secs));
    let keep_days = context.config.store.keep_node_days;
    let request = HoursRequest { recent, from, to, now: now(), keep_days };
    let hours = context.response_cache.timelines.hours_between(store, request).await?;
    let planned = context.lock_state().planned_uses(seen, now());
    let rendering = run_blocking(move || {
        let spans = timeline::job_spans(&hours, &planned, from, to);
        let view = to_view(&context.lock_state(), query, seen, spans, generations, &ended);
        let state = context.lock_state();
        let view = RedactionFilter::new(&viewer, private, &|job| state.job_owner(job)).redact_lanes(view);
        drop(state);
        encode_body(&limit_lanes(view), packed)
    });
    rendering.await?.map(Bytes::from).map_err(internal_error)
}

/// The lanes of all jobs that held nodes or began a generation.
fn to_view(
    state: &DaemonState,
    query: LanesQuery,
    seen: UnixTime,
    mut spans: BTreeMap<JobId, Vec<SizeSpan>>,
    generations: Vec<GenerationRecord>,
    ended: &[EndedJob],
) -> LanesView {
    let mut by_job: BTreeMap<JobId, Vec<GenerationRecord>> = BTreeMap::new();
    for generation in generations {
        by_job.entry(generation.job).or_default().push(generation);
    }
    for job in by_job.keys() {
        spans.entry(*job).or_default();
    }
    // The last record of a number counts.
    let ended: BTreeMap<JobId, &EndedJob> = ended.iter().map(|job| (job.job, job)).collect();
    let mut lanes = Vec::new();
    for (job, spans) in spans {
        let changes = generations_of_last_job(by_job.remove(&job).unwrap_or_default());
        lanes.push(lane_view(state, query.from, job, spans, changes, ended.get(&job).copied()));
    }
    LanesView { schema: SCHEMA_VERSION, from: query.from, to: query.to, seen, lanes, hidden: 0, omitted: 0 }
}

fn lane_view(
    state: &DaemonState,
    from: UnixTime,
    job: JobId,
    mut spans: Vec<SizeSpan>,
    mut changes: Vec<GenerationRecord>,
    ended: Option<&EndedJob>,
) -> JobLane {
    let details = state.fleet.job_details(job);
    // Slurm gives the numbers of jobs that are gone to new jobs.
    let submitted = details.map(|details| details.submitted_at).or(ended.map(|ended| ended.submitted_at));
    if let Some(submitted) = submitted {
        spans.retain(|span| from + i64::from(span.to) > submitted);
        changes.retain(|change| change.started_at >= submitted);
    }
    let ended = ended.filter(|_| details.is_none());
    JobLane {
        job,
        name: details.map(|d| d.name.clone()).or(ended.map(|e| e.name.clone())).unwrap_or_default(),
        user: details.map(|d| d.user.clone()).or(ended.map(|e| e.user.clone())).unwrap_or_default(),
        ended_at: ended.map(|ended| ended.ended_at),
        spans: spans.into_iter().map(|span| (span.from, span.to, span.nodes)).collect(),
        changes: changes.into_iter().map(lane_change).collect(),
    }
}

fn lane_change(generation: GenerationRecord) -> LaneChange {
    LaneChange {
        at: generation.started_at,
        generation: generation.generation,
        nodes: generation.nodes.len() as u32,
        why: generation.why,
    }
}

/// Keeps the jobs with the most node-time. A lane with too many stretches gets a coarser one.
fn limit_lanes(mut view: LanesView) -> LanesView {
    if view.lanes.len() > MAX_LANES {
        view.omitted = (view.lanes.len() - MAX_LANES) as u32;
        view.lanes.sort_by_key(|lane| std::cmp::Reverse(node_secs(lane)));
        view.lanes.truncate(MAX_LANES);
        view.lanes.sort_by_key(|lane| lane.job);
    }
    let length = view.to.secs_since(view.from).max(1.0) as u32;
    for lane in view.lanes.iter_mut().filter(|lane| lane.spans.len() > MAX_LANE_SPANS) {
        lane.spans = coarsen_spans(&lane.spans, length);
    }
    view
}

/// At most [`MAX_LANE_SPANS`] stretches, each with the size in its middle.
fn coarsen_spans(spans: &[(u32, u32, u32)], length: u32) -> Vec<(u32, u32, u32)> {
    let width = length.div_ceil(MAX_LANE_SPANS as u32).max(1);
    let mut coarse: Vec<(u32, u32, u32)> = Vec::new();
    for begin in (0..length).step_by(width as usize) {
        let middle = begin + width / 2;
        // The first stretch that ends later.
        let index = spans.partition_point(|(_, to, _)| *to <= middle);
        let Some((_, _, nodes)) = spans.get(index).filter(|(from, ..)| *from <= middle) else { continue };
        match coarse.last_mut() {
            Some(last) if last.1 == begin && last.2 == *nodes => last.1 = begin + width,
            _ => coarse.push((begin, begin + width, *nodes)),
        }
    }
    coarse
}

fn node_secs(lane: &JobLane) -> u64 {
    lane.spans.iter().map(|(from, to, nodes)| u64::from(to - from) * u64::from(*nodes)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_with_the_most_node_time_are_kept() {
        let lane = |job: u32| JobLane {
            job: JobId(job),
            name: String::new(),
            user: String::new(),
            ended_at: None,
            spans: (0..3000).map(|at| (at, at + 1, job)).collect(),
            changes: Vec::new(),
        };
        let lanes = (1..=MAX_LANES as u32 + 3).map(lane).collect();
        let from = UnixTime(0);
        let to = UnixTime(3000);
        let all = LanesView { schema: SCHEMA_VERSION, from, to, seen: to, lanes, hidden: 0, omitted: 0 };
        let kept = limit_lanes(all);
        assert_eq!((kept.omitted, kept.lanes.len(), kept.lanes[0].job), (3, MAX_LANES, JobId(4)));
        assert_eq!(kept.lanes[0].spans, [(0, 3000, 4)], "equal sizes are one stretch");
    }

    #[test]
    fn a_lane_with_many_stretches_becomes_coarser() {
        let spans: Vec<(u32, u32, u32)> = (0..10_000).map(|at| (at, at + 1, at % 7 + 1)).collect();
        let coarse = coarsen_spans(&spans, 10_000);
        assert!(coarse.len() <= MAX_LANE_SPANS && coarse.len() > MAX_LANE_SPANS / 2, "{}", coarse.len());
        assert_eq!((coarse[0], coarse[1]), ((0, 25, 6), (25, 50, 3)));
        // Gaps stay.
        assert_eq!(
            coarsen_spans(&[(0, 100, 2), (5000, 10_000, 3)], 10_000),
            [(0, 100, 2), (5000, 10_000, 3)]
        );
    }
}
