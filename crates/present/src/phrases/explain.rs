//! `infill explain`: why a job has its nodes, or why a node has its job.

use serde::Serialize;

use super::{
    DisplayClock, describe_end, describe_forecast, idle_share, node_kind_name, percent, text_or_dash,
};
use crate::charts::format_number;
use infill_api::{DaemonStatus, JobView, NodeView, PlanView, RoundView, SCHEMA_VERSION};
use infill_model::{
    GenerationRecord, JobId, NodeVerdict, RateSource, UnixTime, counted_noun, generations_of_last_job,
    hostlist,
};

/// The number of generations that are listed. The JSON has the older ones.
const SHOWN_GENERATIONS: usize = 10;

/// `infill explain --json`: one job or one node, with its last round and its history.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainDocument {
    /// [`SCHEMA_VERSION`].
    pub schema: u32,
    /// The moment that the user asked about. `job` and `node` show the present, so they are left out then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<UnixTime>,
    /// The job as it is now. `None` for a node, or for a job that has ended.
    pub job: Option<JobView>,
    /// The node as it is now. `None` for a job.
    pub node: Option<NodeView>,
    /// The part of the round that concerns it.
    pub round: Option<RoundView>,
    /// The job's generations, the oldest first.
    pub generations: Vec<GenerationRecord>,
}

/// The id of the lead if `id` is a wing, else `id`.
pub fn resolve_lead(id: JobId, status: &DaemonStatus) -> JobId {
    status.jobs.iter().find(|j| j.wings.contains(&id)).map_or(id, |j| j.job)
}

/// Drops from the round all jobs and nodes that the two conditions do not keep.
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

/// Explains a malleable job. The id of a wing stands for its lead. `None` if neither the daemon's status, the
/// round nor the history has the job.
pub fn explain_job(
    id: JobId,
    status: &DaemonStatus,
    round: Option<RoundView>,
    generations: Vec<GenerationRecord>,
) -> Option<ExplainDocument> {
    let id = resolve_lead(id, status);
    let job = status.jobs.iter().find(|j| j.job == id).cloned();
    let round = round.map(|r| reduce_round(r, |j| j == id, |n| n.job == Some(id)));
    let has_verdict = round.as_ref().is_some_and(|r| !r.report.jobs.is_empty());
    (job.is_some() || has_verdict || !generations.is_empty()).then_some(ExplainDocument {
        schema: SCHEMA_VERSION,
        at: None,
        job,
        node: None,
        round,
        generations,
    })
}

/// Explains a node. `None` if the status does not have it.
pub fn explain_node(name: &str, status: DaemonStatus, round: Option<RoundView>) -> Option<ExplainDocument> {
    let node = status.nodes.into_iter().find(|n| n.node.as_str() == name)?;
    let round = round.map(|r| reduce_round(r, |j| Some(j) == node.job, |n| n.node == node.node));
    Some(ExplainDocument {
        schema: SCHEMA_VERSION,
        at: None,
        job: None,
        node: Some(node),
        round,
        generations: vec![],
    })
}

/// Explains a job or a node by `round`, which was the last round at the moment `at`. `None` if neither the
/// round nor the present status has it.
pub fn explain_moment(
    at: UnixTime,
    subject: &str,
    status: &DaemonStatus,
    round: RoundView,
    mut generations: Vec<GenerationRecord>,
) -> Option<ExplainDocument> {
    generations.retain(|g| g.started_at <= at);
    let generations = generations_of_last_job(generations);
    let document = match subject.parse().ok().map(JobId) {
        Some(id) => explain_job(id, status, Some(round), generations)?,
        None => {
            let verdict = round.report.nodes.iter().find(|n| n.node.as_str() == subject).cloned();
            if verdict.is_none() && !status.nodes.iter().any(|n| n.node.as_str() == subject) {
                return None;
            }
            let job = verdict.and_then(|n| n.job);
            let round = reduce_round(round, |j| Some(j) == job, |n| n.node.as_str() == subject);
            ExplainDocument {
                schema: SCHEMA_VERSION,
                at: None,
                job: None,
                node: None,
                round: Some(round),
                generations,
            }
        }
    };
    Some(ExplainDocument { at: Some(at), job: None, node: None, ..document })
}

/// The document in words, line by line.
pub fn explanation_lines(explanation: &ExplainDocument, subject: &str, when: DisplayClock) -> Vec<String> {
    let mut lines = match (explanation.at, &explanation.job, &explanation.node) {
        (Some(at), ..) => {
            let kind = if subject.parse::<u32>().is_ok() { "job" } else { "node" };
            vec![format!("{kind} {subject} at {}", when.format_clock(at))]
        }
        (None, Some(job), _) => job_lines(job),
        (None, None, Some(node)) => node_lines(node, when),
        (None, None, None) => vec![format!("job {subject} is no longer among the malleable jobs")],
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

/// For tasks of an array that have no job of their own yet: why. `None` for a job.
fn waiting_tasks_line(job: &JobView) -> Option<String> {
    job.array_task.as_ref().filter(|name| name.ends_with(']')).map(|_| job.why.clone())
}

/// The job's id, with its name in squeue if it is a task of an array.
fn id_text(job: &JobView) -> String {
    match &job.array_task {
        Some(name) => format!("{}, in squeue {name}", job.job),
        None => job.job.to_string(),
    }
}

/// Three significant digits. A small loss keeps its order of magnitude.
fn format_loss(loss: f64) -> String {
    if loss != 0.0 && loss.abs() < 0.001 { format!("{loss:.2e}") } else { format_number(loss) }
}

fn job_lines(job: &JobView) -> Vec<String> {
    let nodes = match job.nodes.as_slice() {
        [] => "no node".to_owned(),
        [lead] => format!("1 node: {lead}"),
        nodes => format!("{} nodes: {} (lead on {})", nodes.len(), hostlist::compress_nodes(nodes), nodes[0]),
    };
    let mut lines = vec![
        format!("job {} ({}) of {}: {}", id_text(job), job.name, text_or_dash(&job.user), job.state),
        match job.own {
            0 => format!("sizes: {} nodes; now {nodes}", job.sizes),
            own => format!(
                "sizes: {} nodes, {own} of them the main job's own, which count as one in a plan; now {nodes}",
                job.sizes
            ),
        },
        format!(
            "history: generation {}; {} ({} killed after the grace time), {} after failures",
            job.generation,
            counted_noun(u64::from(job.rescales), "rescale"),
            job.kills,
            counted_noun(u64::from(job.restarts), "restart")
        ),
    ];
    lines.extend(waiting_tasks_line(job));
    let mut progress = vec![format!("{} samples", format_number(job.samples))];
    progress.extend(job.rate.map(|r| format!("{}/s", format_number(r))));
    progress.extend(job.efficiency.map(|e| format!("{} of proportional scaling", percent::whole_percent(e))));
    progress.extend(job.step.map(|s| format!("step {s}")));
    progress.extend(job.loss.map(|l| format!("loss {}", format_loss(l))));
    lines.push(match (job.samples > 0.0, job.step) {
        (false, None) => "progress: none reported yet".to_owned(),
        _ => format!("progress: {}", progress.join(", ")),
    });
    lines.extend(job.gpus.map(|gpus| format!("GPUs: {} of {} used", gpus.used, gpus.held)));
    lines.extend(job.shortage.as_ref().map(|why| format!("short of nodes: {why}")));
    lines.extend(labelled_line("learning", &job.advice));
    lines.extend(job.ends.as_ref().map(|ends| format!("expected end: in {}", describe_end(ends))));
    lines.extend(labelled_line("priority", &job.turn));
    lines.extend(labelled_line("cost of changes", &job.changing));
    lines.extend(job.plans.iter().map(|plan| plan_line(plan, &job.plans)));
    lines.extend(labelled_line("before a main job", &job.leaving));
    lines
}

/// `label: sentence`, or `None` for an empty sentence: an older daemon does not send all of them.
fn labelled_line(label: &str, sentence: &str) -> Option<String> {
    if sentence.is_empty() { None } else { Some(format!("{label}: {sentence}")) }
}

/// The rate of an execution plan on the nodes that the job has now, compared with the plan that it runs.
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
        (None, lacks) => line += lacks.as_deref().unwrap_or("its rate is unknown"),
    }
    if let Some(share) = plan.share.filter(|_| !plan.runs) {
        line += &format!(", {} of the present rate", percent::whole_percent(share));
    }
    match (plan.rate, plan.source) {
        (None, _) => {}
        (Some(_), Some(source)) => line += &describe_source(source, plan.low.zip(plan.high)),
        // An older daemon does not send the source.
        (Some(_), None) if plan.is_measured => {}
        (Some(_), None) => line += ", a guess: never measured there",
    }
    line
}

/// Where the rate of a plan comes from, with its interval: the end of a sentence.
fn describe_source(source: RateSource, interval: Option<(f64, f64)>) -> String {
    let origin = match source {
        RateSource::Measured => return ", measured".to_owned(),
        RateSource::OtherSizes => "its speed on other numbers of nodes",
        RateSource::Declared => "the scaling curve that its owner declared",
        RateSource::OtherPlans => "the program's speed with other plans",
        RateSource::OtherTypes => "the program's speed on other types of nodes",
        RateSource::OtherUsers => "the speed of another user's program of this name",
        RateSource::Estimated => "estimates made beforehand",
    };
    match interval {
        Some((low, high)) => format!(
            ", predicted between {} and {} samples/s (90% interval) from {origin}",
            format_number(low),
            format_number(high)
        ),
        None => format!(", predicted from {origin}"),
    }
}

fn node_lines(node: &NodeView, when: DisplayClock) -> Vec<String> {
    let mut lines = vec![format!(
        "node {} ({}): {}, {}",
        node.node,
        node.node_type,
        node_kind_name(node.kind),
        node.state
    )];
    lines.extend(node.job.map(|j| format!("held by malleable job {j}")));
    lines.extend(node.main_job.map(|j| format!("main job {j} runs on it")));
    lines.extend(node.idle.map(|i| format!("still idle on it: {}", idle_share(i))));
    lines.extend(
        node.since.map(|t| format!("a gap since {} ({} ago)", when.format_clock(t), when.time_since(t))),
    );
    lines.extend(node.window_end.map(|t| {
        let by = node.wanted_by.as_deref().map(|w| format!(" by {w}")).unwrap_or_default();
        format!("wanted back{by} at {}", format_future_moment(t, when))
    }));
    lines.extend(
        node.usable_until
            .map(|t| format!("the planner counts on it until {}", format_future_moment(t, when))),
    );
    lines.extend(node.why.as_ref().map(|w| format!("refused: {w}")));
    lines
}

/// `22:40:17 (in 30:00)`.
fn format_future_moment(t: UnixTime, when: DisplayClock) -> String {
    format!("{} (in {})", when.format_clock(t), when.time_until(t))
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
        lines.push("  this round did not concern it".to_owned());
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

    fn explained(explanation: &ExplainDocument, subject: &str, when: DisplayClock) -> String {
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
    fn losses_keep_three_digits() {
        let losses = [1.460805892944336, 0.0000314, 0.0, 12_345.0].map(format_loss);
        assert_eq!(losses, ["1.46", "3.14e-5", "0", "12.3k"]);
    }

    #[test]
    fn a_running_job() {
        let all = (1..=12).map(generation).collect();
        let document =
            explain_job(JobId(101), &samples::sample_status(), Some(samples::sample_round()), all).unwrap();
        insta::assert_snapshot!(explained(&document, "101", samples::when()), @r"
        job 101 (train-101) of alice: running
        sizes: 1-8 nodes; now 2 nodes: n[1-2] (lead on n1)
        history: generation 3; 2 rescales (0 killed after the grace time), 0 restarts after failures
        progress: 1.23M samples, 812/s, 87% of proportional scaling, step 4200, loss 1.25
        learning: curve from 3 sizes; 8 nodes will be tried
        expected end: in 40:00 at its present rate, most likely between 25:00 and 1:23:20 (well known)
        priority: 2:30:00 of work on one node in total, as similar jobs took; 1:10:00 of it done; its owner used 3.0 node-hours recently
        cost of changes: its processes restart: 7.5 s to grow, 5.0 s to shrink, 11 s to start
        before a main job: leaves a node 20 s before the main queue needs it: 4 s are for saving, based on its last 5 stops

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
        next best plan zero3: 600 samples/s, 75% of the present rate, predicted between 480 and 750 samples/s (90% interval) from its speed on other numbers of nodes
        plan tp2: 300 samples/s, 38% of the present rate, predicted between 240 and 375 samples/s (90% interval) from the program's speed with other plans
        plan tp4: 200 samples/s, 25% of the present rate, predicted between 160 and 250 samples/s (90% interval) from the program's speed on other types of nodes
        plan old: 100 samples/s, 12% of the present rate, a guess: never measured there
        plan pp4: cannot run on this number of nodes
        ");
    }

    #[test]
    fn a_wing_is_explained_by_its_lead() {
        let document = explain_job(JobId(103), &samples::sample_status(), None, vec![]).unwrap();
        assert_eq!(document.job.unwrap().job, JobId(101));
    }

    #[test]
    fn a_node() {
        let document = explain_node("n1", samples::sample_status(), Some(samples::sample_round())).unwrap();
        insta::assert_snapshot!(explained(&document, "n1", samples::when()), @r"
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
            let document =
                explain_moment(NOW + secs, subject, &samples::sample_status(), samples::sample_round(), all)
                    .unwrap();
            let later = DisplayClock { now: NOW + 3600, ..samples::when() };
            explained(&document, subject, later)
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
            let document =
                explain_moment(NOW, subject, &samples::sample_status(), samples::sample_round(), vec![]);
            assert!(document.is_none(), "{subject}");
        }
        assert!(
            explain_job(JobId(9), &samples::sample_status(), Some(samples::sample_round()), vec![]).is_none()
        );
        assert!(explain_node("n9", samples::sample_status(), None).is_none());
    }
}
