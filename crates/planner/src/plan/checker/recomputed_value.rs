//! What a plan is worth, by the judge's own reckoning: the words of the problem turned into a walk over the
//! steps. Nothing here is shared with those who plan.
//!
//! - In the first step a job runs on the nodes that the plan names; later on as many as its forecast says. Of
//!   the named nodes it keeps the lead's and those that last longest; nodes that it takes later last as long
//!   as it needs them, and are of the same type.
//! - From the second change on it runs its best execution plan; one to which that is dear keeps the plan that
//!   it has, where that runs.
//! - A change takes seconds in which the rate that follows makes nothing: `up_secs` for as many nodes or
//!   more, `down_secs` for fewer, `swap_secs` with another execution plan if the job has such a cost, and
//!   `start_secs` from nothing or with the lead elsewhere; parking takes none.
//! - A job that starts anew goes to the type on which it is fastest, of those with enough nodes in that step.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::checked_job::{CheckedJob, best_plan, best_rate, profile_rate, top_rate};
use crate::plan::space::{problem::PlanningProblem, steps::TimeSteps};
use infill_model::{ExecPlan, Gap, MalleableJob, NodeType, UnixTime};

/// What a plan is worth, in weighted samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecomputedValue {
    /// Samples that are made, those lost to changes taken off: the objective.
    pub net: f64,
    /// What changes must gain besides.
    pub reluctance: f64,
    /// The most that the plan can be worth whichever nodes its later steps are on: a forecast does not say.
    pub most: f64,
    /// Whether some job that goes on stops later, so that its nodes then are anybody's guess.
    pub is_open: bool,
}

/// Reckons what a plan of this problem is worth, from the facts of its jobs.
pub(crate) fn recompute_value<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    facts: &[CheckedJob<'a>],
) -> RecomputedValue {
    let market = GapsByType { gaps: &problem.gaps.gaps, ends: OnceCell::new() };
    let mut worth = RecomputedValue::default();
    for facts in facts {
        let job = recompute_job(problem, steps, &market, facts);
        let reluctance = problem.config.hysteresis * facts.job.reluctance * facts.present_worth;
        worth.net += job.made * facts.job.weight;
        worth.reluctance += reluctance * f64::from(job.reluctant);
        let first = if facts.is_voluntary() { reluctance } else { 0.0 };
        worth.most += job.most * facts.job.weight - first;
        worth.is_open |= job.is_open;
    }
    worth
}

impl RecomputedValue {
    /// What plans are compared by.
    pub fn score(self) -> f64 {
        self.net - self.reluctance
    }
}

/// What is reckoned of one job.
struct JobValue {
    /// Samples that it makes.
    made: f64,
    /// The most that it can make of the counts.
    most: f64,
    /// Changes that must gain more than they cost.
    reluctant: u32,
    /// Whether it stops later and goes on.
    is_open: bool,
}

fn recompute_job<'a>(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    market: &GapsByType<'a>,
    facts: &CheckedJob<'a>,
) -> JobValue {
    let job = facts.job;
    let ends = steps.ends();
    let mut crew = NodeWalk::from_job(facts);
    let mut made = crew.rate * steps.secs(0);
    let mut reluctant = 0;
    if facts.stops && !facts.is_busy {
        let stays = facts.lead_stays() && !job.held.is_empty();
        let replans = job.swap_secs.is_some() && facts.planned.exec_plan != job.exec_plan;
        let stop = match stays {
            true if replans => PauseCause::Replan,
            true => PauseCause::With(job.held.len()),
            false => PauseCause::Start,
        };
        made -= crew.rate * stop.pause_secs(job, crew.len());
        reluctant += u32::from(facts.can_stay && !problem.drain);
    }
    let mut most = made;
    let mut is_open = false;
    for ((_, nodes), (step, end)) in facts.planned.forecast.iter().zip(ends.iter().enumerate().skip(1)) {
        let had = crew.len();
        let secs = steps.secs(step);
        let stop = crew.advance_to(market, *end, *nodes as usize);
        made += crew.rate * secs;
        most += if facts.is_busy { crew.rate * secs } else { max_step_samples(job, had, crew.len(), secs) };
        if let Some(stop) = stop.filter(|_| !facts.is_busy) {
            made -= crew.rate * stop.pause_secs(job, crew.len());
            reluctant += u32::from(stop.takes_nodes(crew.len()));
            is_open |= crew.len() > 0;
        }
    }
    JobValue { made, most, reluctant, is_open }
}

/// The most samples that a job can make in a step of so many seconds with `gets` nodes after `had`.
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
    /// It goes on with the same lead; so many nodes are what it had.
    With(usize),
    /// It goes on with the same lead and another execution plan, and to that that is dear.
    Replan,
}

impl PauseCause {
    /// Seconds without samples, for a job that goes on with so many nodes.
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

/// The nodes of a job on their way through the steps.
struct NodeWalk<'a> {
    job: &'a MalleableJob,
    /// Until when its named nodes last; the lead's first.
    named: Vec<UnixTime>,
    /// Whether the lead is still on the node that the plan names for it.
    lead_named: bool,
    /// Nodes that it took later.
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
                .map(|(gap, _): &(Option<&Gap>, bool)| gap.map_or(UnixTime(i64::MIN), |g| g.usable_until))
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

    /// Goes on with so many nodes until `end`; says what it stops for, if it does.
    fn advance_to(&mut self, market: &GapsByType<'a>, end: UnixTime, nodes: usize) -> Option<PauseCause> {
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
            self.node_type = market.fastest_type(self.job, end, nodes);
        }
        let replans = self.choose_exec_plan(nodes, starts);
        Some(match starts {
            true => PauseCause::Start,
            false if replans => PauseCause::Replan,
            false => PauseCause::With(had),
        })
    }

    /// Takes the execution plan with which it runs on so many nodes after a change; says whether another one
    /// is dear to it.
    fn choose_exec_plan(&mut self, nodes: usize, starts: bool) -> bool {
        let Some(node_type) = self.node_type.filter(|_| nodes > 0) else {
            self.rate = 0.0;
            return false;
        };
        let keeps = self.job.swap_secs.is_some();
        let kept = profile_rate(self.job, node_type, self.exec_plan, nodes);
        let before = self.exec_plan;
        (self.exec_plan, self.rate) = match keeps && !starts && kept > 0.0 {
            true => (before, kept),
            false => best_plan(self.job, node_type, nodes),
        };
        keeps && self.exec_plan != before
    }
}

/// All gaps, by type.
struct GapsByType<'a> {
    gaps: &'a [Gap],
    /// For each type the ends of its gaps, ascending. Few plans start anything later.
    ends: OnceCell<BTreeMap<&'a NodeType, Vec<UnixTime>>>,
}

impl<'a> GapsByType<'a> {
    /// The type on which a job is fastest, of those with so many nodes that last until `end`.
    fn fastest_type(&self, job: &MalleableJob, end: UnixTime, nodes: usize) -> Option<&'a NodeType> {
        let places = nodes * job.block.max(1) as usize;
        let enough = |ends: &Vec<UnixTime>| ends.len() - ends.partition_point(|until| *until < end) >= places;
        let types = self.ends.get_or_init(|| self.ends_by_type()).iter().filter(|(_, ends)| enough(ends));
        let rated = types.map(|(t, _)| (*t, best_rate(job, t, nodes))).filter(|(_, rate)| *rate > 0.0);
        rated.reduce(|a, b| if b.1 > a.1 { b } else { a }).map(|(t, _)| t)
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
