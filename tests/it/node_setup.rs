//! `infill run --on-node CMD`, which prepares each node.

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Train};

impl Site {
    /// The nodes that were prepared for a job, sorted; a node may be there several times.
    fn prepared(&self, job: u32) -> Vec<String> {
        let text =
            std::fs::read_to_string(self.scratch().join(format!("{job}/prepared"))).unwrap_or_default();
        let mut nodes: Vec<String> = text.lines().map(str::to_owned).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Waits until `infill explain` knows why the job has no more nodes.
    fn until_short_because(&self, job: u32, why: &str) {
        self.until(&format!("the job to be short: {why}"), 40.0, || {
            self.view(job).and_then(|view| view.shortage).is_some_and(|shortage| shortage.contains(why))
        });
    }

    /// What a job has printed.
    pub fn printed(&self, job: u32) -> String {
        std::fs::read_to_string(self.scratch().join(format!("{job}.out"))).unwrap_or_default()
    }
}

#[test]
fn each_node_is_prepared_once_before_the_command_runs_there() {
    let site = Site::acting();
    let flags = "--grace 10 --on-node 'sleep 1; echo $SLURMD_NODENAME >>/scratch/$INFILL_JOB_ID/prepared'";
    let job = Train::on("1-4").run(flags).submit(&site);
    let mut nodes: Vec<String> =
        site.until_trains_on(job, 4, 40.0).nodes.iter().map(|node| node.to_string()).collect();
    nodes.sort_unstable();
    assert_eq!(site.prepared(job), nodes);
    let main = site.main_job(600, &["--nodes=6"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains_on(job, 2, 40.0);
    assert_eq!(site.prepared(job).len(), 4, "a change of size prepares no node again");
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(job, 4, 40.0);
    assert_eq!(site.prepared(job).len(), 6, "nodes that come are prepared: {:?}", site.prepared(job));
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0));
    site.completes(job);
}

#[test]
fn nodes_that_cannot_be_prepared_are_given_back_and_cost_the_others_nothing() {
    let site = Site::acting();
    let only_on_the_lead = r#"[ "$SLURM_JOB_ID" = "$INFILL_JOB_ID" ] || "#;
    let fails = format!("--grace 10 --on-node '{only_on_the_lead} exit 3'");
    let hangs = format!("--grace 10 --on-node '{only_on_the_lead} sleep 1000' --on-node-secs 2");
    let first = Train::on("1-4").run(&fails).submit(&site);
    let second = Train::on("1-4").run(&hangs).submit(&site);
    site.until_short_because(first, "the command of --on-node failed with code 3");
    site.until_short_because(second, "the command of --on-node did not end within 2 s");
    for job in [first, second] {
        site.until_trains(job, 5, 30.0);
        let diary = site.diary(job);
        assert!(diary.worlds().iter().all(|world| *world == 1), "{:?}", diary.worlds());
        assert!(diary.lost().iter().all(|lost| *lost == 0), "{:?}", diary.lost());
        assert!(site.printed(job).contains("--on-node"), "{}", site.printed(job));
        site.completes(job);
    }
}

#[test]
fn a_main_job_does_not_wait_for_a_node_that_is_being_prepared() {
    let site = Site::acting();
    let hangs = r#"--grace 10 --on-node '[ "$SLURM_JOB_ID" = "$INFILL_JOB_ID" ] || sleep 1000'"#;
    let job = Train::on("1-8").run(hangs).submit(&site);
    site.until("wings to prepare their nodes", 30.0, || site.nodes_of(job).len() == 8);
    // A wing that has just started leaves because it is in the way. These have started long ago.
    site.rounds_go_by(6);
    let main = site.main_job(5, &["--nodes=8"]);
    site.starts_within(main, PROMPTLY_SECS);
    site.must("alice", &["scancel", &job.to_string()]);
}

#[test]
fn a_job_whose_first_node_cannot_be_prepared_says_so_and_fails() {
    let site = Site::acting();
    let job = Train::on("1-4").run("--max-restarts 1 --on-node 'exit 3'").submit(&site);
    assert_eq!(site.end_of(job, 60.0), "FAILED 3:0");
    assert!(
        site.printed(job).contains("the command of --on-node failed with code 3"),
        "{}",
        site.printed(job)
    );
}
