//! Proof of who we are: a MUNGE credential, or the user's Slurm token where there is no MUNGE. And of who the
//! daemon is: a MUNGE credential of its user.
//!
//! What is made here stays in memory: it is never logged, never an argument or an environment variable.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::OnceCell;

use infill_api::{addresses, seal::encode_hex};
use infill_model::{
    Credential, JobId, Secret, bound_payload,
    config::AgentConfig,
    munge::{self, DecodedCredential},
};

/// `munge` and `scontrol token` answer in milliseconds; a daemon of theirs that hangs must not hang us.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a nonce: 128 bits cannot be guessed or met twice.
const NONCE_BYTES: usize = 16;

/// Lifetime that is asked for a token, seconds: it is used at once.
const TOKEN_LIFESPAN_SECS: u32 = 60;

/// A credential and the nonce that is bound into it.
#[derive(Clone, Debug)]
pub struct IdentityProof {
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
    /// Somebody else poses as the daemon.
    #[error(
        "user {uid} has made it, who is neither root nor {daemon_user} (agent.daemon_user) nor SlurmUser"
    )]
    Impostor {
        /// Who made what the daemon should have made.
        uid: u32,
        /// Who should have.
        daemon_user: String,
    },
}

/// What a proof is for; it is worth nothing for anything else.
#[derive(Clone, Copy, Debug)]
pub struct ProofPurpose<'a> {
    /// What is to be done.
    pub what: &'a str,
    /// Our job, of an agent.
    pub job: Option<JobId>,
    /// The daemon, as `HOST:PORT`.
    pub to: &'a str,
    /// Digest of the order that is given, if one is.
    pub order: Option<&'a str>,
}

impl IdentityProof {
    /// Itself, if it may be shown to the daemons at these URLs.
    ///
    /// # Errors
    /// When it is a token, and others could read it on its way to one of them.
    pub fn require_private_channel(self, urls: &[String]) -> Result<IdentityProof, IdentityError> {
        let plain = urls.iter().find(|url| addresses::can_be_overheard(url));
        match (&self.credential, plain) {
            (Credential::Jwt(_), Some(url)) => Err(IdentityError::Overheard { url: url.clone() }),
            _ => Ok(self),
        }
    }
}

/// Someone who can prove who we are, and knows the daemon.
#[async_trait]
pub trait IdentityProvider: Send + Sync {
    /// Makes a fresh proof.
    async fn make_proof(&self, purpose: &ProofPurpose<'_>) -> Result<IdentityProof, IdentityError>;

    /// What a credential carries that was made for us alone, if the daemon's user has made it.
    async fn open_sealed(&self, sealed: &Secret) -> Result<Secret, IdentityError>;
}

/// Proof by what a Slurm cluster has: `munge`; `scontrol token` where there is none, or Slurm does not use
/// it.
#[derive(Clone, Debug)]
pub struct SlurmIdentity {
    /// The `munge` program.
    pub munge: PathBuf,
    /// The `unmunge` program.
    pub unmunge: PathBuf,
    /// The `scontrol` program.
    pub scontrol: PathBuf,
    /// The user as whom the daemon runs.
    pub daemon_user: String,
    /// What was found out of users.
    #[doc(hidden)]
    pub known: Arc<TrustedUids>,
}

/// Users whose daemon is believed, once they were found.
#[derive(Debug, Default)]
pub struct TrustedUids {
    daemon: OnceCell<u32>,
    slurm: OnceCell<u32>,
}

impl Default for SlurmIdentity {
    fn default() -> Self {
        SlurmIdentity::trusting_user(AgentConfig::default().daemon_user)
    }
}

impl SlurmIdentity {
    /// The cluster's programs, by their names; believes daemons of this user.
    pub fn trusting_user(daemon_user: String) -> SlurmIdentity {
        let [munge, unmunge, scontrol] = ["munge", "unmunge", "scontrol"].map(PathBuf::from);
        SlurmIdentity { munge, unmunge, scontrol, daemon_user, known: Arc::default() }
    }
}

#[async_trait]
impl IdentityProvider for SlurmIdentity {
    async fn make_proof(&self, purpose: &ProofPurpose<'_>) -> Result<IdentityProof, IdentityError> {
        match self.munge_proof(purpose).await {
            Err(e) if self.does_without_munge(&e).await => self.token_proof().await,
            proof => proof,
        }
    }

    async fn open_sealed(&self, sealed: &Secret) -> Result<Secret, IdentityError> {
        let program = self.unmunge.to_string_lossy();
        let failed =
            |what: &str| IdentityError::Failed { program: program.to_string(), what: what.to_owned() };
        let credential = sealed.0.trim();
        if !munge::is_credential(credential) {
            return Err(failed("it is not a MUNGE credential"));
        }
        let text = program_output(&program, &[], credential.as_bytes()).await?;
        let DecodedCredential { uid, payload, .. } = munge::parse(&text).map_err(failed)?;
        if self.is_daemon_uid(uid).await {
            return Ok(Secret(payload));
        }
        Err(IdentityError::Impostor { uid, daemon_user: self.daemon_user.clone() })
    }
}

impl SlurmIdentity {
    /// A fresh proof by MUNGE.
    ///
    /// # Errors
    /// When `munge` is missing, or fails.
    pub async fn munge_proof(&self, purpose: &ProofPurpose<'_>) -> Result<IdentityProof, IdentityError> {
        let nonce = random_nonce()?;
        let ProofPurpose { what, job, to, order } = *purpose;
        let payload = bound_payload(what, job, &nonce, to, order);
        let text = program_output(&self.munge.to_string_lossy(), &[], payload.as_bytes()).await?;
        Ok(IdentityProof { credential: Credential::Munge(Secret(text.trim().to_owned())), nonce })
    }

    /// A proof by a token of Slurm's, which proves the user to Slurm too: whoever reads it on its way may act
    /// as them for a minute.
    ///
    /// # Errors
    /// When `scontrol` is missing, or gives no token.
    pub async fn token_proof(&self) -> Result<IdentityProof, IdentityError> {
        Ok(IdentityProof { credential: Credential::Jwt(self.request_token().await?), nonce: random_nonce()? })
    }

    /// Whether a daemon of this user is infill's: of root, of the configured user, or of Slurm's. Slurm is
    /// asked only if it is neither of the first two.
    async fn is_daemon_uid(&self, uid: u32) -> bool {
        // What was found once is kept: an impostor must not have each agent ask Slurm for each answer.
        let is = |found: Result<&u32, ()>| found == Ok(&uid);
        uid == 0
            || is(self.known.daemon.get_or_try_init(async || self.daemon_uid().await.ok_or(())).await)
            || is(self.known.slurm.get_or_try_init(async || self.slurm_uid().await.ok_or(())).await)
    }

    async fn slurm_uid(&self) -> Option<u32> {
        // SlurmUser = slurm(64030)
        let user = self.slurm_setting("SlurmUser").await?;
        user.rsplit_once('(').and_then(|(_, id)| id.strip_suffix(')')?.parse().ok())
    }

    async fn daemon_uid(&self) -> Option<u32> {
        // A number is none's name, though `id` takes it for one.
        let name = Some(&self.daemon_user).filter(|name| !name.bytes().all(|b| b.is_ascii_digit()))?;
        let text = program_output("id", &["-u", "--", name], b"").await;
        text.inspect_err(|e| tracing::warn!("the user of the daemon is not known here: {e}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Whether this cluster does without MUNGE, so that a proof by it fails for good: it is not installed, or
    /// nothing of Slurm uses it.
    pub async fn does_without_munge(&self, failed: &IdentityError) -> bool {
        let is_missing = |e: &IdentityError| match e {
            IdentityError::Start { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        };
        is_missing(failed) || self.uses_auth_slurm().await
    }

    /// Whether this cluster does without MUNGE (auth/slurm), as far as Slurm says.
    async fn uses_auth_slurm(&self) -> bool {
        self.slurm_setting("AuthType").await.as_deref() == Some("auth/slurm")
    }

    /// What Slurm's configuration says, if it can be asked.
    async fn slurm_setting(&self, key: &str) -> Option<String> {
        let config = program_output(&self.scontrol.to_string_lossy(), &["show", "config"], b"").await.ok()?;
        slurm_conf_value(&config, key).map(str::to_owned)
    }

    async fn request_token(&self) -> Result<Secret, IdentityError> {
        let program = self.scontrol.to_string_lossy();
        let lifespan = format!("lifespan={TOKEN_LIFESPAN_SECS}");
        let text = program_output(&program, &["token", &lifespan], b"").await?;
        match text.trim().strip_prefix("SLURM_JWT=") {
            Some(token) => Ok(Secret(token.to_owned())),
            None => Err(IdentityError::Failed {
                program: program.into_owned(),
                what: "its answer has no SLURM_JWT=".to_owned(),
            }),
        }
    }
}

/// The value of a key in what `scontrol show config` prints.
pub(crate) fn slurm_conf_value<'a>(config: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = config.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// Random hexadecimal text that is never used twice.
pub(crate) fn random_nonce() -> Result<String, IdentityError> {
    let mut bytes = [0u8; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(IdentityError::Random)?;
    Ok(encode_hex(&bytes))
}

/// Runs a program with `input` on its standard input and returns its standard output.
async fn program_output(program: &str, args: &[&str], input: &[u8]) -> Result<String, IdentityError> {
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
        infill_testkit::write_script(dir.join(name), body)
    }

    const HELLO: ProofPurpose<'_> =
        ProofPurpose { what: "hello", job: Some(JobId(7)), to: "ctl:6810", order: None };

    fn programs(munge: PathBuf, scontrol: PathBuf) -> SlurmIdentity {
        SlurmIdentity { munge, scontrol, ..SlurmIdentity::default() }
    }

    #[tokio::test]
    async fn munge_gets_the_payload_on_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let who = programs(script(dir.path(), "munge", "cat"), "/none".into());
        let proof = who.make_proof(&HELLO).await.unwrap();
        let Credential::Munge(secret) = proof.credential else { panic!("{proof:?}") };
        assert_eq!(secret.0, format!("infill2 hello 7 {} ctl:6810 -", proof.nonce));
        assert_eq!(proof.nonce.len(), 32);
        let order = ProofPurpose { what: "control", job: None, order: Some("00ff"), ..HELLO };
        let proof = who.make_proof(&order).await.unwrap();
        let Credential::Munge(secret) = proof.credential else { panic!("{proof:?}") };
        assert_eq!(secret.0, format!("infill2 control 0 {} ctl:6810 00ff", proof.nonce));
    }

    #[tokio::test]
    async fn only_the_daemons_user_root_and_slurms_are_believed() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = script(dir.path(), "scontrol", "echo 'SlurmUser               = slurm(64030)'");
        let opened = async |uid: &str, daemon_user: &str| {
            let answer = "printf 'STATUS: Success (0)\\nUID: who (%s)\\nGID: g (1)\\nLENGTH: 2\\n\\nhi'";
            let body = format!("[ \"$(cat)\" = MUNGE:aGk=: ] && {answer} {uid}");
            let unmunge = script(dir.path(), "unmunge", &body);
            let who = SlurmIdentity {
                unmunge,
                scontrol: scontrol.clone(),
                ..SlurmIdentity::trusting_user(daemon_user.to_owned())
            };
            who.open_sealed(&Secret("MUNGE:aGk=:".to_owned())).await.map(|payload| payload.0)
        };
        assert_eq!(opened("0", "no-such-user").await.unwrap(), "hi");
        assert_eq!(opened("64030", "no-such-user").await.unwrap(), "hi");
        let daemon = program_output("id", &["-u", "daemon"], b"").await.unwrap();
        assert_eq!(opened(daemon.trim(), "daemon").await.unwrap(), "hi");
        for (uid, daemon_user) in
            [("6102", "daemon"), ("6102", "6102"), ("6102", ""), ("6102", "no-such-user")]
        {
            let e = opened(uid, daemon_user).await.unwrap_err();
            assert!(matches!(e, IdentityError::Impostor { uid: 6102, .. }), "{daemon_user}: {e}");
        }
    }

    #[tokio::test]
    async fn what_unmunge_does_not_open_is_no_proof() {
        let dir = tempfile::tempdir().unwrap();
        let unmunge = script(dir.path(), "unmunge", "echo 'Unauthorized credential for client' >&2; exit 18");
        let who = SlurmIdentity { unmunge, ..SlurmIdentity::default() };
        let e = who.open_sealed(&Secret("MUNGE:aGk=:".to_owned())).await.unwrap_err().to_string();
        assert!(e.contains("Unauthorized"), "{e}");
        let e = who.open_sealed(&Secret("infill1 welcome".to_owned())).await.unwrap_err().to_string();
        assert!(e.contains("not a MUNGE credential"), "{e}");
    }

    #[tokio::test]
    async fn a_token_where_there_is_no_munge() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = script(dir.path(), "scontrol", "echo SLURM_JWT=xyz");
        let who = programs(dir.path().join("munge"), scontrol);
        let proof = who.make_proof(&HELLO).await.unwrap();
        assert!(matches!(&proof.credential, Credential::Jwt(s) if s.0 == "xyz"));
        assert!(!format!("{proof:?}").contains("xyz"));
    }

    #[tokio::test]
    async fn a_munge_that_nobody_started_because_slurm_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let munge = script(dir.path(), "munge", "echo no socket >&2; exit 6");
        let body = r#"[ "$1" = token ] && echo SLURM_JWT=abc || echo "AuthType                = auth/slurm""#;
        let who = programs(munge, script(dir.path(), "scontrol", body));
        let proof = who.make_proof(&HELLO).await.unwrap();
        assert!(matches!(&proof.credential, Credential::Jwt(s) if s.0 == "abc"));
    }

    #[tokio::test]
    async fn a_failing_munge_is_an_error_and_no_reason_for_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let munge = script(dir.path(), "munge", "echo no socket >&2; exit 6");
        let who = programs(munge, script(dir.path(), "scontrol", "echo SLURM_JWT=abc"));
        let error = who.make_proof(&HELLO).await.unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
    }
}
