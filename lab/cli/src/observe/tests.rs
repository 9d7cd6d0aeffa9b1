//! Shadow jobs on made-up observations.

use super::*;
use infill_model::{BaseState, Job, JobId, Node, NodeState, NodeType};

const START: i64 = 1_800_000_000;

/// Four nodes. The first `busy` ones have a main job.
fn snapshot(at: i64, busy: usize) -> Snapshot {
    let names = ["n1", "n2", "n3", "n4"].map(NodeName::new);
    let nodes = names.iter().enumerate().map(|(i, name)| Node {
        state: NodeState::from_words([if i < busy { "ALLOCATED" } else { "IDLE" }]),
        partitions: vec!["main".to_owned()],
        ..Node::new(name.clone(), NodeType::new("a"))
    });
    let mut jobs = Vec::new();
    for (id, name) in (1..).zip(&names[..busy]) {
        let mut job = Job::new(JobId(id), "main", BaseState::Running);
        job.nodes = vec![name.clone()];
        jobs.push(job);
    }
    let mut snapshot =
        Snapshot { taken_at: UnixTime(START + at), nodes: nodes.collect(), jobs, ..Snapshot::default() };
    snapshot.backfill.complete = true;
    snapshot
}

fn observation() -> SiteObservation {
    let jobs = ShadowJobs::built_in(NonZeroU32::new(2).unwrap(), 4);
    SiteObservation::new(ObservedNodes::default(), jobs, Duration::from_secs(10), &Config::default()).unwrap()
}

fn observed(looks: &[(i64, usize)]) -> SiteObservation {
    let mut watch = observation();
    for (at, busy) in looks {
        watch.record_snapshot(&snapshot(*at, *busy)).unwrap();
    }
    watch
}

/// A look every five minutes until `end`, with the third node busy in a quarter of the time.
fn regular_looks(end: i64) -> Vec<(i64, usize)> {
    (0..=end / 300).map(|i| (i * 300, if i % 4 == 3 { 3 } else { 2 })).collect()
}

#[test]
fn shadow_jobs_use_the_idle_nodes_and_leave_for_main_jobs() {
    let watch = observed(&[(0, 2), (590, 2), (1180, 3), (1770, 2), (2360, 2)]);
    let report = watch.report("rest");
    let total = &report.total;
    assert_eq!((report.nodes, total.observed_secs), (4, 2360.0));
    assert!((total.idle_node_hours - (2.0 * 2360.0 - 590.0) / 3600.0).abs() < 1e-6, "{report:?}");
    assert!(total.held_node_hours > 0.9 * total.idle_node_hours, "{report:?}");
    assert_eq!((total.late_main_jobs, total.preempting_main_jobs), (0, 1), "{report:?}");
    assert!(total.longest_wait_secs > 0.0 && total.longest_wait_secs < 30.0, "{report:?}");
    let [event] = report.recent.as_slice() else { panic!("{report:?}") };
    assert_eq!((event.node.as_str(), event.main_job, event.planned), ("n3", JobId(3), false));
    assert_eq!((event.at, Some(event)), (UnixTime(START + 1180), total.worst.as_ref()));
    assert!(event.shadow_job.starts_with("scales-"), "{event:?}");
    let text = report.to_string();
    let begins = "observed  39:20, 4 nodes, 1.7 of them idle on average (43.7 %), by slurmrestd\n";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("n3, main job 3, not planned"), "{text}");
    let wait = format!("wait      at most {:.0} s for a shadow job to leave\n", total.longest_wait_secs);
    assert!(text.contains(&wait), "one main job has no 99th percentile: {text}");
    assert!(text.ends_with("39:20 is little: watch for a day before you judge"), "{text}");
}

#[test]
fn few_hours_have_three_digits() {
    let text = observed(&[(0, 2), (590, 2)]).report("rest").to_string();
    // Two idle nodes for 590 s are 0.328 hours.
    assert!(text.contains(" of 0.328 idle node-hours"), "{text}");
    let text = observed(&regular_looks(4 * 3600)).report("rest").to_string();
    assert!(text.contains(" of 7.00 idle node-hours"), "{text}");
}

#[test]
fn hours_and_days_add_up_to_the_total() {
    let watch = observed(&regular_looks(30 * 3600));
    let report = watch.report("commands");
    for periods in [&report.days, &report.hours] {
        let held: f64 = periods.iter().map(|p| p.held_node_hours).sum();
        let jobs: u64 = periods.iter().map(|p| p.preempting_main_jobs).sum();
        let secs: f64 = periods.iter().map(|p| p.observed_secs).sum();
        assert!((held - report.total.held_node_hours).abs() < 1e-6);
        assert_eq!((jobs, secs), (report.total.preempting_main_jobs, report.total.observed_secs));
    }
    assert!(report.hours.iter().all(|p| p.observed_secs <= 3600.0 && p.from.0 % 3600 == 0));
    assert_eq!(report.days.len(), 2, "it began at eight in the morning");
    assert_eq!(report.recent.len(), 20, "a report is bounded");
    assert_eq!(report.reservation(), None);
    // Lines come once: for hours and days that began after the last ones.
    let lines = watch.period_lines(UnixTime(START));
    assert_eq!(lines.iter().filter(|line| line.starts_with("hour ")).count(), 30, "{lines:?}");
    let day = watch.period_lines(UnixTime(0)).pop().unwrap_or_default();
    assert!(day.starts_with("day       2027-01-15 UTC: "), "{day}");
    assert!(day.contains("wait p99") && day.contains("node n3, main job 3"), "{day}");
}

#[test]
fn sums_do_not_depend_on_how_often_a_report_is_made() {
    let looks = regular_looks(4 * 3600);
    let at_once = observed(&looks).report("rest");
    let mut watch = observation();
    for (at, busy) in &looks {
        watch.record_snapshot(&snapshot(*at, *busy)).unwrap();
        let _ = watch.report("rest");
    }
    assert_eq!(watch.report("rest"), at_once);
}

#[test]
fn time_without_an_answer_counts_for_nothing() {
    let report = observed(&[(0, 2), (300, 2), (8000, 2), (8300, 2)]).report("rest");
    assert_eq!((report.total.observed_secs, report.blind_secs), (600.0, 7700.0));
    assert!(report.to_string().contains("blind     2:08:20 without an answer"), "{report}");
    // A new node: the shadow jobs begin again, and nothing is counted twice.
    let mut watch = observed(&[(0, 2), (300, 2)]);
    let mut more = snapshot(600, 2);
    more.nodes.push(Node { partitions: vec!["main".to_owned()], ..more.nodes[3].clone() });
    more.nodes[4].name = NodeName::new("n5");
    watch.record_snapshot(&more).unwrap();
    more.taken_at = UnixTime(START + 900);
    watch.record_snapshot(&more).unwrap();
    let report = watch.report("rest");
    assert_eq!((report.nodes, report.total.observed_secs), (5, 900.0));
    assert!((report.total.idle_node_hours - (2.0 * 600.0 + 3.0 * 300.0) / 3600.0).abs() < 1e-6, "{report:?}");
}

#[test]
fn a_day_keeps_no_recording() {
    let mut watch = observed(&regular_looks(3 * 86_400));
    assert!(watch.recent.len() <= MAX_RECENT && watch.hours.last_periods(usize::MAX).len() == 72);
    assert!(watch.observer.take_moments().is_empty());
}

#[test]
fn the_page_is_complete_and_loads_nothing() {
    let page = observed(&regular_looks(30 * 3600)).page_html("commands", "infill observe --html x<y");
    for part in ["<!doctype html>", "</html>", "<svg", "2027-01-15", "scales-", "x&lt;y", "n3"] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["http://", "https://", "<script", "@import", "url("] {
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(outside), "{outside}");
    }
    assert!(page.len() < 1_000_000, "{}", page.len());
    // Before the first look there is nothing to draw.
    assert!(observation().page_html("rest", "").contains("</html>"));
}
