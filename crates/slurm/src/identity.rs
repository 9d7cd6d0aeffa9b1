//! Who speaks: checks what an agent or an administrator sends as proof.

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

/// Asking the name service for one user; slow directories take a second or two.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);

/// What a slurmrestd is that takes forged tokens.
const TAKES_ANY_TOKEN: &str = "slurmrestd, or a proxy before it, takes any token: it needs rest_auth/jwt, and a proxy that passes tokens on";

/// Longest login name (that of Linux).
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

/// Checks proofs. Two implementations: MUNGE or slurmrestd, and the fake of the unit tests.
#[async_trait]
pub trait IdentityVerifier: Send + Sync {
    /// The user who made this credential for this payload.
    ///
    /// # Errors
    /// Any [`IdentityError`]; only `Unavailable` is worth another try.
    async fn verify_credential(
        &self,
        credential: &Credential,
        expected_payload: &str,
    ) -> Result<UserId, IdentityError>;

    /// A credential of this process's user that carries a payload which nobody but `reader` can read.
    ///
    /// # Errors
    /// [`IdentityError::Unavailable`].
    async fn seal_for_reader(&self, reader: UserId, payload: &Secret) -> Result<Secret, IdentityError>;
}

/// The real one: MUNGE by munged on this node, tokens by the configured slurmrestd, or by slurmctld where
/// that reads none.
pub fn identity_verifier(config: &SlurmConfig) -> Arc<dyn IdentityVerifier> {
    let over_http = config.rest.starts_with("http://") || config.rest.starts_with("https://");
    let rest = over_http
        .then(|| RestSlurm::new(config))
        .and_then(|rest| rest.inspect_err(|e| tracing::warn!("users' tokens cannot be checked: {e}")).ok());
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
                let same = decoded.payload.as_bytes().ct_eq(expected_payload.as_bytes());
                if bool::from(same) { Ok(UserId(decoded.uid)) } else { Err(IdentityError::WrongPayload) }
            }
            Credential::Jwt(token) => self.verify_token(token).await,
        }
    }

    async fn seal_for_reader(&self, reader: UserId, payload: &Secret) -> Result<Secret, IdentityError> {
        Ok(munge::encode_for(reader, payload).await?)
    }
}

impl SystemIdentity {
    /// Asks slurmrestd, once it has refused a forged token: a proxy before it may let everybody in, or it may
    /// believe whoever connects, and then anybody would be anybody.
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

    /// A token carries no payload: it proves the user, as it does towards Slurm.
    async fn verify_token(&self, token: &Secret) -> Result<UserId, IdentityError> {
        let refused = |what: &str| IdentityError::Refused(what.to_owned());
        let claims = TokenClaims::parse_token(&token.0).ok_or_else(|| refused("this is not a token"))?;
        let user = claims
            .sun
            .filter(|name| is_login_name(name))
            .ok_or_else(|| refused("the token names no user"))?;
        match &self.rest {
            None => self.tokens.check_token(token.0.trim()).await?,
            Some(rest) => self.check_over_http(rest, &user, token.0.trim()).await?,
        }
        uid_of(&user)
            .await
            .ok_or_else(|| IdentityError::Refused(format!("{user} is not a user of this node")))
    }
}

/// The user that this process is.
pub fn own_uid() -> UserId {
    // SAFETY: geteuid has no preconditions and cannot fail.
    UserId(unsafe { libc::geteuid() })
}

/// The user id that belongs to a login name, by this node's name service. `None` if there is no such user, or
/// if the name service does not answer.
pub async fn uid_of(name: &str) -> Option<UserId> {
    if !is_login_name(name) {
        return None;
    }
    let args = ["-u", "--", name];
    let program =
        ProgramCall { path: Path::new("id"), args: &args, env: &[], stdin: b"", limit: LOOKUP_LIMIT };
    let out = program.run().await.inspect_err(|e| tracing::warn!("cannot look up user {name}: {e}")).ok()?;
    let text = std::str::from_utf8(&out.stdout).ok()?;
    (out.code == Some(0)).then(|| text.trim().parse().ok().map(UserId))?
}

/// The id of a group, by its name or its number. `None` as with users.
pub async fn gid_of(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let args = ["group", name];
    let program =
        ProgramCall { path: Path::new("getent"), args: &args, env: &[], stdin: b"", limit: LOOKUP_LIMIT };
    let out = program.run().await.inspect_err(|e| tracing::warn!("cannot look up group {name}: {e}")).ok()?;
    // name:password:number:members
    let text = std::str::from_utf8(&out.stdout).ok()?;
    text.split(':').nth(2)?.trim().parse().ok().filter(|_| out.code == Some(0))
}

/// The login name of a user id, by this node's name service. `None` if there is none, or if the name service
/// does not answer.
pub async fn name_of(uid: UserId) -> Option<String> {
    // With the sign it is never taken for a name.
    let uid = format!("+{uid}");
    let args = ["-un", "--", &uid];
    let program =
        ProgramCall { path: Path::new("id"), args: &args, env: &[], stdin: b"", limit: LOOKUP_LIMIT };
    let out = program.run().await.inspect_err(|e| tracing::warn!("cannot look up user {uid}: {e}")).ok()?;
    let name = std::str::from_utf8(&out.stdout).ok()?.trim();
    (out.code == Some(0) && is_login_name(name)).then(|| name.to_owned())
}

/// A name that `id` cannot take for a number or an option.
fn is_login_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(|c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@'))
        && !name.starts_with('-')
        && !name.chars().all(|c| c.is_ascii_digit())
}

/// Believes a table: for unit tests.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct FakeIdentity {
    /// Users by the text of their credential. The text may be followed by `|` and the payload that it
    /// carries; without one, it is good for any.
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
    async fn without_http_scontrol_checks_tokens() {
        let scontrol = "/no/such/scontrol".into();
        let config = SlurmConfig { scontrol, ..SlurmConfig::default() };
        let token = Credential::Jwt(Secret("e30.eyJzdW4iOiJyb290In0.c2ln".to_owned()));
        let e = identity_verifier(&config).verify_credential(&token, "x").await.unwrap_err();
        assert!(matches!(&e, IdentityError::Unavailable(why) if why.contains("/no/such/scontrol")), "{e}");
    }

    #[tokio::test]
    async fn a_token_that_names_nobody_is_refused_before_anybody_is_asked() {
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

    /// A slurmrestd that answers every question, and takes tokens whose signature passes the test.
    async fn slurmrestd(takes: fn(&str) -> bool) -> Arc<dyn IdentityVerifier> {
        use axum::http::{HeaderMap, StatusCode, Uri};
        let answer = move |headers: HeaderMap, uri: Uri| async move {
            let token = headers.get("x-slurm-user-token").map(|v| v.to_str().unwrap().to_owned());
            let body = r#"{"meta":{"slurm":{"version":{"major":"24","micro":"5","minor":"11"},"release":"24.11.5","cluster":"c"}}}"#;
            // Without one it is asked for its version.
            match token.is_none_or(|token| takes(token.rsplit('.').next().unwrap())) {
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
    async fn a_slurmrestd_that_takes_every_token_proves_nobody() {
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
