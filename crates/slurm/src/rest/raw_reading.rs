//! Combines the answers of one reading of Slurm to a snapshot, and says why it may not be trusted.

use std::collections::BTreeMap;

use super::bad_records::{MalleableJobs, SettledJobs};
use super::convert;
use super::field::{WireNumber, WireObject};
use super::record_list::RecordList;
use super::wire;
use infill_model::{BackfillState, Job, Node, Reservation, Snapshot, SnapshotDoubt, UnixTime};

/// The exit counter of backfill cycles that looked at the whole queue.
const WHOLE_QUEUE: &str = "end_job_queue";

/// Most bad records that are named; the others are only counted.
const MAX_NAMED: usize = 5;

/// The scheduler statistics of `/diag`, read once before and once after the other answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SchedulerDiag {
    /// The time by Slurm's clock.
    pub now: Option<UnixTime>,
    /// When slurmctld began to count: its start, or the last reset of its statistics.
    pub counting_since: Option<UnixTime>,
    /// Number of jobs that were submitted since then.
    pub submitted: Option<i64>,
    /// Whether a backfill cycle is running; `None` if that cannot be read.
    pub active: Option<bool>,
    /// Start of the last cycle.
    pub last_cycle: Option<UnixTime>,
    /// Number of cycles so far. It distinguishes two cycles within one second.
    cycles: Option<i64>,
    /// Number of cycles by the way they ended.
    exits: BTreeMap<String, i64>,
}

impl SchedulerDiag {
    pub(super) fn new(diag: &wire::DiagResponse) -> SchedulerDiag {
        let statistics = &diag.statistics;
        let exits = match &statistics.bf_exit {
            WireObject::Value(counters) => counters
                .iter()
                .filter_map(|(name, count)| Some((name.clone(), number_value(*count)?)))
                .collect(),
            WireObject::Unset | WireObject::Bad => BTreeMap::new(),
        };
        SchedulerDiag {
            now: time_value(statistics.req_time),
            counting_since: time_value(statistics.req_time_start),
            submitted: number_value(statistics.jobs_submitted),
            active: number_value(statistics.bf_active).map(|n| n != 0),
            last_cycle: time_value(statistics.bf_when_last_cycle),
            cycles: number_value(statistics.bf_cycle_counter),
            exits,
        }
    }
}

fn number_value(number: WireNumber) -> Option<i64> {
    if let WireNumber::Value(value) = number { Some(value) } else { None }
}

fn time_value(number: WireNumber) -> Option<UnixTime> {
    convert::unix_time(number, "time").ok().flatten()
}

/// Remembers backfill's exit counters: only their growth shows how the last cycles ended.
#[derive(Debug, Default)]
pub(super) struct ExitWatch {
    last: Option<(SchedulerDiag, BackfillState)>,
}

impl ExitWatch {
    /// Backfill's state. It is complete if all cycles that ended since the last look were complete; at the
    /// first look, if all cycles since the statistics were reset were complete.
    pub(super) fn backfill_state(&mut self, diag: &SchedulerDiag) -> BackfillState {
        let backfill = match &self.last {
            Some((old, backfill)) if old.exits == diag.exits && old.counting_since == diag.counting_since => {
                BackfillState { last_cycle: diag.last_cycle, ..backfill.clone() }
            }
            Some((old, _)) if old.counting_since == diag.counting_since => state_from_exits(diag, &old.exits),
            _ => state_from_exits(diag, &BTreeMap::new()),
        };
        self.last = Some((diag.clone(), backfill.clone()));
        backfill
    }
}

fn state_from_exits(diag: &SchedulerDiag, before: &BTreeMap<String, i64>) -> BackfillState {
    let grown: Vec<&str> = diag
        .exits
        .iter()
        .filter(|(name, n)| **n > before.get(*name).copied().unwrap_or(0))
        .map(|(name, _)| name.as_str())
        .collect();
    let last_cycle = diag.last_cycle;
    let complete = grown == [WHOLE_QUEUE];
    BackfillState { last_cycle, complete, exit: grown.join("+"), ..BackfillState::default() }
}

/// The answers of one reading, in the order of the requests.
pub(super) struct RawReading {
    pub before: SchedulerDiag,
    pub nodes: RecordList<Node>,
    pub jobs: RecordList<Job>,
    pub reservations: RecordList<Reservation>,
    pub after: SchedulerDiag,
}

impl RawReading {
    /// The snapshot that the answers give together. `ours` has the malleable jobs of earlier readings.
    pub(super) fn into_snapshot(self, backfill: BackfillState, ours: &mut MalleableJobs) -> Snapshot {
        let mut doubts = self.backfill_doubts();
        let backfill = BackfillState {
            active: doubts
                .iter()
                .any(|d| matches!(d, SnapshotDoubt::BackfillActive | SnapshotDoubt::BackfillMoved)),
            ..backfill
        };
        let taken_at = self.before.now.unwrap_or_default();
        let SettledJobs { jobs, mut doubtful, mut passed } = ours.settle_jobs(self.jobs);
        let nodes = named_nodes(self.nodes, &mut passed);
        let reservations = usable_reservations(self.reservations, taken_at, &mut doubtful, &mut passed);
        let mut contradictions = Vec::from_iter(summarize_bad(&doubtful));
        if nodes.is_empty() {
            contradictions.push("Slurm shows no node at all: may this user see them?".to_owned());
        }
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0].name == pair[1].name) {
            contradictions.push(format!("node {} is listed twice", pair[0].name));
        }
        if let Some(pair) = jobs.windows(2).find(|pair| pair[0].id == pair[1].id && pair[0].id.0 != 0) {
            contradictions.push(format!("job {} is listed twice", pair[0].id));
        }
        if self.before.now.is_none() {
            contradictions.push("Slurm does not report the time".to_owned());
        }
        doubts.extend(contradictions.into_iter().map(SnapshotDoubt::Inconsistent));
        Snapshot { taken_at, nodes, jobs, reservations, backfill, doubts, unread: summarize_bad(&passed) }
    }

    /// The doubts that remain unless backfill was inactive and slurmctld kept running during the reading.
    fn backfill_doubts(&self) -> Vec<SnapshotDoubt> {
        let before = &self.before;
        let after = &self.after;
        let mut doubts = Vec::new();
        if before.counting_since != after.counting_since {
            doubts.push(SnapshotDoubt::ControllerRestarted);
        }
        if before.active.is_none() || after.active.is_none() {
            doubts.push(SnapshotDoubt::Inconsistent(
                "Slurm does not report whether backfill is active".to_owned(),
            ));
        }
        if before.active == Some(true) || after.active == Some(true) {
            doubts.push(SnapshotDoubt::BackfillActive);
        }
        let cycle_of_jobs = convert::unix_time(self.jobs.last_backfill, "last_backfill").unwrap_or(None);
        let has_moved = before.last_cycle != after.last_cycle || before.cycles != after.cycles;
        if has_moved || cycle_of_jobs != before.last_cycle {
            doubts.push(SnapshotDoubt::BackfillMoved);
        }
        doubts
    }
}

/// Whether another reading is likely to clear all these doubts.
pub(super) fn are_transient(doubts: &[SnapshotDoubt]) -> bool {
    !doubts.is_empty() && !doubts.iter().any(|d| matches!(d, SnapshotDoubt::Inconsistent(_)))
}

/// All nodes that have a name. A node with unreadable fields is never a gap, so it does not make the reading
/// doubtful.
fn named_nodes(listed: RecordList<Node>, passed: &mut Vec<String>) -> Vec<Node> {
    let mut nodes = listed.records;
    for bad in listed.bad {
        passed.push(bad.to_string());
        if !bad.lacks_field("name") {
            nodes.extend(bad.rest);
        }
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

/// The reservations with readable times and nodes, and those that are over.
fn usable_reservations(
    listed: RecordList<Reservation>,
    now: UnixTime,
    doubtful: &mut Vec<String>,
    passed: &mut Vec<String>,
) -> Vec<Reservation> {
    let mut reservations = listed.records;
    for bad in listed.bad {
        let has_end = !bad.lacks_field("end_time");
        let has_all = has_end && !bad.lacks_field("start_time") && !bad.lacks_field("node_list");
        let is_usable = match &bad.rest {
            Some(reservation) => has_all || (has_end && reservation.end_time < now),
            None => false,
        };
        if is_usable {
            passed.push(bad.to_string());
            reservations.extend(bad.rest);
        } else {
            doubtful.push(bad.to_string());
        }
    }
    reservations.retain(|r| !r.nodes.is_empty());
    reservations.sort_by(|a, b| a.name.cmp(&b.name));
    reservations
}

fn summarize_bad(bad: &[String]) -> Option<String> {
    let named = bad.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match bad.len() {
        0 => None,
        n if n <= MAX_NAMED => Some(named),
        n => Some(format!("{named}; and {} more", n - MAX_NAMED)),
    }
}
