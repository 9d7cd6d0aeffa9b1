//! Runs one of Slurm's commands within a time limit.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Time for one command. slurmctld answers in milliseconds, a busy one in seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a command and returns what it printed; the error says what happened, in words.
pub async fn run(program: &str, args: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(args)
        // Slurm's own variables change what its commands print.
        .env_remove("SLURM_TIME_FORMAT")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    let mut stdin = child.stdin.take();
    let work = async {
        if let Some(stdin) = stdin.as_mut() {
            // A command that does not read its input closes it; what it answers counts.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        drop(stdin);
        child.wait_with_output().await
    };
    let out = match tokio::time::timeout(TIMEOUT, work).await {
        Ok(out) => out.map_err(|e| format!("{program}: {e}"))?,
        Err(_) => return Err(format!("{program} did not answer within {} s", TIMEOUT.as_secs())),
    };
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.success() {
        return Ok(stdout.into_owned());
    }
    let said = if stderr.trim().is_empty() { stdout } else { stderr };
    Err(format!("{program} {}: {}", args.join(" "), said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_it_printed_or_why_not() {
        assert_eq!(run("cat", &[], "hello").await.unwrap(), "hello");
        assert_eq!(
            run("sh", &["-c", "echo no >&2; exit 3"], "").await.unwrap_err(),
            "sh -c echo no >&2; exit 3: no"
        );
        let missing = run("infill-no-such-command", &[], "").await.unwrap_err();
        assert!(missing.starts_with("cannot run infill-no-such-command: "), "{missing}");
    }
}
