//! What the page reads for its head, for the lanes of jobs, and for one node.

use serde_json::{Value, json};

use super::*;
use infill_api::MAX_DAY_SECS;
use infill_model::{MainDelay, NodeUsageSecs, PackedHour};

async fn read(daemon: &mut TestDaemon, who: ReaderKind, path: &str) -> Value {
    let (status, body) = daemon.get(who, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn a_summary_has_what_happened_since_the_day_began() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let hour = crate::timeline::hour_of(now());
    let day = hour + -3600;
    let store = daemon.context.store.clone();
    let uses = NodeUsageSecs::from_array([3600.0, 7200.0, 1800.0, 0.0, 0.0, 0.0]);
    store.put_hour(&PackedHour { from: day, packed: Vec::new() }, &uses).await.unwrap();
    let waits = [(7, day + 5, 0.5), (8, day + 9, 42.0), (9, day + -1, 900.0)];
    let delays = waits.map(|(job, at, secs)| MainDelay { job: JobId(job), at, secs, planned: false });
    store.add_delays(&delays).await.unwrap();
    let generation = |number, at| GenerationRecord {
        job: JobId(7),
        generation: number,
        started_at: at,
        nodes: Vec::new(),
        why: String::new(),
    };
    let generations = [generation(1, day), generation(2, day + 1), generation(3, day + -1)];
    store.add_generations(&generations).await.unwrap();
    let found = read(&mut daemon, ReaderKind::Other, &format!("{}?day={}", paths::SUMMARY, day.0)).await;
    let expected = json!({ "jobs": 2, "delayed": 1, "p99_secs": 42.0, "max_secs": 42.0, "limit_secs": 30.0 });
    assert_eq!(found["delays"], expected, "{found}");
    assert_eq!(found["rescales"], 1, "first generations and those of the day before do not count: {found}");
    assert_eq!(found["uses"]["malleable_secs"], 7200.0, "{found}");
    assert_eq!(found["since"], day.0, "{found}");
    let nodes = json!({ "main": 1, "malleable": 0, "idle": 3, "wanted": 0, "refused": 0, "down": 0 });
    assert_eq!(found["nodes"], nodes, "{found}");
}

#[tokio::test]
async fn all_readers_get_a_summary_that_was_made_once() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let day = now().0 - 60;
    let path = format!("{}?day={day}", paths::SUMMARY);
    let first = read(&mut daemon, ReaderKind::Other, &path).await;
    let late = MainDelay { job: JobId(7), at: UnixTime(day + 1), secs: 1.0, planned: false };
    daemon.context.store.add_delays(&[late]).await.unwrap();
    assert_eq!(read(&mut daemon, ReaderKind::Admin, &path).await, first, "the store is not read again");
    // Another snapshot, more than ten seconds later.
    daemon.context.response_cache.snapshot_times.send_replace(UnixTime(2_000_000));
    assert_eq!(read(&mut daemon, ReaderKind::Admin, &path).await["delays"]["jobs"], 1);
}

#[tokio::test]
async fn a_day_that_is_no_day_is_refused() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    for (day, expected) in [
        (now().0 - MAX_DAY_SECS - 10, 400),
        (now().0 - MAX_DAY_SECS + 10, 200),
        (now().0 + 60, 400),
        (i64::MIN, 400),
    ] {
        let (status, body) = daemon.get(ReaderKind::Admin, &format!("{}?day={day}", paths::SUMMARY)).await;
        assert_eq!(status, expected, "{day}: {body}");
    }
}

/// The owner's job gets two nodes, one after the other.
async fn start_with_job() -> TestDaemon {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.slurm.launch_job(JobId(424_201), &NodeName::new("n1"), 10).await.unwrap();
    daemon.slurm.advance_secs(30);
    look(&daemon.context).await;
    daemon
}

#[tokio::test]
async fn a_lane_has_the_sizes_of_a_job_and_why_they_changed() {
    let mut daemon = start_with_job().await;
    let path = format!("{}?from=1000000&to=1000060", paths::LANES);
    for (private, who, hidden) in [
        ("none", ReaderKind::Other, 0),
        ("jobs", ReaderKind::Owner, 0),
        ("jobs", ReaderKind::Other, 1),
        ("jobs,users", ReaderKind::Admin, 0),
    ] {
        daemon.keep_private(PrivateData::parse(private));
        let found = read(&mut daemon, who, &path).await;
        assert_eq!(found["hidden"], hidden, "{who:?}, {private}: {found}");
        let Some(lane) = found["lanes"].get(0) else {
            assert_eq!(hidden, 1, "{who:?}, {private}: {found}");
            continue;
        };
        let change = json!([{ "at": 1_000_000, "generation": 2, "nodes": 1, "why": "secret-reason" }]);
        assert_eq!(
            (&lane["job"], &lane["name"], &lane["user"], &lane["spans"], &lane["changes"]),
            (&json!(424_201), &json!("secret-train"), &json!(OWNER), &json!([[30, 60, 1]]), &change),
            "{who:?}, {private}: {found}"
        );
    }
}

#[tokio::test]
async fn a_node_has_its_uses_and_its_place_on_the_map() {
    let mut daemon = start_with_job().await;
    for (private, who, expected) in [
        ("none", ReaderKind::Other, (json!(0), json!([[0, 30, 2], [30, 60, 424_207]]), 1)),
        ("jobs", ReaderKind::Other, (json!(0), json!([[0, 30, 2], [30, 60, 6]]), 1)),
        ("nodes", ReaderKind::Other, (Value::Null, json!([]), 0)),
        // Its owner may see the node that the job holds now, without what it was used for before.
        ("nodes", ReaderKind::Owner, (Value::Null, json!([]), 1)),
    ] {
        let (index, runs, views) = expected;
        daemon.keep_private(PrivateData::parse(private));
        let found = read(&mut daemon, who, "/v1/nodes/n1?from=1000000&to=1000060").await;
        assert_eq!((&found["index"], &found["runs"]), (&index, &runs), "{who:?}, {private}: {found}");
        let now = found["now"].as_array().unwrap();
        assert_eq!(now.len(), views, "{who:?}, {private}: {found}");
        assert!(now.iter().all(|node| node["node"] == "n1"), "{who:?}, {private}: {found}");
    }
    let missing = read(&mut daemon, ReaderKind::Admin, "/v1/nodes/n99?from=1000000&to=1000060").await;
    assert_eq!((&missing["index"], &missing["now"]), (&Value::Null, &json!([])), "{missing}");
}
