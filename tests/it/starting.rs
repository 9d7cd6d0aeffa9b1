//! Leads that Slurm does not start. Where backfill starts nothing before a planned start, infill sends no
//! lead. A lead that backfill leaves in the queue is called back.

use std::time::Duration;

use crate::harness::{
    Site, Slurm, Train,
    jobs::{PROMPTLY_SECS, clock},
};

/// Seconds of a minute within which the first main job starts. Backfill then rounds by a large part of a
/// minute.
const ROUNDED_SECS: std::ops::RangeInclusive<f64> = 20.0..=45.0;

/// Slurm's shortest time limit, seconds.
const MINUTE_SECS: f64 = 60.0;

/// Seconds before a planned start at which nodes are left: the configured time of the tests' daemon, and a
/// round.
const LEAVE_SECS: f64 = 6.0;

/// Waits for the part of a minute in which backfill rounds planned starts by a large amount.
fn until_much_is_rounded() {
    let second = clock() % MINUTE_SECS;
    let next = ROUNDED_SECS.start() - second + if second > *ROUNDED_SECS.end() { MINUTE_SECS } else { 0.0 };
    std::thread::sleep(Duration::from_secs_f64(next.max(0.0)));
}

/// Whether the lead was released and waits for Slurm.
fn waits_for_slurm(site: &Site, job: u32) -> bool {
    site.queued(job).is_some_and(|j| j.state == "PENDING" && !j.reason.contains("Held"))
}

#[test]
fn no_lead_is_sent_where_backfill_starts_nothing_any_more() {
    let site = Site::on(&Slurm::default().nodes(2), |settings| settings);
    until_much_is_rounded();
    let first = site.main_job(115, &["--nodelist=n1", "--time=2"]);
    site.starts_within(first, PROMPTLY_SECS);
    let second = site.main_job(5, &["--nodes=2", "--time=1"]);
    // The second job is planned for the end of the first one's limit, in whole seconds. Backfill keeps the
    // other node for it from the previous whole minute on.
    let planned = site.started_at(first).expect("it runs").floor() + 2.0 * MINUTE_SECS;
    let kept_from = planned - planned % MINUTE_SECS;
    assert!(planned - kept_from > 2.0 * LEAVE_SECS, "too little is rounded to show anything");
    site.until("backfill to start nothing there any more", 90.0, || clock() > kept_from - MINUTE_SECS + 1.0);
    let is_planned = || {
        let shown = site.status().map(|s| s.nodes).unwrap_or_default();
        shown
            .iter()
            .any(|n| n.wanted_by.is_some() || n.why.as_ref().is_some_and(|w| w.contains("is planned")))
    };
    site.until("the daemon to see what backfill plans", 20.0, is_planned);
    // The window alone would be long enough.
    let long_until = planned - LEAVE_SECS - MINUTE_SECS;
    let job = Train::on("1").submit(&site);
    let mut looks = 0;
    while clock() < long_until {
        assert!(!waits_for_slurm(&site, job), "{:?}\n{:?}", site.queued(job), site.status());
        looks += 1;
    }
    assert!(looks > 0, "there was no time left to look");
    let said = site.status().expect("a status").nodes.into_iter().filter_map(|n| n.why);
    let said: Vec<String> = said.collect();
    assert!(said.iter().any(|why| why.contains("that are worth starting in")), "{said:?}");
    site.wait("the second main job to start", 120.0, || site.started_at(second));
    site.until_trains_on(job, 1, 60.0);
    site.completes(job);
}

#[test]
fn a_lead_that_backfill_leaves_in_the_queue_is_called_back() {
    let site = Site::acting();
    // Backfill has something to plan, far from the lead's nodes.
    let first = site.main_job(600, &["--nodelist=n1", "--time=30"]);
    site.starts_within(first, PROMPTLY_SECS);
    let second = site.main_job(1, &["--nodelist=n1", "--time=30"]);
    // infill sees no reason why the lead would not start.
    site.must("root", &["scontrol", "update", "PartitionName=infill", "State=DOWN"]);
    let job = Train::on("1").submit(&site);
    site.until("the lead to be called back", 40.0, || {
        !site.logged(&["called the lead back from", "which is idle"]).is_empty()
    });
    assert!(site.logged(&["the lead did not start on"]).is_empty(), "it was waited for");
    site.until("the lead to be held", 20.0, || !waits_for_slurm(&site, job));
    site.must("root", &["scontrol", "update", "PartitionName=infill", "State=UP"]);
    site.must("root", &["scancel", &first.id.to_string(), &second.id.to_string()]);
    site.until_trains_on(job, 1, 60.0);
    site.completes(job);
}
