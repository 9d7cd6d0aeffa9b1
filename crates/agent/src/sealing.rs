//! The secret by which the processes of a command that stays alive know each other, on its way from one agent
//! to the others: sealed by MUNGE for this user alone, so that neither the daemon, which passes it on, nor
//! whoever listens to the network can read it.
//!
//! Sites without MUNGE have TLS between agents and daemon, or both on one machine: there it is not sealed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use infill_api::seal::hex;
use infill_model::{JobId, Secret};

use super::home::user;
use super::identity::slurm_conf_value;
use super::programs::{Programs, run};

/// munged answers in milliseconds or is ailing; Slurm may be busy.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Most bytes of what is sealed. Ours has some 300.
const MOST_SEALED_BYTES: usize = 4096;

/// With what MUNGE's credentials begin.
const MUNGE: &str = "MUNGE:";

/// Exit codes of `unmunge` for what is sound, but old, or read here before: we seal, and prove nothing.
const SOUND: [i32; 4] = [0, 15, 16, 17];

/// A secret, and what other agents of the job can make it of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    /// 32 bytes in hexadecimal.
    pub secret: Secret,
    /// For the way.
    pub sealed: Secret,
}

/// Makes a new secret for a malleable job. The error says what is missing.
pub(crate) async fn make(programs: &Programs, lead: JobId) -> Result<Sealed, String> {
    let mut bytes = [0u8; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| format!("no random bytes: {e}"))?;
    let secret = hex(&bytes);
    let only_us = format!("--restrict-uid={}", user());
    let sealed = match exchange(&programs.munge, &[&only_us], &payload(lead, &secret)).await {
        Ok((0, text)) if text.starts_with(MUNGE) => text.trim().to_owned(),
        Err(Trouble::NotThere) => secret.clone(),
        // It is installed, and nothing of Slurm uses it.
        _ if slurm_has_its_own(programs).await => secret.clone(),
        Ok((code, _)) => return Err(format!("munge ended with code {code}")),
        Err(Trouble::Other(why)) => return Err(why),
    };
    Ok(Sealed { secret: Secret(secret), sealed: Secret(sealed) })
}

/// Reads what another agent of this user and job has sealed. The error says why it is not that.
pub(crate) async fn open(programs: &Programs, lead: JobId, sealed: &Secret) -> Result<Secret, String> {
    if sealed.0.len() > MOST_SEALED_BYTES {
        return Err(format!("expected at most {MOST_SEALED_BYTES} bytes"));
    }
    let secret = if sealed.0.starts_with(MUNGE) {
        let answer = exchange(&programs.unmunge, &["--keys=UID"], &sealed.0).await;
        let text = match answer {
            Ok((code, text)) if SOUND.contains(&code) => text,
            Ok((code, _)) => return Err(format!("unmunge ended with code {code}")),
            Err(Trouble::NotThere) => return Err("there is no unmunge".to_owned()),
            Err(Trouble::Other(why)) => return Err(why),
        };
        read(&text, lead)?
    } else if is_missing(&programs.munge).await || slurm_has_its_own(programs).await {
        sealed.0.clone()
    } else {
        return Err("it is not sealed, though there is MUNGE here".to_owned());
    };
    let is_one =
        secret.len() == 2 * SECRET_BYTES && secret.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    is_one.then_some(Secret(secret)).ok_or_else(|| format!("expected {SECRET_BYTES} bytes in hexadecimal"))
}

/// Whether there is no such program.
async fn is_missing(munge: &Path) -> bool {
    matches!(exchange(munge, &[], "").await, Err(Trouble::NotThere))
}

/// What is sealed: it is worth something for this purpose and job only.
fn payload(lead: JobId, secret: &str) -> String {
    format!("infill1 ranks {lead} {secret}")
}

/// Takes the secret out of `unmunge`'s words: who sealed it, an empty line, what was sealed.
fn read(text: &str, lead: JobId) -> Result<String, String> {
    let (head, sealed) = text.split_once("\n\n").ok_or("unmunge says nothing that is known")?;
    let uid = head.strip_prefix("UID:").and_then(|rest| rest.trim().rsplit_once('(')?.1.strip_suffix(')'));
    if uid.and_then(|uid| uid.parse().ok()) != Some(user()) {
        return Err("another user has made it".to_owned());
    }
    let secret = sealed.strip_prefix(&payload(lead, ""));
    secret.map(|secret| secret.trim().to_owned()).ok_or_else(|| "it was made for something else".to_owned())
}

/// Whether this cluster does without MUNGE (auth/slurm), as far as Slurm says.
async fn slurm_has_its_own(programs: &Programs) -> bool {
    let config = run(&programs.scontrol, &["show", "config"], "", PROGRAM_TIMEOUT).await.unwrap_or_default();
    slurm_conf_value(&config, "AuthType") == Some("auth/slurm")
}

enum Trouble {
    NotThere,
    Other(String),
}

/// Exit code and output of a program of MUNGE's. Secrets are on its standard input and output only, and in no
/// error.
async fn exchange(program: &Path, args: &[&str], input: &str) -> Result<(i32, String), Trouble> {
    let name = program.display();
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Trouble::NotThere,
        _ => Trouble::Other(format!("cannot run {name}: {error}")),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why by its status.
        stdin.write_all(input.as_bytes()).await.ok();
    }
    match tokio::time::timeout(PROGRAM_TIMEOUT, child.wait_with_output()).await {
        Err(_) => Err(Trouble::Other(format!("{name} does not answer"))),
        Ok(Err(error)) => Err(Trouble::Other(format!("{name}: {error}"))),
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
    async fn what_one_agent_seals_another_one_of_the_job_opens() {
        let dir = tempfile::tempdir().unwrap();
        for code in SOUND {
            let programs = munge(dir.path(), user(), code);
            let made = make(&programs, LEAD).await.unwrap();
            let args = std::fs::read_to_string(dir.path().join("munge.args")).unwrap();
            assert_eq!(args.trim(), format!("--restrict-uid={}", user()));
            assert!(made.sealed.0.starts_with(MUNGE) && !made.sealed.0.contains(&made.secret.0));
            assert_eq!(open(&programs, LEAD, &made.sealed).await, Ok(made.secret));
        }
    }

    #[tokio::test]
    async fn what_is_of_another_user_or_job_or_cannot_be_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = make(&munge(dir.path(), user(), 0), LEAD).await.unwrap();
        for (uid, code, lead, why) in [
            (user() + 1, 0, LEAD, "another user has made it"),
            (user(), 0, JobId(8), "it was made for something else"),
            (user(), 18, LEAD, "unmunge ended with code 18"),
        ] {
            let programs = munge(dir.path(), uid, code);
            assert_eq!(open(&programs, lead, &made.sealed).await, Err(why.to_owned()));
        }
        let programs = munge(dir.path(), user(), 0);
        let programs = Programs { munge: dir.path().join("none"), ..programs };
        for no_secret in ["", "ab01", &"Z".repeat(64), &"a".repeat(MOST_SEALED_BYTES + 1)] {
            let error = open(&programs, LEAD, &Secret(no_secret.to_owned())).await.unwrap_err();
            assert!(error.starts_with("expected") && !error.contains("ab01"), "{error}");
        }
    }

    #[tokio::test]
    async fn only_a_site_without_munge_hands_it_on_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let none = Programs { munge: dir.path().join("none"), ..Programs::default() };
        let made = make(&none, LEAD).await.unwrap();
        assert_eq!(made.secret, made.sealed);
        assert_eq!(open(&none, LEAD, &made.sealed).await, Ok(made.secret));
        let with = |auth: &str| {
            let script = |name: &str, body: &str| infill_testkit::script(dir.path().join(name), body);
            let scontrol = script("scontrol", &format!("echo 'AuthType                = {auth}'"));
            Programs { munge: script("munge", "exit 6"), scontrol, ..Programs::default() }
        };
        let made = make(&with("auth/slurm"), LEAD).await.unwrap();
        assert_eq!(made.secret, made.sealed);
        assert_eq!(open(&with("auth/slurm"), LEAD, &made.sealed).await, Ok(made.secret));
        let unsealed = Err("it is not sealed, though there is MUNGE here".to_owned());
        assert_eq!(open(&with("auth/munge"), LEAD, &made.sealed).await, unsealed);
        assert_eq!(make(&with("auth/munge"), LEAD).await, Err("munge ended with code 6".to_owned()));
    }
}
