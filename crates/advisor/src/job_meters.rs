//! The meters of running jobs, and what the change to their present generation cost.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::rate_meter::{RateMeter, RateStretch};
use infill_model::{ChangeCost, GenerationStartup, JobId, MeasuredCosts, ProfileKey, ProgressReport};

/// A measured stretch, and everything that is to be learned from it.
#[derive(Clone, Debug)]
pub(super) struct JobMeasurement {
    /// The profile that it counts to.
    pub(super) key: ProfileKey,
    pub(super) nodes: u32,
    /// The number of hosts that the nodes are on.
    pub(super) hosts: u32,
    /// Whether the nodes are parts of several hosts.
    pub(super) apart: bool,
    /// Whether the nodes are on several leaf switches.
    pub(super) crosses: bool,
    pub(super) stretch: RateStretch,
    /// Whether this is the first measurement of the job.
    pub(super) new_job: bool,
    /// What the change to this generation cost.
    pub(super) change: Option<MeasuredChange>,
}

/// The measured cost of a change of a job's nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredChange {
    kind: MeasuredChangeKind,
    pub(super) cost: ChangeCost,
}

#[derive(Clone, Copy, Debug)]
enum MeasuredChangeKind {
    Start,
    Up,
    Down,
}

impl MeasuredChange {
    /// The mean cost that this change counts to.
    pub(super) fn mean_mut<'a>(&self, costs: &'a mut MeasuredCosts) -> &'a mut ChangeCost {
        match self.kind {
            MeasuredChangeKind::Start => &mut costs.start,
            MeasuredChangeKind::Up => &mut costs.up,
            MeasuredChangeKind::Down => &mut costs.down,
        }
    }
}

/// One job's meter.
#[derive(Clone, Debug, Default)]
struct JobMeter {
    generation: u64,
    nodes: u32,
    hosts: u32,
    apart: bool,
    crosses: bool,
    /// Nodes of the previous generation; 0 where unknown.
    nodes_before: u32,
    /// The profile that it counts to.
    key: Option<ProfileKey>,
    rates: RateMeter,
    startup: Option<GenerationStartup>,
    has_reports: bool,
}

impl JobMeter {
    fn measure_stretch(&mut self, key: &ProfileKey, nodes: u32, stretch: RateStretch) -> JobMeasurement {
        let change = if stretch.first { self.measure_change(&stretch) } else { None };
        let new_job = self.generation == 1 && stretch.first;
        JobMeasurement {
            key: key.clone(),
            nodes,
            hosts: self.hosts,
            apart: self.apart,
            crosses: self.crosses,
            stretch,
            new_job,
            change,
        }
    }

    /// What the change to this generation cost, now that its steady rate is known.
    fn measure_change(&mut self, stretch: &RateStretch) -> Option<MeasuredChange> {
        let startup = self.startup.take().filter(|s| s.counts)?;
        // After a start of the daemon the earlier size is unknown.
        if startup.stop_secs.is_some() && self.nodes_before == 0 {
            return None;
        }
        let kind = match (startup.stop_secs, self.nodes.cmp(&self.nodes_before)) {
            (None, _) => MeasuredChangeKind::Start,
            (Some(_), Ordering::Greater) => MeasuredChangeKind::Up,
            // Also a change of nodes at the same size.
            (Some(_), _) => MeasuredChangeKind::Down,
        };
        Some(MeasuredChange { kind, cost: change_cost(&startup, stretch, self.rates.workers()) })
    }
}

fn change_cost(startup: &GenerationStartup, stretch: &RateStretch, workers: usize) -> ChangeCost {
    let stopped = startup.stop_secs.unwrap_or(0.0);
    let saved = startup.saved_secs.unwrap_or(0.0).min(stopped);
    let share = 1.0 / workers.max(1) as f64;
    // The work done during the start would have taken less time at the steady rate.
    let useful = startup.samples / (stretch.rate.rate * share);
    ChangeCost {
        checkpoint_secs: saved,
        exit_secs: stopped - saved,
        start_secs: startup.idle_secs + (startup.start_secs - useful).max(0.0),
        warmup_secs: stretch.rate.warmup_lost_secs,
        count: 1,
    }
}

/// The meters of all jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct JobMeters {
    meters: BTreeMap<JobId, JobMeter>,
}

impl JobMeters {
    /// Whether a report of this generation comes too late: a later one has reported.
    pub(super) fn is_stale(&self, job: JobId, generation: u64) -> bool {
        self.meters.get(&job).is_some_and(|meter| generation < meter.generation)
    }

    /// Whether any worker of a job has reported.
    pub(super) fn has_reports(&self, job: JobId) -> bool {
        self.meters.get(&job).is_some_and(|meter| meter.has_reports)
    }

    /// If the report is the first of a generation, begins to measure that generation. Returns the last
    /// measurement of the one before.
    pub(super) fn begin_generation(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
    ) -> Option<JobMeasurement> {
        let meter = self.meters.entry(job).or_default();
        if progress.generation == meter.generation {
            return None;
        }
        let last = meter.rates.finish_stretch().zip(meter.key.take());
        let before = std::mem::take(meter);
        *meter = JobMeter {
            generation: progress.generation,
            nodes: progress.nodes,
            hosts: progress.hosts,
            apart: progress.node.is_place() && progress.hosts > 1,
            crosses: progress.crosses,
            nodes_before: if before.has_reports { before.nodes } else { 0 },
            has_reports: true,
            key: Some(key.clone()),
            ..JobMeter::default()
        };
        let (stretch, key) = last?;
        Some(JobMeasurement {
            key,
            nodes: before.nodes,
            hosts: before.hosts,
            apart: before.apart,
            crosses: before.crosses,
            stretch,
            // Only a generation that still runs tells whether the job is new, and what the change to it cost.
            new_job: false,
            change: None,
        })
    }

    /// Takes in a report of the present generation. Returns a measurement when a stretch is complete.
    pub(super) fn record_report(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
    ) -> Option<JobMeasurement> {
        let meter = self.meters.get_mut(&job)?;
        if progress.startup.is_some() {
            meter.startup = meter.startup.or(progress.startup);
            return None;
        }
        let stretch =
            meter.rates.add_report(progress.node, progress.samples, progress.secs, progress.step)?;
        Some(meter.measure_stretch(key, progress.nodes, stretch))
    }

    /// Takes in that the job's generation has ended or was interrupted. Returns its last measurement.
    pub(super) fn finish_generation(&mut self, job: JobId) -> Option<JobMeasurement> {
        let meter = self.meters.get_mut(&job)?;
        let key = meter.key.clone()?;
        let nodes = meter.nodes;
        let stretch = meter.rates.finish_stretch()?;
        Some(meter.measure_stretch(&key, nodes, stretch))
    }

    /// Forgets a job that has ended.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.meters.remove(&job);
    }
}
