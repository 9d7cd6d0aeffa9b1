//! Tests of the requests that are sent to a slurmrestd, and of those that are sent again.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::RestSlurm;
use crate::{SlurmApi, SlurmError};
use infill_model::{JobId, NodeName, SnapshotDoubt, config::SlurmConfig};

type Answer = (StatusCode, String);
type Script = Box<dyn FnMut(&str, &str) -> Answer + Send>;

/// A slurmrestd that answers by a script, given `METHOD /path?query` and the token.
struct Fake {
    script: Script,
    requests: Vec<String>,
}

struct Served {
    fake: Arc<Mutex<Fake>>,
    slurm: RestSlurm,
}

impl Served {
    /// The requests since the last call of this, without the search for a version.
    fn requests(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut self.fake.lock().unwrap().requests);
        requests.retain(|request| !request.ends_with("/ping/"));
        requests
    }
}

async fn answer(State(fake): State<Arc<Mutex<Fake>>>, request: Request) -> Answer {
    let path = request.uri().path_and_query().map_or(String::new(), ToString::to_string);
    let asked = format!("{} {path}", request.method());
    let token = request.headers().get("X-SLURM-USER-TOKEN").and_then(|t| t.to_str().ok()).unwrap_or("");
    let mut fake = fake.lock().unwrap();
    fake.requests.push(asked.clone());
    (fake.script)(&asked, token)
}

async fn serve(config: SlurmConfig, script: impl FnMut(&str, &str) -> Answer + Send + 'static) -> Served {
    let fake = Arc::new(Mutex::new(Fake { script: Box::new(script), requests: Vec::new() }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rest = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(fake.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    Served { fake, slurm: RestSlurm::new(&SlurmConfig { rest, ..config }).unwrap() }
}

fn ok(value: Value) -> Answer {
    (StatusCode::OK, value.to_string())
}

fn fine() -> Answer {
    ok(json!({ "errors": [], "meta": { "slurm": { "release": "24.11.5", "cluster": "c" } } }))
}

fn no_url() -> Answer {
    (StatusCode::NOT_FOUND, "Unable find requested URL.".to_owned())
}

fn job(state: &str, partition: &str) -> Answer {
    let (nodes, host) = if state == "RUNNING" { ("n[1-3]", "n1") } else { ("", "") };
    ok(json!({ "jobs": [{
        "job_id": 7, "user_id": 1, "job_state": [state], "partition": partition, "nodes": nodes,
        "batch_host": host, "node_count": 3, "priority": 1,
    }] }))
}

/// Speaks only v0.0.41, where job 7 is as given, and accepts every change.
fn with_job(state: &'static str, partition: &'static str) -> impl FnMut(&str, &str) -> Answer + Send {
    move |asked, _| match asked {
        a if !a.contains("/v0.0.41/") => no_url(),
        "GET /slurm/v0.0.41/job/7" => job(state, partition),
        _ => fine(),
    }
}

#[tokio::test]
async fn sites_with_shared_nodes_use_a_version_that_shows_shares() {
    for (speaks, expected) in [(vec!["v0.0.45", "v0.0.44"], "v0.0.44"), (vec!["v0.0.45"], "v0.0.45")] {
        let served = serve(SlurmConfig::default(), move |asked, _| {
            if speaks.iter().any(|v| asked.contains(&format!("/{v}/"))) { fine() } else { no_url() }
        })
        .await;
        let slurm = served.slurm.with_share_records();
        assert_eq!(slurm.rest_endpoint().await.unwrap().rest_version, expected);
    }
}

#[tokio::test]
async fn the_newest_common_version_is_used_and_found_again() {
    let speaks = Arc::new(Mutex::new(vec!["v0.0.43", "v0.0.42"]));
    let now = speaks.clone();
    let served = serve(SlurmConfig::default(), move |asked, _| {
        if now.lock().unwrap().iter().any(|v| asked.contains(&format!("/{v}/"))) { fine() } else { no_url() }
    })
    .await;
    let endpoint = served.slurm.rest_endpoint().await.unwrap();
    assert_eq!((endpoint.rest_version.as_str(), endpoint.slurm_version.as_str()), ("v0.0.43", "24.11.5"));
    assert_eq!(endpoint.available, ["v0.0.43", "v0.0.42"]);
    *speaks.lock().unwrap() = vec!["v0.0.45"];
    let e = served.slurm.find_job(JobId(7)).await.unwrap_err();
    // The script has no jobs: only the URL of the request matters.
    assert!(e.to_string().contains("not what was asked for"), "{e}");
    assert_eq!(served.requests(), ["GET /slurm/v0.0.43/job/7", "GET /slurm/v0.0.45/job/7"]);
    *speaks.lock().unwrap() = vec![];
    let e = served.slurm.find_job(JobId(7)).await.unwrap_err();
    assert!(e.to_string().contains("speaks no version from v0.0.41 (Slurm 24.05) to v0.0.45"), "{e}");
}

#[tokio::test]
async fn reads_are_tried_again_and_changes_are_not() {
    let mut failures = 2;
    let served = serve(SlurmConfig::default(), move |asked, _| match asked {
        a if a.starts_with("POST") => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        "GET /slurm/v0.0.45/job/7" if failures > 0 => {
            failures -= 1;
            (StatusCode::TOO_MANY_REQUESTS, String::new())
        }
        a => with_job("RUNNING", "infill")(&a.replace("v0.0.45", "v0.0.41"), ""),
    })
    .await;
    let e = served.slurm.set_time_limit(JobId(7), 5).await.unwrap_err();
    assert!(e.is_transient(), "{e}");
    let read = "GET /slurm/v0.0.45/job/7";
    assert_eq!(served.requests(), [read, read, read, "POST /slurm/v0.0.45/job/7"]);
}

#[tokio::test]
async fn a_refused_token_is_read_again_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "old").unwrap();
    let config = SlurmConfig {
        token_file: Some(file.clone()),
        scontrol: "/no/such/scontrol".into(),
        ..SlurmConfig::default()
    };
    let path = file.clone();
    let served = serve(config, move |asked, token| match token {
        "new" => with_job("RUNNING", "infill")(asked, token),
        _ => {
            // The token file is renewed at this moment.
            std::fs::write(&path, "new").unwrap();
            (StatusCode::UNAUTHORIZED, "Authentication failure".to_owned())
        }
    })
    .await;
    assert_eq!(served.slurm.rest_endpoint().await.unwrap().rest_version, "v0.0.41");
    assert!(served.slurm.find_job(JobId(7)).await.unwrap().is_some());
    std::fs::remove_file(&file).unwrap();
    let e = served.slurm.find_job(JobId(7)).await.unwrap_err();
    assert!(matches!(e, SlurmError::Denied { .. }), "{e}");
}

#[tokio::test]
async fn only_jobs_of_the_partition_in_the_right_state_are_touched() {
    for (state, partition) in [("RUNNING", "main"), ("PENDING", "main,infill"), ("COMPLETED", "infill")] {
        let served = serve(SlurmConfig::default(), with_job(state, partition)).await;
        let slurm = &served.slurm;
        let id = JobId(7);
        let node = NodeName::new("n1");
        assert!(slurm.launch_job(id, &node, 5).await.is_err());
        assert!(slurm.set_time_limit(id, 5).await.is_err());
        assert!(slurm.shrink_job(id, &[node]).await.is_err());
        assert!(slurm.requeue_hold(id).await.is_err());
        assert!(slurm.hold_job(id).await.is_err());
        assert_eq!(slurm.cancel_job(id).await.is_ok(), state == "COMPLETED");
        assert!(served.requests().iter().all(|h| h == "GET /slurm/v0.0.41/job/7"));
    }
}

#[tokio::test]
async fn harmful_changes_are_not_sent() {
    let served = serve(SlurmConfig::default(), with_job("RUNNING", "infill")).await;
    let slurm = &served.slurm;
    let id = JobId(7);
    let nodes = |names: &[&str]| names.iter().map(NodeName::new).collect::<Vec<_>>();
    for keep in [nodes(&[]), nodes(&["n2"]), nodes(&["n1", "n9"])] {
        assert!(slurm.shrink_job(id, &keep).await.is_err(), "{keep:?}");
    }
    slurm.shrink_job(id, &nodes(&["n3", "n2", "n1"])).await.unwrap();
    assert!(served.requests().iter().all(|h| h.starts_with("GET")));
    slurm.shrink_job(id, &nodes(&["n3", "n1"])).await.unwrap();
    let changes: Vec<String> = served.requests().into_iter().filter(|h| !h.starts_with("GET")).collect();
    assert_eq!(changes, ["POST /slurm/v0.0.41/job/7"]);
}

#[tokio::test]
async fn a_snapshot_waits_for_backfill_but_not_forever() {
    let diag = |active: bool| {
        ok(json!({ "statistics": {
            "req_time": 1000, "req_time_start": 1, "bf_active": active, "bf_when_last_cycle": 900,
            "bf_cycle_counter": 1, "bf_exit": { "end_job_queue": 1 },
        } }))
    };
    let mut active_looks = 1;
    let served = serve(SlurmConfig::default(), move |asked, _| match asked.rsplit_once("v0.0.45") {
        Some((_, "/diag/")) => {
            active_looks -= 1;
            diag(active_looks >= 0)
        }
        Some((_, "/nodes/")) => ok(json!({ "nodes": [{ "name": "n1", "state": ["IDLE"], "cpus": 2 }] })),
        Some((_, "/jobs/")) => ok(json!({ "jobs": [], "last_backfill": 900 })),
        Some((_, "/reservations/")) => ok(json!({ "reservations": [] })),
        _ => fine(),
    })
    .await;
    let snapshot = served.slurm.read_snapshot().await.unwrap();
    assert_eq!(snapshot.doubts, []);
    assert!(snapshot.backfill.complete && !snapshot.backfill.active);
    assert_eq!(served.requests().iter().filter(|h| h.contains("diag")).count(), 3);
    // Without earlier plans, wiped starts cannot be restored.
    let always = serve(SlurmConfig::default(), move |asked, token| match asked.rsplit_once("v0.0.45") {
        Some((_, "/diag/")) => diag(true),
        _ => (served.fake.lock().unwrap().script)(asked, token),
    })
    .await;
    let snapshot = always.slurm.read_snapshot().await.unwrap();
    assert_eq!(snapshot.doubts, [SnapshotDoubt::BackfillActive]);
    assert_eq!(always.requests().iter().filter(|h| h.contains("/jobs/")).count(), 1);
}

#[tokio::test]
async fn a_snapshot_has_the_backfill_resolution_once_it_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "echo 'PrivateData = none'; echo 'SchedulerParameters = bf_interval=2,bf_resolution=30'";
    let scontrol = infill_testkit::write_script(dir.path().join("scontrol"), lines);
    let served = serve(SlurmConfig { scontrol, ..SlurmConfig::default() }, |asked, _| {
        match asked.rsplit_once("v0.0.45") {
            Some((_, "/diag/")) => ok(json!({ "statistics": {
                "req_time": 1000, "req_time_start": 1, "bf_active": false, "bf_when_last_cycle": 900,
                "bf_cycle_counter": 1, "bf_exit": { "end_job_queue": 1 },
            } })),
            Some((_, "/nodes/")) => ok(json!({ "nodes": [{ "name": "n1", "state": ["IDLE"], "cpus": 2 }] })),
            Some((_, "/jobs/")) => ok(json!({ "jobs": [], "last_backfill": 900 })),
            Some((_, "/reservations/")) => ok(json!({ "reservations": [] })),
            _ => fine(),
        }
    })
    .await;
    assert_eq!(served.slurm.read_snapshot().await.unwrap().backfill.resolution_secs, None);
    served.slurm.read_privacy().await.unwrap();
    assert_eq!(served.slurm.read_snapshot().await.unwrap().backfill.resolution_secs, Some(30));
}

#[tokio::test]
async fn news_are_main_jobs_that_no_snapshot_has_shown() {
    let submitted = Arc::new(Mutex::new(40));
    let count = submitted.clone();
    let row = |id: u32, partition: &str| json!({ "job_id": id, "job_state": ["PENDING"], "partition": partition, "user_id": 1, "user_name": "u" });
    let served = serve(SlurmConfig::default(), move |asked, _| match asked.rsplit_once("v0.0.45") {
        Some((_, "/diag/")) => ok(json!({ "statistics": {
            "req_time": 1000, "req_time_start": 1, "bf_active": false, "bf_when_last_cycle": 900,
            "bf_cycle_counter": 1, "bf_exit": { "end_job_queue": 1 }, "jobs_submitted": *count.lock().unwrap(),
        } })),
        Some((_, "/nodes/")) => ok(json!({ "nodes": [{ "name": "n1", "state": ["IDLE"], "cpus": 2 }] })),
        Some((_, "/jobs/")) => ok(json!({ "jobs": [row(7, "main")], "last_backfill": 900 })),
        Some((_, "/job/8")) => ok(json!({ "jobs": [row(8, "infill")] })),
        Some((_, "/job/9")) if *count.lock().unwrap() > 41 => ok(json!({ "jobs": [row(9, "main")] })),
        Some((_, "/job/9")) => ok(json!({ "jobs": [] })),
        Some((_, "/reservations/")) => ok(json!({ "reservations": [] })),
        _ => fine(),
    })
    .await;
    assert!(!served.slurm.has_new_main_jobs().await.unwrap(), "there was no snapshot");
    served.slurm.read_snapshot().await.unwrap();
    served.requests();
    let once: &[&str] = &["diag/"];
    for (new_jobs, news, expected) in [
        (0, false, once),
        (1, false, &["diag/", "job/8", "job/9"]),
        (0, false, once),
        (1, true, &["diag/", "job/9"]),
        (9, true, once),
    ] {
        *submitted.lock().unwrap() += new_jobs;
        assert_eq!(served.slurm.has_new_main_jobs().await.unwrap(), news, "{new_jobs}");
        let requests = served.requests();
        let tails: Vec<&str> = requests.iter().filter_map(|r| Some(r.split_once("v0.0.45/")?.1)).collect();
        assert_eq!(tails, expected, "{new_jobs}");
    }
}
