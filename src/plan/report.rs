//! Why the round decided what it decided: a verdict for each job and each node, in words and numbers.

use super::Problem;
use super::cost::{self, Change};
use super::steps::Steps;
use crate::model::{
    Gap, JobPlan, JobVerdict, MalleableJob, NodeVerdict, Plan, Report, SolveStatus, WindowEnd,
};

/// Explains a plan.
pub fn explain(problem: &Problem<'_>, plan: &Plan) -> Report {
    let steps = Steps::of(problem);
    let mut jobs: Vec<&MalleableJob> = problem.jobs.iter().collect();
    jobs.sort_by_key(|j| j.id);
    let verdict = |job: &MalleableJob| {
        let planned = plan.job(job.id)?;
        let why = job_reason(problem, &steps, plan, job, planned);
        let (had, gets) = (job.held.len() as u32, planned.nodes.len() as u32);
        Some(JobVerdict { job: job.id, had, gets, why })
    };
    let jobs = jobs.into_iter().filter_map(verdict).collect();
    Report { at: problem.now, jobs, nodes: nodes(problem, &steps, plan), notes: notes(problem, &steps, plan) }
}

/// `1 node`, `3 nodes`.
fn count(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn job_reason(
    problem: &Problem<'_>,
    steps: &Steps,
    plan: &Plan,
    job: &MalleableJob,
    planned: &JobPlan,
) -> String {
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
        Change::None if gets == 0 => waits(problem, steps, plan, job),
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
        Change::Park => format!("is parked{}; {}", leaving(problem, steps, job), shortage(problem, job)),
    }
}

fn present_rate(problem: &Problem<'_>, job: &MalleableJob) -> f64 {
    let gap = job.held.first().and_then(|h| problem.gaps.get(&h.node));
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

/// Nodes on which the job could start now if no other job had them, and those of them that no job holds.
fn startable<'a>(problem: &Problem<'a>, job: &MalleableJob) -> Vec<&'a Gap> {
    let long = |g: &&Gap| g.usable_until.secs_since(problem.now) >= problem.min_window_secs.max(1.0);
    problem.gaps.gaps.iter().filter(long).filter(|g| job.excluded.binary_search(&g.node).is_err()).collect()
}

fn shortage(problem: &Problem<'_>, job: &MalleableJob) -> String {
    let free = startable(problem, job).len();
    format!(
        "needs at least {}; {free} {} free for longer than {:.0} s",
        count(job.sizes.min() as usize),
        if free == 1 { "is" } else { "are" },
        problem.min_window_secs
    )
}

/// Why a job that holds nothing gets nothing.
fn waits(problem: &Problem<'_>, steps: &Steps, plan: &Plan, job: &MalleableJob) -> String {
    if !problem.may_grow {
        return "waits: starting is paused".to_owned();
    }
    let gaps = startable(problem, job);
    if (gaps.len() as u32) < job.sizes.min() {
        return format!("waits: {}", shortage(problem, job));
    }
    let smallest = job.sizes.min();
    if !gaps.iter().any(|g| cost::best_rate(job, &g.node_type, smallest).is_some()) {
        return "waits: no rate is known on the node types that are free".to_owned();
    }
    let used = |g: &&&Gap| plan.jobs.iter().any(|j| j.nodes.iter().any(|p| p.node == g.node));
    let taken = gaps.iter().filter(used).count();
    if (gaps.len() - taken) as u32 >= smallest {
        if changes_left(problem, steps, plan) == 0 {
            let most = problem.config.max_changes;
            return format!("waits for the next round: the {most} changes of this one are used up");
        }
        return format!(
            "waits: {} of {} are free, but their windows are too short to earn back a start of {:.0} s",
            gaps.len() - taken,
            count(gaps.len()),
            job.costs.start_secs
        );
    }
    format!(
        "waits: needs at least {}; other jobs make more of {taken} of the {} that are free for longer than {:.0} s",
        count(smallest as usize),
        gaps.len(),
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

fn nodes(problem: &Problem<'_>, steps: &Steps, plan: &Plan) -> Vec<NodeVerdict> {
    let mut users = std::collections::BTreeMap::new();
    for job in &plan.jobs {
        for placement in &job.nodes {
            users.insert(&placement.node, (job.job, placement.lease_until));
        }
    }
    let mut found: Vec<NodeVerdict> = Vec::new();
    for gap in &problem.gaps.gaps {
        let user = users.get(&gap.node);
        let why = match user {
            Some((job, until)) if gap.holder == Some(*job) => format!("job {job} keeps it until {until}"),
            Some((job, until)) => format!("job {job} gets it until {until}"),
            None => idle_reason(problem, steps, gap),
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

fn notes(problem: &Problem<'_>, steps: &Steps, plan: &Plan) -> Vec<String> {
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
    if !problem.drain && changes_left(problem, steps, plan) == 0 {
        let most = problem.config.max_changes;
        notes.push(format!("all {most} changes of this round are used; what is left waits for the next"));
    }
    notes
}
