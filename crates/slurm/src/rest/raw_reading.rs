//! One reading of Slurm: what the answers mean together, and why they may not be trusted.

use std::collections::BTreeMap;

use super::bad_records::{MalleableJobs, SettledJobs};
use super::convert;
use super::field::{WireNumber, WireObject};
use super::record_list::RecordList;
use super::wire;
use infill_model::{BackfillState, Job, Node, Reservation, Snapshot, SnapshotDoubt, UnixTime};

/// The way a backfill cycle ends when it has looked at the whole queue.
const WHOLE_QUEUE: &str = "end_job_queue";

/// Most bad records that are named; the rest is counted.
const MAX_NAMED: usize = 5;

/// What `/diag` says, once before and once after the rest is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SchedulerDiag {
    /// Slurm's clock.
    pub now: Option<UnixTime>,
    /// Since when slurmctld counts: its start, or the last reset of its statistics.
    pub counting_since: Option<UnixTime>,
    /// Jobs that were submitted since then.
    pub submitted: Option<i64>,
    /// Whether a cycle is under way; `None` if that cannot be read.
    pub active: Option<bool>,
    /// Start of the last cycle.
    pub last_cycle: Option<UnixTime>,
    /// Cycles so far. Tells two cycles within one second apart.
    cycles: Option<i64>,
    /// How the cycles so far ended.
    exits: BTreeMap<String, i64>,
}

impl SchedulerDiag {
    pub(super) fn new(diag: &wire::DiagResponse) -> SchedulerDiag {
        let s = &diag.statistics;
        let value = |n: WireNumber| if let WireNumber::Value(n) = n { Some(n) } else { None };
        let time = |n: WireNumber| convert::unix_time(n, "time").ok().flatten();
        let exits = match &s.bf_exit {
            WireObject::Value(map) => map.iter().filter_map(|(k, n)| Some((k.clone(), value(*n)?))).collect(),
            WireObject::Unset | WireObject::Bad => BTreeMap::new(),
        };
        SchedulerDiag {
            now: time(s.req_time),
            counting_since: time(s.req_time_start),
            submitted: value(s.jobs_submitted),
            active: value(s.bf_active).map(|n| n != 0),
            last_cycle: time(s.bf_when_last_cycle),
            cycles: value(s.bf_cycle_counter),
            exits,
        }
    }
}

/// Remembers how backfill's exit counters stood, since they tell how cycles ended only by growing.
#[derive(Debug, Default)]
pub(super) struct ExitWatch {
    seen: Option<(SchedulerDiag, BackfillState)>,
}

impl ExitWatch {
    /// Backfill's state. Where several cycles have ended since the last look, all must have been complete; at
    /// the first look, all since the statistics were reset.
    pub(super) fn backfill_state(&mut self, pulse: &SchedulerDiag) -> BackfillState {
        let backfill = match &self.seen {
            Some((old, backfill))
                if old.exits == pulse.exits && old.counting_since == pulse.counting_since =>
            {
                BackfillState { last_cycle: pulse.last_cycle, ..backfill.clone() }
            }
            Some((old, _)) if old.counting_since == pulse.counting_since => {
                state_from_exits(pulse, &old.exits)
            }
            _ => state_from_exits(pulse, &BTreeMap::new()),
        };
        self.seen = Some((pulse.clone(), backfill.clone()));
        backfill
    }
}

fn state_from_exits(pulse: &SchedulerDiag, before: &BTreeMap<String, i64>) -> BackfillState {
    let grown: Vec<&str> = pulse
        .exits
        .iter()
        .filter(|(name, n)| **n > before.get(*name).copied().unwrap_or(0))
        .map(|(name, _)| name.as_str())
        .collect();
    let last_cycle = pulse.last_cycle;
    let complete = grown == [WHOLE_QUEUE];
    BackfillState { last_cycle, complete, exit: grown.join("+"), ..BackfillState::default() }
}

/// The four answers of one reading, in the order in which they were asked for.
pub(super) struct RawReading {
    pub before: SchedulerDiag,
    pub nodes: RecordList<Node>,
    pub jobs: RecordList<Job>,
    pub reservations: RecordList<Reservation>,
    pub after: SchedulerDiag,
}

impl RawReading {
    /// What the answers say together. `ours` knows the jobs of the malleable partition from earlier readings.
    pub(super) fn into_snapshot(self, backfill: BackfillState, ours: &mut MalleableJobs) -> Snapshot {
        let mut doubts = self.backfill_doubts();
        let backfill = BackfillState {
            active: doubts.iter().any(|d: &SnapshotDoubt| {
                matches!(d, SnapshotDoubt::BackfillActive | SnapshotDoubt::BackfillMoved)
            }),
            ..backfill
        };
        let taken_at = self.before.now.unwrap_or_default();
        let SettledJobs { jobs, doubtful: mut unclear, mut passed } = ours.settle_jobs(self.jobs);
        let nodes = named_nodes(self.nodes, &mut passed);
        let reservations = usable_reservations(self.reservations, taken_at, &mut unclear, &mut passed);
        doubts.extend(summarize_bad(&unclear).map(SnapshotDoubt::Inconsistent));
        let doubt = |text: String| SnapshotDoubt::Inconsistent(text);
        if nodes.is_empty() {
            doubts.push(doubt("Slurm shows no node at all: may this user see them?".to_owned()));
        }
        if let Some(w) = nodes.windows(2).find(|w| w[0].name == w[1].name) {
            doubts.push(doubt(format!("node {} is listed twice", w[0].name)));
        }
        if let Some(w) = jobs.windows(2).find(|w| w[0].id == w[1].id && w[0].id.0 != 0) {
            doubts.push(doubt(format!("job {} is listed twice", w[0].id)));
        }
        if self.before.now.is_none() {
            doubts.push(doubt("Slurm does not tell the time".to_owned()));
        }
        Snapshot { taken_at, nodes, jobs, reservations, backfill, doubts, unread: summarize_bad(&passed) }
    }

    /// Whether backfill was at rest and stayed so, and slurmctld lived on.
    fn backfill_doubts(&self) -> Vec<SnapshotDoubt> {
        let before = &self.before;
        let after = &self.after;
        let mut doubts = Vec::new();
        if before.counting_since != after.counting_since {
            doubts.push(SnapshotDoubt::ControllerRestarted);
        }
        if before.active.is_none() || after.active.is_none() {
            doubts.push(SnapshotDoubt::Inconsistent(
                "Slurm does not tell whether backfill is active".to_owned(),
            ));
        }
        if before.active == Some(true) || after.active == Some(true) {
            doubts.push(SnapshotDoubt::BackfillActive);
        }
        let in_jobs = convert::unix_time(self.jobs.last_backfill, "last_backfill").unwrap_or(None);
        let moved = (before.last_cycle, before.cycles) != (after.last_cycle, after.cycles);
        if moved || in_jobs != before.last_cycle {
            doubts.push(SnapshotDoubt::BackfillMoved);
        }
        doubts
    }
}

/// Whether another look may well dispel all these doubts.
pub(super) fn are_transient(doubts: &[SnapshotDoubt]) -> bool {
    !doubts.is_empty() && !doubts.iter().any(|d| matches!(d, SnapshotDoubt::Inconsistent(_)))
}

/// All nodes that have a name. One of which something cannot be read is no gap, whatever it is: no reason to
/// doubt the others.
fn named_nodes(listed: RecordList<Node>, passed: &mut Vec<String>) -> Vec<Node> {
    let mut nodes = listed.records;
    for bad in listed.bad {
        passed.push(bad.to_string());
        let named = !bad.lacks_field("name");
        nodes.extend(bad.rest.filter(|_| named));
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

/// Reservations of which it is known what they take and when.
fn usable_reservations(
    listed: RecordList<Reservation>,
    now: UnixTime,
    unclear: &mut Vec<String>,
    passed: &mut Vec<String>,
) -> Vec<Reservation> {
    let mut reservations = listed.records;
    for bad in listed.bad {
        let lacks = |field| bad.lacks_field(field);
        let over = bad.rest.as_ref().is_some_and(|r| !lacks("end_time") && r.end_time < now);
        let known = bad.rest.is_some() && !["start_time", "end_time", "node_list"].into_iter().any(lacks);
        if over || known {
            passed.push(bad.to_string());
            reservations.extend(bad.rest);
        } else {
            unclear.push(bad.to_string());
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
