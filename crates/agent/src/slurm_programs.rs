//! Slurm's programs, run as the user.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Longest text of a program's that is passed on.
const MAX_ERROR_CHARS: usize = 500;

/// Variables of our job that a program must not see: `sbatch` would take them for the new job's.
const FOREIGN_PREFIXES: [&str; 7] = ["SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SQUEUE_", "PMI_", "PMIX_"];

/// The one that says where Slurm's own configuration is.
const KEPT_VARIABLE: &str = "SLURM_CONF";

/// Where they are.
#[derive(Clone, Debug)]
pub(crate) struct SlurmPrograms {
    /// `sbatch`.
    pub sbatch: PathBuf,
    /// `squeue`.
    pub squeue: PathBuf,
    /// `scontrol`.
    pub scontrol: PathBuf,
    /// `scancel`.
    pub scancel: PathBuf,
    /// MUNGE's `munge`.
    pub munge: PathBuf,
    /// MUNGE's `unmunge`.
    pub unmunge: PathBuf,
}

impl Default for SlurmPrograms {
    fn default() -> Self {
        let named = PathBuf::from;
        SlurmPrograms {
            sbatch: named("sbatch"),
            squeue: named("squeue"),
            scontrol: named("scontrol"),
            scancel: named("scancel"),
            munge: named("munge"),
            unmunge: named("unmunge"),
        }
    }
}

/// Why a program gave no answer.
#[derive(Debug)]
pub(crate) enum RunError {
    /// It did nothing, for this reason.
    Failed(String),
    /// Nobody knows what it did.
    TimedOut,
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Failed(why) => f.write_str(why),
            RunError::TimedOut => f.write_str("it does not answer"),
        }
    }
}

/// Runs a program without our job's variables, for `limit` at most, and returns its output.
pub async fn run_program(
    program: &Path,
    args: &[&str],
    input: &str,
    limit: Duration,
) -> Result<String, RunError> {
    let failed = |e: std::io::Error| RunError::Failed(format!("cannot run {}: {e}", program.display()));
    let mut command = Command::new(program);
    // Ours may be gone. What is done in one is told where it is.
    command.current_dir("/");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text != KEPT_VARIABLE && FOREIGN_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why by its status.
        stdin.write_all(input.as_bytes()).await.ok();
    }
    let done = tokio::time::timeout(limit, child.wait_with_output())
        .await
        .map_err(|_| RunError::TimedOut)?
        .map_err(failed)?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(RunError::Failed(format!("{}: {}", done.status, said.trim()).chars().take(MAX_ERROR_CHARS).collect()))
}
