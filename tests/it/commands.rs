//! The command line against a working daemon: what an administrator types on the first day.

use infill_api::RoundsView;
use serde_json::Value;

use crate::harness::{Site, Train};

#[test]
fn every_command_answers_while_a_job_runs() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 30.0);
    let id = job.to_string();
    for line in ["status", "gaps", "jobs", "plan", "plan --local", "doctor"] {
        let words: Vec<&str> = ["infill"].into_iter().chain(line.split(' ')).collect();
        let text = site.must("infill", &words);
        assert!(!text.trim().is_empty(), "infill {line} says nothing");
        let words: Vec<&str> = words.into_iter().chain(["--json"]).collect();
        let json = site.must("infill", &words);
        let value: Value =
            serde_json::from_str(&json).unwrap_or_else(|e| panic!("infill {line} --json: {e}: {json}"));
        assert_eq!(value["schema"], 1, "infill {line} --json: {json}");
    }
    for what in [&id, "n8"] {
        assert!(site.must("alice", &["infill", "explain", what]).contains(what), "explain {what}");
    }
    assert!(site.must("alice", &["infill", "jobs"]).contains("alice"), "users see the jobs as well");
    let headline = site.must("alice", &["infill", "status", "--check"]);
    assert!(headline.starts_with("ok: acting on 8 nodes; 1 job trains on 4 of 8 idle nodes"), "{headline}");
    assert_eq!(site.exec("alice", &["infill", "explain", "999999"]).status.code(), Some(5), "no such job");
    site.completes(job);
    let script = "infill run sh -c 'echo it ran with $#' -- one two";
    let words = ["sbatch", "--parsable", "-p", "infill", "-o", "/scratch/undashed", "--wrap", script];
    let undashed: u32 = site.must("alice", &words).trim().parse().expect("a job's id");
    assert_eq!(site.end_of(undashed, 60.0), "COMPLETED 0:0");
    let output = site.must("alice", &["cat", "/scratch/undashed"]);
    assert!(output.contains("it ran with 2"), "a command without -- before it: {output}");
    site.stop_daemon();
    assert_eq!(site.exec("alice", &["infill", "status"]).status.code(), Some(3), "no daemon");
    assert_eq!(site.exec("alice", &["infill", "status", "--check"]).status.code(), Some(3), "unknown");
}

#[test]
fn rounds_that_are_over_say_why() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 30.0);
    let id = job.to_string();
    let rounds = |words: &[&str]| -> RoundsView {
        let words: Vec<&str> = ["infill", "rounds", "--json"].iter().chain(words).copied().collect();
        serde_json::from_str(&site.must("bob", &words)).expect("a document of rounds")
    };
    // The decision is stored just after the round, not at the same moment.
    let mut found = None;
    site.until("a round with the job's four nodes to be kept", 30.0, || {
        found = rounds(&[]).rounds.into_iter().find(|r| r.acted && r.nodes == 4);
        found.is_some()
    });
    let at = found.expect("a round").at;
    let text = at.0.to_string();
    let explanation = site.must("bob", &["infill", "explain", &id, "--at", &text]);
    assert!(
        explanation.contains(&format!("job {id}: had ")) && explanation.contains("gets 4: "),
        "{explanation}"
    );
    assert!(rounds(&["--before", &text, "-n", "3"]).rounds.iter().all(|r| r.at < at));
    assert!(site.must("bob", &["infill", "rounds", "-n", "1"]).lines().count() == 2, "a header and a round");
    let before_all = ["infill", "explain", &id, "--at", "1000"];
    assert_eq!(site.exec("bob", &before_all).status.code(), Some(5), "nothing is kept from 1970");
    // Times are whole seconds, and the job must run in the last round of this one.
    site.until("the next second", 5.0, || crate::harness::jobs::clock() > at.0 as f64 + 1.0);
    site.completes(job);
    let then = site.must("bob", &["infill", "explain", &id, "--at", &text]);
    assert!(then.contains("gets 4: "), "it has ended, and what was said of it stays: {then}");
}

#[test]
fn metrics_count_what_happens() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 30.0);
    site.rounds_go_by(2);
    let text = crate::harness::http::get(site.port(), "/metrics").expect("metrics").body;
    let value = |name: &str| {
        let line =
            text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in:\n{text}"));
        line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    assert_eq!(value("infill_held_nodes"), 4.0);
    assert!(text.ends_with("# EOF\n"), "not OpenMetrics: {text}");
    site.completes(job);
}
