//! A borrowed cluster with its daemon. It is restored and returned when the test is over.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::Ordering;
use std::time::Instant;

use infill_api::{DaemonStatus, JobView, RoundView, routes};
use infill_model::{UnixTime, hello_payload};

use super::cluster::{self, Cluster};
use super::daemon::{self, Daemon, Settings};
use super::jobs::{clock, logged_at};
use super::postgres::Postgres;
use super::processes::{self, Process};
use super::record::{self, ClusterUse};
use super::slurm::Slurm;
use super::{http, wait};

/// Seconds until a cluster must be clean again after a test.
const RESTORE_SECS: f64 = 40.0;

/// Longest wait until slurmctld has saved its jobs and leaves them alone for a moment, seconds.
const SAVE_SECS: f64 = 60.0;

/// Longest that slurmctld takes to write its jobs' state once it has read it, seconds.
const SAVING_SECS: f64 = 0.05;

/// Seconds after which slurmctld has saved a change of a job. It saves every 5 s.
const SAVE_INTERVAL_SECS: f64 = 7.0;

/// Number of lines of each log that a failed test shows.
const TAIL_LINES: usize = 60;

/// Number of rounds that a failed test shows at most.
const MOST_ROUNDS: usize = 8;

/// A cluster on loan, with its daemons.
#[derive(Debug)]
pub struct Site {
    /// Present until the site is dropped.
    cluster: Option<Cluster>,
    daemon: RefCell<Daemon>,
    /// Daemons of the cluster that do not continue by themselves.
    stalled: RefCell<BTreeSet<String>>,
    /// Relays that other tests do not know.
    relays: RefCell<BTreeSet<String>>,
    /// When the test got its cluster.
    since: Instant,
}

/// A relay for messages from agents to the daemon, while it is not stalled.
#[derive(Clone, Debug)]
pub struct Relay {
    /// The port at which it listens.
    pub port: u16,
    /// Its name for `Site::stall`, `resume`, `kill` and `revive`.
    pub name: String,
}

impl Site {
    /// Borrows a cluster without a running daemon.
    pub fn bare() -> Site {
        Site::bare_on(&Slurm::default())
    }

    /// A cluster with its own settings and without a running daemon. It ends with the test unless
    /// `Slurm::kept`.
    pub fn bare_on(slurm: &Slurm) -> Site {
        let cluster = cluster::lease(slurm);
        let daemon = RefCell::new(Daemon::of(&cluster));
        Site {
            cluster: Some(cluster),
            daemon,
            stalled: RefCell::default(),
            relays: RefCell::default(),
            since: Instant::now(),
        }
    }

    /// A cluster with its own settings, and a daemon with changed settings.
    pub fn on(slurm: &Slurm, change: impl FnOnce(Settings) -> Settings) -> Site {
        Site::bare_on(slurm).serving(change)
    }

    /// Borrows a cluster and starts a daemon that acts.
    pub fn acting() -> Site {
        Site::with(|settings| settings)
    }

    /// Borrows a cluster and starts a daemon with changed settings.
    pub fn with(change: impl FnOnce(Settings) -> Settings) -> Site {
        Site::bare().serving(change)
    }

    fn serving(self, change: impl FnOnce(Settings) -> Settings) -> Site {
        self.configure(&change(Settings::quick(self.port())));
        self.start();
        self
    }

    /// Writes the configuration that the daemon, the agents and the command line read.
    pub fn configure(&self, settings: &Settings) {
        let path = self.cluster().dir.join("etc/infill.toml");
        std::fs::write(path, settings.text()).expect("cannot write the configuration");
    }

    /// The port on which a daemon must listen.
    pub fn port(&self) -> u16 {
        self.cluster().port
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("a site has a cluster until it is dropped")
    }

    /// The cluster's /scratch, on this machine.
    pub fn scratch(&self) -> PathBuf {
        self.cluster().dir.join("scratch")
    }

    /// Starts the daemon, also once more.
    pub fn start(&self) {
        self.daemon.borrow_mut().start(self.cluster());
    }

    /// Binds the daemon's port as systemd would, for all daemons that are started from now on.
    pub fn bind_port(&self) {
        self.daemon.borrow_mut().bind();
    }

    /// Starts a daemon that speaks TLS. The test's client does not, so this waits for nothing.
    pub fn start_in_tls(&self) {
        self.daemon.borrow_mut().spawn(self.cluster());
    }

    /// Starts a daemon that ends by itself. Returns its log.
    pub fn refuses_to_start(&self) -> String {
        self.daemon.borrow_mut().refuses_to_start(self.cluster())
    }

    /// Swaps the site's daemon with `other`: from now on the site asks `other`.
    pub fn swap_daemon(&self, other: &mut Daemon) {
        std::mem::swap(&mut *self.daemon.borrow_mut(), other);
    }

    /// Starts a PostgreSQL server that the cluster sees too. Also returns the URL of its database in the
    /// cluster.
    pub fn postgres(&self) -> (Postgres, String) {
        let server = Postgres::start(&self.cluster().dir.join("run/pg"));
        let url = server.url("/run/infill/pg");
        (server, url)
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill_daemon(&self) {
        self.daemon.borrow_mut().kill();
    }

    /// Sends the daemon SIGSTOP.
    pub fn freeze_daemon(&self) {
        self.daemon.borrow().freeze();
    }

    /// Sends the daemon SIGCONT.
    pub fn thaw_daemon(&self) {
        self.daemon.borrow().thaw();
    }

    /// The daemon's process id on this machine, while it runs.
    pub fn daemon_pid(&self) -> Option<i32> {
        self.daemon.borrow().pid()
    }

    /// Daemons that are started from now on have a clock that can be changed: see
    /// [`SiteMeasurements::step_clock`].
    pub fn steps_clock(&self) {
        let source = cluster::repository().join("tests/it/harness/clock.c");
        let library = self.cluster().dir.join(daemon::CLOCK);
        let mut cc = std::process::Command::new("cc");
        let built =
            cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
        assert!(built.is_ok_and(|s| s.success()), "cc cannot build {}", source.display());
    }

    /// Shifts the daemon's clock by this many seconds.
    pub fn step_clock(&self, secs: i64) {
        let path = self.cluster().dir.join("etc/clock");
        let new = path.with_extension("new");
        std::fs::write(&new, secs.to_string()).expect("cannot write the clock's error");
        std::fs::rename(&new, &path).expect("cannot write the clock's error");
    }

    /// The value of one of the daemon's metrics.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.daemon.borrow().answer("/metrics").expect("the daemon shows its metrics").body;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("there is no metric {name}: {text}"))
    }

    /// Sends the daemon SIGTERM; returns its exit code.
    pub fn stop_daemon(&self) -> Option<i32> {
        self.daemon.borrow_mut().stop()
    }

    /// The daemon's log.
    pub fn log(&self) -> String {
        self.daemon.borrow().log()
    }

    /// The daemon's status.
    pub fn status(&self) -> Option<DaemonStatus> {
        self.daemon.borrow().status()
    }

    /// The daemon's last round.
    pub fn round(&self) -> Option<RoundView> {
        self.daemon.borrow().round()
    }

    /// The daemon's answer to this user, who proves their identity by MUNGE.
    pub fn read(&self, user: &str, path: &str) -> http::Answer {
        let payload = hello_payload("read", None, "n");
        let output = self.exec_with(user, &["munge"], &payload);
        assert!(output.status.success(), "munge: {output:?}");
        let proof = format!("Munge {}", String::from_utf8_lossy(&output.stdout).trim());
        let headers = [("Authorization", proof.as_str()), ("Infill-Nonce", "n")];
        http::send(self.port(), "GET", path, &headers, b"").expect("an answer")
    }

    /// A malleable job as the daemon shows it.
    pub fn view(&self, job: u32) -> Option<JobView> {
        self.status()?.jobs.into_iter().find(|j| j.job.0 == job)
    }

    /// Runs a command inside.
    pub fn exec(&self, user: &str, words: &[&str]) -> Output {
        self.exec_with(user, words, "")
    }

    /// Runs a command inside with this input.
    pub fn exec_with(&self, user: &str, words: &[&str], input: &str) -> Output {
        self.cluster().exec(user, words, input)
    }

    /// Runs a command inside; returns its output. Empty if it fails, because a test may be killing Slurm.
    pub fn run(&self, user: &str, words: &[&str]) -> String {
        String::from_utf8_lossy(&self.exec(user, words).stdout).into_owned()
    }

    /// Runs a command inside that must succeed; returns its output.
    pub fn must(&self, user: &str, words: &[&str]) -> String {
        let output = self.exec(user, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?} as {user}: {} {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The cluster's processes.
    pub fn processes(&self) -> Vec<Process> {
        processes::of_namespace(self.cluster().init_pid)
    }

    /// Runs `minicluster kill`, with its names of daemons.
    pub fn kill(&self, daemon: &str) {
        self.cluster().control(&["kill", daemon]);
    }

    /// Kills slurmctld with SIGKILL at a moment at which it has saved all changes of jobs. It would forget
    /// unsaved changes and assign the ids of jobs twice. Returns whether there was such a moment.
    pub fn kill_slurmctld(&self) -> bool {
        let mut changed_at = clock();
        let good = || {
            if !self.jobs_are_saved() {
                // A save in the same moment as the last change leaves open which of them was first.
                if clock() - changed_at > SAVE_INTERVAL_SECS {
                    self.change_a_job();
                    changed_at = clock();
                }
                return None;
            }
            self.stall("slurmctld");
            // Killed between two renames of its state, it could not start again.
            let good = self.state_is_whole() && self.jobs_are_saved();
            if !good {
                self.resume("slurmctld");
            }
            good.then_some(())
        };
        if wait::look(SAVE_SECS, good).is_none() {
            return false;
        }
        self.kill("slurmctld");
        self.stalled.borrow_mut().remove("slurmctld");
        true
    }

    /// Makes slurmctld save its jobs once more.
    fn change_a_job(&self) {
        let jobs = self.run("root", &["squeue", "--noheader", "--format=%A"]);
        if let Some(job) = jobs.split_whitespace().next() {
            let comment = format!("AdminComment=changed at {}", clock());
            self.must("root", &["scontrol", "update", &format!("JobId={job}"), &comment]);
        }
    }

    /// Whether slurmctld has saved its jobs since its log last mentioned one. It saves within 5 s of a
    /// change.
    fn jobs_are_saved(&self) -> bool {
        let saved = self.run("root", &["stat", "-c", "%.9Y", "/var/spool/minicluster/ctld/job_state"]);
        let log = std::fs::read(self.cluster().dir.join("log/slurmctld.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().rfind(|line| line.contains("JobId=")).and_then(logged_at);
        saved.trim().parse().is_ok_and(|saved: f64| last.is_none_or(|last| saved > last + SAVING_SECS))
    }

    /// Whether all files exist that slurmctld renames when it saves, and no renaming is under way.
    fn state_is_whole(&self) -> bool {
        let said = self.run("root", &["ls", "/var/spool/minicluster/ctld"]);
        let names: BTreeSet<&str> = said.lines().collect();
        names.contains("node_state")
            && names.iter().filter_map(|n| n.strip_suffix(".old")).all(|n| names.contains(n))
            && !names.iter().any(|n| n.ends_with(".new"))
    }

    /// Runs `minicluster start`.
    pub fn revive(&self, daemon: &str) {
        self.cluster().control(&["start", daemon]);
    }

    /// Runs `minicluster stall`: connections stay open, and nothing passes.
    pub fn stall(&self, daemon: &str) {
        self.stalled.borrow_mut().insert(daemon.to_owned());
        self.cluster().control(&["stall", daemon]);
    }

    /// Runs `minicluster resume`: ends a stall.
    pub fn resume(&self, daemon: &str) {
        self.cluster().control(&["resume", daemon]);
        self.stalled.borrow_mut().remove(daemon);
    }

    /// Starts a relay to the daemon's port. Agents use it if `agent.url` says so.
    pub fn relay(&self) -> Relay {
        let port = self.port() + 2;
        let name = format!("relay:{port}:{}", self.port());
        self.relays.borrow_mut().insert(name.clone());
        self.cluster().control(&["start", &name]);
        Relay { port, name }
    }

    /// Waits until `probe` finds something, at most `secs` on an idle machine.
    pub fn wait<T>(&self, what: &str, secs: f64, probe: impl FnMut() -> Option<T>) -> T {
        let secs = secs * wait::PATIENCE;
        wait::look(secs, probe).unwrap_or_else(|| panic!("waited {secs} s for {what}, in vain"))
    }

    /// Waits until `condition` holds.
    pub fn until(&self, what: &str, secs: f64, mut condition: impl FnMut() -> bool) {
        self.wait(what, secs, || condition().then_some(()));
    }

    /// Waits until `rounds` more rounds have ended.
    pub fn rounds_go_by(&self, rounds: usize) {
        let mut last = self.round().map(|r| r.plan.at);
        for _ in 0..rounds {
            last = self.wait("another round", 30.0, || {
                let at = self.round()?.plan.at;
                (Some(at) > last).then_some(Some(at))
            });
        }
    }

    /// Checks that no wing is without its lead, and that the daemon knows all of infill's nodes.
    pub fn until_nothing_leaks(&self, secs: f64) {
        self.until("Slurm's queue to hold nothing of infill's that the daemon does not know", secs, || {
            let Some(status) = self.status() else { return false };
            let known: Vec<u32> =
                status.jobs.iter().flat_map(|j| j.wings.iter().map(|w| w.0).chain([j.job.0])).collect();
            let ours: Vec<u32> =
                self.queue().into_iter().filter(|j| j.partition == "infill").map(|j| j.id).collect();
            ours.iter().all(|id| known.contains(id))
        });
    }

    /// Lines of the daemon's log that contain all of these words.
    pub fn logged(&self, words: &[&str]) -> Vec<String> {
        let log = self.log();
        log.lines().filter(|l| words.iter().all(|w| l.contains(w))).map(str::to_owned).collect()
    }

    /// The output of a failed test.
    fn explain(&self) {
        let tail = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        };
        eprintln!("---- {}", self.cluster().dir.display());
        eprintln!(
            "---- queue\n{}",
            self.run("root", &["squeue", "-a", "-o", "%.6i %.8u %.9P %.12j %.11T %.12N %r"])
        );
        eprintln!("---- nodes\n{}", self.run("root", &["sinfo", "-N", "-o", "%N %T %E"]));
        if let Some(status) = http::get(self.port(), "/v1/status") {
            eprintln!("---- status\n{}", status.body);
        }
        self.changed_rounds().iter().for_each(|round| eprintln!("---- round\n{round}"));
        eprintln!("---- daemon's log\n{}", tail(&self.log()));
        let slurmctld = std::fs::read(self.cluster().dir.join("log/slurmctld.log")).unwrap_or_default();
        eprintln!("---- slurmctld's log\n{}", tail(&String::from_utf8_lossy(&slurmctld)));
        for entry in std::fs::read_dir(self.scratch()).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|e| e == "out") {
                let text = std::fs::read(entry.path()).unwrap_or_default();
                eprintln!("---- {}\n{}", entry.path().display(), tail(&String::from_utf8_lossy(&text)));
            }
        }
    }

    /// The last rounds that changed something, whole, the newest first.
    fn changed_rounds(&self) -> Vec<String> {
        let path = format!("{}?limit=200", routes::ROUNDS);
        let answer = http::get(self.port(), &path).map(|a| a.body).unwrap_or_default();
        let Ok(list) = serde_json::from_str::<serde_json::Value>(&answer) else { return Vec::new() };
        let changed = list["rounds"].as_array().into_iter().flatten().filter(|r| r["changes"] != 0);
        changed
            .take(MOST_ROUNDS)
            .filter_map(|r| r["at"].as_i64())
            .filter_map(|at: i64| http::get(self.port(), &routes::round_path(UnixTime(at))))
            .map(|answer| answer.body)
            .collect()
    }

    /// Restores the cluster. Returns whether that worked.
    fn restore(&self) -> bool {
        let cluster = self.cluster();
        for daemon in self.stalled.take() {
            cluster.control(&["resume", &daemon]);
        }
        self.daemon.borrow_mut().kill();
        if !cluster.slurm.is_kept() {
            return false;
        }
        for relay in self.relays.take() {
            cluster.control(&["start", &relay]);
            cluster.control(&["kill", &relay]);
        }
        for daemon in cluster.dead_daemons() {
            cluster.control(&["start", &daemon]);
        }
        let clean = r"
            scontrol -o show reservation | sed -n 's/^ReservationName=\([^ ]*\).*/\1/p' |
                while read -r r; do scontrol delete reservation=$r; done
            squeue -h -a -o %A | xargs -r scancel --signal=KILL --full
            squeue -h -a -o %A | xargs -r scancel
            for node in $(sinfo -h -N -t drain,down,fail -o %N | sort -u); do scontrol update node=$node state=resume; done
            umount /var/lib/infill/* 2>/dev/null
            rm -rf /scratch/* /etc/infill/* /var/lib/infill/*
            [ $(sinfo -h -N -p main -t idle -o %N | sort -u | wc -l) = $0 ] && [ -z $(squeue -h -a -o %A | head -1) ]";
        let nodes = cluster.slurm.node_count().to_string();
        wait::look(RESTORE_SECS, || {
            self.exec("root", &["bash", "-c", clean, &nodes]).status.success().then_some(())
        })
        .is_some()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.explain();
        }
        let begun = Instant::now();
        let restored =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.restore())).unwrap_or(false);
        let Some(cluster) = self.cluster.take() else { return };
        record::cluster(&ClusterUse {
            held_secs: self.since.elapsed().as_secs_f64(),
            waited_secs: cluster.waited_secs,
            made_secs: cluster.made_secs,
            restored_secs: begun.elapsed().as_secs_f64(),
            commands: cluster.commands.load(Ordering::Relaxed),
        });
        if restored {
            return cluster::give_back(cluster);
        }
        if cluster.slurm.is_kept() {
            eprintln!("the cluster could not be restored; it is ended");
        }
        cluster::discard(&cluster);
    }
}
