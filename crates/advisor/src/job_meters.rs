//! The jobs that are being measured: their meters, and what the change to their present generation cost.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::rate_meter::{RateMeter, Stretch};
use infill_model::{ChangeCost, GenerationStartup, JobId, MeasuredCosts, ProfileKey, ProgressReport};

/// A stretch that was measured, and all that is to be learned from it.
#[derive(Clone, Debug)]
pub(super) struct JobMeasurement {
    /// The profile that it counts to.
    pub(super) key: ProfileKey,
    /// The size.
    pub(super) nodes: u32,
    /// On how many hosts.
    pub(super) hosts: u32,
    /// Whether parts of nodes on several of these.
    pub(super) apart: bool,
    /// Whether on several leaf switches.
    pub(super) crosses: bool,
    /// What was measured.
    pub(super) stretch: Stretch,
    /// Whether it is the first that was measured of the job.
    pub(super) new_job: bool,
    /// What the change to this generation cost.
    pub(super) change: Option<MeasuredChange>,
}

/// A change of a job's nodes that was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredChange {
    kind: MeasuredChangeKind,
    /// What it cost.
    pub(super) cost: ChangeCost,
}

#[derive(Clone, Copy, Debug)]
enum MeasuredChangeKind {
    Start,
    Up,
    Down,
}

impl MeasuredChange {
    /// The mean that it belongs to.
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
    /// Nodes of the generation before.
    before: u32,
    /// To which profile it counts.
    key: Option<ProfileKey>,
    meter: RateMeter,
    startup: Option<GenerationStartup>,
    any: bool,
}

impl JobMeter {
    fn measure_stretch(&mut self, key: &ProfileKey, nodes: u32, stretch: Stretch) -> JobMeasurement {
        let change = if stretch.first { self.measure_change(&stretch) } else { None };
        let new_job = self.generation == 1 && stretch.first;
        let hosts = self.hosts;
        let apart = self.apart;
        let crosses = self.crosses;
        JobMeasurement { key: key.clone(), nodes, hosts, apart, crosses, stretch, new_job, change }
    }

    /// What the change to this generation cost, now that its steady rate is known.
    fn measure_change(&mut self, stretch: &Stretch) -> Option<MeasuredChange> {
        let startup = self.startup.take().filter(|s| s.counts)?;
        // After a start of the daemon nobody knows what was before.
        if startup.stop_secs.is_some() && self.before == 0 {
            return None;
        }
        let kind = match (startup.stop_secs, self.nodes.cmp(&self.before)) {
            (None, _) => MeasuredChangeKind::Start,
            (Some(_), Ordering::Greater) => MeasuredChangeKind::Up,
            // Also a change of nodes at the same size.
            (Some(_), _) => MeasuredChangeKind::Down,
        };
        Some(MeasuredChange { kind, cost: change_cost(&startup, stretch, self.meter.workers()) })
    }
}

fn change_cost(startup: &GenerationStartup, stretch: &Stretch, workers: usize) -> ChangeCost {
    let stopped = startup.stop_secs.unwrap_or(0.0);
    let saved = startup.saved_secs.unwrap_or(0.0).min(stopped);
    let share = 1.0 / workers.max(1) as f64;
    // What was done meanwhile would have been done at the steady rate in less time.
    let useful = startup.samples / (stretch.rate.rate * share);
    ChangeCost {
        checkpoint_secs: saved,
        exit_secs: stopped - saved,
        start_secs: startup.idle_secs + (startup.start_secs - useful).max(0.0),
        warmup_secs: stretch.rate.warmup_lost_secs,
        count: 1,
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct JobMeters {
    watches: BTreeMap<JobId, JobMeter>,
}

impl JobMeters {
    /// Whether a report of this generation comes too late: a later one has reported.
    pub(super) fn is_stale(&self, job: JobId, generation: u64) -> bool {
        self.watches.get(&job).is_some_and(|w| generation < w.generation)
    }

    /// Whether anything was heard of a job.
    pub(super) fn has_reports(&self, job: JobId) -> bool {
        self.watches.get(&job).is_some_and(|w| w.any)
    }

    /// If the report is the first of a generation, begins to measure that; returns what was measured of the
    /// one before.
    pub(super) fn begin_generation(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
    ) -> Option<JobMeasurement> {
        let watch = self.watches.entry(job).or_default();
        if progress.generation == watch.generation {
            return None;
        }
        let last = watch.meter.finish_stretch().zip(watch.key.take());
        let nodes = watch.nodes;
        let hosts = watch.hosts;
        let apart = watch.apart;
        let crosses = watch.crosses;
        let before = if watch.any { nodes } else { 0 };
        *watch = JobMeter {
            generation: progress.generation,
            nodes: progress.nodes,
            hosts: progress.hosts,
            apart: progress.node.is_place() && progress.hosts > 1,
            crosses: progress.crosses,
            before,
            any: true,
            key: Some(key.clone()),
            ..JobMeter::default()
        };
        // Whether the job is new, and what it cost to come there, is told by a generation that still runs.
        let new_job = false;
        let change = None;
        last.map(|(stretch, key)| JobMeasurement {
            key,
            nodes,
            hosts,
            apart,
            crosses,
            stretch,
            new_job,
            change,
        })
    }

    /// Takes in a report of the present generation; returns what was measured when a stretch is complete.
    pub(super) fn record_report(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        progress: &ProgressReport<'_>,
    ) -> Option<JobMeasurement> {
        let watch = self.watches.get_mut(&job)?;
        if progress.opening.is_some() {
            watch.startup = watch.startup.or(progress.opening);
            return None;
        }
        let stretch =
            watch.meter.add_report(progress.node, progress.samples, progress.secs, progress.step)?;
        Some(watch.measure_stretch(key, progress.nodes, stretch))
    }

    /// The job's generation has ended or was interrupted: what was measured of it.
    pub(super) fn finish_generation(&mut self, job: JobId) -> Option<JobMeasurement> {
        let watch = self.watches.get_mut(&job)?;
        let key = watch.key.clone()?;
        let nodes = watch.nodes;
        let stretch = watch.meter.finish_stretch()?;
        Some(watch.measure_stretch(&key, nodes, stretch))
    }

    /// Forgets a job that has ended.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.watches.remove(&job);
    }
}
