//! Sums of an observation by hour and by day.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::report::ShadowDelay;
use infill_model::UnixTime;
use infill_sim::LiveSums;

/// Seconds of an hour and of a day. Both begin by UTC.
pub(super) const HOUR_SECS: i64 = 3600;
pub(super) const DAY_SECS: i64 = 86_400;

/// Steps of a second in which waits are counted.
const WAIT_STEPS: f64 = 10.0;

/// The longest wait that is counted by its length, in these steps.
const LONGEST_WAIT: u32 = 36_000;

/// What happened in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PeriodSums {
    /// When it began.
    pub from: UnixTime,
    /// Seconds of it that were observed.
    pub observed_secs: f64,
    /// Node-hours that the main queue did not use.
    pub idle_node_hours: f64,
    /// Of these, node-hours that shadow jobs would have held.
    pub held_node_hours: f64,
    /// How often they would have changed their size.
    pub rescales: u64,
    /// Main jobs that started on idle nodes.
    pub main_jobs: u64,
    /// Main jobs that would have found a node held although Slurm had planned their start in time.
    pub late_main_jobs: u64,
    /// Main jobs that would have preempted a shadow job, because Slurm had not planned their start.
    pub preempting_main_jobs: u64,
    /// The longest time for which one of them would have waited, seconds.
    pub longest_wait_secs: f64,
    /// 99 of 100 of all these main jobs would have waited no longer than this, seconds.
    pub p99_wait_secs: f64,
    /// The main job that would have waited longest.
    pub worst: Option<ShadowDelay>,
    /// Main jobs that would have waited, by the time in steps.
    #[serde(skip)]
    waits: BTreeMap<u32, u64>,
}

impl PeriodSums {
    /// What was added from the first sums to the second, without details of waits.
    pub(super) fn between(before: &LiveSums, after: &LiveSums, from: i64, until: i64) -> PeriodSums {
        PeriodSums {
            from: UnixTime(from),
            observed_secs: (until - from) as f64,
            idle_node_hours: (after.idle_node_secs - before.idle_node_secs) / 3600.0,
            held_node_hours: (after.held_node_secs - before.held_node_secs) / 3600.0,
            rescales: after.rescales.saturating_sub(before.rescales),
            main_jobs: after.delays.jobs.saturating_sub(before.delays.jobs),
            late_main_jobs: after.delays.late.saturating_sub(before.delays.late),
            preempting_main_jobs: after.delays.unforeseen.saturating_sub(before.delays.unforeseen),
            ..PeriodSums::default()
        }
    }

    /// Adds the wait of a main job that is already counted.
    pub(super) fn add_delay(&mut self, delay: ShadowDelay) {
        let steps = (delay.wait_secs * WAIT_STEPS).ceil().clamp(1.0, f64::from(LONGEST_WAIT)) as u32;
        *self.waits.entry(steps).or_default() += 1;
        self.note_worst(Some(delay));
    }

    /// Adds a later stretch.
    pub(super) fn add_stretch(&mut self, later: &PeriodSums) {
        if self.observed_secs <= 0.0 {
            self.from = later.from;
        }
        self.observed_secs += later.observed_secs;
        self.idle_node_hours += later.idle_node_hours;
        self.held_node_hours += later.held_node_hours;
        self.rescales += later.rescales;
        self.main_jobs += later.main_jobs;
        self.late_main_jobs += later.late_main_jobs;
        self.preempting_main_jobs += later.preempting_main_jobs;
        for (steps, jobs) in &later.waits {
            *self.waits.entry(*steps).or_default() += jobs;
        }
        self.note_worst(later.worst.clone());
        self.p99_wait_secs = self.wait_quantile(0.99);
    }

    fn note_worst(&mut self, delay: Option<ShadowDelay>) {
        let Some(delay) = delay else { return };
        if self.worst.as_ref().is_none_or(|worst| delay.wait_secs > worst.wait_secs) {
            self.longest_wait_secs = delay.wait_secs;
            self.worst = Some(delay);
        }
    }

    /// The wait that this share of all main jobs does not exceed, seconds.
    fn wait_quantile(&self, share: f64) -> f64 {
        let mut longer = ((1.0 - share) * self.main_jobs as f64).floor() as u64;
        for (steps, jobs) in self.waits.iter().rev() {
            if *jobs > longer {
                return f64::from(*steps) / WAIT_STEPS;
            }
            longer -= jobs;
        }
        0.0
    }

    /// The share of the idle node-hours that shadow jobs would have held.
    pub fn harvested_share(&self) -> f64 {
        if self.idle_node_hours > 0.0 { self.held_node_hours / self.idle_node_hours } else { 0.0 }
    }
}

/// The sums of the last hours, or days.
#[derive(Clone, Debug)]
pub(super) struct PeriodHistory {
    secs: i64,
    most: usize,
    periods: VecDeque<PeriodSums>,
}

impl PeriodHistory {
    /// Periods of this length. The last `most` of them are kept.
    pub fn new(secs: i64, most: usize) -> PeriodHistory {
        PeriodHistory { secs, most, periods: VecDeque::new() }
    }

    /// Adds a stretch to the period in which it began.
    pub fn add_stretch(&mut self, stretch: &PeriodSums) {
        let from = stretch.from.0.div_euclid(self.secs) * self.secs;
        if self.periods.back().is_none_or(|last| last.from.0 != from) {
            self.periods.push_back(PeriodSums::default());
        }
        if let Some(last) = self.periods.back_mut() {
            last.add_stretch(stretch);
            last.from = UnixTime(from);
        }
        if self.periods.len() > self.most {
            self.periods.pop_front();
        }
    }

    /// The last `count` periods, the oldest first. The newest may still go on.
    pub fn last_periods(&self, count: usize) -> Vec<PeriodSums> {
        self.periods.iter().skip(self.periods.len().saturating_sub(count)).cloned().collect()
    }

    /// The periods that ended after `after`, and until `now`.
    pub fn completed(&self, after: UnixTime, now: UnixTime) -> Vec<PeriodSums> {
        let ended = self.periods.iter().filter(|p| p.from.0 + self.secs > after.0);
        ended.filter(|p| p.from.0 + self.secs <= now.0).cloned().collect()
    }
}
