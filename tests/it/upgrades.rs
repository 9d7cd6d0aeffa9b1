//! What an upgrade of infill does to jobs that run: nothing.

use crate::harness::{Site, Train};

/// For a script that runs a copy of the program, which a test can replace.
const OWN_COPY: &str = "export PATH=/scratch/bin:$PATH";

/// Puts the program where such scripts look for it, as packages do: the new file takes the old one's name.
fn install(site: &Site) {
    let script = "mkdir -p /scratch/bin && cp /usr/local/bin/infill /scratch/bin/new && \
                  mv /scratch/bin/new /scratch/bin/infill";
    site.must("alice", &["sh", "-c", script]);
}

/// Whether a process still runs the file that was replaced.
fn runs_the_old_file(site: &Site) -> bool {
    let links = site.run("root", &["sh", "-c", "readlink /proc/[0-9]*/exe"]);
    links.lines().any(|link| link == "/scratch/bin/infill (deleted)")
}

#[test]
fn a_job_whose_program_was_replaced_goes_on_growing() {
    let site = Site::acting();
    install(&site);
    let main = site.main_job(25, &["--nodes=6"]);
    site.starts_within(main, 10.0);
    let job = Train::on("1-8").before(OWN_COPY).submit(&site);
    site.until_trains_on(job, 2, 40.0);
    install(&site);
    assert!(runs_the_old_file(&site), "the lead's agent has to be older than the file");
    site.until_trains_on(job, 8, 60.0);
    assert_eq!(site.logged(&["did not come up"]), Vec::<String>::new());
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
    site.completes(job);
    site.until_nothing_leaks(10.0);
}

#[test]
fn a_main_job_whose_program_was_replaced_trains_on_on_its_own_nodes() {
    let site = Site::acting();
    install(&site);
    let extended = Train::on("2").in_main_queue().option("--time=30").run("--grace 10 --extend 1-4");
    let job = extended.before(OWN_COPY).submit(&site);
    site.until_trains_on(job, 6, 60.0);
    install(&site);
    assert!(runs_the_old_file(&site), "the lead's agent has to be older than the file");
    // All that wings hold is taken, so that the command starts anew on the job's own two nodes.
    let main = site.main_job(15, &["--nodes=6"]);
    site.starts_within(main, 10.0);
    site.until_trains_on(job, 2, 30.0);
    site.until_trains_on(job, 6, 60.0);
    assert_eq!(site.field(job, "JobState"), "RUNNING");
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
    site.completes(job);
}

#[test]
fn a_configuration_that_only_a_newer_daemon_takes_fails_no_job() {
    let site = Site::acting();
    let newer = "printf '[future]\\nkey = 1\\n' >>/etc/infill/infill.toml";
    site.must("root", &["sh", "-c", newer]);
    assert_eq!(
        site.exec("infill", &["infill", "config", "check"]).status.code(),
        Some(6),
        "this daemon refuses it"
    );
    let job = Train::on("1-3").submit(&site);
    site.until_trains_on(job, 3, 40.0);
    site.must("alice", &["infill", "jobs"]);
    site.completes(job);
}
