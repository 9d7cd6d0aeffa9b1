//! What `squeue` shows of malleable jobs.

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Settings, Site, Train};

impl Site {
    /// A job's comment, as its owner sees it with `squeue`.
    fn comment(&self, job: u32) -> String {
        self.must("alice", &["squeue", "-h", "-j", &job.to_string(), "-o", "%k"]).trim().to_owned()
    }
}

#[test]
fn squeue_shows_why_a_job_waits_and_keeps_its_owners_comment() {
    let site = Site::bare();
    site.configure(&Settings::quick(site.port()).set("daemon.comment_secs", 1.0));
    site.start();
    let main = site.main_job(600, &["--nodes=8"]);
    site.starts_within(main, PROMPTLY_SECS);
    let plain = Train::on("1-4").submit(&site);
    let asking = Train::on("1-4").option("--comment=infill:nodes=1,2").submit(&site);
    let own = Train::on("1-4").option("--comment=for the paper").submit(&site);
    site.until("squeue to show why the jobs wait", 20.0, || {
        site.comment(plain).starts_with("[infill] waits: needs at least 1 node; 0 are free")
            && site.comment(asking).starts_with("infill:nodes=1,2 [infill] waits")
    });
    assert_eq!(site.comment(own), "for the paper");
    for job in [plain, asking, own] {
        assert_eq!(site.queued(job).map(|j| j.reason), Some("JobHeldUser".to_owned()));
    }
    // Only the request counts: the job may have one node or two.
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(asking, 2, 60.0);
    site.until("squeue to show that the jobs train", 20.0, || {
        site.comment(plain).starts_with("[infill] trains on ")
            && site.comment(asking) == "infill:nodes=1,2 [infill] trains on 2 nodes of 1,2"
    });
    assert_eq!(site.comment(own), "for the paper");
    [plain, asking, own].into_iter().for_each(|job| site.completes(job));
}

#[test]
fn comments_can_be_turned_off() {
    let site = Site::bare();
    site.configure(&Settings::quick(site.port()).set("daemon.comment_secs", 0.0));
    site.start();
    let main = site.main_job(600, &["--nodes=8"]);
    site.starts_within(main, PROMPTLY_SECS);
    let job = Train::on("1-4").submit(&site);
    site.until("infill to know why the job waits", 20.0, || {
        site.view(job).is_some_and(|view| view.why.starts_with("waits"))
    });
    site.rounds_go_by(3);
    assert_eq!(site.comment(job), "(null)");
    site.must("root", &["scancel", &main.id.to_string(), &job.to_string()]);
}
