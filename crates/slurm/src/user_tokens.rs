//! Checks users' tokens where slurmrestd listens on a Unix socket. There slurmrestd takes the identity from
//! the kernel and ignores tokens. So scontrol sends slurmctld a harmless request with the token.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::command::ProgramCall;
use super::identity_error::IdentityError;
use infill_model::config::SlurmConfig;

/// Longest wait for scontrol. slurmctld normally answers in milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// The problem if scontrol succeeds with a forged token.
const CHECKS_NO_TOKENS: &str = "this Slurm checks no tokens: AuthAltTypes=auth/jwt is missing in slurm.conf";

/// The environment variable from which Slurm's programs read a token.
const TOKEN_VARIABLE: &str = "SLURM_JWT";

/// Checks tokens by asking slurmctld through scontrol.
pub(super) struct UserTokenChecker {
    scontrol: PathBuf,
    partition: String,
    /// Set once a forged token was refused. Before that, scontrol might use this process's identity instead.
    sound: OnceCell<()>,
}

impl UserTokenChecker {
    /// A checker with the configured scontrol.
    pub(super) fn new(config: &SlurmConfig) -> UserTokenChecker {
        let scontrol = config.scontrol.clone();
        let partition = config.partition.clone();
        UserTokenChecker { scontrol, partition, sound: OnceCell::new() }
    }

    /// Checks that slurmctld accepts this token. Does not look at the user that it names.
    ///
    /// # Errors
    /// [`IdentityError::Refused`], [`IdentityError::Unavailable`], or [`IdentityError::Unsupported`] where
    /// slurmctld also accepts a forged token.
    pub(super) async fn check_token(&self, token: &str) -> Result<(), IdentityError> {
        let forged = forge_token(token)?;
        self.sound
            .get_or_try_init(|| async {
                require_refusal(self.ask_slurmctld(&forged).await, CHECKS_NO_TOKENS)
            })
            .await?;
        self.ask_slurmctld(token).await
    }

    async fn ask_slurmctld(&self, token: &str) -> Result<(), IdentityError> {
        let args = ["show", "partition", &self.partition];
        let env = [(TOKEN_VARIABLE, token)];
        let program = ProgramCall { path: &self.scontrol, args: &args, env: &env, stdin: b"", limit: LIMIT };
        let out = program.run().await.map_err(|e| IdentityError::Unavailable(e.to_string()))?;
        match out.code {
            Some(0) => Ok(()),
            _ if out.stderr.to_ascii_lowercase().contains("authentication") => {
                Err(IdentityError::Refused(out.stderr))
            }
            _ => Err(IdentityError::Unavailable(out.stderr)),
        }
    }
}

/// The same token with another signature of the same length.
///
/// # Errors
/// [`IdentityError::Refused`] if the text is not a token.
pub(super) fn forge_token(token: &str) -> Result<String, IdentityError> {
    let (claims, signature) = token.rsplit_once('.').unwrap_or_default();
    if signature.is_empty()
        || !token.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '='))
    {
        return Err(IdentityError::Refused("this is not a token".to_owned()));
    }
    let other: String = signature.chars().map(|c| if c == 'A' { 'B' } else { 'A' }).collect();
    Ok(format!("{claims}.{other}"))
}

/// Checks that the answer to a forged token is a refusal. Otherwise the service does not check tokens; `why`
/// says how to change that.
///
/// # Errors
/// [`IdentityError::Unsupported`] for a success; any other error unchanged.
pub(super) fn require_refusal(
    answer: Result<(), IdentityError>,
    why: &'static str,
) -> Result<(), IdentityError> {
    match answer {
        Err(IdentityError::Refused(_)) => Ok(()),
        Err(e) => Err(e),
        Ok(()) => Err(IdentityError::Unsupported(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "e30.e30.c2ln";

    fn tokens(dir: &std::path::Path, body: &str) -> UserTokenChecker {
        let scontrol = infill_testkit::write_script(dir.join("scontrol"), body);
        UserTokenChecker::new(&SlurmConfig { scontrol, ..SlurmConfig::default() })
    }

    #[tokio::test]
    async fn slurmctld_decides_whether_a_token_is_good() {
        let dir = tempfile::tempdir().unwrap();
        let body = format!(
            r#"[ "$*" = "show partition infill" ] || exit 9
            [ "$SLURM_JWT" = {GOOD} ] || {{ echo "error: Protocol authentication error" >&2; exit 1; }}"#
        );
        let tokens = tokens(dir.path(), &body);
        assert!(tokens.check_token(GOOD).await.is_ok());
        for bad in ["e30.e30.c2lx", "", "a", "a.b.c d", "a.b.\n", "a.b."] {
            let e = tokens.check_token(bad).await.unwrap_err();
            assert!(matches!(e, IdentityError::Refused(_)), "{bad}: {e}");
        }
    }

    #[tokio::test]
    async fn a_slurm_that_accepts_every_token_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let e = tokens(dir.path(), "true").check_token(GOOD).await.unwrap_err();
        assert!(matches!(e, IdentityError::Unsupported(_)), "{e}");
    }

    #[tokio::test]
    async fn an_unavailable_slurmctld_is_not_a_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let body = "echo 'Unable to contact slurm controller' >&2; exit 1";
        let e = tokens(dir.path(), body).check_token(GOOD).await.unwrap_err();
        assert!(matches!(e, IdentityError::Unavailable(_)), "{e}");
    }
}
