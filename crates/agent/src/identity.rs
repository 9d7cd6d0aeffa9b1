//! Proves who we are, by a MUNGE credential, or by the user's Slurm token where there is no MUNGE. Also
//! checks who the daemon is, by a MUNGE credential of its user.
//!
//! Secrets stay in memory: they are never logged, and never passed as arguments or environment variables.

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

/// How long a program may take. `munge` and `scontrol token` answer in milliseconds; if their daemon hangs,
/// we must not hang with it.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a nonce. 128 bits cannot be guessed, and do not occur twice.
const NONCE_BYTES: usize = 16;

/// Lifetime of a token that we request, seconds. It is short because the token is used at once.
const TOKEN_LIFESPAN_SECS: u32 = 60;

/// A credential and the nonce that is bound into it.
#[derive(Clone, Debug)]
pub struct IdentityProof {
    /// The MUNGE credential or token, which is a secret.
    pub credential: Credential,
    /// Random hexadecimal text, used once.
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
        /// `munge`, `unmunge`, `scontrol` or `id`.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A token of Slurm's would go in plain text to another machine.
    #[error(
        "there is no MUNGE here, and a Slurm token, which allows everything that the user may do, is not sent to \
         {url}: others could read it on its way. Start munged on this machine, or have the administrator set \
         daemon.tls_cert and daemon.tls_key, and an agent.url that begins with https://"
    )]
    PlainTextToken {
        /// The daemon's URL.
        url: String,
    },
    /// A program ran and failed.
    #[error("{program} failed: {what}")]
    Failed {
        /// `munge`, `unmunge`, `scontrol` or `id`.
        program: String,
        /// Exit status and error output.
        what: String,
    },
    /// Someone else poses as the daemon.
    #[error("user {uid} made it, but only root, {daemon_user} (agent.daemon_user) and SlurmUser are trusted")]
    Impostor {
        /// The user who made the credential in the daemon's name.
        uid: u32,
        /// The user of whom it was expected.
        daemon_user: String,
    },
}

/// The purpose of a proof. The proof is worthless for any other purpose.
#[derive(Clone, Copy, Debug)]
pub struct ProofPurpose<'a> {
    /// The action that the proof is for, such as `hello`.
    pub action: &'a str,
    /// Our job, if we are an agent.
    pub job: Option<JobId>,
    /// The daemon, as `HOST:PORT`.
    pub audience: &'a str,
    /// Digest of the administrator's order; `None` for other purposes.
    pub order: Option<&'a str>,
}

impl IdentityProof {
    /// Returns the proof, if it may be sent to the daemons at these URLs.
    ///
    /// # Errors
    /// When it is a token, and others could read it on its way to one of the daemons.
    pub fn require_private_channel(self, urls: &[String]) -> Result<IdentityProof, IdentityError> {
        let plain = urls.iter().find(|url| addresses::can_be_overheard(url));
        match (&self.credential, plain) {
            (Credential::Jwt(_), Some(url)) => Err(IdentityError::PlainTextToken { url: url.clone() }),
            _ => Ok(self),
        }
    }
}

/// Proves who we are, and recognises the daemon.
#[async_trait]
pub trait IdentityProvider: Send + Sync {
    /// Makes a fresh proof.
    async fn make_proof(&self, purpose: &ProofPurpose<'_>) -> Result<IdentityProof, IdentityError>;

    /// Opens a credential that was made for us alone, and returns its payload.
    ///
    /// # Errors
    /// When it is not a credential, or the daemon's user has not made it.
    async fn open_sealed(&self, sealed: &Secret) -> Result<Secret, IdentityError>;
}

/// Proves identity with the programs of a Slurm cluster: `munge`, or `scontrol token` where there is no MUNGE
/// or Slurm does not use it.
#[derive(Clone, Debug)]
pub struct SlurmIdentity {
    /// The `munge` program.
    pub munge: PathBuf,
    /// The `unmunge` program.
    pub unmunge: PathBuf,
    /// The `scontrol` program.
    pub scontrol: PathBuf,
    /// Name of the user as whom the daemon runs.
    pub daemon_user: String,
    /// The user ids that were looked up so far.
    #[doc(hidden)]
    pub trusted_uids: Arc<TrustedUids>,
}

/// Ids of the users whose daemon is trusted, once they were looked up.
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
    /// Uses the cluster's programs by their names, and trusts daemons of this user.
    pub fn trusting_user(daemon_user: String) -> SlurmIdentity {
        let [munge, unmunge, scontrol] = ["munge", "unmunge", "scontrol"].map(PathBuf::from);
        SlurmIdentity { munge, unmunge, scontrol, daemon_user, trusted_uids: Arc::default() }
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
        let credential = sealed.0.trim();
        if !munge::is_credential(credential) {
            return Err(program_failure(&program, "it is not a MUNGE credential"));
        }
        let text = program_output(&program, &[], credential.as_bytes()).await?;
        let decoded = munge::parse(&text).map_err(|what| program_failure(&program, what))?;
        let DecodedCredential { uid, payload, .. } = decoded;
        if self.is_daemon_uid(uid).await {
            return Ok(Secret(payload));
        }
        Err(IdentityError::Impostor { uid, daemon_user: self.daemon_user.clone() })
    }
}

impl SlurmIdentity {
    /// Makes a fresh proof by MUNGE.
    ///
    /// # Errors
    /// When `munge` is missing, or fails.
    pub async fn munge_proof(&self, purpose: &ProofPurpose<'_>) -> Result<IdentityProof, IdentityError> {
        let nonce = random_nonce()?;
        let ProofPurpose { action, job, audience, order } = *purpose;
        let payload = bound_payload(action, job, &nonce, audience, order);
        let text = program_output(&self.munge.to_string_lossy(), &[], payload.as_bytes()).await?;
        Ok(IdentityProof { credential: Credential::Munge(Secret(text.trim().to_owned())), nonce })
    }

    /// Makes a proof by a token of Slurm's. It proves the user to Slurm too: anyone who reads it on its way
    /// may act as that user for a minute.
    ///
    /// # Errors
    /// When `scontrol` is missing, or gives no token.
    pub async fn token_proof(&self) -> Result<IdentityProof, IdentityError> {
        Ok(IdentityProof { credential: Credential::Jwt(self.request_token().await?), nonce: random_nonce()? })
    }

    /// Whether a daemon of this user is trusted: the user must be root, the configured user, or Slurm's user.
    /// Slurm is asked only if it is neither of the first two.
    async fn is_daemon_uid(&self, uid: u32) -> bool {
        if uid == 0 {
            return true;
        }
        // The ids are kept, so that an impostor cannot make every agent ask Slurm for every answer.
        let daemon_uid =
            self.trusted_uids.daemon.get_or_try_init(async || self.daemon_uid().await.ok_or(())).await;
        if daemon_uid == Ok(&uid) {
            return true;
        }
        let slurm_uid =
            self.trusted_uids.slurm.get_or_try_init(async || self.slurm_uid().await.ok_or(())).await;
        slurm_uid == Ok(&uid)
    }

    async fn slurm_uid(&self) -> Option<u32> {
        // SlurmUser = slurm(64030)
        let user = self.slurm_setting("SlurmUser").await?;
        user.rsplit_once('(').and_then(|(_, id)| id.strip_suffix(')')?.parse().ok())
    }

    async fn daemon_uid(&self) -> Option<u32> {
        // A number is not a user name, though `id` accepts it as one.
        let name = Some(&self.daemon_user).filter(|name| !name.bytes().all(|b| b.is_ascii_digit()))?;
        let text = program_output("id", &["-u", "--", name], b"").await;
        text.inspect_err(|e| tracing::warn!("the user of the daemon is not known here: {e}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Whether this cluster does without MUNGE, so that a proof by MUNGE fails for good: MUNGE is not
    /// installed, or Slurm does not use it. `failed`: the error of the proof by MUNGE.
    pub async fn does_without_munge(&self, failed: &IdentityError) -> bool {
        if let IdentityError::Start { source, .. } = failed
            && source.kind() == io::ErrorKind::NotFound
        {
            return true;
        }
        self.uses_auth_slurm().await
    }

    /// Whether this cluster does without MUNGE (auth/slurm) according to Slurm's configuration.
    async fn uses_auth_slurm(&self) -> bool {
        self.slurm_setting("AuthType").await.as_deref() == Some("auth/slurm")
    }

    /// A setting of Slurm's configuration; `None` if it is not set or Slurm does not answer.
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
            None => Err(program_failure(&program, "its answer has no SLURM_JWT=")),
        }
    }
}

/// The value of a key in the output of `scontrol show config`.
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

/// The error of a program that ran and failed.
fn program_failure(program: &str, what: impl Into<String>) -> IdentityError {
    IdentityError::Failed { program: program.to_owned(), what: what.into() }
}

/// The error of a program that could not be run.
fn start_failure(program: &str, source: io::Error) -> IdentityError {
    IdentityError::Start { program: program.to_owned(), source }
}

/// Runs a program with `input` on its standard input and returns its standard output.
async fn program_output(program: &str, args: &[&str], input: &[u8]) -> Result<String, IdentityError> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| start_failure(program, source))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If a program does not read its input, its error output and status show the reason.
        stdin.write_all(input).await.ok();
    }
    let done = tokio::time::timeout(PROGRAM_TIMEOUT, child.wait_with_output())
        .await
        .map_err(|_| program_failure(program, format!("no answer in {} s", PROGRAM_TIMEOUT.as_secs())))?
        .map_err(|source| start_failure(program, source))?;
    if !done.status.success() {
        let message = String::from_utf8_lossy(&done.stderr);
        return Err(program_failure(program, format!("{}: {}", done.status, message.trim())));
    }
    String::from_utf8(done.stdout).map_err(|_| program_failure(program, "its answer is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &std::path::Path, name: &str, body: &str) -> PathBuf {
        infill_testkit::write_script(dir.join(name), body)
    }

    const HELLO: ProofPurpose<'_> =
        ProofPurpose { action: "hello", job: Some(JobId(7)), audience: "ctl:6810", order: None };

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
        let order = ProofPurpose { action: "control", job: None, order: Some("00ff"), ..HELLO };
        let proof = who.make_proof(&order).await.unwrap();
        let Credential::Munge(secret) = proof.credential else { panic!("{proof:?}") };
        assert_eq!(secret.0, format!("infill2 control 0 {} ctl:6810 00ff", proof.nonce));
    }

    #[tokio::test]
    async fn only_the_daemons_user_root_and_slurms_are_trusted() {
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
    async fn a_credential_that_unmunge_does_not_open_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let unmunge = script(dir.path(), "unmunge", "echo 'Unauthorized credential for client' >&2; exit 18");
        let who = SlurmIdentity { unmunge, ..SlurmIdentity::default() };
        let e = who.open_sealed(&Secret("MUNGE:aGk=:".to_owned())).await.unwrap_err().to_string();
        assert!(e.contains("Unauthorized"), "{e}");
        let e = who.open_sealed(&Secret("infill1 welcome".to_owned())).await.unwrap_err().to_string();
        assert!(e.contains("not a MUNGE credential"), "{e}");
    }

    #[tokio::test]
    async fn without_munge_a_token_is_the_proof() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = script(dir.path(), "scontrol", "echo SLURM_JWT=xyz");
        let who = programs(dir.path().join("munge"), scontrol);
        let proof = who.make_proof(&HELLO).await.unwrap();
        assert!(matches!(&proof.credential, Credential::Jwt(s) if s.0 == "xyz"));
        assert!(!format!("{proof:?}").contains("xyz"));
    }

    #[tokio::test]
    async fn with_auth_slurm_a_token_is_the_proof_although_munge_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let munge = script(dir.path(), "munge", "echo no socket >&2; exit 6");
        let body = r#"[ "$1" = token ] && echo SLURM_JWT=abc || echo "AuthType                = auth/slurm""#;
        let who = programs(munge, script(dir.path(), "scontrol", body));
        let proof = who.make_proof(&HELLO).await.unwrap();
        assert!(matches!(&proof.credential, Credential::Jwt(s) if s.0 == "abc"));
    }

    #[tokio::test]
    async fn a_failing_munge_is_an_error_and_does_not_lead_to_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let munge = script(dir.path(), "munge", "echo no socket >&2; exit 6");
        let who = programs(munge, script(dir.path(), "scontrol", "echo SLURM_JWT=abc"));
        let error = who.make_proof(&HELLO).await.unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
    }
}
