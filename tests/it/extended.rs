//! Jobs of the main queue that wings extend. They keep their own nodes, whatever happens to infill.

use crate::harness::{Site, Slurm, Train};

/// A job of two nodes of the main queue that may have up to four more.
fn extended() -> Train {
    Train::on("2").in_main_queue().option("--time=30").run("--grace 10 --extend 1-4")
}

/// Fields of a main job that only its owner may change.
fn untouched(site: &Site, job: u32) -> Vec<String> {
    let fields = ["Partition", "TimeLimit", "StartTime", "Restarts", "NodeList", "Priority"];
    fields.map(|key| site.field(job, key)).to_vec()
}

#[test]
fn a_main_job_grows_onto_idle_nodes_and_gives_them_back() {
    let site = Site::acting();
    let job = extended().submit(&site);
    site.until_trains_on(job, 6, 60.0);
    let before = untouched(&site, job);
    // Two nodes are idle, so the job has two wings besides its own nodes.
    let main = site.main_job(15, &["-N4"]);
    site.starts_within(main, 4.0);
    site.until_trains_on(job, 4, 30.0);
    assert_eq!(site.end_of(main.id, 40.0), "COMPLETED 0:0");
    site.until_trains_on(job, 6, 60.0);
    let diary = site.diary(job);
    assert_eq!(diary.lost().iter().max(), Some(&0), "{:?}", diary.lost());
    assert!(diary.worlds().iter().all(|world| *world >= 2), "less than its own: {:?}", diary.worlds());
    diary.assert_no_overlap();
    assert_eq!(untouched(&site, job), before);
    // Draining takes only what belongs to infill.
    site.must("infill", &["infill", "drain"]);
    site.until_trains_on(job, 2, 30.0);
    site.completes(job);
    assert_eq!(untouched(&site, job)[..4], before[..4]);
    site.until_nothing_leaks(10.0);
}

#[test]
fn a_main_job_trains_on_its_own_nodes_without_a_daemon() {
    let site = Site::acting();
    site.kill_daemon();
    let job = extended().submit(&site);
    site.until("it to train on its own", 40.0, || site.diary(job).last_step() > 20);
    assert_eq!(site.diary(job).worlds(), [2]);
    // The daemon is back, and dies again once it has grown.
    site.start();
    site.until_trains_on(job, 6, 60.0);
    let reached = site.diary(job).last_step();
    assert!(reached > 20, "what it did alone is lost");
    site.kill_daemon();
    site.until_trains(job, 30, 10.0);
    // Its command dies, and only its own agent is there to start it again.
    let first = site.field(job, "BatchHost");
    site.processes()
        .iter()
        .filter(|p| p.runs("trainee.py") && p.node() == Some(&first))
        .for_each(|p| p.kill());
    site.until("it to train on its own again", 60.0, || site.diary(job).worlds().last() == Some(&2));
    site.until_trains(job, 20, 20.0);
    assert!(site.diary(job).last_step() > reached);
    site.start();
    site.until_trains_on(job, 6, 60.0);
    site.completes(job);
}

#[test]
fn its_wings_train_on_where_the_store_was_lost() {
    let site = Site::acting();
    let job = extended().submit(&site);
    let before = site.until_trains_on(job, 6, 60.0);
    let parts: Vec<u32> = site.parts(job).iter().map(|j| j.id).collect();
    assert_eq!(site.stop_daemon(), Some(0));
    site.must("infill", &["sh", "-c", "rm /var/lib/infill/infill.db*"]);
    site.start();
    let after = site.until_trains_on(job, 6, 40.0);
    assert_eq!(after.nodes, before.nodes);
    assert_eq!(site.parts(job).iter().map(|j| j.id).collect::<Vec<_>>(), parts, "the same Slurm jobs");
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
    // A new store gives new orders: it can still grow.
    let main = site.main_job(5, &["--nodes=6"]);
    site.starts_within(main, 4.0);
    site.until_trains_on(job, 6, 60.0);
    site.completes(job);
}

/// A job with two GPUs of one node of the main queue, which may have up to five further workers.
fn extended_on_gpus() -> Train {
    Train::on("1")
        .in_main_queue()
        .option("--time=30")
        .option("--gpus-per-node=2")
        .option("--cpus-per-gpu=4")
        .option("--mem=8000")
        .run("--grace 10 --extend 1-5")
}

#[test]
fn a_main_job_with_gpus_of_a_node_grows_onto_lent_ones_and_gives_them_back() {
    let slurm = Slurm::default().nodes(3).set("Epilog=/bin/true").lends_gpus().kept();
    let site = Site::on(&slurm, |s| s.set("gaps.lend", "gpus"));
    let job = extended_on_gpus().submit(&site);
    let view = site.until_trains_on(job, 6, 60.0);
    assert!(view.nodes.iter().all(|n| n.as_str().contains('+')), "two GPUs each: {view:?}");
    let before = untouched(&site, job);
    // All GPUs are lent, and a main job takes two GPUs of another node.
    let host = site.field(job, "BatchHost");
    let other = site.nodes_of(job).into_iter().find(|node| *node != host).expect("a wing elsewhere");
    let options = ["-N1", "-w", &other, "--gpus-per-node=2", "--cpus-per-gpu=4", "--mem=8000"];
    let main = site.main_job(15, &options);
    site.starts_within(main, 4.0);
    site.until_trains_on(job, 5, 30.0);
    assert_eq!(site.end_of(main.id, 40.0), "COMPLETED 0:0");
    site.until_trains_on(job, 6, 60.0);
    // A daemon that comes back knows which places the job has itself.
    let before_its_death = site.view(job).expect("the job");
    site.kill_daemon();
    site.start();
    site.rounds_go_by(3);
    let after = site.view(job).expect("the job");
    assert_eq!(after.generation, before_its_death.generation, "it trains on");
    assert_eq!(after.nodes, before_its_death.nodes);
    let diary = site.diary(job);
    assert_eq!(diary.lost().iter().max(), Some(&0), "{:?}", diary.lost());
    diary.assert_no_overlap();
    assert_eq!(untouched(&site, job), before);
    site.must("infill", &["infill", "drain"]);
    let view = site.until_trains_on(job, 1, 30.0);
    assert!(view.nodes[0].host().as_str() == host && after.nodes.contains(&view.nodes[0]), "{view:?}");
    site.completes(job);
    assert_eq!(untouched(&site, job)[..4], before[..4]);
    // A job without GPUs gets an error, and trains on its own nodes.
    let without =
        Train::on("1").in_main_queue().option("--mem=1000").run("--grace 10 --extend 1-5").submit(&site);
    site.until("it to train on its own", 40.0, || site.diary(without).last_step() > 20);
    let refusals = site.logged(&["cannot be extended", &format!("job {without} has"), "and no GPU"]);
    assert!(!refusals.is_empty(), "{}", site.log());
    site.completes(without);
    site.until_nothing_leaks(10.0);
}
