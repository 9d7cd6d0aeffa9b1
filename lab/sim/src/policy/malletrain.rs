//! MalleTrain as published (ICPE 2024): FreeTrain's program with curves from its job profiling advisor. The
//! advisor runs a new job on 4, 3, 2 and 1 nodes, about 20 s each. It profiles one job at a time, when there
//! are 4 more idle nodes than jobs.
//!
//! Beyond 4 nodes it measures nothing: the curve continues with its last slope. A job without measurements is
//! assumed to scale linearly, at the mean speed of those with measurements.

use std::collections::BTreeMap;

use super::freetrain::allocate_sizes;
use super::{AllocationPolicy, PolicyName, PolicyView, Target, targets_for_sizes};
use crate::job::{ChangeCause, SimJob};
use infill_model::JobId;

/// Sizes that are measured, in this order.
const PROFILED_SIZES: [u32; 4] = [4, 3, 2, 1];

/// Seconds for which each size is measured.
const MEASURE_SECS: i64 = 20;

/// Number of idle nodes beyond the number of jobs that profiling requires.
const SPARE_NODES: usize = 4;

/// The profile of a program: weighted samples a second by size.
type RatePoints = BTreeMap<u32, f64>;

/// The job that is being measured.
#[derive(Clone, Debug)]
struct ProfilingRun {
    job: JobId,
    program: String,
    nodes: u32,
    samples: f64,
    secs: f64,
    until: Option<i64>,
}

/// The published policy MalleTrain.
#[derive(Clone, Debug)]
pub(crate) struct MalleTrain {
    name: PolicyName,
    tfwd_secs: f64,
    profiles: BTreeMap<String, RatePoints>,
    profiling: Option<ProfilingRun>,
}

impl MalleTrain {
    /// A policy with this forward-looking time, s.
    pub fn new(name: PolicyName, tfwd_secs: f64) -> Self {
        MalleTrain { name, tfwd_secs, profiles: BTreeMap::new(), profiling: None }
    }

    /// The assumed rate of a job on this number of nodes, weighted samples a second.
    fn believed_rate(&self, job: &SimJob, nodes: u32) -> f64 {
        match self.profiles.get(&job.submitted.program).filter(|points| !points.is_empty()) {
            Some(points) => extrapolate_rate(points, nodes),
            None => f64::from(nodes) * self.mean_node_rate(),
        }
    }

    /// Mean rate on one node of the programs with measurements; 1 without any.
    fn mean_node_rate(&self) -> f64 {
        let ones: Vec<f64> = self.profiles.values().filter_map(|p| p.get(&1)).copied().collect();
        if ones.is_empty() { 1.0 } else { ones.iter().sum::<f64>() / ones.len() as f64 }
    }

    fn next_missing_size(&self, job: &SimJob) -> Option<u32> {
        let points = self.profiles.get(&job.submitted.program);
        let allowed = job.submitted.min_nodes..=job.submitted.max_nodes;
        PROFILED_SIZES.into_iter().find(|size| {
            let is_measured = points.is_some_and(|points| points.contains_key(size));
            allowed.contains(size) && !is_measured
        })
    }

    /// Continues with the next size or job after a measurement.
    fn advance_profiling(&mut self, view: &PolicyView<'_>) {
        if let Some(p) = &self.profiling {
            let is_over = p.until.is_some_and(|until| until <= view.now);
            if is_over && p.secs > 0.0 {
                self.profiles.entry(p.program.clone()).or_default().insert(p.nodes, p.samples / p.secs);
            }
            let is_cut_short = view.jobs.get(&p.job).is_none_or(|j| p.until.is_some() && j.size() != p.nodes);
            if is_over || is_cut_short {
                self.profiling = None;
            }
        }
        if self.profiling.is_some() || view.cluster.idle_count() < view.jobs.len() + SPARE_NODES {
            return;
        }
        let next = view.jobs.values().find_map(|job| Some((job, self.next_missing_size(job)?)));
        self.profiling = next.map(|(job, nodes)| ProfilingRun {
            job: job.id,
            program: job.submitted.program.clone(),
            nodes,
            samples: 0.0,
            secs: 0.0,
            until: None,
        });
    }
}

impl AllocationPolicy for MalleTrain {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn learns_rates(&self) -> bool {
        true
    }

    fn wake_at(&self) -> Option<i64> {
        self.profiling.as_ref()?.until
    }

    fn record_progress(&mut self, job: &SimJob, samples: f64, secs: f64, now: i64) -> bool {
        if let Some(p) = self.profiling.as_mut().filter(|p| p.job == job.id && p.nodes == job.size()) {
            p.samples += samples * job.submitted.weight;
            p.secs += secs;
            p.until = p.until.or(Some(now - secs as i64 + MEASURE_SECS));
        }
        false
    }

    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target> {
        self.advance_profiling(view);
        let nodes = view.cluster.idle_count() as u32;
        // The main queue has taken nodes that the measurement needs.
        self.profiling.take_if(|p| p.nodes > nodes);
        let held = self.profiling.as_ref().map(|p| (p.job, p.nodes));
        let mut sizes: BTreeMap<JobId, u32> = held.into_iter().collect();
        let others: BTreeMap<JobId, SimJob> = view
            .jobs
            .iter()
            .filter(|(id, _)| held.is_none_or(|(job, _)| job != **id))
            .map(|(id, job)| (*id, job.clone()))
            .collect();
        let left = nodes - sizes.values().sum::<u32>();
        sizes.extend(allocate_sizes(&others, left, self.tfwd_secs, view.costs, |job, n| {
            self.believed_rate(job, n)
        }));
        let mut targets = targets_for_sizes(view, &sizes);
        for target in targets.iter_mut().filter(|t| held.is_some_and(|(job, _)| job == t.job)) {
            target.cause = ChangeCause::Probe;
        }
        targets
    }
}

/// The rate on `nodes` nodes: linear between measured sizes, proportional below the smallest, and with the
/// slope of the last two beyond the largest.
fn extrapolate_rate(points: &RatePoints, nodes: u32) -> f64 {
    let n = f64::from(nodes);
    let below = points.range(..=nodes).next_back();
    let above = points.range(nodes..).next();
    match (below, above) {
        (Some((a, rate)), _) if *a == nodes => *rate,
        (Some((a, low)), Some((b, high))) => low + (high - low) * (n - f64::from(*a)) / f64::from(b - a),
        (None, Some((b, rate))) => rate * n / f64::from(*b),
        (Some((b, high)), None) => match points.range(..b).next_back() {
            Some((a, low)) => (high + (high - low) / f64::from(b - a) * (n - f64::from(*b))).max(*high),
            None => high * n / f64::from(*b),
        },
        (None, None) => 0.0,
    }
}
