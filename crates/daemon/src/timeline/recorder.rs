//! Records what nodes are used for, from round to round.

use rustc_hash::FxHashMap;

use super::node_use::NodeUse;
use super::usage_hour::{MAX_HOUR_CHANGES, MAX_HOUR_NODES, UsageHour, UseChange};
use infill_model::{NodeName, UnixTime};

/// Seconds of an hour. Hours begin at full hours of UTC.
pub(crate) const HOUR_SECS: i64 = 3600;

/// The begin of the hour that contains a time.
pub(crate) fn hour_of(at: UnixTime) -> UnixTime {
    UnixTime(at.0 - at.0.rem_euclid(HOUR_SECS))
}

/// An observed use counts for this many seconds, unless a later snapshot shows another one.
pub(crate) const USE_HOLDS_SECS: i64 = 120;

/// Seconds. A clock that is set back by more than this was wrong before. A clock that is set back by less
/// soon reaches its old time.
const MAX_SET_BACK_SECS: f64 = 300.0;

/// What a snapshot shows a node to be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedUse {
    /// The node, never a place.
    pub node: NodeName,
    /// What it is used for.
    pub used: NodeUse,
    /// Since when; `None` where Slurm does not report that.
    pub since: Option<UnixTime>,
}

/// Records the uses of all nodes in the present hour.
#[derive(Clone, Debug, Default)]
pub struct HourRecorder {
    hour: UsageHour,
    /// The index of each node in the hour's names.
    indices: FxHashMap<NodeName, u32>,
    /// The last use of each node.
    last: Vec<NodeUse>,
    seen_at: Option<UnixTime>,
}

impl HourRecorder {
    /// Continues an hour that another daemon has begun.
    pub fn resume_from(hour: UsageHour) -> HourRecorder {
        let indices = hour.names.iter().cloned().zip(0..).collect();
        let last = hour.last_uses();
        let seen_at = Some(hour.from.plus_secs(f64::from(hour.secs)));
        HourRecorder { hour, indices, last, seen_at }
    }

    /// Records what nodes are used for now. The use of a node that is not listed is unknown. A change counts
    /// from when Slurm reports it, or else from now. Returns the hours that are finished by that, the
    /// earliest first. Does nothing if `now` is shortly before the last call's.
    pub fn record_uses(&mut self, now: UnixTime, uses: impl Iterator<Item = ObservedUse>) -> Vec<UsageHour> {
        let back = self.seen_at.map_or(0.0, |at| at.secs_since(now));
        if back > MAX_SET_BACK_SECS {
            // The hour that was recorded in the future is finished.
            let future_hour = std::mem::take(self).hour;
            return std::iter::once(future_hour).chain(self.record_uses(now, uses)).collect();
        }
        if back > 0.0 {
            return Vec::new();
        }
        let finished = self.advance_to(now);
        let secs = self.secs_into_hour(now);
        let recorded_until = self.hour.changes.last().map_or(0, |change| change.secs).max(self.hour.secs);
        let earliest = recorded_until.min(secs);
        let mut observed = vec![(secs, NodeUse::Unknown); self.last.len()];
        for ObservedUse { node, used, since } in uses {
            let Some(index) = self.node_index(node) else { continue };
            observed.resize(self.last.len(), (secs, NodeUse::Unknown));
            // For a change between two idle uses, Slurm's time is too old: it is when the last job ended.
            let has_valid_time = used.may_be_taken() || self.last[index as usize].may_be_taken();
            let since = match since {
                Some(at) if has_valid_time => self.secs_into_hour(at).clamp(earliest, secs),
                _ => secs,
            };
            observed[index as usize] = (since, used);
        }
        let mut changes: Vec<(u32, u32, NodeUse)> =
            (0..).zip(observed).map(|(node, (since, used))| (since, node, used)).collect();
        changes.sort_by_key(|(since, node, _)| (*since, *node));
        changes.into_iter().for_each(|(since, node, used)| self.record_change(since, node, used));
        self.hour.secs = secs;
        self.seen_at = Some(now);
        finished
    }

    /// The present hour.
    pub fn current_hour(&self) -> &UsageHour {
        &self.hour
    }

    /// Finishes hours before the one of `now`, and marks uses as unknown that were observed too long ago.
    fn advance_to(&mut self, now: UnixTime) -> Vec<UsageHour> {
        let present_hour = hour_of(now);
        let Some(seen_at) = self.seen_at else {
            self.begin_hour(present_hour);
            return Vec::new();
        };
        let known_until = (seen_at + USE_HOLDS_SECS).min(now);
        let mut finished = Vec::new();
        // The last observed uses may count beyond the end of their hour.
        while self.hour.from < present_hour {
            let end = self.hour.from + HOUR_SECS;
            if known_until < end {
                self.mark_unknown(known_until);
            }
            self.hour.secs = HOUR_SECS as u32;
            let next = if end < known_until { end } else { present_hour };
            finished.push(self.begin_hour(next));
        }
        if known_until < now {
            self.mark_unknown(known_until.max(present_hour));
        }
        finished
    }

    /// Marks the uses of all nodes as unknown from this time on.
    fn mark_unknown(&mut self, at: UnixTime) {
        let secs = self.secs_into_hour(at);
        (0..self.last.len() as u32).for_each(|node| self.record_change(secs, node, NodeUse::Unknown));
    }

    /// Begins an hour with the last uses. Returns the hour before. Nodes whose use is unknown are dropped,
    /// because Slurm may not have them any more.
    fn begin_hour(&mut self, from: UnixTime) -> UsageHour {
        let all = self.hour.names.iter().cloned().zip(self.last.iter().copied());
        let (names, first): (Vec<_>, Vec<_>) = all.filter(|(_, used)| *used != NodeUse::Unknown).unzip();
        self.indices = names.iter().cloned().zip(0..).collect();
        self.last.clone_from(&first);
        std::mem::replace(&mut self.hour, UsageHour { from, names, first, ..UsageHour::default() })
    }

    fn secs_into_hour(&self, at: UnixTime) -> u32 {
        at.secs_since(self.hour.from).clamp(0.0, HOUR_SECS as f64) as u32
    }

    fn record_change(&mut self, secs: u32, node: u32, to: NodeUse) {
        let last = &mut self.last[node as usize];
        if *last != to && self.hour.changes.len() < MAX_HOUR_CHANGES {
            *last = to;
            self.hour.changes.push(UseChange { secs, node, to });
        }
    }

    /// A node's index in the hour. New nodes are added. `None` where there are too many.
    fn node_index(&mut self, name: NodeName) -> Option<u32> {
        if let Some(index) = self.indices.get(&name) {
            return Some(*index);
        }
        let index = self.last.len();
        if index == MAX_HOUR_NODES {
            return None;
        }
        self.hour.names.push(name.clone());
        self.hour.first.push(NodeUse::Unknown);
        self.last.push(NodeUse::Unknown);
        self.indices.insert(name, index as u32);
        Some(index as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    const JOB: NodeUse = NodeUse::Job(JobId(7));

    fn look(recorder: &mut HourRecorder, at: i64, uses: &[(&str, NodeUse)]) -> Vec<UsageHour> {
        let observed = uses.iter().map(|(name, used)| ObservedUse {
            node: NodeName::new(name),
            used: *used,
            since: None,
        });
        recorder.record_uses(UnixTime(at), observed)
    }

    /// The spans of an hour as text: `n1 0-60 Idle`.
    fn spans(hour: &UsageHour) -> Vec<String> {
        let mut spans = hour.use_spans();
        spans.sort_by_key(|(node, from, ..)| (*node, *from));
        spans
            .iter()
            .map(|(node, from, to, used)| format!("{} {from}-{to} {used:?}", hour.names[*node as usize]))
            .collect()
    }

    #[test]
    fn only_changes_are_recorded_and_hours_follow_each_other() {
        let mut recorder = HourRecorder::default();
        for (at, uses) in [
            (3600, vec![("n1", NodeUse::Idle)]),
            (3660, vec![("n1", NodeUse::Idle), ("n2", NodeUse::Main)]),
            (3720, vec![("n1", JOB), ("n2", NodeUse::Main)]),
            (3780, vec![("n2", NodeUse::Main)]),
        ] {
            assert!(look(&mut recorder, at, &uses).is_empty());
        }
        assert_eq!(recorder.current_hour().changes.len(), 4);
        let expected = ["n1 0-120 Idle", "n1 120-180 Job(JobId(7))", "n2 0-60 Unknown", "n2 60-180 Main"];
        assert_eq!(spans(recorder.current_hour()), expected);
        (3840..7200).step_by(60).for_each(|at| drop(look(&mut recorder, at, &[("n2", NodeUse::Main)])));
        let over = look(&mut recorder, 7230, &[("n2", JOB)]);
        assert_eq!(over.len(), 1);
        assert_eq!((over[0].from, over[0].secs), (UnixTime(3600), 3600));
        assert_eq!(spans(recorder.current_hour()), ["n2 0-30 Main"], "a node that is gone is dropped");
        assert_eq!(recorder.current_hour().changes.len(), 1);
    }

    #[test]
    fn time_without_snapshots_is_unknown() {
        let mut recorder = HourRecorder::default();
        look(&mut recorder, 3600, &[("n1", NodeUse::Idle)]);
        let over = look(&mut recorder, 3600 * 5 + 10, &[("n1", NodeUse::Main)]);
        assert_eq!(over.len(), 1, "hours without any observation are left out");
        assert_eq!(spans(&over[0]), ["n1 0-120 Idle", "n1 120-3600 Unknown"]);
        assert_eq!(spans(recorder.current_hour()), ["n1 0-10 Unknown"]);
        // The clock is set back, first by little, then by much.
        assert!(look(&mut recorder, 5 * 3600, &[("n1", JOB)]).is_empty());
        assert_eq!(recorder.current_hour().from, UnixTime(5 * 3600));
        let ahead = look(&mut recorder, 3600, &[("n1", JOB)]);
        assert_eq!((ahead.len(), ahead[0].from), (1, UnixTime(5 * 3600)));
        look(&mut recorder, 3660, &[("n1", JOB)]);
        assert_eq!(spans(recorder.current_hour()), ["n1 0-60 Job(JobId(7))"]);
    }

    #[test]
    fn a_use_at_the_end_of_an_hour_counts_into_the_next() {
        let mut recorder = HourRecorder::default();
        look(&mut recorder, 7170, &[("n1", JOB)]);
        let over = look(&mut recorder, 7400, &[("n1", JOB)]);
        assert_eq!(spans(&over[0]), ["n1 0-3570 Unknown", "n1 3570-3600 Job(JobId(7))"]);
        assert_eq!(spans(recorder.current_hour()), ["n1 0-90 Job(JobId(7))", "n1 90-200 Unknown"]);
    }

    #[test]
    fn changes_count_from_when_slurm_reports_them() {
        let mut recorder = HourRecorder::default();
        let mut look = |at: i64, uses: &[(&str, NodeUse, i64)]| {
            let observed = uses.iter().map(|(name, used, since)| ObservedUse {
                node: NodeName::new(name),
                used: *used,
                since: Some(UnixTime(3600 + since)),
            });
            assert!(recorder.record_uses(UnixTime(3600 + at), observed).is_empty());
            spans(recorder.current_hour())
        };
        look(30, &[("n1", NodeUse::Idle, -50), ("n2", JOB, 10)]);
        look(60, &[("n1", NodeUse::Main, 41), ("n2", NodeUse::Idle, 33)]);
        // Times before the last snapshot, and in the future, are clamped.
        let found = look(90, &[("n1", NodeUse::Idle, 5), ("n2", NodeUse::Main, 500)]);
        let expected = [
            "n1 0-41 Idle",
            "n1 41-60 Main",
            "n1 60-90 Idle",
            "n2 0-10 Unknown",
            "n2 10-33 Job(JobId(7))",
            "n2 33-90 Idle",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_next_daemon_continues_the_hour() {
        let mut recorder = HourRecorder::default();
        look(&mut recorder, 3600, &[("n1", JOB), ("n2", NodeUse::Idle)]);
        look(&mut recorder, 3700, &[("n1", JOB), ("n2", NodeUse::Main)]);
        let hour = UsageHour::unpack(&recorder.current_hour().pack().unwrap()).unwrap();
        let mut next = HourRecorder::resume_from(hour);
        look(&mut next, 3750, &[("n1", JOB), ("n2", NodeUse::Main)]);
        assert_eq!(
            spans(next.current_hour()),
            ["n1 0-150 Job(JobId(7))", "n2 0-100 Idle", "n2 100-150 Main"]
        );
    }
}
