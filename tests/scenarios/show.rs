//! The output of a scenario as text.

use std::fmt::Write;

use infill_model::ChangeKind;
use infill_model::{
    Gap, JobPlan, JobReason, JobVerdict, NodeName, SolveStatus, UnixTime, WindowCause, WindowEnd,
};

use crate::play::Round;
use crate::script::Script;
use crate::slurm::{BEGINNING, DATE, moment};

/// All rounds with their events.
pub fn scenario(name: &str, script: &Script, rounds: &[Round]) -> String {
    let mut text = format!("{name}\n\n{}\n", script.about.trim());
    for round in rounds {
        text += &one(round);
    }
    // Times are relative to the beginning, also where infill itself writes them.
    text.replace(DATE, "")
}

/// A moment as a clock that showed midnight at the beginning: `00:10:00`.
pub fn clock(secs: i64) -> String {
    time(moment(secs))
}

/// Names in Slurm's form of host lists: `n[1-3],n7`. Names without a number at the end stand alone.
pub fn hosts(names: &[NodeName]) -> String {
    let mut names: Vec<&NodeName> = names.iter().collect();
    names.sort_by(|a, b| a.cmp_natural(b));
    let split = |name: &NodeName| -> Option<(usize, u64)> {
        let stem = name.as_str().trim_end_matches(|c: char| c.is_ascii_digit()).len();
        Some((stem, name.as_str()[stem..].parse().ok()?))
    };
    let follows = |a: &&NodeName, b: &&NodeName| match (split(a), split(b)) {
        (Some((i, n)), Some((k, m))) => a.as_str()[..i] == b.as_str()[..k] && m == n + 1,
        _ => false,
    };
    let fold = |run: &[&NodeName]| match (run.first().and_then(|n| Some((n, split(n)?.0))), run.last()) {
        (Some((first, stem)), Some(last)) if run.len() > 1 => {
            let (stem, from) = first.as_str().split_at(stem);
            format!("{stem}[{from}-{}]", &last.as_str()[stem.len()..])
        }
        _ => run.first().map(ToString::to_string).unwrap_or_default(),
    };
    names.chunk_by(follows).map(fold).collect::<Vec<_>>().join(",")
}

fn time(at: UnixTime) -> String {
    match at.secs_since(BEGINNING) {
        // A lease may end on another day, or before the beginning. Then the whole date is clearer.
        secs if (0.0..86_400.0).contains(&secs) => at.to_string().replace(DATE, "").replace('Z', ""),
        _ => at.to_string(),
    }
}

fn one(round: &Round) -> String {
    let mut text = format!("\n=== round at {} ===\n", clock(round.at));
    let happened = round.happened.iter().map(|(at, what)| format!("{} {what}", clock(*at)));
    let ended = round.ended.iter().map(|gap| {
        let secs = gap.end.secs_since(gap.start);
        let how = if gap.taken { "taken by the main queue" } else { "no longer watched" };
        format!("the gap on {} has ended after {secs:.0} s, {how}", gap.node)
    });
    section(&mut text, "since the last round", happened.chain(ended));
    let gaps = round.gaps.gaps.iter().map(|gap| (gap.node.clone(), window(gap)));
    section(&mut text, "gaps", grouped(gaps));
    let refused = round.gaps.refused.iter().map(|(node, why)| (node.clone(), why.to_string()));
    section(&mut text, "refused", grouped(refused));
    text += &plan(round);
    section(&mut text, "changes", changes(round));
    section(&mut text, "why", why(round));
    section(&mut text, "turns", turns(round));
    section(&mut text, "notes", round.report.notes.iter().map(ToString::to_string));
    text
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        text.push_str(title);
        text.push('\n');
    }
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {line}");
    }
}

/// Nodes with the same description, in one line.
fn grouped(said: impl Iterator<Item = (NodeName, String)>) -> impl Iterator<Item = String> {
    let mut groups: Vec<(String, Vec<NodeName>)> = Vec::new();
    for (node, what) in said {
        match groups.iter_mut().find(|(known, _)| *known == what) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((what, vec![node])),
        }
    }
    groups.into_iter().map(|(what, nodes)| format!("{}: {what}", hosts(&nodes)))
}

fn window(gap: &Gap) -> String {
    let end = match &gap.end {
        WindowEnd::Known { at, cause: WindowCause::PlannedJob(job) } => {
            format!("main job {job} is planned at {}", time(*at))
        }
        WindowEnd::Known { at, cause: WindowCause::Reservation(name) } => {
            format!("reservation {name} begins at {}", time(*at))
        }
        WindowEnd::Unknown => "nothing is planned".to_owned(),
    };
    let holder = gap.holder.map_or(String::new(), |job| format!("; held by job {job}"));
    let node_type = &gap.node_type;
    let since = time(gap.since);
    let until = time(gap.usable_until);
    format!("{node_type}, free since {since}; {end}; usable until {until}{holder}")
}

fn plan(round: &Round) -> String {
    let plan = &round.judged.plan;
    let status = match &plan.status {
        SolveStatus::Optimal => "optimal".to_owned(),
        SolveStatus::TimeLimit { .. } => "time limit".to_owned(),
        SolveStatus::SolverNotUsed { .. } => "the solver was not asked".to_owned(),
        SolveStatus::Fallback(why) => format!("fallback, for {why}"),
        SolveStatus::LastResort(why) => format!("last resort, for {why}"),
        SolveStatus::Trivial => "nothing to decide".to_owned(),
    };
    let steps: Vec<String> = plan.steps.iter().map(|end| time(*end)).collect();
    let steps = if steps.is_empty() { "-".to_owned() } else { steps.join(" ") };
    let mut text = format!("plan: {status}; objective {:.1}; steps end at {steps}\n", plan.objective);
    // Jobs that get nothing and are expected to get nothing, in one line.
    for run in plan.jobs.chunk_by(|a, b| is_idle(a) && is_idle(b)) {
        let _ = match run {
            [one] => writeln!(text, "  job {}: {}", one.job, of_job(one)),
            [first, .., last] => writeln!(text, "  jobs {} to {}: -", first.job, last.job),
            [] => Ok(()),
        };
    }
    text
}

fn is_idle(plan: &JobPlan) -> bool {
    plan.nodes.is_empty() && plan.forecast.iter().all(|(_, nodes)| *nodes == 0)
}

fn of_job(plan: &JobPlan) -> String {
    let mut text = String::from("-");
    if let Some(lead) = plan.nodes.first() {
        let mut leases: Vec<(UnixTime, Vec<NodeName>)> = Vec::new();
        for placement in &plan.nodes {
            match leases.iter_mut().find(|(until, _)| *until == placement.lease_until) {
                Some((_, nodes)) => nodes.push(placement.node.clone()),
                None => leases.push((placement.lease_until, vec![placement.node.clone()])),
            }
        }
        leases.sort();
        let leases: Vec<String> =
            leases.iter().map(|(until, nodes)| format!("{} until {}", hosts(nodes), time(*until))).collect();
        let count = plan.nodes.len();
        let rate = plan.rate;
        text = format!("{} (nodes {count}, lead {}) at {rate:.2}/s", leases.join(", "), lead.node);
    }
    let foreseen = plan.forecast.chunk_by(|a, b| a.1 == b.1).filter_map(|same| same.last());
    let foreseen: Vec<String> =
        foreseen.map(|(end, nodes)| format!("{nodes} until {}", time(*end))).collect();
    if foreseen.is_empty() || is_idle(plan) { text } else { format!("{text}; then {}", foreseen.join(", ")) }
}

fn changes(round: &Round) -> impl Iterator<Item = String> {
    round.changes.iter().map(|(job, change, takes, leaves)| {
        let word = match change {
            ChangeKind::None => "stays",
            ChangeKind::Grow => "grows",
            ChangeKind::Shrink => "shrinks",
            ChangeKind::Swap => "swaps nodes",
            ChangeKind::Replan => "changes its plan",
            ChangeKind::Start if leaves.is_empty() => "starts",
            ChangeKind::Start => "starts again",
            ChangeKind::Park => "is parked",
        };
        let part = |verb: &str, nodes: &[NodeName]| match nodes {
            [] => String::new(),
            nodes => format!(", {verb} {}", hosts(nodes)),
        };
        format!("job {job} {word}{}{}", part("takes", takes), part("leaves", leaves))
    })
}

/// The order of the jobs. Jobs with the same description share a line.
fn turns(round: &Round) -> impl Iterator<Item = String> {
    let same = round.turns.chunk_by(|(_, a), (_, b)| a == b);
    same.filter_map(|same| {
        let (first, why) = same.first()?;
        let (last, _) = same.last()?;
        Some(if first == last {
            format!("job {first}: {why}")
        } else {
            format!("jobs {first} to {last}: {why}")
        })
    })
}

/// Number of jobs in line that are listed one by one.
const FIRST_IN_LINE: u32 = 4;

/// The report's verdicts, without those that repeat the refusals.
fn why(round: &Round) -> impl Iterator<Item = String> {
    let report = &round.report;
    let alike = |v: &JobVerdict| {
        let is_far = matches!(&v.why, JobReason::WaitsForTurn(place) if place.position > FIRST_IN_LINE);
        (
            v.had,
            v.gets,
            if is_far {
                "waits for its turn, behind the first in line".to_owned()
            } else {
                v.full_sentence()
            },
        )
    };
    let jobs = report.jobs.chunk_by(move |a, b| alike(a) == alike(b));
    let jobs = jobs.filter_map(move |same| {
        let first = same.first()?;
        let last = same.last()?;
        let who = match same.len() {
            1 => format!("job {}", first.job),
            _ => format!("jobs {} to {}", first.job, last.job),
        };
        Some(format!("{who} ({} -> {}): {}", first.had, first.gets, alike(first).2))
    });
    let is_refusal = |node: &NodeName, why: &str| {
        round.gaps.refusal_for(node).is_some_and(|refusal| refusal.to_string() == why)
    };
    let nodes = report.nodes.iter().filter(move |v| !is_refusal(&v.node, &v.why.to_string()));
    let nodes: Vec<String> = grouped(nodes.map(|v| (v.node.clone(), v.why.to_string()))).collect();
    jobs.chain(nodes)
}
