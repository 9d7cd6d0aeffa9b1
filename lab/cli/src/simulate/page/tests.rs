//! A page of outcomes that are written down.

use super::*;
use crate::simulate::tests as samples;
use infill_gaps::IdleTime;
use infill_model::JobId;
use infill_sim::{JobScore, Preempted, Sample, Span};

const EVIL: &str = "</script><script>alert(1)//";

fn outcome(policy: &str) -> Balance {
    let job = JobScore {
        id: JobId(7),
        name: EVIL.to_owned(),
        samples: 1e6,
        work: 1e6,
        submitted_at: 0,
        ended_at: None,
        rescales: 3,
        node_secs: 7200.0,
    };
    let sample = |at| Sample { at, secs: 300.0, idle: 3.0, held: 2.0 };
    Balance {
        policy: policy.to_owned(),
        preempted: Preempted::default(),
        jobs: vec![job],
        series: vec![sample(0.0), sample(300.0)],
        timeline: vec![Span { node: 0, from: 0, to: 86_400, job: Some(JobId(7)) }],
        ..Balance::default()
    }
}

fn made(document: &Document) -> String {
    let outcomes = [outcome("freetrain"), outcome("bound")];
    let gaps = GapStatistics::of(&[IdleTime { start: 0, end: 90 }], 2, (0, 600));
    page(&Material {
        document,
        outcomes: &[&outcomes[0], &outcomes[1]],
        gaps: &gaps,
        nodes: &[NodeName::from("<n1>"), NodeName::from("n2")],
        start: 0,
        command: "infill simulate --idle '</pre>.csv' --seed 1",
    })
    .unwrap()
}

fn document() -> Document {
    let mut document = samples::document();
    document.subject.log = EVIL.to_owned();
    document.subject.malleable = format!("the jobs of {EVIL}");
    document.policies = vec![samples::row("freetrain", 0.8), samples::row("bound", 1.0)];
    document
}

#[test]
fn what_comes_from_outside_cannot_become_code() {
    let page = made(&document());
    assert!(!page.contains("<script>alert") && !page.contains("</pre>.csv") && !page.contains("<n1>"));
    // Seven figures with their data, the library, and what draws them: no script more.
    let ends = page.matches("</script>").count();
    assert_eq!((page.matches("<script").count(), ends), (9, 9));
    // The name is there, as data: twice escaped where a figure would take it for its own tags.
    assert!(page.contains(r"\u0026lt;/script\u0026gt;"), "no label");
    assert!(page.contains("the jobs of &lt;/script&gt;"), "no text");
}

#[test]
fn figures_are_json_that_the_library_reads() {
    let page = made(&document());
    let figures: Vec<serde_json::Value> = page
        .split("<script type=\"application/json\"")
        .skip(1)
        .map(|rest| {
            let (_, rest) = rest.split_once('>').unwrap();
            serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
        })
        .collect();
    let traces: Vec<usize> = figures.iter().map(|f| f["data"].as_array().unwrap().len()).collect();
    assert_eq!(traces, [3, 1, 4, 2, 3, 2, 2]);
    assert!(figures.iter().all(|f| f["layout"]["height"].as_u64().is_some_and(|h| h < 960)));
    assert!(figures.iter().all(|f| f["config"]["responsive"] == true && f["layout"]["font"].is_object()));
    let hidden: Vec<&serde_json::Value> = (1..3).map(|i| &figures[0]["data"][i]["visible"]).collect();
    assert_eq!(hidden, [&serde_json::json!(true), &serde_json::json!("legendonly")]);
}

#[test]
fn a_page_needs_no_network_and_stays_small() {
    let page = made(&document());
    assert!(page.contains("default-src 'none'") && page.contains("width=device-width"));
    assert!(page.len() < 6 * 1024 * 1024, "{}", page.len());
    assert!(page.contains("plotly.js v") && !page.contains("tex-svg"), "the library comes alone");
    // The library knows how to ask for maps, which no figure here has.
    let own = page.replace(&library(), "");
    assert!(own.len() < 300_000 && !own.contains("://") && !own.contains("<link"), "{}", own.len());
}

#[test]
fn the_sentences() {
    let mut document = document();
    document.subject.log = "summit.csv".to_owned();
    let shown = document.policies[0].clone();
    insta::assert_snapshot!(words::sentences(&document, &shown).join("\n"), @r"
    On this log (200 nodes, 7 days) freetrain would have harvested 1000 node-hours: 98.7 % of the idle node-time, 3.0 % of the machine.
    321 of the 4321 times that the main queue took nodes it would have found a node still held, never where the start had been planned for long enough; the longest wait would have been 3 s.
    Its jobs would have made 987M samples, 80.0 % of what the bound makes; rescales would have cost 5.0 %, preemption 10.0 %, probing 0.4 %.
    ");
    document.subject.idle_log = false;
    document.policies.push(samples::row("equal-share", 0.7));
    let mut quiet = shown;
    quiet.preempted.unforeseen = 0;
    insta::assert_snapshot!(words::sentences(&document, &quiet).join("\n"), @r"
    On this log (200 nodes, 7 days) freetrain would have harvested 1000 node-hours: 98.7 % of the idle node-time, 3.0 % of the machine.
    None of the 4321 main jobs would have found a node still held.
    Its jobs would have made 987M samples, 80.0 % of what the bound makes; rescales would have cost 5.0 %, preemption 10.0 %, probing 0.4 %.
    For comparison, efficiency of equal-share 70.0 %.
    ");
}

#[test]
fn nothing_simulated_is_an_error() {
    let (document, gaps) = (document(), GapStatistics::of(&[], 1, (0, 1)));
    let material =
        Material { document: &document, outcomes: &[], gaps: &gaps, nodes: &[], start: 0, command: "" };
    assert!(page(&material).is_err());
}
