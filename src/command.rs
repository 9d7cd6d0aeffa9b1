//! Runs one of Slurm's commands within a time limit.

use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use infill_model::UnixTime;

/// The time limit of a command. slurmctld answers within milliseconds, or seconds when it is busy.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes that a command may print.
const MAX_OUTPUT_BYTES: u64 = 256 << 20;

/// Runs a command with `input` on its stdin and returns its stdout.
///
/// # Errors
/// A sentence, when the command cannot run, fails, prints too much or takes too long.
pub async fn run_command(program: &str, args: &[&str], input: &str) -> Result<String, String> {
    let child = slurm_command(program, args);
    output_text(program, args, output_within(TIMEOUT, program, child, input).await?)
}

/// Runs a command with this time limit, and returns its stdout.
///
/// # Errors
/// A sentence, as for [`run_command`].
pub async fn run_within(limit: Duration, program: &str, args: &[&str]) -> Result<String, String> {
    output_text(program, args, output_within(limit, program, slurm_command(program, args), "").await?)
}

/// Runs a command with this time limit and with times in UTC, and returns its stdout.
///
/// # Errors
/// A sentence, as for [`run_command`].
pub async fn run_in_utc(limit: Duration, program: &str, args: &[&str]) -> Result<String, String> {
    let mut child = slurm_command(program, args);
    child.env("TZ", "UTC");
    output_text(program, args, output_within(limit, program, child, "").await?)
}

/// Whether a program of this name is in the `PATH`.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A moment in UTC as sacct and sreport take it: `2026-03-01T00:00:00`.
pub fn slurm_moment(moment: UnixTime) -> String {
    moment.to_string().trim_end_matches('Z').to_owned()
}

fn slurm_command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        // Slurm's own variables change what its commands print.
        .env_remove("SLURM_TIME_FORMAT")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn output_within(
    limit: Duration,
    program: &str,
    command: Command,
    input: &str,
) -> Result<Output, String> {
    match tokio::time::timeout(limit, collect_output(command, input)).await {
        Ok(Ok(out)) if out.stdout.len() as u64 > MAX_OUTPUT_BYTES => {
            Err(format!("{program} printed more than {MAX_OUTPUT_BYTES} bytes"))
        }
        Ok(out) => out.map_err(|e| format!("cannot run {program}: {e}")),
        // Dropping the future has killed the command.
        Err(_) => Err(format!("{program} did not answer within {} s", limit.as_secs())),
    }
}

async fn collect_output(mut command: Command, input: &str) -> io::Result<Output> {
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command may close its input unread. Its output counts nevertheless.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), stdout, stderr) = tokio::join!(write, read_bounded(stdout), read_bounded(stderr));
    Ok(Output { stdout: stdout?, stderr: stderr?, status: child.wait().await? })
}

/// Reads at most one byte more than the limit, so that the caller notices too long an output.
async fn read_bounded(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn output_text(program: &str, args: &[&str], out: Output) -> Result<String, String> {
    let stdout = String::from_utf8_lossy(&out.stdout);
    let stderr = String::from_utf8_lossy(&out.stderr);
    if out.status.success() {
        return Ok(stdout.into_owned());
    }
    let message = if stderr.trim().is_empty() { stdout } else { stderr };
    Err(format!("{program} {}: {}", args.join(" "), message.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_returns_its_output_or_its_error() {
        assert_eq!(run_command("cat", &[], "hello").await.unwrap(), "hello");
        assert_eq!(
            run_command("sh", &["-c", "echo no >&2; exit 3"], "").await.unwrap_err(),
            "sh -c echo no >&2; exit 3: no"
        );
        let missing = run_command("infill-no-such-command", &[], "").await.unwrap_err();
        assert!(missing.starts_with("cannot run infill-no-such-command: "), "{missing}");
    }

    #[tokio::test]
    async fn times_are_in_utc_and_there_is_a_limit() {
        let long = Duration::from_secs(10);
        assert_eq!(run_in_utc(long, "date", &["-d", "@0", "+%H %Z"]).await.unwrap(), "00 UTC\n");
        let late = run_in_utc(Duration::from_millis(50), "sleep", &["60"]).await.unwrap_err();
        assert_eq!(late, "sleep did not answer within 0 s");
    }
}
