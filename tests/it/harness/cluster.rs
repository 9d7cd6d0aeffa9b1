//! Clusters and the pool that lends them: made when first needed, used again, gone when the process is gone.
//! A cluster with settings of its own is made for one test, and ends with it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex, Once, OnceLock};

use serde_json::Value;

use super::slurm::Slurm;

/// Nodes of each cluster: the acceptance of the suite speaks of eight.
pub const NODES: usize = 8;

/// Clusters at a time unless the environment says otherwise: they mostly wait, and three leave half of the
/// time of two cores, the smallest machine that we test on.
const CLUSTERS: usize = 3;

/// Longest that one command inside may take, seconds. Commands that last are started by `Cluster::command`.
const EXEC_SECS: u32 = 60;

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Its directory on this machine.
    pub dir: PathBuf,
    /// The process id of its init on this machine.
    pub init_pid: u32,
    /// A free port in its block.
    pub port: u16,
    /// Where its slurmrestd with tokens listens once it is started.
    pub rest_jwt_url: String,
    /// Whether it has settings of its own: no other test can use it.
    pub special: bool,
}

struct Pool {
    idle: Vec<Cluster>,
    lent: usize,
    next: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), lent: 0, next: 0 });
static FREED: Condvar = Condvar::new();
static PREPARED: Once = Once::new();
/// The guard's standard input: it ends with this process, however that ends.
static GUARD: OnceLock<Mutex<std::process::ChildStdin>> = OnceLock::new();

/// Takes a cluster out of the pool, making it if none is idle.
pub fn lease() -> Cluster {
    let (idle, number) = take(|pool| pool.idle.pop());
    idle.unwrap_or_else(|| make(number, None))
}

/// Makes a cluster with these settings.
pub fn lease_special(slurm: &Slurm) -> Cluster {
    let (_, number) = take(|_| None);
    make(number, Some(slurm))
}

/// Waits until one more may be lent. What the pool has, and the number of the next one.
fn take(idle: impl Fn(&mut Pool) -> Option<Cluster>) -> (Option<Cluster>, usize) {
    // SAFETY: geteuid has no preconditions and cannot fail.
    assert_eq!(
        unsafe { libc::geteuid() },
        0,
        "the integration tests make Slurm clusters: run them as root on Linux"
    );
    PREPARED.call_once(prepare);
    let mut pool = POOL.lock().unwrap_or_else(|e| e.into_inner());
    while pool.lent >= capacity() {
        pool = FREED.wait(pool).unwrap_or_else(|e| e.into_inner());
    }
    pool.lent += 1;
    pool.next += 1;
    (idle(&mut pool), pool.next)
}

fn make(number: usize, slurm: Option<&Slurm>) -> Cluster {
    Cluster::up(number, slurm).unwrap_or_else(|e| {
        returned(None);
        panic!("{e}")
    })
}

/// Puts a clean cluster back.
pub fn give_back(cluster: Cluster) {
    returned(Some(cluster));
}

/// Ends a cluster that cannot be mended, or that is no other test's; the next one makes another.
pub fn discard(cluster: &Cluster) {
    let _ = minicluster(&cluster.dir, &["down"]);
    if std::env::var_os("INFILL_TEST_KEEP").is_none() {
        let _ = std::fs::remove_dir_all(&cluster.dir);
    }
    returned(None);
}

fn returned(cluster: Option<Cluster>) {
    let mut pool = POOL.lock().unwrap_or_else(|e| e.into_inner());
    pool.idle.extend(cluster);
    pool.lent -= 1;
    FREED.notify_one();
}

/// Clusters at a time.
pub fn capacity() -> usize {
    std::env::var("INFILL_TEST_CLUSTERS").ok().and_then(|n| n.parse().ok()).unwrap_or(CLUSTERS).max(1)
}

/// Slurm's release that is tested.
pub fn release() -> String {
    std::env::var("INFILL_TEST_RELEASE").unwrap_or_else(|_| "trixie".to_owned())
}

fn base() -> PathBuf {
    std::env::var_os("INFILL_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp/infill-it"), PathBuf::from)
}

/// The checkout under test.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn program() -> PathBuf {
    repository().join("slurm/minicluster/minicluster")
}

fn minicluster(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(&words[..1]).arg("--dir").arg(dir).args(&words[1..]).stdin(Stdio::null());
    command.output().expect("slurm/minicluster/minicluster cannot be run")
}

/// Ends clusters of dead test processes, and starts the guard that ends ours.
fn prepare() {
    std::fs::create_dir_all(base()).expect("cannot make the directory of the clusters");
    for entry in std::fs::read_dir(base()).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let owner = name.split('-').next().unwrap_or_default().to_owned();
        if owner.parse::<u32>().is_ok() && !Path::new("/proc").join(owner).exists() {
            let _ = minicluster(&entry.path(), &["down"]);
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    if std::env::var_os("INFILL_TEST_KEEP").is_none() {
        start_guard();
    }
}

/// Neither a panic nor SIGKILL of this process may leave a cluster behind, so another process watches it.
#[allow(clippy::zombie_processes, reason = "it outlives this process, and is meant to")]
fn start_guard() {
    let script = r#"cat >/dev/null
        for dir in "$1"/"$2"-*; do "$3" down --dir "$dir" && rm -rf --one-file-system "$dir"; done"#;
    let mut guard = Command::new("setsid")
        .args(["sh", "-c", script, "guard"])
        .arg(base())
        .arg(std::process::id().to_string())
        .arg(program())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cannot start the guard");
    let stdin = guard.stdin.take().expect("the guard was started with a pipe");
    let _ = GUARD.set(Mutex::new(stdin));
}

impl Cluster {
    /// Copies the logs of its daemons to a folder of this name below `target`, which outlives it.
    pub fn keep_logs(&self, name: &str) -> PathBuf {
        let kept = repository().join("target/kept-logs").join(name);
        let _ = std::fs::remove_dir_all(&kept);
        std::fs::create_dir_all(&kept).unwrap_or_else(|e| panic!("{}: {e}", kept.display()));
        for entry in std::fs::read_dir(self.dir.join("log")).into_iter().flatten().flatten() {
            // Some may be sockets, or gone by now.
            let _ = std::fs::copy(entry.path(), kept.join(entry.file_name()));
        }
        kept
    }

    fn up(number: usize, slurm: Option<&Slurm>) -> Result<Cluster, String> {
        let dir = base().join(format!("{}-{number}", std::process::id()));
        let files = dir.with_extension("files");
        let options = slurm.cloned().unwrap_or_default().words(&files, release());
        let words = ["up", "--bin", env!("CARGO_BIN_EXE_infill")].into_iter();
        let words: Vec<&str> = words.chain(options.iter().map(String::as_str)).collect();
        let up = minicluster(&dir, &words);
        let _ = std::fs::remove_dir_all(&files);
        if !up.status.success() {
            return Err(format!("no cluster: {}", String::from_utf8_lossy(&up.stderr)));
        }
        let status = Cluster::status_of(&dir)?;
        let number = |path: &str| status.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        Ok(Cluster {
            init_pid: u32::try_from(number("/init_pid")).map_err(|e| e.to_string())?,
            // slurmctld, slurmdbd and slurmrestd have the first three ports of the block, slurmd those from
            // 11 on.
            port: u16::try_from(number("/ports/slurmctld") + 5).map_err(|e| e.to_string())?,
            rest_jwt_url: status["rest_jwt_url"].as_str().unwrap_or_default().to_owned(),
            special: slurm.is_some(),
            dir,
        })
    }

    fn status_of(dir: &Path) -> Result<Value, String> {
        let output = minicluster(dir, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).map_err(|e| format!("minicluster status --json: {e}"))
    }

    /// Names of the daemons that do not run but should.
    pub fn dead_daemons(&self) -> Vec<String> {
        let status = Cluster::status_of(&self.dir).unwrap_or_default();
        let daemons = status["daemons"].as_array().cloned().unwrap_or_default();
        let dead = daemons.iter().filter(|d| d["up"] == false && d["name"] != "slurmrestd-jwt");
        dead.filter_map(|d| d["name"].as_str().map(str::to_owned)).collect()
    }

    /// `minicluster WORDS --dir …`, which must succeed.
    pub fn control(&self, words: &[&str]) {
        let output = minicluster(&self.dir, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "minicluster {words:?}: {said}");
    }

    /// A command that runs inside as `user`, not started yet.
    pub fn command(&self, user: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(["exec", "--user", user, "--dir"]).arg(&self.dir).arg("--").args(words);
        command
    }

    /// Runs a short command inside as `user`.
    pub fn exec(&self, user: &str, words: &[&str], input: &str) -> Output {
        let limit = EXEC_SECS.to_string();
        let all: Vec<&str> =
            ["timeout", "-k", "2", &limit].into_iter().chain(words.iter().copied()).collect();
        let mut command = self.command(user, &all);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("slurm/minicluster/minicluster cannot be run");
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read says by its status what it thinks.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output().expect("the command inside cannot be waited for")
    }
}
