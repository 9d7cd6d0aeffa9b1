//! Clusters: made when first needed, reused by tests with the same settings, and gone when the process ends.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, OnceLock};
use std::time::Instant;

use serde_json::Value;

use super::slurm::Slurm;
use super::{pool, processes};

/// Nodes of each cluster.
pub const NODES: usize = 8;

/// Clusters at a time, unless the environment says otherwise. They mostly wait: three use a quarter of two
/// cores, the smallest machine that we test on. Stages that run beside them (`tests/run.sh`) give way.
const CLUSTERS: usize = 5;

/// Time limit for a command inside, seconds. Long commands are started by `Cluster::command`.
const EXEC_SECS: u32 = 60;

/// The `PATH` of commands inside.
const GUEST_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Its directory on this machine.
    pub dir: PathBuf,
    /// The process id of its init on this machine.
    pub init_pid: u32,
    /// A free port in its block.
    pub port: u16,
    /// The port of its slurmrestd with tokens, once that is started.
    pub rest_jwt_url: String,
    /// The options with which it was made.
    pub slurm: Slurm,
    /// Its daemons, by their names in `minicluster`.
    daemons: Vec<String>,
    /// How long its test waited for it, seconds.
    pub waited_secs: f64,
    /// How long it took to make, seconds; 0 if it existed already.
    pub made_secs: f64,
    /// Commands that were run inside since it was lent.
    pub commands: AtomicU32,
}

static PREPARED: Once = Once::new();
/// The guard's standard input. It closes when this process ends for any reason.
static GUARD: OnceLock<Mutex<std::process::ChildStdin>> = OnceLock::new();

/// Takes a cluster that was made with these options, or makes one.
pub fn lease(slurm: &Slurm) -> Cluster {
    // SAFETY: geteuid has no preconditions and cannot fail.
    assert_eq!(
        unsafe { libc::geteuid() },
        0,
        "the integration tests make Slurm clusters: run them as root on Linux"
    );
    let reused = reused();
    if reused.is_some() {
        assert!(
            slurm.is_usual(),
            "this test needs a cluster with settings of its own: run it without INFILL_TEST_REUSE"
        );
    } else {
        PREPARED.call_once(prepare);
    }
    let turn = pool::enter();
    let cluster = match reused {
        Some(dir) => Cluster::attach(&dir, slurm.clone()),
        None => pool::idle(slurm).map_or_else(|| Cluster::up(turn.number, slurm), Ok),
    };
    let cluster = cluster.unwrap_or_else(|e| {
        drop(pool::leave(None));
        panic!("{e}")
    });
    Cluster { waited_secs: turn.waited_secs, ..cluster }
}

/// Returns a clean cluster.
pub fn give_back(cluster: Cluster) {
    let kept = reused().is_none().then_some(cluster);
    for surplus in pool::leave(kept) {
        end(&surplus);
    }
}

/// Ends a cluster that cannot be restored; the next test makes another.
pub fn discard(cluster: &Cluster) {
    if reused().is_none() {
        end(cluster);
    }
    drop(pool::leave(None));
}

fn end(cluster: &Cluster) {
    let _ = minicluster(&cluster.dir, &["down"]);
    if std::env::var_os("INFILL_TEST_KEEP").is_none() {
        let _ = std::fs::remove_dir_all(&cluster.dir);
    }
}

/// The cluster that is already up, which all tests of this run share.
fn reused() -> Option<PathBuf> {
    std::env::var_os("INFILL_TEST_REUSE").map(PathBuf::from)
}

/// The number of clusters at a time.
pub fn capacity() -> usize {
    let wanted = std::env::var("INFILL_TEST_CLUSTERS").ok().and_then(|n| n.parse().ok());
    if reused().is_some() { 1 } else { wanted.unwrap_or(CLUSTERS).max(1) }
}

/// The tested release of Slurm.
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
    /// Copies the logs of its daemons to a folder of this name below `target`, which stays after the cluster
    /// ends.
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

    fn up(number: usize, slurm: &Slurm) -> Result<Cluster, String> {
        let started = Instant::now();
        let dir = base().join(format!("{}-{number}", std::process::id()));
        let files = dir.with_extension("files");
        let options = slurm.words(&files, release());
        let words = ["up", "--bin", env!("CARGO_BIN_EXE_infill")].into_iter();
        let words: Vec<&str> = words.chain(options.iter().map(String::as_str)).collect();
        let up = minicluster(&dir, &words);
        let _ = std::fs::remove_dir_all(&files);
        if !up.status.success() {
            return Err(format!("no cluster: {}", String::from_utf8_lossy(&up.stderr)));
        }
        let cluster = Cluster::attach(&dir, slurm.clone())?;
        Ok(Cluster { made_secs: started.elapsed().as_secs_f64(), ..cluster })
    }

    /// The cluster that is up in `dir`.
    fn attach(dir: &Path, slurm: Slurm) -> Result<Cluster, String> {
        let output = minicluster(dir, &["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("minicluster status --json for {}: {e}", dir.display()))?;
        if status["up"] != true {
            return Err(format!("no cluster is up in {}", dir.display()));
        }
        let number = |path: &str| status.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        let daemons = status["daemons"].as_array().into_iter().flatten();
        Ok(Cluster {
            init_pid: u32::try_from(number("/init_pid")).map_err(|e| e.to_string())?,
            // slurmctld, slurmdbd and slurmrestd have the first three ports of the block, slurmd those from
            // 11 on.
            port: u16::try_from(number("/ports/slurmctld") + 5).map_err(|e| e.to_string())?,
            rest_jwt_url: status["rest_jwt_url"].as_str().unwrap_or_default().to_owned(),
            slurm,
            // It runs only where a test starts it.
            daemons: daemons
                .filter_map(|d| d["name"].as_str().filter(|n| *n != "slurmrestd-jwt").map(str::to_owned))
                .collect(),
            waited_secs: 0.0,
            made_secs: 0.0,
            commands: AtomicU32::new(0),
            dir: dir.to_owned(),
        })
    }

    /// Names of the daemons that should run but don't.
    pub fn dead_daemons(&self) -> Vec<String> {
        let alive: BTreeSet<i32> = processes::guest_pids(self.init_pid).into_iter().collect();
        let runs = |name: &&String| {
            let file = self.dir.join("state").join(format!("{name}.pid"));
            let pid = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
            pid.is_some_and(|pid| alive.contains(&pid))
        };
        self.daemons.iter().filter(|name| !runs(name)).cloned().collect()
    }

    /// `minicluster WORDS --dir …`, which must succeed.
    pub fn control(&self, words: &[&str]) {
        let output = minicluster(&self.dir, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "minicluster {words:?}: {said}");
    }

    /// A command that runs inside as `user`, not started yet. `minicluster exec` does the same with ten more
    /// processes. That matters, because tests ask Slurm all the time.
    pub fn command(&self, user: &str, words: &[&str]) -> Command {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let home = match user {
            "root" => "/root".to_owned(),
            "infill" => "/var/lib/infill".to_owned(),
            _ => format!("/home/{user}"),
        };
        let mut command = Command::new("nsenter");
        command
            .env_clear()
            .env("TERM", "dumb")
            .env("LANG", "C.UTF-8")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.arg("--target").arg(self.init_pid.to_string());
        command.args(["--mount", "--pid", "--ipc", "--uts", "--net", "--root", "--wd", "--"]);
        command.args(["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--reset-env"]);
        // When nsenter is killed, the command inside gets SIGTERM.
        command.args(["--pdeathsig", "TERM", "--", "env", "--chdir", &home, GUEST_PATH]).args(words);
        command
    }

    /// Runs a short command inside as `user`.
    pub fn exec(&self, user: &str, words: &[&str], input: &str) -> Output {
        let limit = EXEC_SECS.to_string();
        let all: Vec<&str> =
            ["timeout", "-k", "2", &limit].into_iter().chain(words.iter().copied()).collect();
        let mut command = self.command(user, &all);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("nsenter cannot be run");
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input may break the pipe. Its exit status says whether that is
            // an error.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output().expect("the command inside cannot be waited for")
    }
}
