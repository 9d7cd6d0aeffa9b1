//! The effect of an infill upgrade on running jobs: none.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{Postgres, Settings, Site, Train};

/// For a script that runs a copy of the program, which a test can replace.
const OWN_COPY: &str = "export PATH=/scratch/bin:$PATH";

/// Puts the program where such scripts look for it. As in packages, the new file takes the old one's name.
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
    // All nodes of the wings are taken, so the command starts again on the job's own two nodes.
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

#[test]
fn a_configuration_that_cannot_be_read_holds_jobs_and_fails_none() {
    let site = Site::acting();
    let settings = Settings::quick(site.port());
    let spoil = |how: &str| site.must("root", &["sh", "-c", &format!("cd /etc/infill && {how}")]);
    let said = |job: u32, what: &str| {
        let text = std::fs::read_to_string(site.scratch().join(format!("{job}.out"))).unwrap_or_default();
        text.contains(what) && text.contains("this job waits in the queue until that is fixed on the node")
    };
    for (how, what) in [("chmod 600 infill.toml", "cannot read"), ("echo '[agent' >infill.toml", "line 1")] {
        spoil(how);
        let job = Train::on("1-3").submit(&site);
        site.until("its output to say why it waits", 60.0, || said(job, what));
        site.until("it to wait in the queue", 30.0, || site.field(job, "JobState") == "PENDING");
        assert_eq!(site.diary(job).worlds(), Vec::<u32>::new(), "{how}: it has not begun");
        // A job of the main queue trains without infill.
        let extended = Train::on("2").in_main_queue().option("--time=30").run("--grace 10 --extend 1-4");
        let main = extended.submit(&site);
        site.until("the main job to train on its own", 60.0, || site.diary(main).last_step() > 20);
        assert_eq!(site.diary(main).worlds(), [2], "{how}");
        site.finish(main);
        assert_eq!(site.end_of(main, 30.0), "COMPLETED 0:0", "{how}");
        spoil("chmod 644 infill.toml");
        site.configure(&settings);
        site.until_trains_on(job, 3, 90.0);
        let failures = site.status().map(|s| s.nodes.iter().map(|n| n.failures.len()).sum::<usize>());
        assert_eq!(failures, Some(0), "{how}: no node is blamed");
        site.completes(job);
    }
}

#[test]
fn a_daemon_starts_with_a_key_that_is_gone_and_says_so() {
    let site = Site::with(|settings| settings.set("daemon.early_death_secs", 60.0));
    let warnings = site.logged(&["daemon.early_death_secs was removed in version 0.1.0"]);
    assert_eq!(warnings.len(), 1, "{}", site.log());
    let checked = site.must("infill", &["infill", "config", "check"]);
    assert!(checked.contains("warning: daemon.early_death_secs was removed"), "{checked}");
    assert!(checked.contains("/etc/infill/infill.toml: ok"), "{checked}");
    // A key that never existed is refused as always.
    site.configure(&Settings::quick(site.port()).set("daemon.early_deaths_secs", 60.0));
    assert_eq!(site.exec("infill", &["infill", "config", "check"]).status.code(), Some(6));
}

#[test]
fn secrets_in_files_that_others_may_read_keep_the_daemon_from_starting() {
    let site = Site::bare();
    let file = "/var/lib/infill/hook";
    site.configure(&Settings::quick(site.port()).set("notify.url_file", file));
    let write = |mode: &str| {
        let script = format!("echo http://127.0.0.1:9/hunter2 >{file} && chmod {mode} {file}");
        site.must("infill", &["sh", "-c", &script]);
    };
    write("644");
    let refused = site.exec("infill", &["infill", "serve"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(6), "{said}");
    assert!(said.contains("notify.url_file") && said.contains("others may read"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    assert_eq!(site.exec("infill", &["infill", "config", "check"]).status.code(), Some(6));
    write("600");
    site.must("infill", &["infill", "config", "check"]);
    site.start();
    // Agents that must not read the file report that, and nothing is wrong.
    let checked = site.must("alice", &["infill", "config", "check"]);
    assert!(checked.contains("not checked: notify.url_file: cannot read"), "{checked}");
    assert!(!site.log().contains("hunter2"));
}

/// The guide whose commands are run here.
const GUIDE: &str = include_str!("../../docs/upgrading.md");

/// The one command of the guide that begins like this.
#[track_caller]
fn command(begin: &str) -> &'static str {
    let mut found =
        GUIDE.lines().filter_map(|line| line.strip_prefix("    ")).filter(|l| l.starts_with(begin));
    let command = found.next().unwrap_or_else(|| panic!("the guide has no command {begin}"));
    assert_eq!(found.next(), None, "the guide has several commands {begin}");
    command
}

#[test]
fn a_backup_of_a_database_in_use_is_whole_and_takes_its_place() {
    let site = Site::acting();
    let job = Train::on("1-2").run("--profile bert").submit(&site);
    site.until_trains_on(job, 2, 40.0);
    let known =
        |site: &Site| site.run("root", &["infill", "profiles", "list", "--noheader"]).contains("bert");
    site.until("a profile", 60.0, || known(&site));
    site.must("infill", &["sh", "-c", command("sqlite3 ")]);
    let check = ["sqlite3", "/var/lib/infill/backup.db", "PRAGMA integrity_check"];
    assert_eq!(site.must("infill", &check).trim(), "ok");
    assert!(site.status().is_some(), "the daemon runs on");
    site.kill_daemon();
    // As after a lost disk: the backup is all that is left.
    site.must("root", &["sh", "-c", "rm /var/lib/infill/infill.db*"]);
    site.must("root", &["sh", "-c", command("install ")]);
    site.must("root", &["sh", "-c", command("rm -f ")]);
    site.start();
    assert!(known(&site), "what was learned is there again");
    site.until_trains_on(job, 2, 40.0);
    assert!(site.diary(job).lost().iter().all(|lost| *lost == 0), "{:?}", site.diary(job).lost());
    site.completes(job);
}

#[test]
fn a_dump_of_postgres_restores_a_store() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let server = Postgres::start(&dir.path().join("pg"));
    let url = server.url(&dir.path().join("pg").to_string_lossy());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = runtime.block_on(infill_store::open_store(&url, || ())).expect("a store");
    runtime.block_on(store.put_setting("control", "paused")).expect("a setting");
    let restore = GUIDE.split('`').find(|span| span.starts_with("pg_restore ")).expect("a command");
    let run = |command: &str| {
        let words = command.replace("postgres://infill@db/infill", &url);
        let mut words = words.split_whitespace();
        let mut program = std::process::Command::new(words.next().expect("a program"));
        let output = program.args(words).current_dir(dir.path()).output().expect("PostgreSQL's programs");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(command("pg_dump "));
    runtime.block_on(store.put_setting("control", "draining")).expect("a setting");
    drop(store);
    run(restore);
    let store = runtime.block_on(infill_store::open_store(&url, || ())).expect("a store");
    let setting = runtime.block_on(store.get_setting("control")).expect("a setting");
    assert_eq!(setting.as_deref(), Some("paused"));
}
