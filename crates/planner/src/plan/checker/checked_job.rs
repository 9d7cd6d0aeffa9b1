//! What the checker reads about one job from the problem and the plan. It reads this itself and shares
//! nothing with the planner.

use crate::plan::space::{problem::PlanningProblem, steps::TimeSteps};
use infill_model::{ExecPlan, Gap, JobPlan, MalleableJob, NodeName, NodeType, PlannedNode};

/// One job with its plan, as the checker sees them.
pub(crate) struct CheckedJob<'a> {
    pub job: &'a MalleableJob,
    pub planned: &'a JobPlan,
    /// For each planned node its gap, if it has one, and whether the job holds the node.
    pub gaps: Vec<(Option<&'a Gap>, bool)>,
    /// Whether it is in the middle of a change.
    pub is_busy: bool,
    /// Whether it may not hold anything now.
    pub is_barred: bool,
    /// Whether it could go on as it is, at least for the first step.
    pub can_stay: bool,
    /// Whether the plan stops it: other nodes, another lead or another execution plan.
    pub stops: bool,
    /// Weighted samples that it would make if it kept what it holds until the first of these nodes ends.
    pub present_worth: f64,
}

impl<'a> CheckedJob<'a> {
    /// Reads the job's state from the problem and compares it with its plan.
    pub fn from_plan(
        problem: &PlanningProblem<'a>,
        steps: &TimeSteps,
        job: &'a MalleableJob,
        planned: &'a JobPlan,
    ) -> Self {
        let held: Vec<Option<&Gap>> = job
            .held
            .iter()
            .map(|h| Some(NodeGaps::for_node(problem, &h.node).filter(|p| p.is_held_by(job))?.first_to_end))
            .collect();
        let mut gaps = Vec::with_capacity(planned.nodes.len());
        for PlannedNode { node, .. } in &planned.nodes {
            let gap = NodeGaps::for_node(problem, node).map(|p| p.first_to_end);
            gaps.push((gap, holds_node(problem, job, node)));
        }
        CheckedJob {
            job,
            planned,
            gaps,
            is_busy: problem.is_busy(job),
            is_barred: problem.drain || problem.is_barred(job),
            can_stay: can_stay(steps, job, &held),
            stops: plan_stops_job(job, planned),
            present_worth: present_worth(steps, job, &held),
        }
    }

    /// Whether the job is stopped though nothing forces it to.
    pub(crate) fn is_voluntary(&self) -> bool {
        self.stops && !self.is_busy && !self.is_barred && (self.can_stay || self.job.held.is_empty())
    }

    /// Whether the lead stays where it is.
    pub(crate) fn lead_stays(&self) -> bool {
        self.planned.nodes.first().map(|p| &p.node) == self.job.lead_node.as_ref()
    }

    /// The type of its nodes: the lead's.
    pub fn node_type(&self) -> Option<&'a NodeType> {
        self.gaps.first().and_then(|(gap, _)| *gap).map(|gap| &gap.node_type)
    }

    /// The rate of its profile on the planned nodes, samples a second; 0 where the profile has none.
    pub fn planned_rate(&self) -> f64 {
        self.node_type()
            .map_or(0.0, |node_type| job_rate(self.job, node_type, &self.planned.exec_plan, self.gaps.len()))
    }
}

/// The gaps of one planned node: one for each place where the node is a block.
pub(crate) struct NodeGaps<'a> {
    /// All of them, at least one.
    pub gaps: Vec<&'a Gap>,
    /// The gap that ends first.
    pub first_to_end: &'a Gap,
}

impl<'a> NodeGaps<'a> {
    /// The gaps of a node; `None` unless each of its places is a gap.
    pub fn for_node(problem: &PlanningProblem<'a>, node: &NodeName) -> Option<Self> {
        let gaps = if node.is_block() {
            let places = node.single_places();
            places.iter().map(|place| problem.gap_at(place)).collect::<Option<Vec<&Gap>>>()?
        } else {
            vec![problem.gap_at(node)?]
        };
        let first_to_end = *gaps.iter().min_by_key(|gap| gap.usable_until)?;
        Some(NodeGaps { gaps, first_to_end })
    }

    /// Whether all of its gaps name the job as their holder.
    pub(crate) fn is_held_by(&self, job: &MalleableJob) -> bool {
        self.gaps.iter().all(|gap| gap.holder == Some(job.id))
    }
}

/// Whether the job holds this node, both by the job's list and by the holder of each gap.
pub(crate) fn holds_node(problem: &PlanningProblem<'_>, job: &MalleableJob, node: &NodeName) -> bool {
    let is_its = job.held.binary_search_by(|h| h.node.cmp(node)).is_ok();
    is_its && NodeGaps::for_node(problem, node).is_some_and(|patch| patch.is_held_by(job))
}

/// The rate of an execution plan on this number of nodes of a type, samples a second; 0 where `rates` has
/// none. A curve for this type takes precedence over one for all types.
pub(crate) fn job_rate(job: &MalleableJob, node_type: &NodeType, exec_plan: &ExecPlan, nodes: usize) -> f64 {
    let mut curves = job.rates.iter().filter(|r| r.exec_plan == *exec_plan);
    let for_all = curves.clone().find(|r| r.node_type.is_none());
    let of_type = curves.find(|r| r.node_type.as_ref() == Some(node_type));
    let rate = of_type.or(for_all).map_or(0.0, |r| r.rate(nodes as u32));
    if rate.is_finite() { rate.max(0.0) } else { 0.0 }
}

/// The rate of the best execution plan, samples a second.
pub(crate) fn best_rate(job: &MalleableJob, node_type: &NodeType, nodes: usize) -> f64 {
    job.rates.iter().map(|r| job_rate(job, node_type, &r.exec_plan, nodes)).fold(0.0, f64::max)
}

/// The best execution plan with its rate. The present plan wins a tie. The rate is 0 where `rates` has none.
pub(crate) fn best_plan<'a>(
    job: &'a MalleableJob,
    node_type: &NodeType,
    nodes: usize,
) -> (&'a ExecPlan, f64) {
    let plans = std::iter::once(&job.exec_plan).chain(job.rates.iter().map(|r| &r.exec_plan));
    let rated = plans.map(|plan| (plan, job_rate(job, node_type, plan, nodes)));
    rated.reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap_or((&job.exec_plan, 0.0))
}

/// The rate on the fastest type of the profile, whether the round has nodes of that type or not.
pub(crate) fn top_rate(job: &MalleableJob, nodes: usize) -> f64 {
    let rates = job.rates.iter().map(|r| r.rate(nodes as u32));
    rates.filter(|rate| rate.is_finite()).fold(0.0, f64::max)
}

fn plan_stops_job(job: &MalleableJob, planned: &JobPlan) -> bool {
    if planned.nodes.is_empty() {
        return !job.held.is_empty();
    }
    planned.nodes.len() != job.held.len()
        || planned.nodes.first().map(|p| &p.node) != job.lead_node.as_ref()
        || planned.exec_plan != job.exec_plan
        || !planned.nodes.iter().all(|p| job.held.binary_search_by(|h| h.node.cmp(&p.node)).is_ok())
}

/// Whether the job can stay as it is. All held nodes must last through the first step and be of one type,
/// with the lead among them. The size must be allowed and have a known rate.
fn can_stay(steps: &TimeSteps, job: &MalleableJob, held: &[Option<&Gap>]) -> bool {
    let Some(Some(first)) = held.first() else { return false };
    let Some(end) = steps.ends().first() else { return false };
    let node_type = &first.node_type;
    job.held.iter().any(|h| Some(&h.node) == job.lead_node.as_ref())
        && held.iter().all(|g| g.is_some_and(|g| g.usable_until >= *end && g.node_type == *node_type))
        && job.sizes.contains(held.len() as u32)
        && job_rate(job, node_type, &job.exec_plan, held.len()) > 0.0
}

fn present_worth(steps: &TimeSteps, job: &MalleableJob, held: &[Option<&Gap>]) -> f64 {
    let Some(first) = held.iter().flatten().next() else { return 0.0 };
    let last = held.iter().flatten().map(|g| g.usable_until).min();
    let through = last.map_or(0, |last| steps.ends().iter().take_while(|end| **end <= last).count());
    let secs: f64 = (0..through).map(|step| steps.secs(step)).sum();
    job.weight * job_rate(job, &first.node_type, &job.exec_plan, held.len()) * secs
}
