//! Proof of who we are: a MUNGE credential, or the user's Slurm token where there is no MUNGE.
//!
//! What is made here stays in memory: it is never logged, never an argument or an environment variable.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use infill_api::addresses;
use infill_model::{Credential, JobId, Secret, hello_payload};

/// `munge` and `scontrol token` answer in milliseconds; a daemon of theirs that hangs must not hang us.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a nonce: 128 bits cannot be guessed or met twice.
const NONCE_BYTES: usize = 16;

/// Lifetime that is asked for a token, seconds: it is used at once.
const TOKEN_LIFESPAN_SECS: u32 = 60;

/// A credential and the nonce that is bound into it.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The credential.
    pub credential: Credential,
    /// Random text.
    pub nonce: String,
}

/// Why no proof could be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The system gave no random bytes.
    #[error("no random bytes from the system: {0}")]
    Random(getrandom::Error),
    /// A program could not be run.
    #[error("cannot run {program}")]
    Start {
        /// `munge` or `scontrol`.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A token of Slurm's would go in plain text to another machine.
    #[error(
        "there is no MUNGE here, and a token of Slurm's, which is good for everything, is not sent to {url}: others could \
         read it on its way. Start munged on this machine, or have the administrator set daemon.tls_cert and \
         daemon.tls_key, and an agent.url that begins with https://"
    )]
    Overheard {
        /// The daemon.
        url: String,
    },
    /// It ran and failed.
    #[error("{program} failed: {what}")]
    Failed {
        /// `munge` or `scontrol`.
        program: String,
        /// Exit status and what it said.
        what: String,
    },
}

impl Proof {
    /// Itself, if it may be shown to the daemons at these URLs.
    ///
    /// # Errors
    /// When it is a token, and others could read it on its way to one of them.
    pub fn only_where_unheard(self, urls: &[String]) -> Result<Proof, IdentityError> {
        let plain = urls.iter().find(|url| addresses::can_be_overheard(url));
        match (&self.credential, plain) {
            (Credential::Jwt(_), Some(url)) => Err(IdentityError::Overheard { url: url.clone() }),
            _ => Ok(self),
        }
    }
}

/// Someone who can prove who we are.
#[async_trait]
pub trait Identity: Send + Sync {
    /// Makes a fresh proof for this purpose and job; it is worth nothing for another.
    async fn prove(&self, purpose: &str, job: Option<JobId>) -> Result<Proof, IdentityError>;
}

/// Proof by what a Slurm cluster has: `munge`; `scontrol token` where there is none, or Slurm does not use
/// it.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The `munge` program.
    pub munge: PathBuf,
    /// The `scontrol` program.
    pub scontrol: PathBuf,
}

impl Default for Slurm {
    fn default() -> Self {
        Slurm { munge: PathBuf::from("munge"), scontrol: PathBuf::from("scontrol") }
    }
}

#[async_trait]
impl Identity for Slurm {
    async fn prove(&self, purpose: &str, job: Option<JobId>) -> Result<Proof, IdentityError> {
        match self.munge_proof(purpose, job).await {
            Err(IdentityError::Start { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.token_proof().await
            }
            // It is installed, and nothing of Slurm uses it.
            Err(_) if self.slurm_has_its_own().await => self.token_proof().await,
            proof => proof,
        }
    }
}

impl Slurm {
    /// A fresh proof by MUNGE.
    ///
    /// # Errors
    /// When `munge` is missing, or fails.
    pub async fn munge_proof(&self, purpose: &str, job: Option<JobId>) -> Result<Proof, IdentityError> {
        let nonce = nonce()?;
        let payload = hello_payload(purpose, job, &nonce);
        let text = output_of(&self.munge.to_string_lossy(), &[], payload.as_bytes()).await?;
        Ok(Proof { credential: Credential::Munge(Secret(text.trim().to_owned())), nonce })
    }

    /// A proof by a token of Slurm's, which proves the user to Slurm too: whoever reads it on its way may act
    /// as them for a minute.
    ///
    /// # Errors
    /// When `scontrol` is missing, or gives no token.
    pub async fn token_proof(&self) -> Result<Proof, IdentityError> {
        Ok(Proof { credential: Credential::Jwt(self.token().await?), nonce: nonce()? })
    }

    /// Whether this cluster does without MUNGE (auth/slurm), as far as Slurm says.
    async fn slurm_has_its_own(&self) -> bool {
        let config = output_of(&self.scontrol.to_string_lossy(), &["show", "config"], b"").await;
        let config = config.unwrap_or_default();
        let auth =
            config.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == "AuthType");
        auth.is_some_and(|(_, value)| value.trim() == "auth/slurm")
    }

    async fn token(&self) -> Result<Secret, IdentityError> {
        let program = self.scontrol.to_string_lossy();
        let lifespan = format!("lifespan={TOKEN_LIFESPAN_SECS}");
        let text = output_of(&program, &["token", &lifespan], b"").await?;
        match text.trim().strip_prefix("SLURM_JWT=") {
            Some(token) => Ok(Secret(token.to_owned())),
            None => Err(IdentityError::Failed {
                program: program.into_owned(),
                what: "its answer has no SLURM_JWT=".to_owned(),
            }),
        }
    }
}

/// Random hexadecimal text that is never used twice.
pub(crate) fn nonce() -> Result<String, IdentityError> {
    let mut bytes = [0u8; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(IdentityError::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs a program with `input` on its standard input and returns its standard output.
async fn output_of(program: &str, args: &[&str], input: &[u8]) -> Result<String, IdentityError> {
    let start = |source| IdentityError::Start { program: program.to_owned(), source };
    let failed = |what: String| IdentityError::Failed { program: program.to_owned(), what };
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(start)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why on stderr and by its status.
        stdin.write_all(input).await.ok();
    }
    let done = tokio::time::timeout(PROGRAM_TIMEOUT, child.wait_with_output())
        .await
        .map_err(|_| failed(format!("no answer in {} s", PROGRAM_TIMEOUT.as_secs())))?
        .map_err(start)?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(failed(format!("{}: {}", done.status, said.trim())));
    }
    String::from_utf8(done.stdout).map_err(|_| failed("its answer is not text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &std::path::Path, name: &str, body: &str) -> PathBuf {
        infill_testkit::script(dir.join(name), body)
    }

    #[tokio::test]
    async fn munge_gets_the_payload_on_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let who = Slurm { munge: script(dir.path(), "munge", "cat"), scontrol: "/none".into() };
        let proof = who.prove("hello", Some(JobId(7))).await.unwrap();
        let Credential::Munge(secret) = proof.credential else { panic!("{proof:?}") };
        assert_eq!(secret.0, format!("infill1 hello 7 {}", proof.nonce));
        assert_eq!(proof.nonce.len(), 32);
    }

    #[tokio::test]
    async fn a_token_where_there_is_no_munge() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = script(dir.path(), "scontrol", "echo SLURM_JWT=xyz");
        let who = Slurm { munge: dir.path().join("munge"), scontrol };
        let proof = who.prove("control", None).await.unwrap();
        assert!(matches!(&proof.credential, Credential::Jwt(s) if s.0 == "xyz"));
        assert!(!format!("{proof:?}").contains("xyz"));
    }

    #[tokio::test]
    async fn a_munge_that_nobody_started_because_slurm_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let munge = script(dir.path(), "munge", "echo no socket >&2; exit 6");
        let body = r#"[ "$1" = token ] && echo SLURM_JWT=abc || echo "AuthType                = auth/slurm""#;
        let who = Slurm { munge, scontrol: script(dir.path(), "scontrol", body) };
        let proof = who.prove("hello", None).await.unwrap();
        assert!(matches!(&proof.credential, Credential::Jwt(s) if s.0 == "abc"));
    }

    #[tokio::test]
    async fn a_failing_munge_is_an_error_and_no_reason_for_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let munge = script(dir.path(), "munge", "echo no socket >&2; exit 6");
        let who = Slurm { munge, scontrol: script(dir.path(), "scontrol", "echo SLURM_JWT=abc") };
        let error = who.prove("hello", None).await.unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
    }
}
