//! The value of a plan by the checker's own computation: the definition of the problem as a walk over the
//! steps. The planner shares nothing of it.
//!
//! - In the first step a job runs on the nodes that the plan names. In later steps it runs on as many nodes
//!   as its forecast says. It keeps the lead's node and those named nodes that last longest. Nodes that it
//!   takes later last as long as it needs them and are of the same type.
//! - From the second change on it runs its best execution plan. A job with a cost for another plan keeps its
//!   plan where that plan runs.
//! - A change takes seconds in which the following rate makes nothing: `up_secs` for as many nodes or more,
//!   `down_secs` for fewer, `swap_secs` with another execution plan if the job has such a cost, and
//!   `start_secs` from nothing or with the lead elsewhere. Parking takes none.
//! - A job that starts again goes to the type on which it is fastest, among those with enough nodes in that
//!   step.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::checked_job::{CheckedJob, best_plan, best_rate, job_rate, top_rate};
use crate::plan::space::{problem::PlanningProblem, steps::TimeSteps};
use infill_model::{ExecPlan, Gap, MalleableJob, NodeType, UnixTime};

/// The value of a plan, in weighted samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecomputedValue {
    /// Samples made, less those lost to changes: the objective.
    pub net: f64,
    /// What changes must gain beyond their cost.
    pub reluctance: f64,
    /// The largest possible value, whichever nodes the later steps are on. A forecast does not name them.
    pub most: f64,
    /// Whether some job stops later and goes on, so that its later nodes are not determined.
    pub is_open: bool,
}

/// Computes the value of a plan of this problem from the facts about its jobs.
pub(crate) fn recompute_value<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    facts: &[CheckedJob<'a>],
) -> RecomputedValue {
    let pool = GapsByType { gaps: &problem.gaps.gaps, ends: OnceCell::new() };
    let mut value = RecomputedValue::default();
    for facts in facts {
        let job = recompute_job(problem, steps, &pool, facts);
        let reluctance = problem.config.hysteresis * facts.job.hysteresis_share * facts.present_worth;
        value.net += job.made * facts.job.weight;
        value.reluctance += reluctance * f64::from(job.reluctant);
        let first = if facts.is_voluntary() { reluctance } else { 0.0 };
        value.most += job.most * facts.job.weight - first;
        value.is_open |= job.is_open;
    }
    value
}

impl RecomputedValue {
    /// The score that compares plans.
    pub fn score(self) -> f64 {
        self.net - self.reluctance
    }
}

/// The value of one job.
struct JobValue {
    /// Samples that it makes.
    made: f64,
    /// The most samples that it can make with its numbers of nodes.
    most: f64,
    /// Number of changes that must gain more than they cost.
    reluctant: u32,
    /// Whether it stops later and goes on.
    is_open: bool,
}

fn recompute_job<'a>(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    pool: &GapsByType<'a>,
    facts: &CheckedJob<'a>,
) -> JobValue {
    let job = facts.job;
    let ends = steps.ends();
    let mut walk = NodeWalk::from_job(facts);
    let mut made = walk.rate * steps.secs(0);
    let mut reluctant = 0;
    if facts.stops && !facts.is_busy {
        let stays = facts.lead_stays() && !job.held.is_empty();
        let replans = job.swap_secs.is_some() && facts.planned.exec_plan != job.exec_plan;
        let stop = if !stays {
            PauseCause::Start
        } else if replans {
            PauseCause::Replan
        } else {
            PauseCause::With(job.held.len())
        };
        made -= walk.rate * stop.pause_secs(job, walk.len());
        reluctant += u32::from(facts.can_stay && !problem.drain);
    }
    let mut most = made;
    let mut is_open = false;
    for ((_, nodes), (step, end)) in facts.planned.forecast.iter().zip(ends.iter().enumerate().skip(1)) {
        let had = walk.len();
        let secs = steps.secs(step);
        let stop = walk.advance_to(pool, *end, *nodes as usize);
        made += walk.rate * secs;
        most += if facts.is_busy { walk.rate * secs } else { max_step_samples(job, had, walk.len(), secs) };
        if let Some(stop) = stop.filter(|_| !facts.is_busy) {
            made -= walk.rate * stop.pause_secs(job, walk.len());
            reluctant += u32::from(stop.takes_nodes(walk.len()));
            is_open |= walk.len() > 0;
        }
    }
    JobValue { made, most, reluctant, is_open }
}

/// The most samples that a job can make in a step of `secs` seconds with `gets` nodes after `had` nodes.
fn max_step_samples(job: &MalleableJob, had: usize, gets: usize, secs: f64) -> f64 {
    let costs = &job.costs;
    let stop = match gets {
        _ if had == 0 => costs.start_secs,
        _ if gets > had => costs.up_secs.min(costs.start_secs),
        _ if gets < had => costs.down_secs.min(costs.start_secs),
        _ => 0.0,
    };
    if gets == 0 { 0.0 } else { top_rate(job, gets) * (secs - stop).max(0.0) }
}

/// What a job stops for.
#[derive(Clone, Copy)]
enum PauseCause {
    /// It starts from nothing, or with its lead elsewhere.
    Start,
    /// It goes on with the same lead, after it had this number of nodes.
    With(usize),
    /// It goes on with the same lead and another execution plan, which costs it `swap_secs`.
    Replan,
}

impl PauseCause {
    /// Seconds without samples for a job that goes on with `gets` nodes.
    fn pause_secs(self, job: &MalleableJob, gets: usize) -> f64 {
        match self {
            _ if gets == 0 => 0.0,
            PauseCause::Start => job.costs.start_secs,
            PauseCause::Replan => job.swap_secs.unwrap_or(job.costs.up_secs),
            PauseCause::With(had) if gets < had => job.costs.down_secs,
            PauseCause::With(_) => job.costs.up_secs,
        }
    }

    /// Whether the job gets nodes that it did not have.
    fn takes_nodes(self, gets: usize) -> bool {
        gets > 0
            && match self {
                PauseCause::Start | PauseCause::Replan => true,
                PauseCause::With(had) => gets >= had,
            }
    }
}

/// The nodes of one job during a walk over the steps.
struct NodeWalk<'a> {
    job: &'a MalleableJob,
    /// The ends of its named nodes; the lead's node comes first.
    named: Vec<UnixTime>,
    /// Whether the lead is still on the node that the plan names for it.
    lead_named: bool,
    /// Number of nodes that it took later.
    others: usize,
    node_type: Option<&'a NodeType>,
    exec_plan: &'a ExecPlan,
    rate: f64,
}

impl<'a> NodeWalk<'a> {
    fn from_job(facts: &CheckedJob<'a>) -> Self {
        NodeWalk {
            job: facts.job,
            named: facts
                .gaps
                .iter()
                .map(|(gap, _)| gap.map_or(UnixTime(i64::MIN), |g| g.usable_until))
                .collect(),
            lead_named: !facts.gaps.is_empty(),
            others: 0,
            node_type: facts.node_type(),
            exec_plan: &facts.planned.exec_plan,
            rate: facts.planned_rate(),
        }
    }

    fn len(&self) -> usize {
        self.named.len() + self.others
    }

    /// Goes on with `nodes` nodes until `end`. Returns the cause if the job stops for that.
    fn advance_to(&mut self, pool: &GapsByType<'a>, end: UnixTime, nodes: usize) -> Option<PauseCause> {
        let had = self.len();
        if had == nodes && self.named.iter().all(|until| *until >= end) {
            return None;
        }
        let lead_ends = self.lead_named && self.named.first().is_some_and(|until| *until < end);
        let starts = had == 0 || lead_ends;
        if starts || nodes == 0 {
            self.named.clear();
            self.lead_named = false;
        }
        self.named.retain(|until| *until >= end);
        if let Some(others) = self.named.get_mut(usize::from(self.lead_named)..) {
            others.sort_unstable_by_key(|until| Reverse(*until));
        }
        self.named.truncate(nodes);
        self.others = nodes - self.named.len();
        if starts && nodes > 0 {
            self.node_type = pool.fastest_type(self.job, end, nodes);
        }
        let replans = self.choose_exec_plan(nodes, starts);
        if starts {
            return Some(PauseCause::Start);
        }
        Some(if replans { PauseCause::Replan } else { PauseCause::With(had) })
    }

    /// Chooses the execution plan with which the job runs on this number of nodes after a change. Returns
    /// whether that is another plan whose change costs the job something.
    fn choose_exec_plan(&mut self, nodes: usize, starts: bool) -> bool {
        let Some(node_type) = self.node_type.filter(|_| nodes > 0) else {
            self.rate = 0.0;
            return false;
        };
        let has_cost = self.job.swap_secs.is_some();
        let before = self.exec_plan;
        let rate_before = job_rate(self.job, node_type, before, nodes);
        if has_cost && !starts && rate_before > 0.0 {
            self.rate = rate_before;
        } else {
            (self.exec_plan, self.rate) = best_plan(self.job, node_type, nodes);
        }
        has_cost && self.exec_plan != before
    }
}

/// All gaps, by type.
struct GapsByType<'a> {
    gaps: &'a [Gap],
    /// For each type the ends of its gaps, ascending. Computed on first use: few plans start a job later.
    ends: OnceCell<BTreeMap<&'a NodeType, Vec<UnixTime>>>,
}

impl<'a> GapsByType<'a> {
    /// The type on which a job is fastest, among those with enough nodes that last until `end`.
    fn fastest_type(&self, job: &MalleableJob, end: UnixTime, nodes: usize) -> Option<&'a NodeType> {
        let places = nodes * job.places_per_node.max(1) as usize;
        self.ends
            .get_or_init(|| self.ends_by_type())
            .iter()
            .filter(|(_, ends)| ends.len() - ends.partition_point(|until| *until < end) >= places)
            .map(|(node_type, _)| (*node_type, best_rate(job, node_type, nodes)))
            .filter(|(_, rate)| *rate > 0.0)
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
            .map(|(node_type, _)| node_type)
    }

    fn ends_by_type(&self) -> BTreeMap<&'a NodeType, Vec<UnixTime>> {
        let mut found: BTreeMap<&NodeType, Vec<UnixTime>> = BTreeMap::new();
        for gap in self.gaps {
            found.entry(&gap.node_type).or_default().push(gap.usable_until);
        }
        found.values_mut().for_each(|ends| ends.sort_unstable());
        found
    }
}
