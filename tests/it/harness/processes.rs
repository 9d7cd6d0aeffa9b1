//! The processes of a cluster, as this machine's /proc shows them.

use std::collections::BTreeMap;

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Process id on this machine.
    pub pid: i32,
    /// Program name.
    pub name: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
}

impl Process {
    /// Kills it as a crash would.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill only takes numbers; the process is one of a cluster of this test.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Whether it is Python with a script of this name.
    pub fn runs(&self, script: &str) -> bool {
        self.name.starts_with("python") && self.args.iter().any(|a| a.ends_with(script))
    }

    /// The node on which Slurm runs it, if it is part of a job.
    pub fn node(&self) -> Option<&str> {
        self.env.get("SLURMD_NODENAME").map(String::as_str)
    }
}

/// All processes in the same PID namespace as `init_pid`.
pub fn of_namespace(init_pid: u32) -> Vec<Process> {
    pids_of_namespace(init_pid).filter_map(|pid| read(&pid)).collect()
}

/// The ids that the processes of that namespace have inside it. A zombie does not count.
pub fn guest_pids(init_pid: u32) -> Vec<i32> {
    let guest_pid = |pid: String| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let dead = field("State:")?.trim_start().starts_with('Z');
        field("NSpid:")?.split_whitespace().last()?.parse().ok().filter(|_| !dead)
    };
    pids_of_namespace(init_pid).filter_map(guest_pid).collect()
}

fn pids_of_namespace(init_pid: u32) -> impl Iterator<Item = String> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = namespace(&init_pid.to_string());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().into_string().ok());
    pids.filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        .filter(move |pid| ours.is_some() && namespace(pid) == ours)
}

fn read(pid: &str) -> Option<Process> {
    let words = |file: &str| -> Vec<String> {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let words = bytes.split(|b| *b == 0).filter(|w| !w.is_empty());
        words.map(|w| String::from_utf8_lossy(w).into_owned()).collect()
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned();
    let env = words("environ");
    let env = env.iter().filter_map(|v| v.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    Some(Process { pid: pid.parse().ok()?, name, args: words("cmdline"), env: env.collect() })
}
