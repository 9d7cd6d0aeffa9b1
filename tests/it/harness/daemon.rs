//! `infill serve` inside a cluster: its configuration, its life and its log. There may be a second one that
//! stands by.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use infill_api::{DaemonStatus, RoundView};

use super::cluster::Cluster;
use super::{http, processes, wait};

/// Seconds until a started daemon must have made its first round, or stand by.
const START_SECS: f64 = 15.0;

/// Seconds until one that is killed must be gone.
const KILL_SECS: f64 = 20.0;

/// The library that a daemon with a changeable clock preloads, in the cluster's directory on this machine.
pub const CLOCK: &str = "etc/clock.so";

/// The path of the second daemon's configuration, in the cluster.
const SECOND: &str = "/etc/infill/second.toml";

/// A configuration for tests: the keys of the file, with small times.
#[derive(Clone, Debug)]
pub struct Settings(toml::Table);

impl Settings {
    /// Acts, polls twice a second, forgives quickly, and probes no sizes: the tests themselves decide what
    /// runs where.
    pub fn quick(port: u16) -> Settings {
        let text = format!(
            r#"
            [daemon]
            mode = "act"
            listen = "127.0.0.1:{port}"
            poll_interval_secs = 0.5
            backoff_secs = 2.0
            backoff_max_secs = 10.0
            [http]
            read = "open"
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
    /// Its configuration, if it does not use the common one.
    config: Option<&'static str>,
    log: PathBuf,
    child: Option<Child>,
    /// A socket that already listens, in the role of systemd's.
    socket: Option<TcpListener>,
}

/// Runs the command after it with its standard input as the socket that systemd would pass.
const PASSES_SOCKET: [&str; 4] = ["sh", "-c", "exec 3<&0 </dev/null; exec \"$@\"", "sh"];

impl Daemon {
    /// A daemon that has not been started.
    pub fn of(cluster: &Cluster) -> Daemon {
        Daemon::with(cluster, cluster.port, None, "infill.log")
    }

    /// A second daemon of the same cluster, on the next port. Its other settings are the first one's.
    pub fn second(cluster: &Cluster, settings: Settings) -> Daemon {
        let port = cluster.port + 1;
        let text = settings.set("daemon.listen", format!("127.0.0.1:{port}")).text();
        std::fs::write(cluster.dir.join("etc/second.toml"), text).expect("cannot write the configuration");
        Daemon::with(cluster, port, Some(SECOND), "second.log")
    }

    fn with(cluster: &Cluster, port: u16, config: Option<&'static str>, log: &str) -> Daemon {
        let log = cluster.dir.join("log").join(log);
        // The log of an earlier test of this cluster does not count.
        let _ = std::fs::remove_file(&log);
        Daemon { port, init_pid: cluster.init_pid, config, log, child: None, socket: None }
    }

    /// Binds its port as systemd would. It is started with that socket from now on.
    pub fn bind(&mut self) {
        let socket = TcpListener::bind(("127.0.0.1", self.port)).expect("the daemon's port is free");
        self.socket = Some(socket);
    }

    /// Starts it with the cluster's present configuration, and waits for its first round.
    pub fn start(&mut self, cluster: &Cluster) {
        self.spawn(cluster);
        let ready = wait::look(START_SECS, || self.has_made_a_round().then_some(()));
        assert!(ready.is_some(), "the daemon made no round within {START_SECS} s");
    }

    /// Starts it where it cannot serve, and waits for its end. Returns its log.
    pub fn refuses_to_start(&mut self, cluster: &Cluster) -> String {
        self.spawn(cluster);
        let code = self.ends(START_SECS);
        assert!(code.is_some_and(|code| code != 0), "it ended with {code:?}: {}", self.log());
        self.log()
    }

    /// Works also where reading needs a proof.
    fn has_made_a_round(&self) -> bool {
        let text = self.answer("/metrics").map(|a| a.body).unwrap_or_default();
        let counts = text.lines().filter(|l| l.starts_with("infill_rounds_total"));
        counts.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() > 0.0
    }

    /// Starts it while another one leads, and waits until it says that it stands by.
    pub fn stand_by(&mut self, cluster: &Cluster) {
        self.spawn(cluster);
        let says = || http::get(self.port, "/healthz").is_some_and(|a| a.body == "standby\n").then_some(());
        assert!(wait::look(START_SECS, says).is_some(), "the daemon does not stand by: {}", self.log());
    }

    /// Starts it without waiting.
    pub fn spawn(&mut self, cluster: &Cluster) {
        assert!(self.child.is_none(), "a daemon runs already");
        let file = || -> Stdio { self.open_log().into() };
        let mut words = Vec::new();
        if self.socket.is_some() {
            words.extend(PASSES_SOCKET);
        }
        words.extend(["env", "INFILL_LOG=infill=debug,info"]);
        if self.socket.is_some() {
            words.push("LISTEN_FDS=1");
        }
        if cluster.dir.join(CLOCK).exists() {
            words.push("LD_PRELOAD=/etc/infill/clock.so");
        }
        words.push("infill");
        words.extend(self.config.iter().flat_map(|path| ["--config", path]));
        words.push("serve");
        let mut command = cluster.command("infill", &words);
        let input = match &self.socket {
            Some(socket) => OwnedFd::from(socket.try_clone().expect("a descriptor")).into(),
            None => Stdio::null(),
        };
        command.stdin(input).stdout(file()).stderr(file());
        self.child = Some(command.spawn().expect("cannot start the daemon"));
    }

    fn open_log(&self) -> File {
        OpenOptions::new().create(true).append(true).open(&self.log).expect("cannot open the daemon's log")
    }

    fn process(&self) -> Option<processes::Process> {
        let configured = |p: &processes::Process| {
            let path = p.args.iter().skip_while(|a| *a != "--config").nth(1);
            path.map(String::as_str) == self.config
        };
        processes::of_namespace(self.init_pid)
            .into_iter()
            .find(|p| p.name == "infill" && p.args.iter().any(|a| a == "serve") && configured(p))
    }

    /// Its process id on this machine.
    pub fn pid(&self) -> Option<i32> {
        self.process().map(|p| p.pid)
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.thaw_wrapper();
        let Some(mut child) = self.child.take() else { return };
        // The process may not be found at the first try, and a wait for it would then last forever.
        let gone = wait::look(KILL_SECS, || {
            if let Some(process) = self.process() {
                process.kill();
            }
            child.try_wait().expect("cannot wait for the daemon")
        });
        assert!(gone.is_some(), "the daemon lives on, and is not to be found among the cluster's processes");
    }

    /// Stops it in the middle of anything it does.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets a stopped daemon continue.
    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
        self.thaw_wrapper();
    }

    /// `nsenter` stops with its command, but does not continue with it.
    fn thaw_wrapper(&self) {
        if let Some(child) = &self.child {
            // SAFETY: kill only takes numbers; the child is ours and has not been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGCONT) };
        }
    }

    fn signal(&self, signal: i32) {
        let process = self.process().expect("the daemon runs");
        // SAFETY: kill only takes numbers; the process is our daemon.
        unsafe { libc::kill(process.pid, signal) };
    }

    /// Its exit code, if it ends by itself within `secs`.
    pub fn ends(&mut self, secs: f64) -> Option<i32> {
        let child = self.child.as_mut()?;
        let status = wait::look(secs, || child.try_wait().expect("cannot wait for the daemon"))?;
        self.child = None;
        status.code()
    }

    /// Its answer, whatever that is.
    pub fn answer(&self, path: &str) -> Option<http::Answer> {
        http::get(self.port, path)
    }

    /// Sends SIGTERM; returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let process = self.process()?;
        // SAFETY: kill only takes numbers; the process is our daemon.
        unsafe { libc::kill(process.pid, libc::SIGTERM) };
        self.child.take()?.wait().ok()?.code()
    }

    /// Its status, if it answers.
    pub fn status(&self) -> Option<DaemonStatus> {
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

    /// Its whole log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
