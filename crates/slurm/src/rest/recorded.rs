//! Tests with recorded answers of real slurmrestds: every version gives the same snapshot of the same
//! cluster, and damaged answers cause neither a panic nor a wrong snapshot.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;

use super::bad_records::{MalleableJobs, SettledJobs};
use super::failure::{FailureKind, RequestFailure};
use super::raw_reading::{ExitWatch, RawReading, SchedulerDiag};
use super::record::{SharedNames, WireRecord};
use super::record_list::{self, RecordList};
use super::wire;
use infill_model::{BaseState, Job, NodeName, Snapshot, SnapshotDoubt, UnixTime};
use infill_testkit::effort;

const RECORDED: [(&str, &str); 6] = [
    ("24.11", "v0.0.41"),
    ("24.11", "v0.0.42"),
    ("26.05", "v0.0.42"),
    ("26.05", "v0.0.43"),
    ("26.05", "v0.0.44"),
    ("26.05", "v0.0.45"),
];

fn recorded(release: &str, version: &str, name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/rest");
    let path = root.join(release).join(version).join(format!("{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn list<M: WireRecord>(text: &str) -> Result<RecordList<M>, RequestFailure> {
    record_list::read_list(text.as_bytes(), &mut SharedNames::default())
}

/// A snapshot as if nothing had happened while the answers were read.
fn snapshot_of(nodes: &str, jobs: &str, reservations: &str, diag: &str) -> Result<Snapshot, RequestFailure> {
    let diag = serde_json::from_str::<wire::DiagResponse>(diag);
    let scheduler =
        SchedulerDiag::new(&diag.map_err(|e| RequestFailure::new(FailureKind::Permanent, e.to_string()))?);
    let reading = RawReading {
        before: scheduler.clone(),
        nodes: list(nodes)?,
        jobs: list(jobs)?,
        reservations: list(reservations)?,
        after: scheduler.clone(),
    };
    Ok(reading.into_snapshot(
        ExitWatch::default().backfill_state(&scheduler),
        &mut MalleableJobs::for_partition("infill"),
    ))
}

fn snapshot(release: &str, version: &str) -> Snapshot {
    let text = |name: &str| recorded(release, version, name);
    snapshot_of(&text("nodes"), &text("jobs"), &text("reservations"), &text("diag")).unwrap()
}

/// A summary of what does not depend on the time of the recording.
fn digest(s: &Snapshot) -> String {
    let names = |n: &[NodeName]| n.iter().map(NodeName::as_str).collect::<Vec<_>>().join(",");
    let zero = s.job(infill_model::JobId(2)).and_then(|j| j.start_time).unwrap_or_default();
    let at = |t: Option<UnixTime>| t.map_or("-".to_owned(), |t| format!("{}m", (t.0 - zero.0 + 30) / 60));
    let mut lines = Vec::new();
    for n in &s.nodes {
        let reason = n.reason.as_deref().unwrap_or("-");
        lines.push(format!("{} {} {} {} {reason}", n.name, n.state, n.node_type, n.partitions.join(",")));
    }
    for j in &s.jobs {
        lines.push(format!(
            "{} {} {:?} {} {} start={} end={} limit={:?} nodes={} planned={} count={} held={} {}",
            j.id,
            j.name,
            j.state.base,
            j.partition,
            j.state_reason,
            at(j.start_time),
            at(j.end_time),
            j.time_limit_mins,
            // Where the failed job ran was chance.
            if j.state.is_ended() { String::new() } else { names(&j.nodes) },
            names(&j.scheduled_nodes),
            j.node_count,
            j.held,
            if j.admin_comment.is_empty() { "-" } else { &j.admin_comment },
        ));
    }
    for r in &s.reservations {
        let from = at(Some(r.start_time));
        let to = at(Some(r.end_time));
        lines.push(format!("{} {} {from}-{to} {}", r.name, names(&r.nodes), r.flags.join("+")));
    }
    lines.push(format!("{:?} {:?}", s.backfill.exit, s.doubts));
    lines.join("\n")
}

#[test]
fn every_version_gives_the_same_snapshot() {
    let newest = digest(&snapshot("26.05", "v0.0.45"));
    insta::assert_snapshot!(newest, @r#"
    n1 ALLOCATED cpu2 main,infill -
    n2 ALLOCATED cpu2 main,infill -
    n3 ALLOCATED cpu2 main,infill -
    n4 DRAIN+IDLE cpu2 main,infill fan
    n5 IDLE+PLANNED cpu2 main,infill -
    n6 IDLE+RESERVED cpu2 main,infill -
    n7 DOWN cpu2 main,infill dead
    1 failed Failed main NonZeroExitCode start=0m end=0m limit=Some(60) nodes= planned= count=1 held=false -
    2 train-main Running main None start=0m end=20m limit=Some(20) nodes=n1,n2 planned= count=2 held=false -
    3 lead Running infill None start=0m end=10m limit=Some(10) nodes=n3 planned= count=1 held=false infill:nodes=1-4
    4 held Pending infill JobHeldUser start=- end=- limit=Some(60) nodes= planned= count=1 held=true infill:nodes=1,2,4
    5 wide-main Pending main Resources start=20m end=50m limit=Some(30) nodes= planned=n1,n2,n5 count=3 held=false -
    6 array-main Pending main JobHeldUser start=- end=- limit=Some(60) nodes= planned= count=1 held=true -
    course n6 0m-120m SPEC_NODES
    upgrade n1,n2 120m-180m MAINT+SPEC_NODES
    "end_job_queue" []
    "#);
    for (release, version) in RECORDED {
        assert_eq!(digest(&snapshot(release, version)), newest, "{release} {version}");
    }
}

/// A summary of the resources of nodes, and of the resources that jobs hold or want.
fn shares(s: &Snapshot) -> String {
    let mut lines: Vec<String> =
        s.nodes.iter().map(|n| format!("{} has {}; used {}", n.name, n.has, n.used)).collect();
    for j in &s.jobs {
        let whole = if j.state.is_pending() { "waits" } else { "has its nodes whole" };
        let held = j.allocations.iter().map(|a| format!("{} of {}", a.holds, a.node));
        let held = held.collect::<Vec<_>>().join("; ");
        let wants = j.wants.as_ref().map_or("whole nodes".to_owned(), ToString::to_string);
        lines.push(format!("{} {}; asked for {wants}", j.id, if held.is_empty() { whole } else { &held }));
    }
    lines.join("\n")
}

#[test]
fn every_version_gives_the_same_shares_of_nodes() {
    let shares_in = |release: &str, version: &str| {
        let text = |name: &str| recorded(release, version, name);
        let nodes = text("shared-nodes");
        let jobs = text("shared-jobs");
        shares(&snapshot_of(&nodes, &jobs, &text("reservations"), &text("diag")).unwrap())
    };
    let newest = shares_in("26.05", "v0.0.44");
    insta::assert_snapshot!(newest, @r"
    n1 has 4 a100 GPUs, 16 CPUs, 15.6 GiB; used 4 a100 GPUs, 8 CPUs, 2.9 GiB
    n2 has 4 a100 GPUs, 16 CPUs, 15.6 GiB; used 4 a100 GPUs, 5 CPUs, 2.4 GiB
    n3 has 4 a100 GPUs, 16 CPUs, 15.6 GiB; used 4 a100 GPUs, 16 CPUs, 7.8 GiB
    n4 has 4 a100 GPUs, 16 CPUs, 15.6 GiB; used 4 CPUs, 2.0 GiB
    1 2 a100 GPUs, 1 CPU, 0.5 GiB of n1; asked for 2 GPUs, 1 CPU, 0.5 GiB
    2 3 a100 GPUs, 1 CPU, 0.5 GiB of n2; asked for 3 GPUs, 1 CPU, 0.5 GiB
    3 2 a100 GPUs, 6 CPUs, 2.0 GiB of n1; asked for 2 GPUs, 6 CPUs, 2.0 GiB
    4 1 a100 GPU, 4 CPUs, 2.0 GiB of n2; asked for 1 GPU, 4 CPUs, 2.0 GiB
    5 has its nodes whole; asked for whole nodes
    6 3 CPUs, 1.5 GiB of n4; asked for 3 CPUs, 1.5 GiB
    7 1 CPU, 0.5 GiB of n1; 1 CPU, 0.5 GiB of n4; asked for 1 CPU, 0.5 GiB
    8 waits; asked for 4 GPUs, 1 CPU, 0.5 GiB
    ");
    // The last version does not show that job 5 wants its node for itself.
    let silent = shares_in("26.05", "v0.0.45");
    assert_eq!(silent.replace("whole; asked for 16 CPUs, 7.8 GiB", "whole; asked for whole nodes"), newest);
    for (release, version) in RECORDED.into_iter().filter(|(_, version)| *version != "v0.0.45") {
        assert_eq!(shares_in(release, version), newest, "{release} {version}");
    }
}

/// A snapshot of the recorded cluster with these changes, and a text with its doubts and unread fields.
fn changed(change: impl FnOnce(&mut Value, &mut Value, &mut Value)) -> (Snapshot, String) {
    let [mut nodes, mut jobs, mut reservations] = ["nodes", "jobs", "reservations"]
        .map(|name| serde_json::from_str::<Value>(&recorded("24.11", "v0.0.42", name)).unwrap());
    change(&mut nodes["nodes"], &mut jobs["jobs"], &mut reservations["reservations"]);
    let texts = [nodes, jobs, reservations].map(|v| v.to_string());
    let s = snapshot_of(&texts[0], &texts[1], &texts[2], &recorded("24.11", "v0.0.42", "diag")).unwrap();
    let said = format!("{:?} {}", s.doubts, s.unread.as_deref().unwrap_or("-"));
    (s, said)
}

#[test]
fn only_what_may_matter_makes_a_snapshot_doubtful() {
    let (s, said) = changed(|_, jobs, _| {
        jobs[4]["scheduled_nodes"] = "n[1-".into();
        jobs[1] = Value::Null;
    });
    assert_eq!(s.jobs.len(), 4);
    let what = "job at place 1 of the list has no readable fields; job 5 has no readable scheduled_nodes";
    assert_eq!(said, format!("[Inconsistent({what:?})] -"));
    // Main jobs whose unreadable fields do not matter.
    let (s, said) = changed(|_, jobs, _| {
        jobs[1]["user_id"] = "who".into();
        jobs[4]["node_count"] = Value::from(-3);
        jobs[5]["scheduled_nodes"] = 1.5.into();
    });
    assert_eq!(s.jobs.len(), 6);
    assert_eq!(
        said,
        "[] job 2 has no readable user_id; job 5 has no readable node_count; job 6 has no readable scheduled_nodes"
    );
    // A job that has ended.
    let (s, said) = changed(|_, jobs, _| jobs[0]["nodes"] = "n[".into());
    assert_eq!((s.jobs.len(), said.as_str()), (5, "[] job 1 has no readable nodes"));
    // It is unknown whether the job waits.
    let (_, said) = changed(|_, jobs, _| jobs[4]["job_state"] = Value::Null);
    assert_eq!(said, "[Inconsistent(\"job 5 has no readable job_state\")] -");
    // A node with an unreadable field is not a gap; one without a name is dropped.
    let (s, said) = changed(|nodes, _, _| {
        nodes[4]["cpus"] = "many".into();
        nodes[5]["name"] = Value::Null;
    });
    assert_eq!(
        s.node(&NodeName::new("n5")).map(|n| n.state.to_string()).as_deref(),
        Some("IDLE+PLANNED+UNKNOWN")
    );
    assert_eq!(s.nodes.len(), 6);
    assert_eq!(said, "[] node n5 has no readable cpus; node at place 5 of the list has no readable name");
    // The nodes of a reservation must be readable; its flags need not.
    let (s, said) = changed(|_, _, reservations| {
        reservations[0]["flags"] = 7.into();
        reservations[1]["node_list"] = "n[".into();
    });
    assert_eq!(s.reservations.len(), 1);
    assert!(
        said.starts_with("[Inconsistent(\"reservation upgrade")
            && said.ends_with("course has no readable flags"),
        "{said}"
    );
}

#[test]
fn a_job_of_ours_that_can_no_longer_be_read_keeps_its_last_facts() {
    let mut ours = MalleableJobs::for_partition("infill");
    let mut settle = |change: fn(&mut Value)| {
        let mut jobs: Value = serde_json::from_str(&recorded("24.11", "v0.0.42", "jobs")).unwrap();
        change(&mut jobs["jobs"][2]);
        let settled = ours.settle_jobs(list::<Job>(&jobs.to_string()).unwrap());
        let ours = settled.jobs.into_iter().find(|j| j.id.0 == 3);
        let ours = ours.map(|j| format!("{:?} on {:?}, user {}", j.state.base, j.nodes, j.user_id.0));
        format!("{} {:?} {:?}", ours.unwrap_or_default(), settled.doubtful, settled.passed)
    };
    // Never seen before: its owner is unknown.
    assert_eq!(settle(|j| j["user_id"] = "who".into()), r#" ["job 3 has no readable user_id"] []"#);
    assert_eq!(settle(|_| ()), r#"Running on [n3], user 6101 [] []"#);
    for _ in 0..2 {
        let said = settle(|j| {
            j["user_id"] = "who".into();
            j["partition"] = true.into();
        });
        let expected = r#"Running on [n3], user 6101 [] ["job 3 has no readable partition, user_id"]"#;
        assert_eq!(said, expected);
    }
    let ended = settle(|j| {
        j["user_id"] = "who".into();
        j["job_state"] = "COMPLETED".into();
    });
    assert_eq!(ended, r#" [] ["job 3 has no readable user_id"]"#);
}

#[test]
fn bytes_that_are_not_text_spoil_only_their_own_field() {
    let whole = recorded("24.11", "v0.0.42", "jobs");
    for (from, to) in [
        (&br#""train-main""#[..], &b"\"caf\xe9\""[..]),
        (br#""train-main""#, br#""\udc00""#),
        (br#""train-main""#, br#""x", "name": "y""#),
        (br#""train-main""#, br#""x", "much": 1e999"#),
    ] {
        let at = whole.as_bytes().windows(from.len()).position(|w| w == from).unwrap();
        let odd = [&whole.as_bytes()[..at], to, &whole.as_bytes()[at + from.len()..]].concat();
        for window in [1, 700, 1 << 20] {
            let listed =
                record_list::read_list_with::<Job>(window, &odd[..], &mut SharedNames::default()).unwrap();
            let SettledJobs { jobs, doubtful, .. } =
                MalleableJobs::for_partition("infill").settle_jobs(listed);
            assert_eq!((jobs.len(), doubtful.len()), (6, 0), "{}", String::from_utf8_lossy(to));
            assert!(jobs[1].name != "train-main" && jobs[1].state.is_running());
        }
    }
}

#[test]
fn unknown_states_are_kept_by_name() {
    let mut jobs: Value = serde_json::from_str(&recorded("24.11", "v0.0.42", "jobs")).unwrap();
    jobs["jobs"][0]["job_state"] = serde_json::json!(["HIBERNATING", "DREAMING"]);
    jobs["jobs"][1]["job_state"] = serde_json::json!(["DREAMING", "RUNNING"]);
    jobs["jobs"][2]["job_state"] = "RUNNING".into();
    let RecordList { records: jobs, bad, .. } = list::<Job>(&jobs.to_string()).unwrap();
    assert!(bad.is_empty());
    assert_eq!(jobs[0].state.base, BaseState::Unknown("HIBERNATING".to_owned()));
    assert!(jobs[0].state.flags.contains("DREAMING") && !jobs[0].state.is_ended());
    assert!(jobs[1].state.is_running() && jobs[1].state.flags.contains("DREAMING"));
    assert!(jobs[2].state.is_running());
}

fn diag(cycle: i64, active: bool, exits: Value) -> SchedulerDiag {
    let diag = serde_json::json!({"statistics": {
        "req_time": 1000 + cycle, "req_time_start": 500, "bf_active": active, "bf_when_last_cycle": 900 + cycle,
        "bf_cycle_counter": cycle, "bf_exit": exits,
    }});
    SchedulerDiag::new(&serde_json::from_value::<wire::DiagResponse>(diag).unwrap())
}

#[test]
fn a_plan_that_was_cut_short_is_distinguished_from_a_complete_one() {
    let mut watch = ExitWatch::default();
    let mut judged = |pulse: SchedulerDiag| {
        let b = watch.backfill_state(&pulse);
        format!("{} {}", b.complete, b.exit)
    };
    assert_eq!(judged(diag(0, false, serde_json::json!({"end_job_queue": 0}))), "false ");
    assert_eq!(judged(diag(1, false, serde_json::json!({"end_job_queue": 1}))), "true end_job_queue");
    assert_eq!(judged(diag(1, false, serde_json::json!({"end_job_queue": 1}))), "true end_job_queue");
    let cut = serde_json::json!({"end_job_queue": 1, "bf_max_time": 1});
    assert_eq!(judged(diag(2, false, cut.clone())), "false bf_max_time");
    assert_eq!(judged(diag(2, false, cut)), "false bf_max_time");
    let whole = serde_json::json!({"end_job_queue": 2, "bf_max_time": 1});
    assert_eq!(judged(diag(3, false, whole)), "true end_job_queue");
}

#[test]
fn a_cycle_during_the_reading_is_noticed() {
    let release = "26.05";
    let version = "v0.0.45";
    let read = |name: &str| recorded(release, version, name);
    let doubts = |before: SchedulerDiag, after: SchedulerDiag, last_backfill: i64| {
        let mut jobs: Value = serde_json::from_str(&read("jobs")).unwrap();
        jobs["last_backfill"]["number"] = last_backfill.into();
        let reading = RawReading {
            before,
            nodes: list(&read("nodes")).unwrap(),
            jobs: list(&jobs.to_string()).unwrap(),
            reservations: list(&read("reservations")).unwrap(),
            after,
        };
        let snapshot = reading.into_snapshot(Default::default(), &mut MalleableJobs::default());
        let of_backfill =
            |d: &SnapshotDoubt| matches!(d, SnapshotDoubt::BackfillActive | SnapshotDoubt::BackfillMoved);
        assert_eq!(snapshot.backfill.active, snapshot.doubts.iter().any(of_backfill));
        snapshot.doubts
    };
    let at = |cycle, active| diag(cycle, active, Value::Null);
    assert_eq!(doubts(at(1, false), at(1, false), 901), []);
    assert_eq!(doubts(at(1, false), at(1, true), 901), [SnapshotDoubt::BackfillActive]);
    assert_eq!(doubts(at(1, false), at(2, false), 901), [SnapshotDoubt::BackfillMoved]);
    assert_eq!(doubts(at(1, false), at(1, false), 902), [SnapshotDoubt::BackfillMoved]);
    let mut restarted = at(1, false);
    restarted.counting_since = Some(UnixTime(501));
    assert_eq!(doubts(at(1, false), restarted, 901), [SnapshotDoubt::ControllerRestarted]);
}

#[test]
fn thousands_of_jobs_are_all_read() {
    let mut jobs: Value = serde_json::from_str(&recorded("24.11", "v0.0.42", "jobs")).unwrap();
    let one = jobs["jobs"][4].clone();
    let many = (1..=2_000u32).map(|id| {
        let mut job = one.clone();
        job["job_id"] = id.into();
        job
    });
    jobs["jobs"] = many.collect();
    let text = jobs.to_string();
    let RecordList { records: jobs, bad, .. } = list::<Job>(&text).unwrap();
    assert_eq!((jobs.len(), bad.len()), (2_000, 0));
}

/// A value of an unexpected type or size.
fn nonsense() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(Value::Bool(true)),
        Just(Value::from(u64::MAX)),
        Just(Value::from(i64::MIN)),
        Just(Value::from(1e300)),
        Just(Value::from(0xffff_fffe_u64)),
        Just(Value::from("WHAT_IS_THIS[")),
        Just(Value::from("n[1-4]")),
        Just(Value::from("")),
        Just(serde_json::json!([])),
        Just(serde_json::json!([[1], null, {"a": 2}])),
        Just(serde_json::json!({})),
        Just(serde_json::json!({"set": true, "infinite": true, "number": "7"})),
    ]
}

/// Descends by the choices, and there drops a member or replaces it by `with`.
fn damage(value: &mut Value, choices: &[usize], drop_it: bool, with: &Value) {
    let Some((&choice, rest)) = choices.split_first() else { return };
    match value {
        Value::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(choice % map.len()).cloned().unwrap_or_default();
            let inner = &map[&key];
            let leaf = rest.is_empty() || !(inner.is_object() || inner.is_array());
            match (leaf, drop_it) {
                (true, true) => drop(map.remove(&key)),
                (true, false) => drop(map.insert(key, with.clone())),
                (false, _) => damage(&mut map[&key], rest, drop_it, with),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = choice % items.len();
            if rest.is_empty() {
                items[at] = with.clone()
            } else {
                damage(&mut items[at], rest, drop_it, with)
            }
        }
        other => *other = with.clone(),
    }
}

proptest! {
    #![proptest_config(effort::property(200))]

    #[test]
    fn damaged_answers_never_panic(
        which in 0usize..RECORDED.len(),
        name in 0usize..4,
        // 100 covers the widest record, so that every field has its turn.
        choices in prop::collection::vec(0usize..200, 1..5),
        drop_it: bool,
        with in nonsense(),
    ) {
        let (release, version) = RECORDED[which];
        let names = ["nodes", "jobs", "reservations", "diag"];
        let mut texts = names.map(|n| recorded(release, version, n));
        let mut value: Value = serde_json::from_str(&texts[name])?;
        // Straight into the list, past the envelope that we do not read.
        let list = value.get_mut(names[name]).filter(|_| choices.len() > 2);
        if let Some(list) = list {
            damage(list, &choices, drop_it, &with);
        } else {
            damage(&mut value, &choices, drop_it, &with);
        }
        texts[name] = value.to_string();
        let [nodes, jobs, reservations, diag] = &texts;
        if let Ok(s) = snapshot_of(nodes, jobs, reservations, diag) {
            // A missing record is either reported, or was not a node or job.
            let whole = snapshot(release, version);
            let lost = s.nodes.len() < whole.nodes.len() || s.jobs.len() < whole.jobs.len();
            prop_assert!(!lost || !s.doubts.is_empty() || s.unread.is_some() || value[names[name]].as_array().is_some_and(Vec::is_empty));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}", cut in 0usize..20_000) {
        let _ = list::<Job>(&text);
        let whole = recorded("24.11", "v0.0.41", "jobs");
        let cut = whole.get(..cut.min(whole.len() - 10)).unwrap_or("");
        prop_assert!(list::<Job>(cut).is_err());
    }
}
