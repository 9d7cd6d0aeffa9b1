//! The daemon's health, its lead, plans for readers, and jobs that are gone.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State as Shared;

use super::*;
use crate::http::live_status;
use crate::redaction::ApiReader;
use infill_testkit::samples::sample_round;

#[tokio::test]
async fn a_daemon_is_healthy_for_ten_polls_after_a_round() {
    let mut daemon = TestDaemon::configured(|config| config.daemon.poll_interval_secs = 30.0).await;
    for (age, expected) in [(0, 200), (200, 200), (400, 503)] {
        let mut view = sample_round();
        view.report.at = now() + -age;
        daemon.context.lock_state().round = Some(view);
        let (status, body) = daemon.get(ReaderKind::Nobody, paths::HEALTHZ).await;
        assert_eq!(status, expected, "{age} s: {body}");
        assert!(if expected == 200 { body == "ok\n" } else { body.contains("no round since") }, "{body}");
    }
}

#[tokio::test]
async fn a_daemon_that_lost_the_lead_answers_open_routes_only() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.context.lock_state().round = None;
    daemon.context.leadership.mark_lost();
    for route in ROUTES {
        let url = format!("{}{}", daemon.url, route.path);
        let request = match route.access {
            RouteAccess::Open | RouteAccess::Reads | RouteAccess::Computes => daemon.http.get(url),
            RouteAccess::Agents | RouteAccess::Changes => daemon.http.post(url),
        };
        let status = request.send().await.unwrap().status().as_u16();
        assert_eq!(status, if route.access == RouteAccess::Open { 200 } else { 503 }, "{}", route.path);
    }
}

#[tokio::test]
async fn the_pause_after_a_plan_is_several_times_its_duration() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    let viewer = ApiReader { all: true, ..ApiReader::default() };
    // On a busy host a single pause means little, so the best of several plans counts.
    let mut times = Vec::new();
    let is_long = |(took, rest): &(Duration, Duration)| *rest >= *took * 2;
    while times.len() < 20 && !times.iter().any(is_long) {
        let began = Instant::now();
        drop(live_status::get_plan(Shared(daemon.context.clone()), Extension(viewer.clone())).await.unwrap());
        let ended = Instant::now();
        let rested = daemon.context.access.planning.lock().await.take().unwrap();
        times.push((ended - began, rested.saturating_duration_since(ended)));
    }
    assert!(times.iter().any(is_long), "{times:?}");
    assert!(times.iter().all(|(_, rest)| *rest <= Duration::from_secs(5)), "{times:?}");
}

/// Stores a round and a generation of an owner's job that Slurm does not show any more.
async fn remember_a_job_that_is_gone(daemon: &TestDaemon) {
    let job = JobId(424_777);
    let at = UnixTime(900_000);
    let mut view = sample_round();
    view.plan.at = at + -5;
    view.report.owners = [(job, uid_of(OWNER).await.unwrap())].into();
    let record = RoundRecord { at: view.plan.at, plan: view.plan, report: view.report, acted: true };
    daemon.context.store.add_round(&record).await.unwrap();
    let nodes = vec![NodeName::new("n1")];
    let generation =
        GenerationRecord { job, generation: 1, started_at: at, nodes, why: "gone-reason".to_owned() };
    daemon.context.store.add_generations(&[generation]).await.unwrap();
}

#[tokio::test]
async fn generations_of_a_job_that_is_gone_stay_its_owners() {
    let mut daemon = TestDaemon::start(ReadAccess::Open).await;
    remember_a_job_that_is_gone(&daemon).await;
    for (private, who, is_seen) in [
        ("none", ReaderKind::Nobody, true),
        ("jobs", ReaderKind::Owner, true),
        ("jobs", ReaderKind::Other, false),
        ("jobs", ReaderKind::Nobody, false),
        ("jobs", ReaderKind::Admin, true),
        ("users", ReaderKind::Other, true),
    ] {
        daemon.keep_private(PrivateData::parse(private));
        let (status, body) = daemon.get(who, &paths::generations_path(JobId(424_777))).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(body.contains("gone-reason"), is_seen, "{who:?}, {private}: {body}");
    }
}

#[tokio::test]
async fn a_job_that_only_the_last_round_knows_is_explained_to_those_who_may_see_it() {
    let mut daemon = TestDaemon::start(ReadAccess::Open).await;
    let owner = uid_of(OWNER).await.unwrap();
    {
        let mut state = daemon.context.lock_state();
        let view = state.round.as_mut().unwrap();
        let verdict = sample_round().report.jobs.remove(0);
        view.report.jobs.push(infill_model::JobVerdict { job: JobId(424_777), ..verdict });
        view.report.owners.insert(JobId(424_777), owner);
    }
    for (private, who, expected) in [
        ("none", ReaderKind::Other, 200),
        ("jobs", ReaderKind::Owner, 200),
        ("jobs", ReaderKind::Other, 404),
        ("jobs", ReaderKind::Nobody, 404),
        ("jobs", ReaderKind::Admin, 200),
    ] {
        daemon.keep_private(PrivateData::parse(private));
        let (status, body) = daemon.get(who, "/v1/explain/424777").await;
        assert_eq!(status, expected, "{who:?}, {private}: {body}");
        let says = "job 424777 is no longer among the malleable jobs";
        assert_eq!(body.contains(says), expected == 200, "{who:?}, {private}: {body}");
        let (status, body) = daemon.get(who, "/v1/explain/424888").await;
        assert_eq!(status, 404, "{who:?}, {private}: {body}");
        let unknown = "infill knows no such job or node";
        assert!(body.contains(unknown), "{who:?}, {private}: {body}");
    }
}
