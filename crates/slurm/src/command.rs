//! Runs Slurm's and MUNGE's small programs, without a shell, with a time limit and bounded output. Secrets
//! are passed on standard input only.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Most bytes of a program's output that are kept. A credential or the record of a job has a few kilobytes.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;

/// How a program ended.
#[derive(Debug)]
pub(super) struct ProgramOutput {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output, cut at the limit.
    pub stdout: Vec<u8>,
    /// Its standard error as text, cut at [`MAX_OUTPUT_BYTES`].
    pub stderr: String,
}

/// Why a program gave no answer. All of these failures may pass.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// It does not exist, or this user may not run it.
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: std::io::Error },
    /// Reading from it or waiting for it failed.
    #[error("lost {program}: {source}")]
    Pipe { program: String, source: std::io::Error },
    /// It took too long and was killed.
    #[error("{program} gave no answer in {secs} s and was killed")]
    TimedOut { program: String, secs: f64 },
}

/// A program with its arguments, environment and input.
pub(super) struct ProgramCall<'a> {
    /// Path of the program, or its name in `PATH`.
    pub path: &'a Path,
    /// Its arguments. The process list shows them, so they must not contain secrets.
    pub args: &'a [&'a str],
    /// Additional environment variables.
    pub env: &'a [(&'a str, &'a str)],
    /// Written to its standard input.
    pub stdin: &'a [u8],
    /// It is killed after this time.
    pub limit: Duration,
}

impl ProgramCall<'_> {
    /// Runs it to its end and keeps [`MAX_OUTPUT_BYTES`] of its output.
    pub(super) async fn run(&self) -> Result<ProgramOutput, CommandError> {
        self.run_bounded(MAX_OUTPUT_BYTES).await
    }

    /// Runs it to its end and keeps at most `bytes` bytes of its standard output.
    pub(super) async fn run_bounded(&self, bytes: u64) -> Result<ProgramOutput, CommandError> {
        let name = self.path.display().to_string();
        match tokio::time::timeout(self.limit, self.run_unlimited(&name, bytes)).await {
            Ok(result) => result,
            // Dropping the future has killed the program.
            Err(_) => Err(CommandError::TimedOut { program: name, secs: self.limit.as_secs_f64() }),
        }
    }

    async fn run_unlimited(&self, name: &str, bytes: u64) -> Result<ProgramOutput, CommandError> {
        let mut child = Command::new(self.path)
            .args(self.args)
            .envs(self.env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| CommandError::Start { program: name.to_owned(), source })?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input closes it early. Its exit code shows whether it
                // failed.
                let _ = stdin.write_all(self.stdin).await;
            }
        };
        let (_, out, err) =
            tokio::join!(write, read_bounded(stdout, bytes), read_bounded(stderr, MAX_OUTPUT_BYTES));
        let stdout = out.map_err(|source| pipe_error(name, source))?;
        let stderr = err.map_err(|source| pipe_error(name, source))?;
        let status = child.wait().await.map_err(|source| pipe_error(name, source))?;
        let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
        Ok(ProgramOutput { code: status.code(), stdout, stderr })
    }
}

fn pipe_error(program: &str, source: std::io::Error) -> CommandError {
    CommandError::Pipe { program: program.to_owned(), source }
}

/// Keeps the first bytes and drops the rest, so that a full pipe does not block the program.
pub(super) async fn read_bounded(
    pipe: Option<impl AsyncRead + Unpin>,
    bytes: u64,
) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(bytes).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh<'a>(args: &'a [&'a str], stdin: &'a [u8], millis: u64) -> ProgramCall<'a> {
        let limit = Duration::from_millis(millis);
        ProgramCall { path: Path::new("/bin/sh"), args, env: &[], stdin, limit }
    }

    #[tokio::test]
    async fn output_is_bounded_and_codes_are_kept() {
        let out = sh(&["-c", "cat; echo no >&2; exit 3"], b"hello", 5000).run().await.unwrap();
        assert_eq!((out.code, out.stdout.as_slice(), out.stderr.as_str()), (Some(3), &b"hello"[..], "no"));
        let script = "head -c 1000000 /dev/zero; exit 0";
        let out = sh(&["-c", script], b"", 5000).run().await.unwrap();
        assert_eq!(out.stdout.len() as u64, MAX_OUTPUT_BYTES);
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed() {
        let e = sh(&["-c", "exec sleep 60"], b"", 100).run().await.unwrap_err();
        assert!(matches!(e, CommandError::TimedOut { .. }), "{e}");
        let nothing = ProgramCall { path: Path::new("/no/such/program"), ..sh(&[], b"", 100) };
        assert!(matches!(nothing.run().await, Err(CommandError::Start { .. })));
    }
}
