//! The reasons of a round: a verdict for each job and each node. The sentences themselves are in
//! `infill_model`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;

use super::host_shortage::HostLeftovers;
use crate::plan::space::{cost, problem::PlanningProblem, slots::job_excludes, steps::TimeSteps};
use infill_model::{
    ChangeKind, Gap, GuaranteeReason, HostShortage, JobId, JobPlan, JobReason, JobVerdict, LeavingNodes,
    MalleableJob, NodeName, NodeReason, NodeShortage, NodeType, NodeVerdict, Plan, PlannedNode, Probe,
    RatedSize, RoundNote, RoundReport, SchedulingState, SolveStatus, TurnState, UnixTime, WantedAt,
    WindowEnd,
};

/// Explains a plan of this problem.
pub(crate) fn explain_plan(problem: &PlanningProblem<'_>, plan: &Plan) -> RoundReport {
    let steps = TimeSteps::from_problem(problem);
    let round = ReportContext::new(problem, &steps, plan);
    let mut jobs: Vec<&MalleableJob> = problem.jobs.iter().collect();
    jobs.sort_by_key(|j| j.id);
    let jobs = jobs.into_iter().filter_map(|job| job_verdict(&round, job)).collect();
    RoundReport {
        at: problem.now,
        jobs,
        nodes: node_verdicts(&round),
        notes: round_notes(&round),
        ..RoundReport::default()
    }
}

fn job_verdict(round: &ReportContext<'_>, job: &MalleableJob) -> Option<JobVerdict> {
    let planned = round.plan.job_plan(job.id)?;
    let why = job_reason(round, job, planned);
    let had = job.held.len() as u32;
    let gets = planned.nodes.len() as u32;
    let guarantee = guarantee_reason(round.problem, job, planned, &why);
    let hosts = host_shortage(round, job, planned, &why);
    Some(JobVerdict { job: job.id, had, gets, why, hosts, guarantee })
}

/// Whether a gap's window is long enough to start in.
fn is_long_enough(problem: &PlanningProblem<'_>, gap: &Gap) -> bool {
    gap.usable_until.secs_since(problem.now) >= problem.min_window_secs.max(1.0)
}

/// The plan with numbers about it that several verdicts need.
struct ReportContext<'a> {
    problem: &'a PlanningProblem<'a>,
    steps: &'a TimeSteps,
    plan: &'a Plan,
    /// The job that gets each node, and the end of its lease.
    users: HashMap<NodeName, (JobId, UnixTime)>,
    /// Nodes on which jobs could start now if no other job had them.
    startable: Vec<&'a Gap>,
    /// The number of startable nodes that the plan uses.
    taken: usize,
    /// The CPUs and memory of hosts that the plan leaves.
    hosts: HostLeftovers<'a>,
    /// Voluntary changes that the budget would still allow.
    changes_left: usize,
    /// Results of [`ReportContext::startable`], by a job's list of excluded nodes (jobs share lists) and its
    /// block.
    counted: RefCell<FxHashMap<(usize, u32), (usize, usize)>>,
    /// The types of the startable nodes outside a list of excluded nodes, by that list.
    types: RefCell<FxHashMap<usize, Vec<&'a NodeType>>>,
}

impl<'a> ReportContext<'a> {
    fn new(problem: &'a PlanningProblem<'a>, steps: &'a TimeSteps, plan: &'a Plan) -> Self {
        let mut users = HashMap::new();
        for planned in &plan.jobs {
            for PlannedNode { node, lease_until } in &planned.nodes {
                let places = node.single_places().into_iter();
                users.extend(places.map(|place| (place, (planned.job, *lease_until))));
            }
        }
        let startable: Vec<&Gap> =
            problem.gaps.gaps.iter().filter(|gap| is_long_enough(problem, gap)).collect();
        let taken = startable.iter().filter(|g| users.contains_key(&g.node)).count();
        let changes_left = changes_left(problem, steps, plan);
        let hosts = HostLeftovers::from_plan(problem, steps, plan, |gap| {
            is_long_enough(problem, gap) && gap.holder.is_none() && !users.contains_key(&gap.node)
        });
        let counted = RefCell::default();
        let types = RefCell::default();
        ReportContext { problem, steps, plan, users, startable, taken, hosts, changes_left, counted, types }
    }

    /// Whether no plan was searched for, so that each job keeps what it has.
    fn is_last_resort(&self) -> bool {
        matches!(self.plan.status, SolveStatus::LastResort(_))
    }

    /// The number of nodes on which the job could start if no other job had them, and how many the plan uses.
    fn startable(&self, job: &MalleableJob) -> (usize, usize) {
        let kind = (job.excluded.list_id(), job.places_per_node.max(1));
        *self.counted.borrow_mut().entry(kind).or_insert_with(|| {
            if job.places_per_node > 1 { self.startable_blocks(job) } else { self.startable_places(job) }
        })
    }

    /// As [`ReportContext::startable`], for a job whose nodes are blocks of places of one host.
    fn startable_blocks(&self, job: &MalleableJob) -> (usize, usize) {
        let block = job.places_per_node as usize;
        let hosts =
            self.startable.chunk_by(|a, b| a.node.shares_host_with(&b.node) && a.node_type == b.node_type);
        let mut all = 0;
        let mut free = 0;
        for host in hosts {
            let usable = host.iter().filter(|gap| !job_excludes(job, &gap.node));
            all += usable.clone().count() / block;
            free += usable.filter(|gap| !self.users.contains_key(&gap.node)).count() / block;
        }
        (all, all - free)
    }

    fn startable_places(&self, job: &MalleableJob) -> (usize, usize) {
        if job.excluded.is_empty() {
            return (self.startable.len(), self.taken);
        }
        let excluded = self.startable.iter().filter(|g| job_excludes(job, &g.node));
        let lost = excluded.clone().count();
        let lost_taken = excluded.filter(|g| self.users.contains_key(&g.node)).count();
        (self.startable.len() - lost, self.taken - lost_taken)
    }

    /// Whether the job has a rate on some node on which it could start.
    fn has_rate(&self, job: &MalleableJob) -> bool {
        let list = job.excluded.list_id();
        let mut types_by_list = self.types.borrow_mut();
        let types = types_by_list.entry(list).or_insert_with(|| self.startable_types(job));
        types.iter().any(|t| cost::best_rate(job, t, job.sizes.min()).is_some())
    }

    /// The types of the nodes on which the job could start, sorted.
    fn startable_types(&self, job: &MalleableJob) -> Vec<&'a NodeType> {
        let mut types: Vec<&NodeType> = Vec::new();
        for gap in self.startable.iter().filter(|g| !job_excludes(job, &g.node)) {
            // Neighbours are mostly of one type.
            if types.last() != Some(&&gap.node_type) {
                types.push(&gap.node_type);
            }
        }
        types.sort_unstable();
        types.dedup();
        types
    }
}

fn job_reason(round: &ReportContext<'_>, job: &MalleableJob, planned: &JobPlan) -> JobReason {
    let problem = round.problem;
    if problem.is_busy(job) {
        return JobReason::Busy { nodes: planned.nodes.len() };
    }
    if problem.drain {
        return JobReason::Drained;
    }
    if let Some(until) = problem.backs_off_until(job) {
        return JobReason::BacksOff { secs: until.secs_since(problem.now) };
    }
    if let SchedulingState::Blocked(blocker) = &job.scheduling_state {
        return JobReason::Blocked { blocker: blocker.clone(), at: problem.now };
    }
    let change = cost::first_change(job, planned);
    let secs = job.change_secs(change);
    let had = job.held.len();
    let rate = (!job.rates_are_assumed).then_some(planned.rate);
    let gets = RatedSize { nodes: planned.nodes.len(), rate };
    let can_stay = cost::can_stay(problem, round.steps, job);
    let leaving = leaving_nodes(problem, round.steps, job);
    if let Some(probe) = planned_probe(problem, round.steps, job, planned) {
        return JobReason::Probes { had, gets: gets.nodes, secs, leaving, probe: probe.clone() };
    }
    // A change of the plan is explained by the change of size.
    let change = match change {
        ChangeKind::Replan => ChangeKind::between_sizes(had as u32, gets.nodes as u32, false),
        change => change,
    };
    match change {
        ChangeKind::None if gets.nodes == 0 => waiting_reason(round, job),
        ChangeKind::None => keeps_reason(round, job, gets),
        ChangeKind::Grow => JobReason::Grows { had, gets, before: present_rate(problem, job), secs, leaving },
        ChangeKind::Shrink if can_stay => {
            let before = present_rate(problem, job);
            JobReason::GivesUp { had, gets, before, taken: taken_nodes(round, job), secs }
        }
        ChangeKind::Shrink => JobReason::Shrinks { had, gets: gets.nodes, leaving },
        ChangeKind::Swap | ChangeKind::Replan => JobReason::Swaps {
            gets,
            moves: planned.nodes.iter().any(|new| job.held.iter().all(|held| held.node != new.node)),
            plan: (planned.exec_plan != job.exec_plan).then(|| planned.exec_plan.clone()),
            leaving,
        },
        ChangeKind::Start if had == 0 => JobReason::Starts { gets, secs },
        ChangeKind::Start => JobReason::StartsAgain { gets, secs, leaving },
        ChangeKind::Park if can_stay => match (job.turn, taken_nodes(round, job)) {
            (Some(TurnState::Over), taken) if taken > 0 => JobReason::TurnEnds { had, taken },
            (_, taken) => JobReason::Outbid { had, taken },
        },
        ChangeKind::Park => JobReason::Parked { leaving, shortage: node_shortage(round, job) },
    }
}

/// How many of the job's nodes the plan gives to other jobs.
fn taken_nodes(round: &ReportContext<'_>, job: &MalleableJob) -> usize {
    let is_taken = |node: &NodeName| round.users.get(node).is_some_and(|(user, _)| *user != job.id);
    job.held.iter().filter(|held| held.node.single_places().iter().any(is_taken)).count()
}

/// The probes that a plan tries, each with its job.
pub(crate) fn planned_probes(problem: &PlanningProblem<'_>, plan: &Plan) -> BTreeMap<JobId, Probe> {
    let tried: Vec<&MalleableJob> = problem.jobs.iter().filter(|job| job.probe.is_some()).collect();
    if tried.is_empty() {
        return BTreeMap::new();
    }
    let steps = TimeSteps::from_problem(problem);
    let mut found = BTreeMap::new();
    for job in tried {
        let planned = plan.job_plan(job.id);
        let probe = planned.and_then(|planned| planned_probe(problem, &steps, job, planned));
        found.extend(probe.map(|probe| (job.id, probe.clone())));
    }
    found
}

/// The probe that the plan tries for the job; `None` where it tries none, or the job has to shrink anyway.
fn planned_probe<'a>(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    job: &'a MalleableJob,
    planned: &JobPlan,
) -> Option<&'a Probe> {
    let probe = job.probe.as_ref().filter(|probe| planned.nodes.len() == probe.nodes as usize)?;
    let first = problem.gap_at(&planned.nodes.first()?.node);
    let must = cost::first_change(job, planned) == ChangeKind::Shrink && !cost::can_stay(problem, steps, job);
    if must {
        return None;
    }
    let is_as_asked = probe.with.as_ref().is_none_or(|(plan, node_type)| {
        planned.exec_plan == *plan && first.is_some_and(|gap| gap.node_type == *node_type)
    });
    is_as_asked.then_some(probe)
}

/// The outcome of the job's guarantee; `None` without one, and where something other than the plan decides.
fn guarantee_reason(
    problem: &PlanningProblem<'_>,
    job: &MalleableJob,
    planned: &JobPlan,
    why: &JobReason,
) -> Option<GuaranteeReason> {
    use JobReason::{BacksOff, Blocked, Busy, Drained};
    let guarantee = job.guarantee.as_ref()?;
    let decided = !matches!(why, Busy { .. } | Drained | BacksOff { .. } | Blocked { .. });
    let gap = planned.nodes.first().and_then(|placement| problem.gap_at(&placement.node));
    let nodes = planned.nodes.len() as u32;
    let is_met = gap.is_some_and(|gap| guarantee.is_enough(&gap.node_type, &planned.exec_plan, nodes));
    decided.then(|| guarantee.outcome_reason(is_met))
}

/// What hosts lack for a larger size of a job that gets nodes; `None` where something else decides.
fn host_shortage(
    round: &ReportContext<'_>,
    job: &MalleableJob,
    planned: &JobPlan,
    why: &JobReason,
) -> Option<HostShortage> {
    use JobReason::{Grows, Settled, Shrinks, Starts, StartsAgain, Swaps};
    let could_grow = round.problem.may_grow && !round.is_last_resort();
    let gap = planned.nodes.first().and_then(|placement| round.problem.gap_at(&placement.node))?;
    let is_open = matches!(
        why,
        Settled(_) | Starts { .. } | StartsAgain { .. } | Grows { .. } | Shrinks { .. } | Swaps { .. }
    );
    (could_grow && is_open).then(|| round.hosts.growth_shortage(job, planned, &gap.node_type))?
}

fn present_rate(problem: &PlanningProblem<'_>, job: &MalleableJob) -> f64 {
    let gap = job.held.first().and_then(|h| problem.gap_at(&h.node));
    let nodes = job.held.len() as u32;
    let counted = gap.and_then(|g| cost::rate_of(job, &g.node_type, &job.exec_plan, nodes));
    counted.map_or(0.0, |rate| job.rate_without_bonus(rate))
}

fn keeps_reason(round: &ReportContext<'_>, job: &MalleableJob, size: RatedSize) -> JobReason {
    let problem = round.problem;
    match problem.stays_secs(job) {
        Some(secs) => JobReason::Stays { size, secs },
        None if size.nodes as u32 >= job.sizes.max() => JobReason::AtMaximum(size),
        None if !problem.may_grow => JobReason::MayNotGrow(size),
        None if round.is_last_resort() => JobReason::LeftAsItIs(size),
        None => JobReason::Settled(size),
    }
}

/// The held nodes that the job must leave.
fn leaving_nodes(problem: &PlanningProblem<'_>, steps: &TimeSteps, job: &MalleableJob) -> LeavingNodes {
    LeavingNodes(
        job.held
            .iter()
            .filter(|node| {
                problem.held_gap(job, &node.node).is_none_or(|g| steps.steps_through(g.usable_until) == 0)
            })
            .map(|h| h.node.clone())
            .collect(),
    )
}

fn node_shortage(round: &ReportContext<'_>, job: &MalleableJob) -> NodeShortage {
    let (free, _) = round.startable(job);
    NodeShortage { min_nodes: job.sizes.min(), free, window_secs: round.problem.min_window_secs }
}

/// Why a job that holds nothing still gets nothing.
fn waiting_reason(round: &ReportContext<'_>, job: &MalleableJob) -> JobReason {
    let problem = round.problem;
    if !problem.may_grow {
        return JobReason::WaitsForResume;
    }
    if round.is_last_resort() {
        return JobReason::WaitsForPlan;
    }
    let (all, taken) = round.startable(job);
    let min_nodes = job.sizes.min();
    if (all as u32) < min_nodes {
        return JobReason::WaitsForNodes(node_shortage(round, job));
    }
    if !round.has_rate(job) {
        return JobReason::WaitsForRate;
    }
    let is_short = ((all - taken) as u32) < min_nodes;
    if let Some(place) = job.turn.and_then(TurnState::queue_position).filter(|_| is_short) {
        return JobReason::WaitsForTurn(place);
    }
    if is_short {
        return JobReason::WaitsForOthers { min_nodes, taken, all, window_secs: problem.min_window_secs };
    }
    if let Some(shortage) = round.hosts.start_shortage(job) {
        return JobReason::WaitsForHosts(shortage);
    }
    if round.changes_left == 0 {
        return JobReason::WaitsForBudget { most: problem.config.max_changes };
    }
    JobReason::WaitsForWindows { free: all - taken, all, start_secs: job.costs.start_secs }
}

/// Voluntary changes that the budget would still allow.
fn changes_left(problem: &PlanningProblem<'_>, steps: &TimeSteps, plan: &Plan) -> usize {
    let voluntary = problem.jobs.iter().filter(|job| {
        let is_free = job.held.is_empty() || cost::can_stay(problem, steps, job);
        let changes = plan.job_plan(job.id).is_some_and(|p| cost::first_change(job, p) != ChangeKind::None);
        is_free && changes && !problem.is_busy(job)
    });
    (problem.config.max_changes as usize).saturating_sub(voluntary.count())
}

fn node_verdicts(round: &ReportContext<'_>) -> Vec<NodeVerdict> {
    let problem = round.problem;
    let mut found: Vec<NodeVerdict> = Vec::with_capacity(problem.gaps.gaps.len());
    for gap in &problem.gaps.gaps {
        let user = round.users.get(&gap.node).copied();
        let why = match user {
            Some((job, until)) if gap.holder == Some(job) => NodeReason::Kept { job, until },
            Some((job, until)) => NodeReason::Given { job, until },
            None => idle_reason(round, gap),
        };
        found.push(NodeVerdict { node: gap.node.clone(), job: user.map(|(job, _)| job), why });
    }
    for (node, why) in &problem.gaps.refused {
        let why = NodeReason::Refused(why.clone());
        found.push(NodeVerdict { node: node.clone(), job: None, why });
    }
    found.sort_by(|a, b| a.node.cmp(&b.node));
    found
}

/// Why no job gets a gap.
fn idle_reason(round: &ReportContext<'_>, gap: &Gap) -> NodeReason {
    let problem = round.problem;
    let steps = round.steps;
    let secs = gap.usable_until.secs_since(problem.now).max(0.0);
    let wanted = WantedAt(match &gap.end {
        WindowEnd::Known { at, .. } => Some(*at),
        WindowEnd::Unknown => None,
    });
    if steps.steps_through(gap.usable_until) == 0 {
        return match gap.holder {
            Some(job) => NodeReason::Left { job, wanted },
            None => NodeReason::Ends { secs, wanted },
        };
    }
    let worth_secs = problem.min_window_secs;
    match (problem.jobs.is_empty(), problem.drain, problem.may_grow, gap.holder) {
        (true, ..) => NodeReason::NoJob,
        (_, true, ..) => NodeReason::Drained,
        (.., Some(job)) => NodeReason::Spared { job },
        _ if secs < worth_secs => NodeReason::Short { secs, worth_secs, wanted },
        (_, _, false, _) => NodeReason::Paused,
        _ if round.is_last_resort() => NodeReason::NotPlanned,
        _ if round.changes_left == 0 => NodeReason::BudgetUsed,
        _ => NodeReason::NoGain { secs, wanted },
    }
}

fn round_notes(round: &ReportContext<'_>) -> Vec<RoundNote> {
    let problem = round.problem;
    let of_status = match &round.plan.status {
        SolveStatus::Optimal | SolveStatus::Trivial => None,
        SolveStatus::TimeLimit { gap } => Some(RoundNote::OutOfTime { gap: *gap }),
        SolveStatus::SolverNotUsed { gap } => Some(RoundNote::SolverNotUsed { gap: *gap }),
        SolveStatus::Fallback(why) => Some(RoundNote::NoSolver(why.clone())),
        SolveStatus::LastResort(why) => Some(RoundNote::NotPlanned(why.clone())),
    };
    let of_mode = match (problem.drain, problem.may_grow) {
        (true, _) => Some(RoundNote::Draining),
        (false, false) => Some(RoundNote::Paused),
        (false, true) => None,
    };
    let used = !problem.drain && round.changes_left == 0;
    let of_budget = used.then_some(RoundNote::BudgetUsed { most: problem.config.max_changes });
    [of_status, of_mode, of_budget].into_iter().flatten().collect()
}
