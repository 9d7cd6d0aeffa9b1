//! Who speaks? MUNGE credentials, checked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::command::Program;
use crate::api::{Credential, Secret};
use crate::config::SlurmConfig;
use crate::model::UserId;

const LIMIT: Duration = Duration::from_secs(5);
const MAX_CREDENTIAL: usize = 4096;

/// Why an identity was not proved.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The proof is worth nothing.
    #[error("the credential proves nothing: {0}")]
    Refused(String),
    /// It could not be checked.
    #[error("the credential cannot be checked: {0}")]
    Unchecked(String),
}

/// Checks who speaks.
#[async_trait]
pub trait Identity: Send + Sync {
    /// The user who made the credential for exactly this payload.
    async fn verify(&self, credential: &Credential, payload: &str) -> Result<UserId, IdentityError>;
}

struct Munge;

/// The checker for this site.
pub fn identity(_config: &SlurmConfig) -> Arc<dyn Identity> {
    Arc::new(Munge)
}

#[async_trait]
impl Identity for Munge {
    async fn verify(&self, credential: &Credential, payload: &str) -> Result<UserId, IdentityError> {
        let Credential::Munge(Secret(text)) = credential else {
            return Err(IdentityError::Unchecked("no way to check a JWT".to_owned()));
        };
        if text.len() > MAX_CREDENTIAL {
            return Err(IdentityError::Refused("too long".to_owned()));
        }
        let program = Program {
            path: Path::new("unmunge"),
            args: &["--keys=STATUS,UID", "--numeric"],
            env: &[],
            stdin: text.as_bytes(),
            limit: LIMIT,
        };
        let output = program.run().await.map_err(|e| IdentityError::Unchecked(e.to_string()))?;
        if output.code != Some(0) {
            return Err(IdentityError::Refused(output.stderr));
        }
        let (uid, found) =
            parse(&output.stdout).ok_or_else(|| IdentityError::Unchecked("unreadable".to_owned()))?;
        if found != payload.as_bytes() {
            return Err(IdentityError::Refused("it was made for something else".to_owned()));
        }
        Ok(uid)
    }
}

fn parse(answer: &[u8]) -> Option<(UserId, &[u8])> {
    let end = answer.windows(2).position(|w| w == b"\n\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let value = |key: &str| head.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
    (value("STATUS")? == "0").then_some(())?;
    Some((UserId(value("UID")?.parse().ok()?), &answer[end + 2..]))
}

/// The id of a user of this machine, by `id`.
pub async fn uid_of(name: &str) -> Option<UserId> {
    let program =
        Program { path: Path::new("id"), args: &["-u", "--", name], env: &[], stdin: b"", limit: LIMIT };
    let output = program.run().await.ok().filter(|o| o.code == Some(0))?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok().map(UserId)
}
