//! The JWT for a slurmrestd over HTTP. It is read from a file, read again when the file changes, and renewed
//! before it expires where that is possible.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::command::ProgramCall;
use infill_model::{Secret, clock};

/// Seconds before its expiry at which a token is renewed: time for several tries, one in each round.
const RENEW_BEFORE_SECS: i64 = 120;

/// Lifetime of a requested token, seconds. This is Slurm's default.
const LIFESPAN_SECS: &str = "1800";

/// Time between two tries to renew.
const RENEW_EVERY: Duration = Duration::from_secs(30);

/// Longest wait for `scontrol token`. It answers in milliseconds unless slurmctld is down.
const SCONTROL_LIMIT: Duration = Duration::from_secs(5);

/// Size of the largest file that is accepted as a token.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

/// The claims of a token that infill uses. Slurm checks the signature.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct TokenClaims {
    /// When the token expires, seconds since 1970.
    #[serde(default)]
    pub exp: Option<i64>,
    /// The Slurm user name.
    #[serde(default)]
    pub sun: Option<String>,
}

impl TokenClaims {
    /// Reads the middle part of a token; `None` if the text is not a token.
    pub(crate) fn parse_token(token: &str) -> Option<TokenClaims> {
        let mut parts = token.trim().split('.');
        let _header = parts.next()?;
        let payload = parts.next()?;
        let _signature = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        let json = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
        serde_json::from_slice(&json).ok()
    }
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("cannot read the token file {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{0} holds no JWT")]
    NoToken(PathBuf),
}

/// The file's modification time and size. If both are unchanged, so is the token.
type FileMark = (Option<SystemTime>, u64);

#[derive(Default)]
struct CachedToken {
    mark: Option<FileMark>,
    token: Option<Secret>,
    renewal_tried: Option<std::time::Instant>,
}

/// Reads, caches and renews infill's token.
pub(super) struct TokenSource {
    path: PathBuf,
    user: Option<String>,
    scontrol: PathBuf,
    cached: Mutex<CachedToken>,
}

impl TokenSource {
    pub(super) fn new(path: PathBuf, user: Option<String>, scontrol: PathBuf) -> TokenSource {
        TokenSource { path, user, scontrol, cached: Mutex::default() }
    }

    /// The user name that goes with the token, if configured.
    pub(super) fn token_user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The token to use now. `refused` says that Slurm refused the last one: then the file is read again in
    /// any case.
    pub(super) async fn current_token(&self, refused: bool) -> Result<Secret, TokenError> {
        let mut cached = self.cached.lock().await;
        let mark = read_mark(&self.path).await?;
        if refused || cached.mark != Some(mark) || cached.token.is_none() {
            let token = read_token(&self.path).await?;
            let newer = cached.mark != Some(mark)
                || token_expiry(&token) > cached.token.as_ref().and_then(token_expiry);
            if newer || cached.token.is_none() {
                cached.token = Some(token);
                cached.mark = Some(mark);
            }
        }
        let token = cached.token.clone().ok_or_else(|| TokenError::NoToken(self.path.clone()))?;
        // `exp` is a time of slurmctld's clock. MUNGE requires that it is within minutes of this node's.
        if !refused && !is_expiring(&token, clock::now().0) {
            return Ok(token);
        }
        Ok(self.renew_token(&mut cached).await.unwrap_or(token))
    }

    /// A fresh token from `scontrol token`. That works where MUNGE authenticates this process at slurmctld.
    async fn renew_token(&self, cached: &mut CachedToken) -> Option<Secret> {
        if cached.renewal_tried.is_some_and(|at| at.elapsed() < RENEW_EVERY) {
            return None;
        }
        cached.renewal_tried = Some(std::time::Instant::now());
        let lifespan = format!("lifespan={LIFESPAN_SECS}");
        let args = ["token", lifespan.as_str()];
        let program =
            ProgramCall { path: &self.scontrol, args: &args, env: &[], stdin: b"", limit: SCONTROL_LIMIT };
        let why = match program.run().await {
            Ok(out) if out.code == Some(0) => {
                let text = String::from_utf8_lossy(&out.stdout).into_owned();
                let token = text.trim().strip_prefix("SLURM_JWT=").unwrap_or("").to_owned();
                let claims = TokenClaims::parse_token(&token);
                if claims.is_some_and(|claims| self.user.is_none() || claims.sun == self.user) {
                    cached.token = Some(Secret(token));
                    return cached.token.clone();
                }
                "its token is not for the configured user".to_owned()
            }
            Ok(out) => out.stderr,
            Err(e) => e.to_string(),
        };
        tracing::warn!(file = %self.path.display(), why, "the Slurm token expires soon and scontrol gave no new one");
        None
    }
}

async fn read_mark(path: &Path) -> Result<FileMark, TokenError> {
    let meta = tokio::fs::metadata(path)
        .await
        .map_err(|source| TokenError::Read { path: path.to_owned(), source })?;
    if meta.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::NoToken(path.to_owned()));
    }
    Ok((meta.modified().ok(), meta.len()))
}

async fn read_token(path: &Path) -> Result<Secret, TokenError> {
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|source| TokenError::Read { path: path.to_owned(), source })?;
    // `scontrol token > file` leaves the variable's name in the file.
    let token = text.trim().strip_prefix("SLURM_JWT=").unwrap_or(text.trim());
    let printable = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    if !printable {
        return Err(TokenError::NoToken(path.to_owned()));
    }
    Ok(Secret(token.to_owned()))
}

fn token_expiry(token: &Secret) -> Option<i64> {
    TokenClaims::parse_token(&token.0)?.exp
}

fn is_expiring(token: &Secret, now: i64) -> bool {
    token_expiry(token).is_some_and(|exp| exp.saturating_sub(now) < RENEW_BEFORE_SECS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn claims_are_read_and_other_text_gives_none() {
        let claims =
            TokenClaims::parse_token(&token(r#"{"exp":1700000000,"iat":1,"sun":"infill"}"#)).unwrap();
        assert_eq!(claims, TokenClaims { exp: Some(1_700_000_000), sun: Some("infill".to_owned()) });
        for bad in ["", "a", "a.b", "a.b.c", "a.b.c.d", "e30.!!.x"] {
            assert_eq!(TokenClaims::parse_token(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let late = token(r#"{"exp":99999999999,"sun":"a"}"#);
        std::fs::write(&path, format!("SLURM_JWT={late}\n")).unwrap();
        let tokens = TokenSource::new(path.clone(), None, PathBuf::from("/no/such/scontrol"));
        assert_eq!(tokens.current_token(false).await.unwrap().0, late);
        let later = token(r#"{"exp":999999999999,"sun":"a"}"#);
        std::fs::write(&path, &later).unwrap();
        assert_eq!(tokens.current_token(false).await.unwrap().0, later);
        std::fs::write(&path, "two words").unwrap();
        assert!(matches!(tokens.current_token(false).await, Err(TokenError::NoToken(_))));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(tokens.current_token(false).await, Err(TokenError::Read { .. })));
    }

    #[tokio::test]
    async fn an_ending_token_is_renewed_by_scontrol() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, token(r#"{"exp":1000,"sun":"infill"}"#)).unwrap();
        let fresh = token(r#"{"exp":99999999999,"sun":"infill"}"#);
        let scontrol =
            infill_testkit::write_script(dir.path().join("scontrol"), &format!("echo SLURM_JWT={fresh}"));
        let tokens = TokenSource::new(path, Some("infill".to_owned()), scontrol);
        assert_eq!(tokens.current_token(false).await.unwrap().0, fresh);
        assert_eq!(tokens.current_token(false).await.unwrap().0, fresh);
    }
}
