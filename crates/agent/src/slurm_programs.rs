//! Runs Slurm's programs as the user.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Longest error of a program that is passed on, characters.
const MAX_ERROR_CHARS: usize = 500;

/// Prefixes of our job's variables that a program must not see: `sbatch` would use them for the new job.
const FOREIGN_PREFIXES: [&str; 7] = ["SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SQUEUE_", "PMI_", "PMIX_"];

/// The variable that says where Slurm's own configuration is. Programs still see it.
const KEPT_VARIABLE: &str = "SLURM_CONF";

/// The names or paths of Slurm's programs.
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
        SlurmPrograms {
            sbatch: "sbatch".into(),
            squeue: "squeue".into(),
            scontrol: "scontrol".into(),
            scancel: "scancel".into(),
            munge: "munge".into(),
            unmunge: "unmunge".into(),
        }
    }
}

/// Why a program gave no answer.
#[derive(Debug)]
pub(crate) enum RunError {
    /// It did nothing, for this reason.
    Failed(String),
    /// It did not answer in time, and may or may not have done its work.
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
///
/// # Errors
/// When it cannot be run, fails, or does not answer in time.
pub async fn run_program(
    program: &Path,
    args: &[&str],
    input: &str,
    limit: Duration,
) -> Result<String, RunError> {
    let mut command = Command::new(program);
    // Our own directory may be gone. Programs that need a directory get its path as an argument.
    command.current_dir("/");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text != KEPT_VARIABLE && FOREIGN_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    let mut child = command.spawn().map_err(|e| run_failure(program, &e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If a program does not read its input, its status shows the reason.
        stdin.write_all(input.as_bytes()).await.ok();
    }
    let done = tokio::time::timeout(limit, child.wait_with_output())
        .await
        .map_err(|_| RunError::TimedOut)?
        .map_err(|e| run_failure(program, &e))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&done.stderr);
    let error = format!("{}: {}", done.status, message.trim());
    Err(RunError::Failed(error.chars().take(MAX_ERROR_CHARS).collect()))
}

fn run_failure(program: &Path, error: &std::io::Error) -> RunError {
    RunError::Failed(format!("cannot run {}: {error}", program.display()))
}
