//! The value of a whole plan: of its first step by the nodes that it names, of later steps by its forecast.
//!
//! The forecast gives only numbers of nodes. Nodes that a job takes later are assumed to last as long as it
//! needs them. They are assumed to be of the type on which it runs. The job is assumed to run its best
//! execution plan on them. When it starts again it may go to another type: the best one with enough nodes in
//! that step.

use crate::plan::space::{cost, problem::PlanningProblem, steps::TimeSteps};
use infill_model::{ChangeKind, ExecPlan, JobPlan, MalleableJob, NodeType};

/// A plan's value, in weighted samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PlanValue {
    /// Samples made if no change took time.
    pub samples: f64,
    /// Samples lost to changes.
    pub rescale: f64,
    /// What voluntary changes must gain beyond their cost: for each change a share of the job's present
    /// value.
    pub reluctance: f64,
}

impl PlanValue {
    /// Samples over the horizon, less what changes cost: the plan's `objective`.
    pub fn net_samples(&self) -> f64 {
        self.samples - self.rescale
    }

    /// The score that compares plans.
    pub fn score(&self) -> f64 {
        self.net_samples() - self.reluctance
    }

    /// Adds another value to this one.
    pub fn add_value(&mut self, other: PlanValue) {
        self.samples += other.samples;
        self.rescale += other.rescale;
        self.reluctance += other.reluctance;
    }
}

/// Evaluates a plan.
#[cfg(test)]
pub(crate) fn evaluate_plan(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    plan: &infill_model::Plan,
) -> PlanValue {
    let counts = count_by_type(problem, steps);
    let mut total = PlanValue::default();
    for job in problem.jobs {
        if let Some(planned) = plan.job_plan(job.id) {
            let gaps: Vec<_> = planned.nodes.iter().map(|p| problem.gap_at(&p.node)).collect();
            let present = PresentNodes {
                can_stay: cost::can_stay(problem, steps, job),
                reluctance: cost::change_reluctance(problem, steps, job),
                lasts: gaps.iter().map(|g| g.map_or(0, |g| steps.steps_through(g.usable_until))).collect(),
                node_type: gaps.first().copied().flatten().map(|g| &g.node_type),
            };
            total.add_value(evaluate_job(problem, steps, &counts, job, planned, present));
        }
    }
    total
}

/// Facts about a job and about the nodes that a plan gives it now.
#[derive(Clone, Debug)]
pub(crate) struct PresentNodes<'a> {
    /// Whether the job could stay as it is.
    pub can_stay: bool,
    /// Weighted samples that a change must gain beyond its cost.
    pub reluctance: f64,
    /// Number of steps that each planned node lasts through; the lead's node comes first.
    pub lasts: Vec<usize>,
    /// Type of these nodes.
    pub node_type: Option<&'a NodeType>,
}

/// Each type with its number of nodes in each step.
pub(crate) type TypeCounts<'a> = Vec<(&'a NodeType, Vec<u32>)>;

/// Counts the nodes of each type in each step. The result is sorted by type.
pub(crate) fn count_by_type<'a>(problem: &PlanningProblem<'a>, steps: &TimeSteps) -> TypeCounts<'a> {
    let mut found: Vec<(&NodeType, Vec<u32>)> = Vec::new();
    for gap in &problem.gaps.gaps {
        let place = found.binary_search_by(|(t, _)| (*t).cmp(&gap.node_type));
        let place = place.unwrap_or_else(|at| {
            found.insert(at, (&gap.node_type, vec![0; steps.len()]));
            at
        });
        let counts = &mut found[place].1;
        counts.iter_mut().take(steps.steps_through(gap.usable_until)).for_each(|n| *n += 1);
    }
    found
}

/// Evaluates one job's part of a plan.
pub(crate) fn evaluate_job(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    supply: &TypeCounts<'_>,
    job: &MalleableJob,
    planned: &JobPlan,
    present: PresentNodes<'_>,
) -> PlanValue {
    let busy = problem.is_busy(job);
    let mut walk = ForecastWalk {
        job,
        named: present.lasts,
        lead_named: true,
        others: 0,
        exec_plan: planned.exec_plan.clone(),
        rate: planned.rate,
        node_type: present.node_type,
        supply,
    };
    let first = if busy { ChangeKind::None } else { cost::first_change(job, planned) };
    let voluntary = first != ChangeKind::None && present.can_stay && !problem.drain;
    let mut samples = walk.rate * steps.secs(0);
    let mut rescale = job.change_loss(first, walk.rate);
    let mut reluctant = u32::from(voluntary);
    for (before, (_, nodes)) in planned.forecast.iter().enumerate() {
        let change = walk.advance_to(before + 1, *nodes);
        samples += walk.rate * steps.secs(before + 1);
        if !busy {
            rescale += job.change_loss(change, walk.rate);
            reluctant += u32::from(change.takes_nodes());
        }
    }
    PlanValue {
        samples: samples * job.weight,
        rescale: rescale * job.weight,
        reluctance: present.reluctance * f64::from(reluctant),
    }
}

/// One job during a walk over the forecast.
struct ForecastWalk<'a> {
    job: &'a MalleableJob,
    /// For each named node that the job still has, the number of steps through which it lasts; the lead's
    /// first.
    named: Vec<usize>,
    /// Whether the lead is on the first of `named`, rather than on a node taken later.
    lead_named: bool,
    /// Number of nodes taken later.
    others: u32,
    exec_plan: ExecPlan,
    rate: f64,
    node_type: Option<&'a NodeType>,
    supply: &'a [(&'a NodeType, Vec<u32>)],
}

impl<'a> ForecastWalk<'a> {
    /// Moves on to `step` with `nodes` nodes. Returns the change that this makes.
    fn advance_to(&mut self, step: usize, nodes: u32) -> ChangeKind {
        let had = self.named.len() as u32 + self.others;
        if had == nodes && self.named.iter().all(|lasts| *lasts > step) {
            return ChangeKind::None;
        }
        let lead_lasts = !self.lead_named || self.named.first().is_none_or(|lasts| *lasts > step);
        let change = match (had, nodes) {
            (_, 0) => ChangeKind::Park,
            _ if had > 0 && !lead_lasts => ChangeKind::Start,
            _ => ChangeKind::between_sizes(had, nodes, false),
        };
        if matches!(change, ChangeKind::Start | ChangeKind::Park) {
            self.named.clear();
            self.lead_named = false;
        }
        self.keep_lasting(step, nodes);
        self.others = nodes - self.named.len() as u32;
        if change == ChangeKind::Start {
            self.node_type = self.fastest_type(step, nodes);
        }
        let starts = change == ChangeKind::Start;
        let node_type = self.node_type.filter(|_| nodes > 0);
        let run = if starts {
            node_type.and_then(|t| cost::best_rate(self.job, t, nodes))
        } else {
            node_type.and_then(|t| cost::later_rate(self.job, t, &self.exec_plan, nodes))
        };
        let Some((exec_plan, rate)) = run else {
            self.rate = 0.0;
            return change;
        };
        let before = std::mem::replace(&mut self.exec_plan, exec_plan);
        self.rate = rate;
        if self.job.keeps_plan() && !starts && before != self.exec_plan { ChangeKind::Replan } else { change }
    }

    /// Drops named nodes that end before `step` does. If more than `most` are left, also drops those that end
    /// first, except the lead's node.
    fn keep_lasting(&mut self, step: usize, most: u32) {
        self.named.retain(|lasts| *lasts > step);
        let from = usize::from(self.lead_named);
        self.named.get_mut(from..).unwrap_or_default().sort_unstable_by(|a, b| b.cmp(a));
        self.named.truncate(most as usize);
    }

    /// The type on which the job is fastest, among those with enough nodes in the step.
    fn fastest_type(&self, step: usize, nodes: u32) -> Option<&'a NodeType> {
        let places = nodes.saturating_mul(self.job.places_per_node.max(1));
        self.supply
            .iter()
            .filter(|(_, counts)| counts.get(step).is_some_and(|n| *n >= places))
            .filter_map(|(node_type, _)| Some((*node_type, cost::best_rate(self.job, node_type, nodes)?.1)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
            .map(|(node_type, _)| node_type)
    }
}
