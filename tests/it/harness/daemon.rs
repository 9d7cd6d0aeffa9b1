//! `infill serve` inside a cluster: its configuration, its life and its log.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use infill::api::{RoundView, Status};

use super::cluster::Cluster;
use super::{http, processes, wait};

/// Seconds until a started daemon must have made its first round.
const START_SECS: f64 = 15.0;

/// A configuration for tests: the file's keys, with small times.
#[derive(Clone, Debug)]
pub struct Settings(toml::Table);

impl Settings {
    /// Acts, looks twice a second, forgives quickly, and tries no sizes: tests say themselves what runs where.
    pub fn quick(port: u16) -> Settings {
        let text = format!(
            r#"
            [daemon]
            mode = "act"
            listen = "127.0.0.1:{port}"
            poll_interval_secs = 0.5
            early_death_secs = 1.0
            backoff_secs = 2.0
            backoff_max_secs = 10.0
            [gaps]
            leave_secs = 5.0
            min_window_secs = 60.0
            [planner]
            horizon_secs = 300.0
            solve_secs = 1.0
            min_stay_secs = 1.0
            lease_secs = 600.0
            costs = {{ up_secs = 1.0, down_secs = 1.0, start_secs = 1.0 }}
            [advisor]
            probe = false
            [agent]
            url = "http://127.0.0.1:{port}"
            preempt_leave_secs = 1.0
            wing_start_secs = 20.0
            lead_start_secs = 20.0
            [store]
            database_url = "sqlite:/var/lib/infill/infill.db"
            "#
        );
        Settings(text.parse().expect("the settings of the tests are TOML"))
    }

    /// Sets `section.key`.
    pub fn set(mut self, key: &str, value: impl Into<toml::Value>) -> Settings {
        let (section, key) = key.split_once('.').expect("section.key");
        let table = self.0.entry(section).or_insert_with(|| toml::Table::new().into());
        table.as_table_mut().expect("a section").insert(key.to_owned(), value.into());
        self
    }

    /// The file's text.
    pub fn text(&self) -> String {
        self.0.to_string()
    }
}

/// A daemon of one cluster, running or not.
#[derive(Debug)]
pub struct Daemon {
    port: u16,
    init_pid: u32,
    log: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    /// None yet.
    pub fn of(cluster: &Cluster) -> Daemon {
        let log = cluster.dir.join("log/infill.log");
        // The log of an earlier test of this cluster is not ours.
        let _ = std::fs::remove_file(&log);
        Daemon { port: cluster.port, init_pid: cluster.init_pid, log, child: None }
    }

    /// Starts it with the configuration that lies in the cluster, and waits for its first round.
    pub fn start(&mut self, cluster: &Cluster) {
        assert!(self.child.is_none(), "a daemon runs already");
        let file = || -> Stdio { self.open_log().into() };
        let mut command =
            cluster.command("infill", &["env", "INFILL_LOG=infill=debug,info", "infill", "serve"]);
        command.stdin(Stdio::null()).stdout(file()).stderr(file());
        self.child = Some(command.spawn().expect("cannot start the daemon"));
        let ready = wait::look(START_SECS, || self.status()?.last_round);
        assert!(ready.is_some(), "the daemon made no round within {START_SECS} s");
    }

    fn open_log(&self) -> File {
        OpenOptions::new().create(true).append(true).open(&self.log).expect("cannot open the daemon's log")
    }

    fn process(&self) -> Option<processes::Process> {
        let serves = |p: &processes::Process| p.name == "infill" && p.args.iter().any(|a| a == "serve");
        processes::of_namespace(self.init_pid).into_iter().find(serves)
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(process) = self.process() {
            process.kill();
        }
        if let Some(mut child) = self.child.take() {
            child.wait().expect("cannot wait for the daemon");
        }
    }

    /// SIGTERM, and its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let process = self.process()?;
        // SAFETY: kill only takes numbers; the process is our daemon.
        unsafe { libc::kill(process.pid, libc::SIGTERM) };
        self.child.take()?.wait().ok()?.code()
    }

    /// Its status, if it answers.
    pub fn status(&self) -> Option<Status> {
        let answer = http::get(self.port, "/v1/status").filter(|a| a.status == 200)?;
        Some(
            serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("no status ({e}): {}", answer.body)),
        )
    }

    /// Its last round.
    pub fn round(&self) -> Option<RoundView> {
        let answer = http::get(self.port, "/v1/round").filter(|a| a.status == 200)?;
        Some(serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("no round ({e}): {}", answer.body)))
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
