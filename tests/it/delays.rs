//! How late a main job starts, case by case: the measured side of the worst cases in `docs/evidence.md`.
//!
//! One cluster with the settings that sites get: two seconds to save (`agent.preempt_leave_secs`), a grace
//! time of 30 s from `accounting.sh`, an empty Epilog, and a KillWait of 5 s.

use serde::Serialize;

use crate::harness::jobs::clock;
use crate::harness::processes::Process;
use crate::harness::{Settings, Site, Slurm, Train};

/// Nodes of the cluster.
const NODES: usize = 4;

/// Longest that any main job here may wait, seconds: the grace time, KillWait and a margin.
const LIMIT_SECS: f64 = 75.0;

/// The grace time of `accounting.sh`, seconds.
const GRACE_SECS: f64 = 30.0;

/// KillWait of the cluster, seconds.
const KILL_WAIT_SECS: f64 = 5.0;

/// `agent.preempt_leave_secs`, and the second that a script has to end.
const LEAVE_SECS: f64 = 3.0;

/// `daemon.poll_interval_secs`, and a round.
const ROUND_SECS: f64 = 6.0;

/// What a start takes here besides leaving: two scheduling passes, and a busy machine, seconds.
const MARGIN_SECS: f64 = 6.0;

/// The waits of main jobs in one case.
#[derive(Debug, Serialize)]
struct Case {
    /// What was the matter.
    name: &'static str,
    /// Seconds from submission, or from the planned moment, to the start.
    secs: Vec<f64>,
    /// The bound by the formula, without the time that Slurm needs for a start.
    bound_secs: f64,
}

/// The table of all cases.
#[derive(Debug, Serialize)]
struct Cases {
    version: u32,
    cases: Vec<Case>,
}

impl Cases {
    fn show(&self) -> String {
        let mut text = format!("{:<58} {:>5} {:>6} {:>6} {:>6}\n", "CASE", "TIMES", "LEAST", "MOST", "BOUND");
        for Case { name, secs, bound_secs } in &self.cases {
            let least = secs.iter().copied().fold(f64::INFINITY, f64::min);
            let most = secs.iter().copied().fold(0.0, f64::max);
            text += &format!("{name:<58} {:>5} {least:>6.2} {most:>6.2} {bound_secs:>6.1}\n", secs.len());
        }
        text
    }
}

/// The site, and the cases so far.
struct Trial {
    site: Site,
    cases: Vec<Case>,
}

impl Trial {
    /// A main job's wait for this many nodes. It ends at once.
    fn wait(&self, nodes: usize) -> f64 {
        let main = self.site.main_job(1, &[&format!("--nodes={nodes}")]);
        let started = self.site.wait("the main job to start", LIMIT_SECS, || self.site.started_at(main));
        self.site.end_of(main.id, 30.0);
        started - main.submitted_at
    }

    fn record(&mut self, name: &'static str, bound_secs: f64, secs: Vec<f64>) {
        eprintln!("{name}: {secs:.2?}");
        self.cases.push(Case { name, secs, bound_secs });
    }

    /// A job that trains on all nodes.
    fn train(&self, flags: &str) -> u32 {
        let job = Train::on("1-4").run("--grace 30").flags(flags).submit(&self.site);
        self.site.until_trains_on(job, NODES, 60.0);
        job
    }

    fn cancel(&self, job: u32) {
        self.site.must("root", &["scancel", &job.to_string()]);
        self.site.until("the nodes to be free", 60.0, || self.site.queue().is_empty());
    }

    fn agents(&self) -> Vec<Process> {
        let is_agent = |p: &Process| {
            p.name == "infill"
                && p.node().is_some()
                && p.args.iter().any(|a| a == "worker" || a == "--in-step")
        };
        self.site.processes().into_iter().filter(is_agent).collect()
    }

    fn idle_nodes(&mut self) {
        let secs = (0..4).map(|_| self.wait(1)).collect();
        self.record("idle nodes, no malleable job", 0.0, secs);
    }

    fn preempted(&mut self) {
        let job = self.train("");
        let mut secs = Vec::new();
        for nodes in [1, 2, 3, 4] {
            secs.push(self.wait(nodes));
            self.site.until_trains_on(job, NODES, 60.0);
        }
        self.record("not planned: Slurm preempts, the program saves quickly", LEAVE_SECS, secs);
        self.cancel(job);
    }

    fn slow_save(&mut self) {
        let job = self.train("--save-secs 20");
        let secs = vec![self.wait(1), self.wait(4)];
        self.record("not planned: saving takes 20 s", LEAVE_SECS, secs);
        self.cancel(job);
    }

    fn daemon_dead(&mut self) {
        let mut secs = Vec::new();
        for nodes in [1, 4] {
            let job = self.train("");
            self.site.kill_daemon();
            secs.push(self.wait(nodes));
            self.site.start();
            self.cancel(job);
        }
        self.record("daemon dead", LEAVE_SECS, secs);
    }

    fn agents_killed(&mut self) {
        let job = self.train("");
        self.agents().iter().for_each(Process::kill);
        let secs = vec![self.wait(4)];
        self.record("all agents killed", LEAVE_SECS, secs);
        self.cancel(job);
    }

    fn agents_hang(&mut self) {
        let job = self.train("");
        let agents = self.agents();
        let (frozen, all_frozen) = std::sync::mpsc::channel();
        let tracer = std::thread::spawn(move || {
            agents.iter().for_each(freeze);
            frozen.send(()).expect("the test waits");
            until_dead();
        });
        all_frozen.recv().expect("the agents are frozen");
        let secs = vec![self.wait(4)];
        tracer.join().expect("Slurm has killed all agents");
        self.record("all agents hang", GRACE_SECS + KILL_WAIT_SECS, secs);
        self.cancel(job);
    }

    /// The script ignores Slurm's signals and does not reach `infill run`.
    fn script_stays(&self, kill: bool) -> f64 {
        let script = "trap '' TERM; touch /scratch/stays.$SLURM_JOB_ID; sleep 600 & wait; sleep 600";
        let job = self.site.sbatch("alice", &["-p", "infill", "-J", "stays", "--nodes=1"], script);
        self.site
            .until("the script to run", 60.0, || self.site.scratch().join(format!("stays.{job}")).exists());
        if kill {
            self.site.kill_daemon();
        }
        let secs = self.wait(4);
        if kill {
            self.site.start();
        }
        self.cancel(job);
        secs
    }

    fn script_that_stays(&mut self) {
        let with = vec![self.script_stays(false)];
        self.record("script ignores SIGTERM, never reaches infill run", ROUND_SECS + KILL_WAIT_SECS, with);
        let without = vec![self.script_stays(true)];
        self.record("the same, and the daemon is dead", GRACE_SECS + KILL_WAIT_SECS, without);
    }

    fn planned(&mut self) {
        let job = self.train("");
        let begin = clock().floor() + 40.0;
        let at = self.site.must("root", &["date", "-d", &format!("@{begin}"), "+%Y-%m-%dT%H:%M:%S"]);
        let start = format!("StartTime={}", at.trim());
        let words =
            ["ReservationName=r", &start, "Duration=5", "Users=bob", "Nodes=ALL", "Flags=IGNORE_JOBS"];
        self.site.must("root", &[&["scontrol", "create", "reservation"], &words[..]].concat());
        let main = self.site.main_job(1, &["--nodes=4", "--reservation=r"]);
        let started = self.site.wait("the planned main job", 90.0, || self.site.started_at(main));
        self.record("planned start (a reservation)", 0.0, vec![started - begin]);
        self.site.end_of(main.id, 30.0);
        self.site.must("root", &["scontrol", "delete", "ReservationName=r"]);
        self.cancel(job);
    }
}

/// Stops all threads of a process. Slurm sends SIGCONT before SIGTERM, which ends a stop by SIGSTOP. So they
/// are stopped by ptrace, until they are killed.
fn freeze(process: &Process) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse::<libc::pid_t>().ok());
    for thread in threads {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: neither request reads or writes memory, and the kernel checks the thread's number.
        let results = unsafe {
            [
                libc::ptrace(libc::PTRACE_SEIZE, thread, none, none),
                libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none),
            ]
        };
        assert_eq!(results, [0, 0], "thread {thread}: {}", std::io::Error::last_os_error());
    }
}

/// Waits until all threads that this one has stopped are dead. Until then their parent does not see their
/// end.
fn until_dead() {
    let mut status = 0;
    // SAFETY: waitpid writes to `status` alone. It waits only for what this thread traces.
    while unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) } > 0 {}
}

/// Measures the cases, and checks each against its bound.
#[test]
#[ignore = "takes minutes: tests/run.sh --delays"]
fn how_late_main_jobs_start() {
    let slurm = Slurm::default().nodes(NODES).set("Epilog=/bin/true");
    let site = Site::on(&slurm, |settings: Settings| {
        settings.set("agent.preempt_leave_secs", 2.0).set("daemon.poll_interval_secs", 5.0)
    });
    let mut trial = Trial { site, cases: Vec::new() };
    trial.idle_nodes();
    trial.preempted();
    trial.slow_save();
    trial.daemon_dead();
    trial.agents_killed();
    trial.agents_hang();
    trial.script_that_stays();
    trial.planned();
    let found = Cases { version: 1, cases: trial.cases };
    println!("{}", found.show());
    let path = super::sites::write_summary("INFILL_DELAYS_JSON", "delays.json", &found);
    println!("the waits are in {}", path.display());
    for Case { name, secs, bound_secs } in &found.cases {
        let most = secs.iter().copied().fold(0.0, f64::max);
        assert!(most <= bound_secs + MARGIN_SECS, "{name}: a main job waited {most:.2} s");
    }
}
