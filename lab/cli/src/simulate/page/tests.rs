//! Tests of the page for fixed results.

use super::*;
use crate::simulate::tests as samples;
use infill_gaps::IdleTime;
use infill_model::JobId;
use infill_sim::{FairnessScore, JobScore, MainQueueDelays, NodeSpan, SeriesPoint};

const EVIL: &str = "</script><script>alert(1)//";

fn outcome(policy: &str) -> PolicyScore {
    let job = JobScore { id: JobId(7), samples: 1e6, ..samples::job(EVIL, 7200.0) };
    let sample = |at| SeriesPoint { at, secs: 300.0, idle: 3.0, held: 2.0 };
    PolicyScore {
        policy: policy.to_owned(),
        preempted: MainQueueDelays::default(),
        jobs: vec![job],
        series: vec![sample(0.0), sample(300.0)],
        timeline: vec![NodeSpan { node: 0, from: 0, to: 86_400, job: Some(JobId(7)) }],
        ..PolicyScore::default()
    }
}

fn made(document: &SimulationDocument) -> String {
    let outcomes = [outcome("freetrain"), outcome("bound")];
    let gaps = GapStatistics::from_intervals(&[IdleTime { start: 0, end: 90 }], 2, (0, 600));
    page_html(&PageInput {
        document,
        outcomes: &[&outcomes[0], &outcomes[1]],
        gaps: &gaps,
        nodes: &[NodeName::from("<n1>"), NodeName::from("n2")],
        start: 0,
        command: "infill simulate --idle '</pre>.csv' --seed 1",
    })
    .unwrap()
}

fn document() -> SimulationDocument {
    let mut document = samples::document();
    document.subject.log = EVIL.to_owned();
    document.subject.malleable = format!("the jobs of {EVIL}");
    document.policies = vec![samples::row("freetrain", 0.8), samples::row("bound", 1.0)];
    document
}

#[test]
fn text_from_input_files_cannot_become_code() {
    let page = made(&document());
    assert!(!page.contains("<script>alert") && !page.contains("</pre>.csv") && !page.contains("<n1>"));
    assert!(!page.contains("<script") && !page.contains("</script"), "the page has no script at all: {page}");
    assert!(page.contains("the jobs of &lt;/script&gt;"), "no text");
    // It is shortened beside the axis, and complete in the table and the tooltip.
    assert!(page.contains(">&lt;/script&gt;&lt;script&gt;alert(…</text>"), "no label");
    assert!(page.contains("<td>&lt;/script&gt;&lt;script&gt;alert(1)//</td><td>1,000,000</td>"), "no table");
    assert!(page.contains("<title>&lt;n1&gt;: &lt;/script&gt;&lt;script&gt;alert(1)//</title>"), "no title");
}

/// The part of a page below a title.
fn figure<'a>(page: &'a str, title: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<figure>\n<h2>{title}</h2>")).expect(title);
    rest.split_once("</figure>").unwrap().0
}

#[test]
fn figures_show_the_numbers_of_the_document() {
    let page = made(&document());
    assert_eq!((page.matches("<figure>").count(), page.matches("class=\"chart\"").count()), (8, 8));
    let series = figure(&page, "Idle and harvested nodes");
    // 600 s of seven days are two points of two thousand: 3 idle nodes, and jobs hold 2 of them.
    assert!(series.contains("d=\"M0 1000v-1000h2V1000z\"><title>idle</title>"), "{series}");
    assert!(series.contains("d=\"M0 333h2\"><title>held under freetrain</title>"), "{series}");
    assert!(series.contains("id=\"series-1\" autocomplete=\"off\" checked>"), "the shown policy's line");
    assert!(series.contains("id=\"series-2\" autocomplete=\"off\"><"), "that of another waits");
    assert!(series.contains("days since the log&#39;s start</text>") && series.contains(">nodes</text>"));
    let efficiency = figure(&page, "Efficiency by policy");
    assert!(efficiency.contains(">80.0 %</text>") && efficiency.contains(">100.0 %</text>"), "{efficiency}");
    let losses = figure(&page, "Where work is lost");
    assert!(losses.contains("<td>freetrain</td><td>5 %</td><td>10 %</td><td>0.4 %</td><td>4.6 %</td>"));
    assert!(losses.contains("<title>bound, rest: -15.4 %</title>"), "{losses}");
    let fairness = figure(&page, "Fairness by policy");
    assert!(fairness.contains("<td>freetrain</td><td>80 %</td><td>50 %</td>"), "{fairness}");
    let gaps = figure(&page, "How long gaps last");
    assert!(gaps.contains("<td>1 min–2 min</td><td>100 %</td><td>100 %</td>"), "{gaps}");
    let nodes = figure(&page, "Who is on the nodes");
    assert!(nodes.contains("viewBox=\"0 -.5 900 1\"") && nodes.contains("d=\"M0 0h129\""), "{nodes}");
    let samples = figure(&page, "Throughput by job");
    assert_eq!((samples.matches("<circle").count(), samples.matches("cx=\"100%\"").count()), (2, 2));
    assert!(figure(&page, "Node-hours by job").contains("<td>2</td><td>2</td>"));
}

#[test]
fn fairness_is_drawn_for_policies_that_have_an_index() {
    let mut document = document();
    document.policies[0].fairness = FairnessScore::default();
    document.policies[1].fairness.jain_users = None;
    let page = made(&document);
    let fairness = figure(&page, "Fairness by policy");
    assert!(!fairness.contains("freetrain") && !fairness.contains("users"), "{fairness}");
    assert!(fairness.contains(">80.0 %</text>"), "a single series shows its numbers: {fairness}");
    document.policies[1].fairness = FairnessScore::default();
    assert!(!made(&document).contains("Fairness by policy"), "no figure of nothing");
}

#[test]
fn a_page_needs_no_network_and_stays_small() {
    let page = made(&document());
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'\">"));
    assert!(page.contains("width=device-width") && page.contains("prefers-color-scheme: dark"));
    for asks in ["://", "<link", "src=", "href", "url(", "@import", "data:"] {
        assert!(!page.contains(asks), "{asks}");
    }
    assert!(page.len() < 30_000, "{}", page.len());
}

#[test]
fn the_sentences() {
    let mut document = document();
    document.subject.log = "summit.csv".to_owned();
    let shown = document.policies[0].clone();
    insta::assert_snapshot!(sentences::page_sentences(&document, &shown).join("\n"), @r"
    On this log (200 nodes, 7 days) freetrain would have harvested 1000 node-hours: 98.7 % of the idle node-time, 3.0 % of the machine.
    321 of the 4321 times that the main queue took nodes it would have found a node still held, never where the start had been planned for long enough; the longest wait would have been 3 s.
    Its jobs would have made 987M samples, 80.0 % of what the bound makes; rescales would have cost 5.0 %, preemption 10.0 %, probing 0.4 %.
    ");
    document.subject.idle_log = false;
    document.policies.push(samples::row("equal-share", 0.7));
    let mut quiet = shown;
    quiet.preempted.unforeseen = 0;
    insta::assert_snapshot!(sentences::page_sentences(&document, &quiet).join("\n"), @r"
    On this log (200 nodes, 7 days) freetrain would have harvested 1000 node-hours: 98.7 % of the idle node-time, 3.0 % of the machine.
    None of the 4321 main jobs would have found a node still held.
    Its jobs would have made 987M samples, 80.0 % of what the bound makes; rescales would have cost 5.0 %, preemption 10.0 %, probing 0.4 %.
    For comparison, efficiency of equal-share 70.0 %.
    ");
}

#[test]
fn nothing_simulated_is_an_error() {
    let document = document();
    let gaps = GapStatistics::from_intervals(&[], 1, (0, 1));
    let material =
        PageInput { document: &document, outcomes: &[], gaps: &gaps, nodes: &[], start: 0, command: "" };
    assert!(page_html(&material).is_err());
}
