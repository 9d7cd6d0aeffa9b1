//! Seals the secret with which the processes of a command that stays alive recognise each other. One agent
//! sends it to the others, and MUNGE seals it for this user alone. So neither the daemon, which passes it on,
//! nor anyone who listens to the network can read it.
//!
//! Sites without MUNGE have TLS between agents and daemon, or both on one machine. There it is not sealed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use infill_api::seal::encode_hex;
use infill_model::{JobId, Secret};

use super::identity::slurm_conf_value;
use super::runtime_dir::own_uid;
use super::slurm_programs::{SlurmPrograms, run_program};

/// How long a program may take. munged answers in milliseconds unless it has a problem; Slurm may be busy.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(5);

/// Length of a secret in bytes.
const SECRET_BYTES: usize = 32;

/// Longest sealed secret that is accepted, bytes. Ours have some 300.
const MAX_SEALED_BYTES: usize = 4096;

/// The start of every MUNGE credential.
const MUNGE: &str = "MUNGE:";

/// Exit codes of `unmunge` for a sound credential, also if it is old or was read here before. Both are
/// acceptable, because the credential only seals and proves nothing.
const ACCEPTED_CODES: [i32; 4] = [0, 15, 16, 17];

/// A secret, and the sealed form from which other agents of the job can recover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedSecret {
    /// 32 bytes in hexadecimal.
    pub secret: Secret,
    /// The sealed form, which is safe to send.
    pub sealed: Secret,
}

/// Makes a new secret for a malleable job.
///
/// # Errors
/// When the system gives no random bytes, or MUNGE fails although Slurm uses it.
pub(crate) async fn make_secret(programs: &SlurmPrograms, lead: JobId) -> Result<SealedSecret, String> {
    let mut bytes = [0u8; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| format!("no random bytes: {e}"))?;
    let secret = encode_hex(&bytes);
    let restriction = format!("--restrict-uid={}", own_uid());
    let sealed = match run_munge(&programs.munge, &[&restriction], &secret_payload(lead, &secret)).await {
        Ok((0, text)) if text.starts_with(MUNGE) => text.trim().to_owned(),
        Err(MungeFailure::NotThere) => secret.clone(),
        // MUNGE is installed, but Slurm does not use it.
        _ if uses_auth_slurm(programs).await => secret.clone(),
        Ok((code, _)) => return Err(format!("munge ended with code {code}")),
        Err(MungeFailure::Other(why)) => return Err(why),
    };
    Ok(SealedSecret { secret: Secret(secret), sealed: Secret(sealed) })
}

/// Opens a secret that another agent of this user and job has sealed.
///
/// # Errors
/// When `unmunge` fails, or it is not a secret that an agent of this user sealed for this job.
pub(crate) async fn open_secret(
    programs: &SlurmPrograms,
    lead: JobId,
    sealed: &Secret,
) -> Result<Secret, String> {
    if sealed.0.len() > MAX_SEALED_BYTES {
        return Err(format!("expected at most {MAX_SEALED_BYTES} bytes"));
    }
    let secret = if sealed.0.starts_with(MUNGE) {
        let answer = run_munge(&programs.unmunge, &["--keys=UID"], &sealed.0).await;
        let text = match answer {
            Ok((code, text)) if ACCEPTED_CODES.contains(&code) => text,
            Ok((code, _)) => return Err(format!("unmunge ended with code {code}")),
            Err(MungeFailure::NotThere) => return Err("there is no unmunge".to_owned()),
            Err(MungeFailure::Other(why)) => return Err(why),
        };
        parse_unmunge(&text, lead)?
    } else if is_missing(&programs.munge).await || uses_auth_slurm(programs).await {
        sealed.0.clone()
    } else {
        return Err("it is not sealed, though there is MUNGE here".to_owned());
    };
    let is_hexadecimal = secret.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hexadecimal || secret.len() != 2 * SECRET_BYTES {
        return Err(format!("expected {SECRET_BYTES} bytes in hexadecimal"));
    }
    Ok(Secret(secret))
}

/// Whether the program `munge` does not exist.
async fn is_missing(munge: &Path) -> bool {
    matches!(run_munge(munge, &[], "").await, Err(MungeFailure::NotThere))
}

/// The text that is sealed. It names the purpose and the job, and is worthless for any other.
fn secret_payload(lead: JobId, secret: &str) -> String {
    format!("infill1 ranks {lead} {secret}")
}

/// Takes the secret out of the output of `unmunge`: who sealed it, an empty line, the sealed text.
fn parse_unmunge(text: &str, lead: JobId) -> Result<String, String> {
    let (head, sealed) = text.split_once("\n\n").ok_or("cannot understand the output of unmunge")?;
    let uid = head.strip_prefix("UID:").and_then(|rest| rest.trim().rsplit_once('(')?.1.strip_suffix(')'));
    if uid.and_then(|uid| uid.parse().ok()) != Some(own_uid()) {
        return Err("another user has made it".to_owned());
    }
    let secret = sealed.strip_prefix(&secret_payload(lead, ""));
    secret.map(|secret| secret.trim().to_owned()).ok_or_else(|| "it was made for something else".to_owned())
}

/// Whether this cluster does without MUNGE (auth/slurm) according to Slurm's configuration.
async fn uses_auth_slurm(programs: &SlurmPrograms) -> bool {
    let config =
        run_program(&programs.scontrol, &["show", "config"], "", PROGRAM_TIMEOUT).await.unwrap_or_default();
    slurm_conf_value(&config, "AuthType") == Some("auth/slurm")
}

enum MungeFailure {
    NotThere,
    Other(String),
}

/// Runs a program of MUNGE's, and returns its exit code and output. Secrets are only on its standard input
/// and output, never in an error.
async fn run_munge(program: &Path, args: &[&str], input: &str) -> Result<(i32, String), MungeFailure> {
    let name = program.display();
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => MungeFailure::NotThere,
        _ => MungeFailure::Other(format!("cannot run {name}: {error}")),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // If a program does not read its input, its status shows the reason.
        stdin.write_all(input.as_bytes()).await.ok();
    }
    match tokio::time::timeout(PROGRAM_TIMEOUT, child.wait_with_output()).await {
        Err(_) => Err(MungeFailure::Other(format!("{name} does not answer"))),
        Ok(Err(error)) => Err(MungeFailure::Other(format!("{name}: {error}"))),
        Ok(Ok(done)) => {
            Ok((done.status.code().unwrap_or(-1), String::from_utf8_lossy(&done.stdout).into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::munge;

    const LEAD: JobId = JobId(7);

    #[tokio::test]
    async fn another_agent_of_the_job_opens_a_sealed_secret() {
        let dir = tempfile::tempdir().unwrap();
        for code in ACCEPTED_CODES {
            let programs = munge(dir.path(), own_uid(), code);
            let made = make_secret(&programs, LEAD).await.unwrap();
            let args = std::fs::read_to_string(dir.path().join("munge.args")).unwrap();
            assert_eq!(args.trim(), format!("--restrict-uid={}", own_uid()));
            assert!(made.sealed.0.starts_with(MUNGE) && !made.sealed.0.contains(&made.secret.0));
            assert_eq!(open_secret(&programs, LEAD, &made.sealed).await, Ok(made.secret));
        }
    }

    #[tokio::test]
    async fn a_secret_of_another_user_or_job_or_an_unreadable_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = make_secret(&munge(dir.path(), own_uid(), 0), LEAD).await.unwrap();
        for (uid, code, lead, why) in [
            (own_uid() + 1, 0, LEAD, "another user has made it"),
            (own_uid(), 0, JobId(8), "it was made for something else"),
            (own_uid(), 18, LEAD, "unmunge ended with code 18"),
        ] {
            let programs = munge(dir.path(), uid, code);
            assert_eq!(open_secret(&programs, lead, &made.sealed).await, Err(why.to_owned()));
        }
        let programs = munge(dir.path(), own_uid(), 0);
        let programs = SlurmPrograms { munge: dir.path().join("none"), ..programs };
        for no_secret in ["", "ab01", &"Z".repeat(64), &"a".repeat(MAX_SEALED_BYTES + 1)] {
            let error = open_secret(&programs, LEAD, &Secret(no_secret.to_owned())).await.unwrap_err();
            assert!(error.starts_with("expected") && !error.contains("ab01"), "{error}");
        }
    }

    #[tokio::test]
    async fn only_a_site_without_munge_sends_the_secret_unsealed() {
        let dir = tempfile::tempdir().unwrap();
        let none = SlurmPrograms { munge: dir.path().join("none"), ..SlurmPrograms::default() };
        let made = make_secret(&none, LEAD).await.unwrap();
        assert_eq!(made.secret, made.sealed);
        assert_eq!(open_secret(&none, LEAD, &made.sealed).await, Ok(made.secret));
        let with_auth_type = |auth: &str| {
            let script = |name: &str, body: &str| infill_testkit::write_script(dir.path().join(name), body);
            let scontrol = script("scontrol", &format!("echo 'AuthType                = {auth}'"));
            SlurmPrograms { munge: script("munge", "exit 6"), scontrol, ..SlurmPrograms::default() }
        };
        let made = make_secret(&with_auth_type("auth/slurm"), LEAD).await.unwrap();
        assert_eq!(made.secret, made.sealed);
        assert_eq!(open_secret(&with_auth_type("auth/slurm"), LEAD, &made.sealed).await, Ok(made.secret));
        let unsealed = Err("it is not sealed, though there is MUNGE here".to_owned());
        assert_eq!(open_secret(&with_auth_type("auth/munge"), LEAD, &made.sealed).await, unsealed);
        assert_eq!(
            make_secret(&with_auth_type("auth/munge"), LEAD).await,
            Err("munge ended with code 6".to_owned())
        );
    }
}
