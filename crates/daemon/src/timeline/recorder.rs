//! Notes what nodes are used for, from round to round.

use rustc_hash::FxHashMap;

use super::node_use::NodeUse;
use super::usage_hour::{MAX_HOUR_CHANGES, MAX_HOUR_NODES, UsageHour, UseChange};
use infill_model::{NodeName, UnixTime};

/// Seconds of a chunk. Hours begin with those of the clock.
pub(crate) const HOUR_SECS: i64 = 3600;

/// The begin of the hour that a moment is in.
pub(crate) fn hour_of(at: UnixTime) -> UnixTime {
    UnixTime(at.0 - at.0.rem_euclid(HOUR_SECS))
}

/// For so many seconds after a look what was seen is taken to have stayed as it was.
pub(crate) const USE_HOLDS_SECS: i64 = 120;

/// A clock that was set back by more than this was wrong before, seconds; one by less catches up soon.
const MAX_SET_BACK_SECS: f64 = 300.0;

/// What a node was seen to be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedUse {
    /// The node.
    pub node: NodeName,
    /// For what.
    pub used: NodeUse,
    /// Since when, where Slurm tells.
    pub since: Option<UnixTime>,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct HourRecorder {
    hour: UsageHour,
    places: FxHashMap<NodeName, u32>,
    /// What each node was used for last.
    last: Vec<NodeUse>,
    seen_at: Option<UnixTime>,
}

impl HourRecorder {
    /// Goes on with an hour that another daemon has begun.
    pub fn resume_from(hour: UsageHour) -> HourRecorder {
        let places = hour.names.iter().cloned().zip(0..).collect();
        let mut last = hour.first.clone();
        hour.changes.iter().for_each(|change| last[change.node as usize] = change.to);
        let seen_at = Some(hour.from.plus_secs(f64::from(hour.secs)));
        HourRecorder { hour, places, last, seen_at }
    }

    /// Takes in what nodes are used for now; of a node that is not named nothing is known. What has changed
    /// since the last look did so when Slurm says, or else now. Returns the hours that are over by that, the
    /// earliest first. A look of shortly before the last one changes nothing.
    pub fn record_uses(&mut self, now: UnixTime, uses: impl Iterator<Item = ObservedUse>) -> Vec<UsageHour> {
        let back = self.seen_at.map_or(0.0, |at| at.secs_since(now));
        if back > MAX_SET_BACK_SECS {
            // What was noted ahead of time is over.
            let ahead = std::mem::take(self).hour;
            return std::iter::once(ahead).chain(self.record_uses(now, uses)).collect();
        }
        if back > 0.0 {
            return Vec::new();
        }
        let over = self.advance_to(now);
        let secs = self.secs_into_hour(now);
        let known = self.hour.changes.last().map_or(0, |change| change.secs).max(self.hour.secs);
        let mut seen = vec![(secs, NodeUse::Unknown); self.last.len()];
        for ObservedUse { node, used, since } in uses {
            let Some(place) = self.node_index(node) else { continue };
            seen.resize(self.last.len(), (secs, NodeUse::Unknown));
            // Of a node that nobody uses, why it is so has changed since Slurm's last word of it.
            let is_ours_to_date = used.may_be_taken() || self.last[place as usize].may_be_taken();
            let since = since.filter(|_| is_ours_to_date);
            let since = since.map_or(secs, |at| self.secs_into_hour(at).clamp(known.min(secs), secs));
            seen[place as usize] = (since, used);
        }
        let mut seen: Vec<(u32, u32, NodeUse)> =
            (0..).zip(seen).map(|(node, (since, used))| (since, node, used)).collect();
        seen.sort_by_key(|(since, node, _)| (*since, *node));
        seen.into_iter().for_each(|(since, node, used)| self.record_change(since, node, used));
        self.hour.secs = secs;
        self.seen_at = Some(now);
        over
    }

    /// The hour that is under way.
    pub fn current_hour(&self) -> &UsageHour {
        &self.hour
    }

    /// Ends hours until this moment's, and forgets what was seen too long ago.
    fn advance_to(&mut self, now: UnixTime) -> Vec<UsageHour> {
        let begins = hour_of(now);
        let Some(seen_at) = self.seen_at else {
            self.begin_hour(begins);
            return Vec::new();
        };
        let until = (seen_at + USE_HOLDS_SECS).min(now);
        let mut over = Vec::new();
        // What was seen last may still hold beyond the end of its hour.
        while self.hour.from < begins {
            let end = self.hour.from + HOUR_SECS;
            if until < end {
                self.mark_unknown(until);
            }
            self.hour.secs = HOUR_SECS as u32;
            let next = if end < until { end } else { begins };
            over.push(self.begin_hour(next));
        }
        if until < now {
            self.mark_unknown(until.max(begins));
        }
        over
    }

    /// Nothing is known from this moment on.
    fn mark_unknown(&mut self, at: UnixTime) {
        let secs = self.secs_into_hour(at);
        (0..self.last.len() as u32).for_each(|node| self.record_change(secs, node, NodeUse::Unknown));
    }

    /// Begins an hour with what is known; returns the one before. Nodes of which nothing is known are
    /// forgotten: Slurm may have them no more.
    fn begin_hour(&mut self, from: UnixTime) -> UsageHour {
        let all = self.hour.names.iter().cloned().zip(self.last.iter().copied());
        let (names, first): (Vec<_>, Vec<_>) = all.filter(|(_, each)| *each != NodeUse::Unknown).unzip();
        self.places = names.iter().cloned().zip(0..).collect();
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

    /// A node's place; `None` for one too many.
    fn node_index(&mut self, name: NodeName) -> Option<u32> {
        if let Some(place) = self.places.get(&name) {
            return Some(*place);
        }
        let place = self.last.len();
        if place == MAX_HOUR_NODES {
            return None;
        }
        self.hour.names.push(name.clone());
        self.hour.first.push(NodeUse::Unknown);
        self.last.push(NodeUse::Unknown);
        self.places.insert(name, place as u32);
        Some(place as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    const JOB: NodeUse = NodeUse::Job(JobId(7));

    fn look(recorder: &mut HourRecorder, at: i64, uses: &[(&str, NodeUse)]) -> Vec<UsageHour> {
        let seen = |(name, used): &(&str, NodeUse)| ObservedUse {
            node: NodeName::new(name),
            used: *used,
            since: None,
        };
        recorder.record_uses(UnixTime(at), uses.iter().map(seen))
    }

    /// Its spans in words: `n1 0-60 Idle`.
    fn spans(hour: &UsageHour) -> Vec<String> {
        let mut spans = hour.use_spans();
        spans.sort_by_key(|(node, from, ..)| (*node, *from));
        spans
            .iter()
            .map(|(node, from, to, each): &(u32, u32, u32, NodeUse)| {
                format!("{} {from}-{to} {each:?}", hour.names[*node as usize])
            })
            .collect()
    }

    #[test]
    fn only_changes_are_noted_and_hours_follow_each_other() {
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
        assert_eq!(spans(recorder.current_hour()), ["n2 0-30 Main"], "who is gone is forgotten");
        assert_eq!(recorder.current_hour().changes.len(), 1);
    }

    #[test]
    fn what_nobody_looked_at_is_unknown_and_no_hour_is_idle_by_that() {
        let mut recorder = HourRecorder::default();
        look(&mut recorder, 3600, &[("n1", NodeUse::Idle)]);
        let over = look(&mut recorder, 3600 * 5 + 10, &[("n1", NodeUse::Main)]);
        assert_eq!(over.len(), 1, "hours of which nothing is known are none");
        assert_eq!(spans(&over[0]), ["n1 0-120 Idle", "n1 120-3600 Unknown"]);
        assert_eq!(spans(recorder.current_hour()), ["n1 0-10 Unknown"]);
        // Clocks are set back: by little, and by much.
        assert!(look(&mut recorder, 5 * 3600, &[("n1", JOB)]).is_empty());
        assert_eq!(recorder.current_hour().from, UnixTime(5 * 3600));
        let ahead = look(&mut recorder, 3600, &[("n1", JOB)]);
        assert_eq!((ahead.len(), ahead[0].from), (1, UnixTime(5 * 3600)));
        look(&mut recorder, 3660, &[("n1", JOB)]);
        assert_eq!(spans(recorder.current_hour()), ["n1 0-60 Job(JobId(7))"]);
    }

    #[test]
    fn what_was_seen_just_before_the_hour_holds_into_the_next() {
        let mut recorder = HourRecorder::default();
        look(&mut recorder, 7170, &[("n1", JOB)]);
        let over = look(&mut recorder, 7400, &[("n1", JOB)]);
        assert_eq!(spans(&over[0]), ["n1 0-3570 Unknown", "n1 3570-3600 Job(JobId(7))"]);
        assert_eq!(spans(recorder.current_hour()), ["n1 0-90 Job(JobId(7))", "n1 90-200 Unknown"]);
    }

    #[test]
    fn what_slurm_has_noted_is_as_old_as_it_says() {
        let mut recorder = HourRecorder::default();
        let mut look = |at: i64, uses: &[(&str, NodeUse, i64)]| {
            let seen = |(name, used, since): &(&str, NodeUse, i64)| ObservedUse {
                node: NodeName::new(name),
                used: *used,
                since: Some(UnixTime(3600 + since)),
            };
            assert!(recorder.record_uses(UnixTime(3600 + at), uses.iter().map(seen)).is_empty());
            spans(recorder.current_hour())
        };
        look(30, &[("n1", NodeUse::Idle, -50), ("n2", JOB, 10)]);
        look(60, &[("n1", NodeUse::Main, 41), ("n2", NodeUse::Idle, 33)]);
        // Of before the last look, and of later than now: as near to that as can be.
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
    fn the_next_daemon_goes_on_with_the_hour() {
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
