//! Why a job or a node has what it has.

use serde::Serialize;

use super::{
    DisplayClock, describe_end, describe_forecast, idle_share, node_kind_name, percent, text_or_dash,
};
use crate::charts::format_number;
use infill_api::{DaemonStatus, JobView, NodeView, PlanView, RoundView, SCHEMA};
use infill_model::{
    GenerationRecord, JobId, NodeVerdict, RateSource, UnixTime, generations_of_last_job, hostlist,
};

/// Generations that are listed; older ones are in the JSON.
const SHOWN_GENERATIONS: usize = 10;

/// `infill explain --json`: what is known of one job or node.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainDocument {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The moment that was asked for. The job and the node, which are as they are now, are left out then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<UnixTime>,
    /// The job.
    pub job: Option<JobView>,
    /// The node.
    pub node: Option<NodeView>,
    /// What the round said of it.
    pub round: Option<RoundView>,
    /// The job's generations, the oldest first.
    pub generations: Vec<GenerationRecord>,
}

/// A wing is explained by its lead.
pub fn resolve_lead(id: JobId, status: &DaemonStatus) -> JobId {
    status.jobs.iter().find(|j| j.wings.contains(&id)).map_or(id, |j| j.job)
}

/// Reduces the round to what concerns `keeps_job` and `keeps_node`.
fn reduce_round(
    mut round: RoundView,
    keeps_job: impl Fn(JobId) -> bool,
    keeps_node: impl Fn(&NodeVerdict) -> bool,
) -> RoundView {
    round.plan.jobs.retain(|j| keeps_job(j.job));
    round.report.jobs.retain(|j| keeps_job(j.job));
    round.report.nodes.retain(keeps_node);
    round
}

/// Of a malleable job, or the lead of a wing. `None` if nothing is known of it.
pub fn explain_job(
    id: JobId,
    status: &DaemonStatus,
    round: Option<RoundView>,
    generations: Vec<GenerationRecord>,
) -> Option<ExplainDocument> {
    let id = resolve_lead(id, status);
    let job = status.jobs.iter().find(|j| j.job == id).cloned();
    let round = round.map(|r| reduce_round(r, |j| j == id, |n| n.job == Some(id)));
    let judged = round.as_ref().is_some_and(|r| !r.report.jobs.is_empty());
    (job.is_some() || judged || !generations.is_empty()).then_some(ExplainDocument {
        schema: SCHEMA,
        at: None,
        job,
        node: None,
        round,
        generations,
    })
}

/// Of a node. `None` if it is not known.
pub fn explain_node(name: &str, status: DaemonStatus, round: Option<RoundView>) -> Option<ExplainDocument> {
    let node = status.nodes.into_iter().find(|n| n.node.as_str() == name)?;
    let round = round.map(|r| reduce_round(r, |j| Some(j) == node.job, |n| n.node == node.node));
    Some(ExplainDocument {
        schema: SCHEMA,
        at: None,
        job: None,
        node: Some(node),
        round,
        generations: vec![],
    })
}

/// What the round that was the last one at this moment said of a job or a node. `None` for what neither it
/// nor the present knows.
pub fn explain_moment(
    at: UnixTime,
    subject: &str,
    status: &DaemonStatus,
    round: RoundView,
    mut generations: Vec<GenerationRecord>,
) -> Option<ExplainDocument> {
    generations.retain(|g| g.started_at <= at);
    let generations = generations_of_last_job(generations);
    let told = match subject.parse().ok().map(JobId) {
        Some(id) => explain_job(id, status, Some(round), generations)?,
        None => {
            let judged = round.report.nodes.iter().find(|n| n.node.as_str() == subject).cloned();
            if judged.is_none() && !status.nodes.iter().any(|n| n.node.as_str() == subject) {
                return None;
            }
            let job = judged.and_then(|n| n.job);
            let round = reduce_round(round, |j| Some(j) == job, |n| n.node.as_str() == subject);
            ExplainDocument {
                schema: SCHEMA,
                at: None,
                job: None,
                node: None,
                round: Some(round),
                generations,
            }
        }
    };
    Some(ExplainDocument { at: Some(at), job: None, node: None, ..told })
}

/// The same in words, line by line.
pub fn explanation_lines(explanation: &ExplainDocument, subject: &str, when: DisplayClock) -> Vec<String> {
    let mut lines = match (explanation.at, &explanation.job, &explanation.node) {
        (Some(at), ..) => {
            let kind = if subject.parse::<u32>().is_ok() { "job" } else { "node" };
            vec![format!("{kind} {subject} at {}", when.format_clock(at))]
        }
        (None, Some(job), _) => job_lines(job),
        (None, None, Some(node)) => node_lines(node, when),
        (None, None, None) => vec![format!("job {subject} is not among the malleable jobs any more")],
    };
    lines.push(String::new());
    lines.extend(match &explanation.round {
        Some(round) => {
            round_lines(round, if explanation.at.is_some() { "round of" } else { "last round," }, when)
        }
        None => vec!["no round yet".to_owned()],
    });
    lines.extend(generation_lines(&explanation.generations, when));
    lines
}

fn job_lines(job: &JobView) -> Vec<String> {
    let nodes = match job.nodes.as_slice() {
        [] => "no node".to_owned(),
        [lead] => format!("1 node: {lead}"),
        nodes => format!("{} nodes: {} (lead on {})", nodes.len(), hostlist::compress_nodes(nodes), nodes[0]),
    };
    let mut lines = vec![
        format!("job {} ({}) of {}: {}", job.job, job.name, text_or_dash(&job.user), job.state),
        match job.own {
            0 => format!("may have {} nodes; has {nodes}", job.sizes),
            own => format!(
                "may have {} nodes, of which {own} are a main job's own and count as one in a plan; has {nodes}",
                job.sizes
            ),
        },
        format!(
            "generation {}; {} rescales ({} killed past the grace time), {} restarts after failures",
            job.generation, job.rescales, job.kills, job.restarts
        ),
    ];
    let mut progress = vec![format!("{} samples", format_number(job.samples))];
    progress.extend(job.rate.map(|r| format!("{}/s", format_number(r))));
    progress.extend(job.efficiency.map(|e| format!("{} of proportional scaling", percent::whole_percent(e))));
    progress.extend(job.step.map(|s| format!("step {s}")));
    progress.extend(job.loss.map(|l| format!("loss {l}")));
    lines.push(match (job.samples > 0.0, job.step) {
        (false, None) => "no progress reported".to_owned(),
        _ => format!("progress: {}", progress.join(", ")),
    });
    lines.extend(job.shortage.as_ref().map(|why| format!("short of nodes: {why}")));
    lines.extend((!job.advice.is_empty()).then(|| format!("advice: {}", job.advice)));
    lines.extend(job.ends.as_ref().map(|ends| format!("ends: in {}", describe_end(ends))));
    lines.extend((!job.turn.is_empty()).then(|| format!("turn: {}", job.turn)));
    lines.extend((!job.changing.is_empty()).then(|| format!("changing: {}", job.changing)));
    lines.extend(job.plans.iter().map(|plan| plan_line(plan, &job.plans)));
    lines.extend((!job.leaving.is_empty()).then(|| format!("leaving: {}", job.leaving)));
    lines
}

/// What an execution plan gives on the nodes that the job has, compared with the one that it runs.
fn plan_line(plan: &PlanView, all: &[PlanView]) -> String {
    let next = all.iter().find(|p| !p.runs && p.rate.is_some());
    let which = match next {
        _ if plan.runs => "runs with plan",
        Some(next) if next.plan == plan.plan => "next best plan",
        _ => "plan",
    };
    let mut line = format!("{which} {}: ", plan.plan.0);
    match (plan.rate, &plan.lacks) {
        (Some(rate), _) => line += &format!("{} samples/s", format_number(rate)),
        (None, lacks) => line += lacks.as_deref().unwrap_or("nothing is known of it"),
    }
    if let Some(share) = plan.share.filter(|_| !plan.runs) {
        line += &format!(", {} of that", percent::whole_percent(share));
    }
    match (plan.rate, plan.source) {
        (None, _) => {}
        (Some(_), Some(source)) => line += &describe_source(source, plan.low.zip(plan.high)),
        // Of a daemon that says no more.
        (Some(_), None) if plan.is_measured => {}
        (Some(_), None) => line += ", never measured there: a guess",
    }
    line
}

/// From what the rate of a plan is known, and how well: the end of a sentence.
fn describe_source(source: RateSource, interval: Option<(f64, f64)>) -> String {
    let by = match source {
        RateSource::Measured => return ", measured".to_owned(),
        RateSource::OtherSizes => "what it made on other numbers of nodes",
        RateSource::Declared => "what its owner declares",
        RateSource::OtherPlans => "what the program made with other plans",
        RateSource::OtherTypes => "what the program made on other types of nodes",
        RateSource::OtherUsers => "what another user's program of this name made",
        RateSource::Estimated => "estimates made beforehand",
    };
    let within =
        |(low, high)| format!(" between {} and {} with 90%,", format_number(low), format_number(high));
    format!(", predicted{} by {by}", interval.map(within).unwrap_or_default())
}

fn node_lines(node: &NodeView, when: DisplayClock) -> Vec<String> {
    let mut lines = vec![format!(
        "node {} ({}): {}, {}",
        node.node,
        node.node_type,
        node_kind_name(node.kind),
        node.state
    )];
    let at = |t: UnixTime| format!("{} (in {})", when.format_clock(t), when.time_until(t));
    lines.extend(node.job.map(|j| format!("held by malleable job {j}")));
    lines.extend(node.main_job.map(|j| format!("main job {j} runs on it")));
    lines.extend(node.idle.map(|i| format!("idle beside it: {}", idle_share(i))));
    lines.extend(
        node.since.map(|t| format!("a gap since {} ({} ago)", when.format_clock(t), when.time_since(t))),
    );
    lines.extend(node.window_end.map(|t| {
        let by = node.wanted_by.as_deref().map(|w| format!(" by {w}")).unwrap_or_default();
        format!("wanted back{by} at {}", at(t))
    }));
    lines.extend(node.usable_until.map(|t| format!("the planner counts on it until {}", at(t))));
    lines.extend(node.why.as_ref().map(|w| format!("refused: {w}")));
    lines
}

fn round_lines(round: &RoundView, which: &str, when: DisplayClock) -> Vec<String> {
    let acted = if round.acting { "carried out" } else { "not carried out" };
    let at = round.report.at;
    let mut lines =
        vec![format!("{which} {} ({} ago, {acted}):", when.format_clock(at), when.time_since(at))];
    for verdict in &round.report.jobs {
        let change = format!("job {}: had {}, gets {}", verdict.job, verdict.had, verdict.gets);
        lines.push(format!("  {change}: {}", verdict.full_sentence()));
        let planned = round.plan.job_plan(verdict.job).filter(|p| !p.forecast.is_empty());
        lines.extend(planned.map(|p| format!("  forecast: {}", describe_forecast(p, when))));
    }
    lines.extend(round.report.nodes.iter().map(|n| format!("  node {}: {}", n.node, n.why)));
    lines.extend(round.report.notes.iter().map(|n| format!("  note: {n}")));
    if lines.len() == 1 {
        lines.push("  nothing was said of it".to_owned());
    }
    lines
}

fn generation_lines(generations: &[GenerationRecord], when: DisplayClock) -> Vec<String> {
    if generations.is_empty() {
        return vec![];
    }
    let mut lines = vec![String::new(), "generations, newest first:".to_owned()];
    for g in generations.iter().rev().take(SHOWN_GENERATIONS) {
        let at = when.format_clock(g.started_at);
        let nodes = hostlist::compress_nodes(&g.nodes);
        lines.push(format!("  {:>3}  {at}  {} on {nodes}: {}", g.generation, g.nodes.len(), g.why));
    }
    let hidden = generations.len().saturating_sub(SHOWN_GENERATIONS);
    lines.extend((hidden > 0).then(|| format!("  and {hidden} older (--json lists all)")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, NOW};
    use infill_model::{ExecPlan, NodeName};

    fn shown(explanation: &ExplainDocument, subject: &str, when: DisplayClock) -> String {
        explanation_lines(explanation, subject, when).join("\n")
    }

    fn generation(number: u64) -> GenerationRecord {
        GenerationRecord {
            job: JobId(101),
            generation: number,
            started_at: NOW + (60 * number as i64 - 600),
            nodes: vec![NodeName::from("n1"), NodeName::from("n2")],
            why: "grown".to_owned(),
        }
    }

    #[test]
    fn a_running_job() {
        let all = (1..=12).map(generation).collect();
        let told =
            explain_job(JobId(101), &samples::sample_status(), Some(samples::sample_round()), all).unwrap();
        insta::assert_snapshot!(shown(&told, "101", samples::when()), @r"
        job 101 (train-101) of alice: running
        may have 1-8 nodes; has 2 nodes: n[1-2] (lead on n1)
        generation 3; 2 rescales (0 killed past the grace time), 0 restarts after failures
        progress: 1.23M samples, 812/s, 87% of proportional scaling, step 4200, loss 1.25
        advice: curve from 3 sizes; 8 nodes will be tried
        ends: in 40:00 at its present rate, most likely 25:00 to 1:23:20: known well
        turn: 2:30:00 of one node's work in all, as jobs like it did; 1:10:00 done; its owner has had 3.0 node-hours lately
        changing: restarts: 7.5 s to grow, 5.0 s to shrink, 11 s to start
        leaving: leaves a node 20 s before the main queue wants it: 4 s are allowed for saving, by its last 5 stops

        last round, 22:10:17 (0:00 ago, carried out):
          job 101: had 2, gets 2: growing to 3 costs 18 s and gains 12 s
          forecast: 2 until 22:25:17, 1 until 22:40:02
          node n1: kept
          node n2: kept
          note: backfill's plan was cut short

        generations, newest first:
           12  22:12:17  2 on n[1-2]: grown
           11  22:11:17  2 on n[1-2]: grown
           10  22:10:17  2 on n[1-2]: grown
            9  22:09:17  2 on n[1-2]: grown
            8  22:08:17  2 on n[1-2]: grown
            7  22:07:17  2 on n[1-2]: grown
            6  22:06:17  2 on n[1-2]: grown
            5  22:05:17  2 on n[1-2]: grown
            4  22:04:17  2 on n[1-2]: grown
            3  22:03:17  2 on n[1-2]: grown
          and 2 older (--json lists all)
        ");
    }

    #[test]
    fn why_this_plan() {
        let plan =
            |name: &str, rate: Option<f64>, source: Option<RateSource>, lacks: Option<&str>| PlanView {
                plan: ExecPlan(name.to_owned()),
                runs: name == "ddp",
                rate,
                share: rate.map(|rate| rate / 800.0),
                is_measured: matches!(source, Some(RateSource::Measured | RateSource::OtherSizes)),
                source,
                low: rate.map(|rate| rate * 0.8),
                high: rate.map(|rate| rate * 1.25),
                lacks: lacks.map(str::to_owned),
            };
        let plans = [
            plan("ddp", Some(800.0), Some(RateSource::Measured), None),
            plan("zero3", Some(600.0), Some(RateSource::OtherSizes), None),
            plan("tp2", Some(300.0), Some(RateSource::OtherPlans), None),
            plan("tp4", Some(200.0), Some(RateSource::OtherTypes), None),
            plan("old", Some(100.0), None, None),
            plan("pp4", None, None, Some("cannot run on this number of nodes")),
        ];
        let lines: Vec<String> = plans.iter().map(|p| plan_line(p, &plans)).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        runs with plan ddp: 800 samples/s, measured
        next best plan zero3: 600 samples/s, 75% of that, predicted between 480 and 750 with 90%, by what it made on other numbers of nodes
        plan tp2: 300 samples/s, 38% of that, predicted between 240 and 375 with 90%, by what the program made with other plans
        plan tp4: 200 samples/s, 25% of that, predicted between 160 and 250 with 90%, by what the program made on other types of nodes
        plan old: 100 samples/s, 12% of that, never measured there: a guess
        plan pp4: cannot run on this number of nodes
        ");
    }

    #[test]
    fn a_wing_is_explained_by_its_lead() {
        let told = explain_job(JobId(103), &samples::sample_status(), None, vec![]).unwrap();
        assert_eq!(told.job.unwrap().job, JobId(101));
    }

    #[test]
    fn a_node() {
        let told = explain_node("n1", samples::sample_status(), Some(samples::sample_round())).unwrap();
        insta::assert_snapshot!(shown(&told, "n1", samples::when()), @r"
        node n1 (gpu:a100:4/cpu64): held, ALLOCATED
        held by malleable job 101
        a gap since 22:00:17 (10:00 ago)
        wanted back by job 77 at 22:40:17 (in 30:00)
        the planner counts on it until 22:40:02 (in 29:45)

        last round, 22:10:17 (0:00 ago, carried out):
          job 101: had 2, gets 2: growing to 3 costs 18 s and gains 12 s
          forecast: 2 until 22:25:17, 1 until 22:40:02
          node n1: kept
          note: backfill's plan was cut short
        ");
    }

    #[test]
    fn a_job_and_a_node_as_they_were() {
        let at = |secs, subject: &str| {
            let all = (1..=12).map(generation).collect();
            let all = if subject == "101" { all } else { vec![] };
            let told =
                explain_moment(NOW + secs, subject, &samples::sample_status(), samples::sample_round(), all)
                    .unwrap();
            let later = DisplayClock { now: NOW + 3600, ..samples::when() };
            shown(&told, subject, later)
        };
        insta::assert_snapshot!(at(-480, "101"), @r"
        job 101 at 22:02:17

        round of 22:10:17 (1:00:00 ago, carried out):
          job 101: had 2, gets 2: growing to 3 costs 18 s and gains 12 s
          forecast: 2 until 22:25:17, 1 until 22:40:02
          node n1: kept
          node n2: kept
          note: backfill's plan was cut short

        generations, newest first:
            2  22:02:17  2 on n[1-2]: grown
            1  22:01:17  2 on n[1-2]: grown
        ");
        insta::assert_snapshot!(at(60, "n3"), @r"
        node n3 at 22:11:17

        round of 22:10:17 (1:00:00 ago, carried out):
          node n3: closes in 4:00, too soon for any job
          note: backfill's plan was cut short
        ");
        insta::assert_snapshot!(at(60, "n4"), @r"
        node n4 at 22:11:17

        round of 22:10:17 (1:00:00 ago, carried out):
          note: backfill's plan was cut short
        ");
    }

    #[test]
    fn what_is_unknown_is_not_explained() {
        for subject in ["9", "n9"] {
            let told =
                explain_moment(NOW, subject, &samples::sample_status(), samples::sample_round(), vec![]);
            assert!(told.is_none(), "{subject}");
        }
        assert!(
            explain_job(JobId(9), &samples::sample_status(), Some(samples::sample_round()), vec![]).is_none()
        );
        assert!(explain_node("n9", samples::sample_status(), None).is_none());
    }
}
