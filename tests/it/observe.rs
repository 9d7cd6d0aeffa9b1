//! `infill observe` as an ordinary user: no daemon, no configuration, and nothing changed.

use serde_json::Value;

use crate::harness::Site;

#[test]
fn an_ordinary_user_sees_what_would_have_been_harvested() {
    let site = Site::bare();
    let busy = site.main_job(600, &["--nodes=4"]);
    site.until("the main job to start", 30.0, || site.started_at(busy).is_some());
    let words = ["infill", "observe", "-p", "main", "--every", "1", "--for", "15", "--json"];
    let said = site.must("bob", &words);
    let report: Value = serde_json::from_str(said.trim()).expect("one report");
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key}: {report}"));
    let nodes = number("nodes");
    let idle_share = number("idle_node_hours") * 3600.0 / number("observed_secs") / nodes;
    assert!((idle_share - (nodes - 4.0) / nodes).abs() < 0.15, "{report}");
    assert!(number("held_node_hours") > 0.5 * number("idle_node_hours"), "{report}");
    assert_eq!(number("late_main_jobs"), 0.0);
    // It was a process of its own, which has ended.
    let left = site
        .processes()
        .into_iter()
        .filter(|p| p.args.iter().any(|arg| arg.contains("infill-observe")))
        .count();
    assert_eq!(left, 0, "its slurmrestd is still there");
    let text = site.must("bob", &["infill", "observe", "--every", "1", "--for", "5"]);
    assert!(text.contains("would have preempted a shadow job"), "{text}");
    let refused = site.exec("bob", &["infill", "observe", "--slurmrestd", "/no/such/program"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("name a running one with --rest"),
        "{refused:?}"
    );
    assert!(site.queue().iter().all(|job| job.id == busy.id), "something was submitted");
}
