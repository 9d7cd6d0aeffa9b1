//! A daemon that hangs or cannot be reached: training goes on.

use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Site, Train};

#[test]
fn a_daemon_that_hangs_for_a_minute_disturbs_no_job() {
    let site = Site::acting();
    let job = Train::on("1-6").submit(&site);
    let before = site.until_trains_on(job, 6, 30.0);
    let other = Train::on("2").user("bob").submit(&site);
    site.until("the other job to train", 40.0, || site.diary(other).last_step() > 0);
    let generation = site.view(other).expect("the other job").generation;
    let starts = |job| site.diary(job).all("start").len();
    let ours = starts(job);
    let others = starts(other);
    site.freeze_daemon();
    sleep(Duration::from_secs(65));
    site.thaw_daemon();
    site.rounds_go_by(4);
    let after = site.until_trains_on(job, 6, 10.0);
    assert_eq!(after.generation, before.generation, "the job was disturbed");
    assert_eq!(site.view(other).expect("the other job").generation, generation);
    assert_eq!((starts(job), starts(other)), (ours, others));
    assert_eq!(site.logged(&["WARN", "heard nothing for"]).len(), 1);
    site.completes(other);
    site.completes(job);
}
