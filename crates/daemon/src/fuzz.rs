//! Fuzzes the way from slurmrestd's bytes to a round's plan, on sites that lend whole nodes and GPUs.
//!
//! 50,000 records (times the effort) are wrong in one place each, among valid records. Nothing may panic, no
//! valid record may be lost or doubted, and no job may end by that. Each case has a seed, which a failure
//! shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::DaemonState;
use infill_model::{
    JobId, LendingMode, LendingRules, MalleableState, NodeName, Snapshot, SnapshotDoubt, UnixTime,
    config::Config,
};
use infill_planner::{plan::plan_without_solver, round::check_solved_plan};
use infill_slurm::{PlaceAssignments, rest::offline};
use infill_testkit::effort;

/// Snapshots, and wrong records in each: 50,000 cases.
const SNAPSHOTS: u64 = 1_000;
const CASES: usize = 50;

/// A round is planned for every fourth snapshot, because planning takes longer than the rest.
const PLANNED: u64 = 4;

const NOW: i64 = 1_800_000_000;

/// Valid records have smaller numbers than this, wrong ones larger.
const WRONG: u64 = 1_000;

/// The valid jobs that wait. No wrong value can be read as one of these ids.
const OURS_AND_MAIN: std::ops::RangeInclusive<u64> = 101..=106;

/// The valid job that runs, on a part of the last node.
const RUNS: u64 = 108;

/// The number of valid nodes, and how many of them are idle.
const NODES: u64 = 5;
const IDLE: u64 = 4;

type JsonRecord = Vec<(&'static str, Vec<u8>)>;

/// A generator of pseudo-random numbers (splitmix64).
struct SeededChance(u64);

impl SeededChance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

fn record<const N: usize>(fields: [(&'static str, String); N]) -> JsonRecord {
    fields.into_iter().map(|(name, value)| (name, value.into_bytes())).collect()
}

/// A time in slurmrestd's format.
fn time(secs: i64) -> String {
    format!(r#"{{"set":true,"infinite":false,"number":{secs}}}"#)
}

/// A node. The last valid one is partly used, all others are idle.
fn node(number: u64) -> JsonRecord {
    let is_mixed = number == NODES;
    record([
        ("name", format!("\"n{number}\"")),
        ("address", format!("\"n{number}.cluster\"")),
        ("state", if_else(is_mixed, r#"["MIXED"]"#, r#"["IDLE"]"#)),
        ("partitions", r#"["main","infill"]"#.to_owned()),
        ("cpus", "16".to_owned()),
        ("effective_cpus", "16".to_owned()),
        ("alloc_cpus", if_else(is_mixed, "4", "0")),
        ("real_memory", "16000".to_owned()),
        ("specialized_memory", "0".to_owned()),
        ("alloc_memory", if_else(is_mixed, "4000", "0")),
        ("gres", "\"gpu:a100:4(S:0-1)\"".to_owned()),
        ("gres_used", if_else(is_mixed, "\"gpu:a100:1(IDX:2)\"", "\"gpu:a100:0(IDX:N/A)\"")),
        ("features", r#"["big","ib"]"#.to_owned()),
        ("active_features", r#"["big"]"#.to_owned()),
        ("reason", "\"\"".to_owned()),
    ])
}

fn if_else(condition: bool, yes: &str, no: &str) -> String {
    if condition { yes.to_owned() } else { no.to_owned() }
}

/// A job. Odd ones are malleable, held and pending. Even ones are main jobs that wait for a planned start.
fn job(number: u64) -> JsonRecord {
    let ours = number % 2 == 1;
    record([
        ("job_id", number.to_string()),
        ("user_id", "6101".to_owned()),
        ("user_name", "\"alice\"".to_owned()),
        ("account", "\"research\"".to_owned()),
        ("name", "\"train\"".to_owned()),
        ("partition", if_else(ours, "\"infill\"", "\"main\"")),
        ("qos", if_else(ours, "\"infill\"", "\"main\"")),
        ("job_state", r#"["PENDING"]"#.to_owned()),
        ("state_reason", if_else(ours, "\"JobHeldUser\"", "\"Resources\"")),
        ("state_description", "\"\"".to_owned()),
        ("submit_time", time(NOW - 100)),
        ("start_time", time(if ours { 0 } else { NOW + 900 })),
        ("end_time", time(0)),
        ("time_limit", time(60)),
        ("nodes", "\"\"".to_owned()),
        ("batch_host", "\"\"".to_owned()),
        ("scheduled_nodes", if_else(ours, "\"\"", "\"n[1-2]\"")),
        ("node_count", time(1)),
        ("hold", if_else(ours, "true", "false")),
        ("priority", time(i64::from(!ours))),
        ("comment", "\"\"".to_owned()),
        ("admin_comment", if_else(ours, "\"infill:nodes=1-4\"", "\"\"")),
        ("tres_per_node", "\"\"".to_owned()),
        ("tres_req_str", "\"cpu=1,node=1\"".to_owned()),
        ("features", "\"\"".to_owned()),
        ("excluded_nodes", "\"\"".to_owned()),
        ("required_nodes", if_else(ours, "\"\"", "\"n1\"")),
        ("dependency", "\"\"".to_owned()),
        ("resv_name", "\"\"".to_owned()),
        ("eligible_time", time(0)),
        ("restart_cnt", "0".to_owned()),
        ("preempt_time", time(0)),
        ("tres_per_job", "\"\"".to_owned()),
        ("tres_per_task", "\"\"".to_owned()),
        ("tres_per_socket", "\"\"".to_owned()),
        ("tasks", time(1)),
        ("cpus", time(1)),
        ("memory_per_node", time(0)),
        ("memory_per_cpu", r#"{"set":false,"infinite":false,"number":0}"#.to_owned()),
        ("memory_per_tres", "\"\"".to_owned()),
        ("cpus_per_tres", "\"\"".to_owned()),
        ("shared", "[]".to_owned()),
        ("gres_detail", "[]".to_owned()),
        ("job_resources", "{}".to_owned()),
    ])
}

/// The same job while it runs on a part of the last valid node.
fn running(number: u64) -> JsonRecord {
    let node = format!("\"n{NODES}\"");
    let holds = r#""cpus":{"count":4,"used":0},"memory":{"used":0,"allocated":4000}"#;
    let resources = format!(
        r#"{{"nodes":{{"count":1,"whole":false,"list":{node},"allocation":[{{"name":{node},{holds}}}]}},"cpus":4}}"#
    );
    let now = record([
        ("job_state", r#"["RUNNING"]"#.to_owned()),
        ("state_reason", "\"None\"".to_owned()),
        ("start_time", time(NOW - 50)),
        ("end_time", time(NOW + 3550)),
        ("nodes", node.clone()),
        ("batch_host", node.clone()),
        ("scheduled_nodes", "\"\"".to_owned()),
        ("hold", "false".to_owned()),
        ("gres_detail", r#"["gpu:a100:1(IDX:2)"]"#.to_owned()),
        ("job_resources", resources),
    ]);
    let mut job = job(number);
    for (name, value) in now {
        job.iter_mut().filter(|(field, _)| *field == name).for_each(|(_, old)| old.clone_from(&value));
    }
    job
}

fn reservation(number: u64) -> JsonRecord {
    record([
        ("name", format!("\"r{number}\"")),
        ("start_time", (NOW + 4000).to_string()),
        ("end_time", (NOW + 5000).to_string()),
        ("node_list", "\"n3\"".to_owned()),
        ("flags", r#"["MAINT"]"#.to_owned()),
    ])
}

/// A JSON string with these bytes.
fn text(inner: &[u8]) -> Vec<u8> {
    [b"\"", inner, b"\""].concat()
}

/// Texts that are wrong in any field.
fn odd_texts() -> Vec<Vec<u8>> {
    vec![
        text(b"caf\xe9"),
        text(b"\xff\xfe\xc3("),
        text(b"\xed\xa0\x80"),
        text(br"\ud800"),
        text(br"\u0000\u001f"),
        text("WHAT_IS_THIS".as_bytes()),
        text("[(&|,?:".as_bytes()),
        text("n[1-99999999]".as_bytes()),
        text(&[b'x'; 5_000]),
        text("infill:nodes=0-;time=x;held=".as_bytes()),
        text(b""),
    ]
}

/// Values of wrong types and sizes.
fn odd_values() -> Vec<Vec<u8>> {
    let others = [
        "null",
        "true",
        "-1",
        "1e300",
        "1e999",
        "18446744073709551615",
        "4294967294",
        "4294967295",
        "9223372036854775807",
        "0.5",
        "[]",
        "{}",
        "[[1],null,{\"a\":2}]",
        "[\"UNHEARD\",\"OF\"]",
        r#"{"set":true,"infinite":true,"number":"7"}"#,
        r#"{"set":true}"#,
        "99999999999999999999999999",
    ];
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let huge = format!("\"{}\"", "n1,".repeat(3_000));
    odd_texts()
        .into_iter()
        .chain(others.map(|v| v.as_bytes().to_vec()))
        .chain([deep.into(), huge.into()])
        .collect()
}

/// Makes one field of a record wrong.
fn damage(record: &mut JsonRecord, odd: &[Vec<u8>], chance: &mut SeededChance) {
    let at = chance.below(record.len());
    match chance.below(12) {
        0 => drop(record.remove(at)),
        1 => record.push((record[at].0, chance.one_of(odd).clone())),
        2 => record.insert(at, ("unheard_of", chance.one_of(odd).clone())),
        _ => record[at].1.clone_from(chance.one_of(odd)),
    }
}

/// An answer with these records in its list.
fn answer(list: &str, records: &[JsonRecord]) -> Vec<u8> {
    let mut text = format!("{{\"last_backfill\":{},\"{list}\":[", NOW - 10).into_bytes();
    for (at, record) in records.iter().enumerate() {
        text.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        for (at, (name, value)) in record.iter().enumerate() {
            text.extend_from_slice(format!("{}\"{name}\":", if at > 0 { "," } else { "" }).as_bytes());
            text.extend_from_slice(value);
        }
        text.push(b'}');
    }
    text.extend_from_slice(b"]}");
    text
}

/// The three lists of a snapshot: nodes, jobs, reservations.
struct RecordLists([Vec<JsonRecord>; 3]);

impl RecordLists {
    fn whole() -> RecordLists {
        RecordLists([
            (1..=NODES).map(node).collect(),
            OURS_AND_MAIN.map(job).chain([running(RUNS)]).collect(),
            (1..=2).map(reservation).collect(),
        ])
    }

    /// Adds a wrong record at a random position.
    fn add_wrong(&mut self, number: u64, odd: &[Vec<u8>], chance: &mut SeededChance) {
        let (list, mut record) = match chance.below(7) {
            0 => (0, node(number)),
            1 => (2, reservation(number)),
            2 | 3 => (1, running(number)),
            _ => (1, job(number)),
        };
        damage(&mut record, odd, chance);
        let at = chance.below(self.0[list].len() + 1);
        self.0[list].insert(at, record);
    }

    fn snapshot(&self, seed: u64) -> Snapshot {
        let [nodes, jobs, reservations] =
            [("nodes", 0), ("jobs", 1), ("reservations", 2)].map(|(name, at)| answer(name, &self.0[at]));
        let diag = format!(
            r#"{{"statistics":{{"req_time":{NOW},"req_time_start":1,"bf_active":false,"bf_when_last_cycle":{},
            "bf_cycle_counter":9,"bf_exit":{{"end_job_queue":9}}}}}}"#,
            NOW - 10
        );
        let mut nodes = offline::read_nodes(&nodes[..]).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let jobs = offline::read_jobs(&jobs[..], &mut nodes).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        offline::build_snapshot(nodes, jobs, &reservations[..], diag.as_bytes(), "infill")
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"))
    }
}

/// Checks that every valid record is in the snapshot unchanged, and that none of them is doubted.
fn check_whole(snapshot: &Snapshot, whole: &Snapshot, seed: u64) {
    for node in &whole.nodes {
        assert!(snapshot.nodes.contains(node), "seed {seed}: {} is lost", node.name);
    }
    for job in &whole.jobs {
        assert!(snapshot.jobs.contains(job), "seed {seed}: job {} is lost", job.id);
    }
    for reservation in &whole.reservations {
        assert!(snapshot.reservations.contains(reservation), "seed {seed}: {} is lost", reservation.name);
    }
    let doubts = snapshot.doubts.iter().map(|doubt| match doubt {
        SnapshotDoubt::Inconsistent(what) => what.as_str(),
        other => panic!("seed {seed}: {other:?}"),
    });
    let nodes = whole.nodes.iter().map(|node| format!("node {} ", node.name));
    let jobs = whole.jobs.iter().map(|job| format!("job {} ", job.id));
    let reservations =
        whole.reservations.iter().map(|reservation| format!("reservation {} ", reservation.name));
    let valid: Vec<String> = nodes.chain(jobs).chain(reservations).collect();
    for part in doubts.chain(snapshot.unread.as_deref()).flat_map(|text| text.split("; ")) {
        let is_doubted = valid.iter().any(|record| part.starts_with(record));
        assert!(!is_doubted, "seed {seed}: {part:?}");
    }
}

/// Updates the daemon's state with a snapshot, and plans a round from time to time. `waits`: how many of the
/// valid jobs must still wait.
fn round(state: &mut DaemonState, snapshot: Snapshot, waits: usize, seed: u64) {
    let now = UnixTime(NOW + seed as i64);
    let _ = state.update_fleet(&snapshot, now, now);
    let _ = state.update_rounds(snapshot, now);
    for job in OURS_AND_MAIN.step_by(2).map(|id| JobId(id as u32)).take(waits) {
        let job_state = state.fleet.job_lifecycle(job).map(|lifecycle| lifecycle.malleable_state());
        assert_eq!(job_state, Some(MalleableState::Queued), "seed {seed}: job {job}");
    }
    if seed.is_multiple_of(PLANNED) {
        let input = state.round_input(true, now).expect("a snapshot was taken in");
        let plan = plan_without_solver(&input.planning_problem(&state.config), "the solver is not asked");
        let checked = check_solved_plan(&input, &state.config, Ok(plan));
        checked.unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
    }
}

#[test]
fn wrong_records_cost_only_themselves() {
    let whole = RecordLists::whole().snapshot(0);
    assert!(whole.doubts.is_empty() && whole.unread.is_none(), "{whole:?}");
    assert!(whole.node(&NodeName::new("n1")).is_some_and(|n| n.state.is_idle()));
    let [mut whole_nodes, mut shares] = [LendingMode::Nodes, LendingMode::Gpus].map(|lend| {
        let mut config = Config::default();
        config.slurm.partition = "infill".to_owned();
        config.gaps.lend = lend;
        DaemonState::new(Arc::new(config), UnixTime(NOW))
    });
    let mut assignments = PlaceAssignments::new("infill", LendingRules::default(), BTreeMap::new());
    let places = assignments.snapshot_with_places(whole.clone());
    let free = places.nodes.iter().filter(|n| n.state.is_idle()).count() as u64;
    assert_eq!(free, 4 * IDLE + 3, "a GPU of the last node is taken: {places:?}");
    let values = odd_values();
    let texts = odd_texts();
    for seed in effort::seed_range(0..SNAPSHOTS) {
        let mut chance = SeededChance(seed);
        let mut lists = RecordLists::whole();
        (0..CASES).for_each(|n| lists.add_wrong(WRONG + n as u64, &values, &mut chance));
        let snapshot = lists.snapshot(seed);
        check_whole(&snapshot, &whole, seed);
        round(&mut shares, assignments.snapshot_with_places(snapshot.clone()), 0, seed);
        round(&mut whole_nodes, snapshot, usize::MAX, seed);
    }
    // Texts that users write are never a reason for doubt.
    for seed in effort::seed_range(0..SNAPSHOTS / 10) {
        let mut chance = SeededChance(seed);
        let mut lists = RecordLists::whole();
        for number in WRONG..WRONG + CASES as u64 {
            let mut record = job(number);
            let user_fields = ["name", "comment", "features", "excluded_nodes", "dependency", "account"];
            let name = *chance.one_of(&user_fields);
            let text = chance.one_of(&texts[..3]).clone();
            record.iter_mut().filter(|(n, _)| *n == name).for_each(|(_, value)| value.clone_from(&text));
            lists.0[1].push(record);
        }
        let snapshot = lists.snapshot(seed);
        assert_eq!((&snapshot.doubts[..], &snapshot.unread), (&[][..], &None), "seed {seed}");
        assert_eq!(snapshot.jobs.len(), whole.jobs.len() + CASES);
    }
}
