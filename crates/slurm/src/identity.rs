//! Authentication: checks the credentials that agents and administrators send.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use subtle::ConstantTimeEq;
use tokio::sync::OnceCell;

use super::SlurmError;
use super::command::ProgramCall;
pub use super::identity_error::IdentityError;
use super::munge::{self, MungeError};
use super::rest::{RestSlurm, TokenClaims};
use super::user_tokens::{UserTokenChecker, forge_token, require_refusal};
use infill_model::{Credential, Secret, UserId, config::SlurmConfig};

/// Longest wait for the name service. Slow directories take a second or two.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);

/// How the message of `id` ends if the name service knows no such user.
const NO_SUCH_USER: &str = "no such user";

/// The problem if slurmrestd accepts a forged token.
const TAKES_ANY_TOKEN: &str = "slurmrestd, or a proxy before it, takes any token: it needs rest_auth/jwt, and a proxy that passes tokens on";

/// Longest login name that Linux allows.
const MAX_NAME: usize = 32;

impl From<MungeError> for IdentityError {
    fn from(e: MungeError) -> Self {
        match e {
            MungeError::Unavailable(what) => IdentityError::Unavailable(what),
            MungeError::Replayed => IdentityError::Replayed,
            MungeError::Expired | MungeError::Invalid(_) => IdentityError::Refused(e.to_string()),
        }
    }
}

/// Checks credentials. Two implementations: MUNGE with Slurm's tokens, and the fake of the unit tests.
#[async_trait]
pub trait IdentityVerifier: Send + Sync {
    /// The user who created this credential for this payload.
    ///
    /// # Errors
    /// Any [`IdentityError`]; only `Unavailable` is worth another try.
    async fn verify_credential(
        &self,
        credential: &Credential,
        expected_payload: &str,
    ) -> Result<UserId, IdentityError>;

    /// Creates a credential of this process's user with a payload that only `reader` can read.
    ///
    /// # Errors
    /// [`IdentityError::Unavailable`].
    async fn seal_for_reader(&self, reader: UserId, payload: &Secret) -> Result<Secret, IdentityError>;
}

/// The verifier for production. munged on this node checks MUNGE credentials. The configured slurmrestd
/// checks tokens, or slurmctld where slurmrestd is on a Unix socket and ignores them.
pub fn identity_verifier(config: &SlurmConfig) -> Arc<dyn IdentityVerifier> {
    let is_over_http = config.rest.starts_with("http://") || config.rest.starts_with("https://");
    let rest = if is_over_http {
        let rest = RestSlurm::new(config);
        rest.inspect_err(|e| tracing::warn!("users' tokens cannot be checked over HTTP: {e}")).ok()
    } else {
        None
    };
    Arc::new(SystemIdentity { rest, tokens: UserTokenChecker::new(config), sound: OnceCell::new() })
}

struct SystemIdentity {
    rest: Option<RestSlurm>,
    tokens: UserTokenChecker,
    /// Set once slurmrestd has refused a forged token.
    sound: OnceCell<()>,
}

#[async_trait]
impl IdentityVerifier for SystemIdentity {
    async fn verify_credential(
        &self,
        credential: &Credential,
        expected_payload: &str,
    ) -> Result<UserId, IdentityError> {
        match credential {
            Credential::Munge(credential) => {
                let decoded = munge::decode_credential(credential).await?;
                let is_same = decoded.payload.as_bytes().ct_eq(expected_payload.as_bytes());
                if bool::from(is_same) { Ok(UserId(decoded.uid)) } else { Err(IdentityError::WrongPayload) }
            }
            Credential::Jwt(token) => self.verify_token(token).await,
        }
    }

    async fn seal_for_reader(&self, reader: UserId, payload: &Secret) -> Result<Secret, IdentityError> {
        Ok(munge::encode_for(reader, payload).await?)
    }
}

impl SystemIdentity {
    /// Checks a token at slurmrestd, after checking that slurmrestd refuses a forged one. Otherwise
    /// slurmrestd, or a proxy before it, might accept every connection, and any user could claim to be any
    /// other.
    async fn check_over_http(&self, rest: &RestSlurm, user: &str, token: &str) -> Result<(), IdentityError> {
        let ask = async |token: &str| {
            rest.check_token(user, token).await.map_err(|e| match e {
                SlurmError::Transient { .. } => IdentityError::Unavailable(e.to_string()),
                _ => IdentityError::Refused(e.to_string()),
            })
        };
        let forged = forge_token(token)?;
        self.sound.get_or_try_init(|| async { require_refusal(ask(&forged).await, TAKES_ANY_TOKEN) }).await?;
        ask(token).await
    }

    /// Checks a token, which carries no payload: it proves only the user, as it does for Slurm.
    async fn verify_token(&self, token: &Secret) -> Result<UserId, IdentityError> {
        let Some(claims) = TokenClaims::parse_token(&token.0) else {
            return Err(IdentityError::Refused("this is not a token".to_owned()));
        };
        let Some(user) = claims.sun.filter(|name| is_login_name(name)) else {
            return Err(IdentityError::Refused("the token names no user".to_owned()));
        };
        match &self.rest {
            None => self.tokens.check_token(token.0.trim()).await?,
            Some(rest) => self.check_over_http(rest, &user, token.0.trim()).await?,
        }
        uid_of(&user)
            .await
            .ok_or_else(|| IdentityError::Refused(format!("{user} is not a user of this node")))
    }
}

/// The effective user id of this process.
pub fn own_uid() -> UserId {
    // SAFETY: geteuid has no preconditions and cannot fail.
    UserId(unsafe { libc::geteuid() })
}

/// The user id of a login name, from this node's name service. `None` if there is no such user, or if the
/// name service does not answer.
pub async fn uid_of(name: &str) -> Option<UserId> {
    look_up_uid(name).await.inspect_err(|e| tracing::warn!("cannot look up user {name}: {e}")).ok()?
}

/// The user id of a login name, from this node's name service. `None` if it says that there is no such user.
///
/// # Errors
/// [`IdentityError::Unavailable`] if the name service does not answer.
pub async fn look_up_uid(name: &str) -> Result<Option<UserId>, IdentityError> {
    look_up_with(Path::new("id"), name).await
}

/// [`look_up_uid`] by this `id`. Its exit code is the same for a user who does not exist and for a name
/// service that fails, but then the reason stands behind its message.
async fn look_up_with(id: &Path, name: &str) -> Result<Option<UserId>, IdentityError> {
    if !is_login_name(name) {
        return Ok(None);
    }
    let args = ["-u", "--", name];
    let program =
        ProgramCall { path: id, args: &args, env: &[("LC_ALL", "C")], stdin: b"", limit: LOOKUP_LIMIT };
    let out = program.run().await.map_err(|e| IdentityError::Unavailable(e.to_string()))?;
    let uid = std::str::from_utf8(&out.stdout).ok().and_then(|text| text.trim().parse().ok());
    match (out.code, uid) {
        (Some(0), Some(uid)) => Ok(Some(UserId(uid))),
        (Some(1), _) if out.stderr.trim_end().ends_with(NO_SUCH_USER) => Ok(None),
        _ => Err(IdentityError::Unavailable(format!("id failed: {}", out.stderr.trim()))),
    }
}

/// The id of a group, from its name or its number. `None` if there is no such group, or if the name service
/// does not answer.
pub async fn gid_of(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let args = ["group", name];
    let program =
        ProgramCall { path: Path::new("getent"), args: &args, env: &[], stdin: b"", limit: LOOKUP_LIMIT };
    let out = program.run().await.inspect_err(|e| tracing::warn!("cannot look up group {name}: {e}")).ok()?;
    if out.code != Some(0) {
        return None;
    }
    // The format is `name:password:number:members`.
    let text = std::str::from_utf8(&out.stdout).ok()?;
    text.split(':').nth(2)?.trim().parse().ok()
}

/// The login name of a user id, from this node's name service. `None` if there is no such user, or if the
/// name service does not answer.
pub async fn name_of(uid: UserId) -> Option<String> {
    // With the sign, `id` never takes it for a name.
    let uid = format!("+{uid}");
    let args = ["-un", "--", &uid];
    let program =
        ProgramCall { path: Path::new("id"), args: &args, env: &[], stdin: b"", limit: LOOKUP_LIMIT };
    let out = program.run().await.inspect_err(|e| tracing::warn!("cannot look up user {uid}: {e}")).ok()?;
    let name = std::str::from_utf8(&out.stdout).ok()?.trim();
    if out.code == Some(0) && is_login_name(name) { Some(name.to_owned()) } else { None }
}

/// Whether this is a login name that `id` cannot take for a number or an option.
fn is_login_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@'))
        && !name.starts_with('-')
        && !name.chars().all(|c| c.is_ascii_digit())
}

/// Accepts the credentials in a table: for unit tests.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct FakeIdentity {
    /// Users by the text of their credential. In a credential, `|` and its payload may follow the text.
    /// Without a payload it is accepted for any.
    pub users: BTreeMap<String, UserId>,
}

#[async_trait]
impl IdentityVerifier for FakeIdentity {
    async fn verify_credential(
        &self,
        credential: &Credential,
        expected_payload: &str,
    ) -> Result<UserId, IdentityError> {
        let (Credential::Munge(secret) | Credential::Jwt(secret)) = credential;
        let (key, payload) = secret.0.split_once('|').unwrap_or((&secret.0, expected_payload));
        if payload != expected_payload {
            return Err(IdentityError::WrongPayload);
        }
        self.users.get(key).copied().ok_or_else(|| IdentityError::Refused("unknown".to_owned()))
    }

    async fn seal_for_reader(&self, reader: UserId, payload: &Secret) -> Result<Secret, IdentityError> {
        Ok(Secret(format!("for {reader}|{}", payload.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_are_looked_up() {
        assert_eq!(uid_of("root").await, Some(UserId(0)));
        assert_eq!(name_of(UserId(0)).await.as_deref(), Some("root"));
        assert_eq!(name_of(UserId(3_999_999_999)).await, None);
        for name in ["no-such-user-here", "0", "-u", "", "+0", "a b"] {
            assert_eq!(uid_of(name).await, None, "{name}");
        }
    }

    #[tokio::test]
    async fn a_silent_name_service_is_not_an_absent_user() {
        assert_eq!(look_up_uid("no-such-user-here").await.unwrap(), None);
        let dir = tempfile::tempdir().unwrap();
        let silent = [
            "echo \"id: '$3': no such user: Connection refused\" >&2; exit 1",
            "echo 'id: cannot find anything' >&2; exit 1",
            "kill -KILL $$",
            "exit 0",
        ];
        for (number, body) in silent.iter().enumerate() {
            let id = infill_testkit::write_script(dir.path().join(number.to_string()), body);
            let answer = look_up_with(&id, "ann").await;
            assert!(matches!(answer, Err(IdentityError::Unavailable(_))), "{body}: {answer:?}");
        }
        let absent = "echo \"id: '$3': no such user\" >&2; exit 1";
        let absent = infill_testkit::write_script(dir.path().join("absent"), absent);
        assert_eq!(look_up_with(&absent, "ann").await.unwrap(), None);
        let there = infill_testkit::write_script(dir.path().join("there"), "echo 77");
        assert_eq!(look_up_with(&there, "ann").await.unwrap(), Some(UserId(77)));
    }

    #[tokio::test]
    async fn without_http_scontrol_checks_tokens() {
        let scontrol = "/no/such/scontrol".into();
        let config = SlurmConfig { scontrol, ..SlurmConfig::default() };
        let token = Credential::Jwt(Secret("e30.eyJzdW4iOiJyb290In0.c2ln".to_owned()));
        let e = identity_verifier(&config).verify_credential(&token, "x").await.unwrap_err();
        assert!(matches!(&e, IdentityError::Unavailable(why) if why.contains("/no/such/scontrol")), "{e}");
    }

    #[tokio::test]
    async fn a_token_without_a_user_is_refused_before_slurm_is_asked() {
        let config = SlurmConfig { rest: "http://127.0.0.1:1".to_owned(), ..SlurmConfig::default() };
        let identity = identity_verifier(&config);
        for bad in ["", "a.b.c", "e30.e30.c2ln"] {
            let e =
                identity.verify_credential(&Credential::Jwt(Secret(bad.to_owned())), "x").await.unwrap_err();
            assert!(matches!(e, IdentityError::Refused(_)), "{bad}: {e}");
        }
        let root = Credential::Jwt(Secret("e30.eyJzdW4iOiJyb290In0.c2ln".to_owned()));
        let e = identity.verify_credential(&root, "x").await.unwrap_err();
        assert!(matches!(e, IdentityError::Unavailable(_)), "{e}");
    }

    /// A slurmrestd that answers every request whose token has an accepted signature.
    async fn slurmrestd(accepts: fn(&str) -> bool) -> Arc<dyn IdentityVerifier> {
        use axum::http::{HeaderMap, StatusCode, Uri};
        let answer = move |headers: HeaderMap, uri: Uri| async move {
            let token = headers.get("x-slurm-user-token").map(|v| v.to_str().unwrap().to_owned());
            let body = r#"{"meta":{"slurm":{"version":{"major":"24","micro":"5","minor":"11"},"release":"24.11.5","cluster":"c"}}}"#;
            // Requests for its version come without a token.
            match token.is_none_or(|token| accepts(token.rsplit('.').next().unwrap())) {
                true if uri.path().ends_with("/jwt") => (StatusCode::NOT_FOUND, body),
                true => (StatusCode::OK, body),
                false => {
                    (StatusCode::UNAUTHORIZED, r#"{"errors":[{"description":"Authentication failure"}]}"#)
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rest = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        identity_verifier(&SlurmConfig { rest, ..SlurmConfig::default() })
    }

    #[tokio::test]
    async fn a_slurmrestd_that_accepts_every_token_is_not_trusted() {
        super::super::install_crypto();
        let root = Credential::Jwt(Secret("e30.eyJzdW4iOiJyb290In0.c2ln".to_owned()));
        let e = slurmrestd(|_| true).await.verify_credential(&root, "x").await.unwrap_err();
        assert!(matches!(&e, IdentityError::Unsupported(why) if why.contains("takes any token")), "{e}");
        let sound = slurmrestd(|signature| signature == "c2ln").await;
        assert_eq!(sound.verify_credential(&root, "x").await.unwrap(), UserId(0));
        let forged = Credential::Jwt(Secret("e30.eyJzdW4iOiJyb290In0.AAAA".to_owned()));
        let e = sound.verify_credential(&forged, "x").await.unwrap_err();
        assert!(matches!(e, IdentityError::Refused(_)), "{e}");
    }
}
