//! Why the round decided what it decided: a verdict for each job and each node, in words and numbers.

use std::collections::HashMap;

use crate::model::{
    Gap, JobId, JobPlan, JobVerdict, MalleableJob, NodeName, NodeVerdict, Plan, Report, SolveStatus,
    UnixTime, WindowEnd,
};
use crate::plan::space::cost::{self, Change};
use crate::plan::space::problem::Problem;
use crate::plan::space::slots::excludes;
use crate::plan::space::steps::Steps;

/// Explains a plan of this problem.
pub fn explain(problem: &Problem<'_>, plan: &Plan) -> Report {
    let steps = Steps::of(problem);
    let round = Round::new(problem, &steps, plan);
    let mut jobs: Vec<&MalleableJob> = problem.jobs.iter().collect();
    jobs.sort_by_key(|j| j.id);
    let verdict = |job: &MalleableJob| {
        let planned = plan.job(job.id)?;
        let why = job_reason(&round, job, planned);
        let (had, gets) = (job.held.len() as u32, planned.nodes.len() as u32);
        Some(JobVerdict { job: job.id, had, gets, why })
    };
    let jobs = jobs.into_iter().filter_map(verdict).collect();
    Report { at: problem.now, jobs, nodes: nodes(&round), notes: notes(&round) }
}

/// What is asked about again and again.
struct Round<'a> {
    problem: &'a Problem<'a>,
    steps: &'a Steps,
    plan: &'a Plan,
    /// Who gets each node, and until when.
    users: HashMap<&'a NodeName, (JobId, UnixTime)>,
    /// Nodes on which jobs could start now if no other job had them.
    startable: Vec<&'a Gap>,
    /// How many of them the plan uses.
    taken: usize,
    /// Voluntary changes that the budget would still allow.
    changes_left: usize,
}

impl<'a> Round<'a> {
    fn new(problem: &'a Problem<'a>, steps: &'a Steps, plan: &'a Plan) -> Self {
        let placements = plan.jobs.iter().flat_map(|j| j.nodes.iter().map(|p| (j.job, p)));
        let users: HashMap<_, _> = placements.map(|(job, p)| (&p.node, (job, p.lease_until))).collect();
        let long = |g: &&Gap| g.usable_until.secs_since(problem.now) >= problem.min_window_secs.max(1.0);
        let startable: Vec<&Gap> = problem.gaps.gaps.iter().filter(long).collect();
        let taken = startable.iter().filter(|g| users.contains_key(&g.node)).count();
        let changes_left = changes_left(problem, steps, plan);
        Round { problem, steps, plan, users, startable, taken, changes_left }
    }

    /// How many nodes the job could start on if no other job had them, and how many of them the plan uses.
    fn startable(&self, job: &MalleableJob) -> (usize, usize) {
        let lost = || self.startable.iter().filter(|g| excludes(job, &g.node));
        if job.excluded.is_empty() {
            return (self.startable.len(), self.taken);
        }
        let taken = lost().filter(|g| self.users.contains_key(&g.node)).count();
        (self.startable.len() - lost().count(), self.taken - taken)
    }

    /// Whether the job has a rate on some node that it could start on.
    fn has_rate(&self, job: &MalleableJob) -> bool {
        let mut last = None;
        self.startable.iter().filter(|g| !excludes(job, &g.node)).any(|g| {
            // Neighbours are mostly of one type.
            let known = last.replace(&g.node_type) == Some(&g.node_type);
            !known && cost::best_rate(job, &g.node_type, job.sizes.min()).is_some()
        })
    }
}

/// `1 node`, `3 nodes`.
fn count(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn job_reason(round: &Round<'_>, job: &MalleableJob, planned: &JobPlan) -> String {
    let (problem, steps) = (round.problem, round.steps);
    let (had, gets) = (job.held.len(), planned.nodes.len());
    if problem.is_busy(job) {
        return format!("is in the middle of a change; keeps {} until that is done", count(gets));
    }
    if problem.drain {
        return "is parked: an administrator drains infill".to_owned();
    }
    if let Some(until) = problem.backs_off_until(job) {
        let secs = until.secs_since(problem.now);
        return format!("backs off for {secs:.0} s more after a preemption or failure");
    }
    let change = cost::first_change(job, planned);
    let secs = change.secs(&job.costs);
    let rate = planned.rate;
    match change {
        Change::None if gets == 0 => waits(round, job),
        Change::None => keeps(problem, job, gets, rate),
        Change::Grow => format!(
            "grows from {had} to {} because {rate:.2} samples/s instead of {:.2} are worth {secs:.0} s \
             without samples{}",
            count(gets),
            present_rate(problem, job),
            leaving(problem, steps, job)
        ),
        Change::Shrink if cost::can_stay(problem, steps, job) => format!(
            "shrinks from {had} to {}: others make more of what it gives up than the {secs:.0} s cost",
            count(gets)
        ),
        Change::Shrink => {
            format!("shrinks from {had} to {}{}", count(gets), leaving(problem, steps, job))
        }
        Change::Swap => format!(
            "keeps its size of {} on other nodes or with another execution plan, {rate:.2} samples/s{}",
            count(gets),
            leaving(problem, steps, job)
        ),
        Change::Start if had == 0 => {
            format!("starts on {} at {rate:.2} samples/s after {secs:.0} s", count(gets))
        }
        Change::Start => format!(
            "starts anew on {} with its lead on another node, {rate:.2} samples/s after {secs:.0} s{}",
            count(gets),
            leaving(problem, steps, job)
        ),
        Change::Park if cost::can_stay(problem, steps, job) => {
            format!("is parked: other jobs make more of its {}", count(had))
        }
        Change::Park => format!("is parked{}; {}", leaving(problem, steps, job), shortage(round, job)),
    }
}

fn present_rate(problem: &Problem<'_>, job: &MalleableJob) -> f64 {
    let gap = job.held.first().and_then(|h| problem.gap(&h.node));
    let nodes = job.held.len() as u32;
    gap.and_then(|g| cost::rate_of(job, &g.node_type, &job.exec_plan, nodes)).unwrap_or(0.0)
}

fn keeps(problem: &Problem<'_>, job: &MalleableJob, gets: usize, rate: f64) -> String {
    let nodes = count(gets);
    match problem.stays_secs(job) {
        Some(left) => format!(
            "keeps its {nodes} at {rate:.2} samples/s: it was rescaled a moment ago and stays for {left:.0} s more"
        ),
        None if gets as u32 >= job.sizes.max() => {
            format!("keeps its {nodes} at {rate:.2} samples/s: that is its maximum")
        }
        None if !problem.may_grow => format!("keeps its {nodes} at {rate:.2} samples/s: growth is paused"),
        None => format!("keeps its {nodes} at {rate:.2} samples/s: no change would gain more than it costs"),
    }
}

/// Which held nodes must be left, as the end of a sentence; empty if none.
fn leaving(problem: &Problem<'_>, steps: &Steps, job: &MalleableJob) -> String {
    let ends = |node: &&crate::model::HeldNode| {
        problem.held_gap(job, &node.node).is_none_or(|g| steps.through(g.usable_until) == 0)
    };
    let names: Vec<&str> = job.held.iter().filter(ends).map(|h| h.node.as_str()).collect();
    match names.as_slice() {
        [] => String::new(),
        [first, ..] if names.len() <= 4 || first.is_empty() => {
            format!("; it must leave {}", names.join(", "))
        }
        [first, ..] => format!("; it must leave {first} and {} more", names.len() - 1),
    }
}

fn shortage(round: &Round<'_>, job: &MalleableJob) -> String {
    let (free, _) = round.startable(job);
    format!(
        "needs at least {}; {free} {} free for longer than {:.0} s",
        count(job.sizes.min() as usize),
        if free == 1 { "is" } else { "are" },
        round.problem.min_window_secs
    )
}

/// Why a job that holds nothing gets nothing.
fn waits(round: &Round<'_>, job: &MalleableJob) -> String {
    let problem = round.problem;
    if !problem.may_grow {
        return "waits: starting is paused".to_owned();
    }
    let (all, taken) = round.startable(job);
    let smallest = job.sizes.min();
    if (all as u32) < smallest {
        return format!("waits: {}", shortage(round, job));
    }
    if !round.has_rate(job) {
        return "waits: no rate is known on the node types that are free".to_owned();
    }
    if (all - taken) as u32 >= smallest {
        if round.changes_left == 0 {
            let most = problem.config.max_changes;
            return format!("waits for the next round: the {most} changes of this one are used up");
        }
        return format!(
            "waits: {} of {} are free, but their windows are too short to earn back a start of {:.0} s",
            all - taken,
            count(all),
            job.costs.start_secs
        );
    }
    format!(
        "waits: needs at least {}; other jobs make more of {taken} of the {all} that are free for longer than {:.0} s",
        count(smallest as usize),
        problem.min_window_secs
    )
}

/// Voluntary changes that the budget would still allow.
fn changes_left(problem: &Problem<'_>, steps: &Steps, plan: &Plan) -> usize {
    let voluntary = |job: &&MalleableJob| {
        let free = job.held.is_empty() || cost::can_stay(problem, steps, job);
        let changed = plan.job(job.id).is_some_and(|p| cost::first_change(job, p) != Change::None);
        free && changed && !problem.is_busy(job)
    };
    (problem.config.max_changes as usize).saturating_sub(problem.jobs.iter().filter(voluntary).count())
}

fn nodes(round: &Round<'_>) -> Vec<NodeVerdict> {
    let problem = round.problem;
    let mut found: Vec<NodeVerdict> = Vec::with_capacity(problem.gaps.gaps.len());
    for gap in &problem.gaps.gaps {
        let user = round.users.get(&gap.node);
        let why = match user {
            Some((job, until)) if gap.holder == Some(*job) => format!("job {job} keeps it until {until}"),
            Some((job, until)) => format!("job {job} gets it until {until}"),
            None => idle_reason(problem, round.steps, gap),
        };
        found.push(NodeVerdict { node: gap.node.clone(), job: user.map(|(job, _)| *job), why });
    }
    for (node, why) in &problem.gaps.refused {
        found.push(NodeVerdict { node: node.clone(), job: None, why: why.to_string() });
    }
    found.sort_by(|a, b| a.node.cmp(&b.node));
    found
}

/// Why nobody gets a gap.
fn idle_reason(problem: &Problem<'_>, steps: &Steps, gap: &Gap) -> String {
    let secs = gap.usable_until.secs_since(problem.now).max(0.0);
    let planned = match &gap.end {
        WindowEnd::Known { at, .. } => format!("the main queue wants it at {at}"),
        WindowEnd::Unknown => "nothing is planned on it".to_owned(),
    };
    if steps.through(gap.usable_until) == 0 {
        return match gap.holder {
            Some(job) => format!("job {job} leaves it: {planned}"),
            None => {
                format!("left alone: it is counted on for {secs:.0} s only, too short for a step; {planned}")
            }
        };
    }
    match (problem.jobs.is_empty(), problem.drain, problem.may_grow, gap.holder) {
        (true, ..) => "idle: no malleable job is there".to_owned(),
        (_, true, ..) => "idle: an administrator drains infill".to_owned(),
        (.., Some(job)) => format!("job {job} gives it up, and no other job gains by it"),
        _ if secs < problem.min_window_secs => {
            let least = problem.min_window_secs;
            format!(
                "idle: its window of {secs:.0} s is shorter than the {least:.0} s worth starting in; {planned}"
            )
        }
        (_, _, false, _) => "idle: starting and growth are paused".to_owned(),
        _ => format!("idle: no job gains more by it in {secs:.0} s than the change costs; {planned}"),
    }
}

fn notes(round: &Round<'_>) -> Vec<String> {
    let (problem, plan) = (round.problem, round.plan);
    let mut notes = Vec::new();
    match &plan.status {
        SolveStatus::Optimal | SolveStatus::Trivial => {}
        SolveStatus::TimeLimit { gap: Some(gap) } => notes.push(format!(
            "the solver's time was up; the plan is within {:.2} % of the best possible",
            gap * 100.0
        )),
        SolveStatus::TimeLimit { gap: None } => {
            notes.push("the solver's time was up; how good the plan is is not known".to_owned());
        }
        SolveStatus::Fallback(why) => notes.push(format!("planned without the solver: {why}")),
    }
    if problem.drain {
        notes.push("draining: all jobs are parked".to_owned());
    } else if !problem.may_grow {
        notes.push("paused: nothing starts or grows".to_owned());
    }
    if !problem.drain && round.changes_left == 0 {
        let most = problem.config.max_changes;
        notes.push(format!("all {most} changes of this round are used; what is left waits for the next"));
    }
    notes
}
