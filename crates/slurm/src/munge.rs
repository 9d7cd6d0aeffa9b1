//! MUNGE through its own two programs: `munge` makes a credential, `unmunge` says who made one.
//!
//! Credentials travel on standard input and output only, for arguments show in the process list.

use std::path::Path;
use std::time::Duration;

use super::command::{CommandError, Output, Program};
use infill_model::Secret;

/// munged answers in milliseconds or is ailing.
const LIMIT: Duration = Duration::from_secs(5);

/// Longest credential that is passed on; ours have some 200 characters.
const MAX_CREDENTIAL: usize = 16 * 1024;

/// MUNGE's error numbers, which are also `unmunge`'s exit codes.
const EXPIRED: i32 = 15;
const REWOUND: i32 = 16;
const REPLAYED: i32 = 17;
/// No munged to ask, or it gave up.
const SOCKET: i32 = 6;

/// Who made a credential, and what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// User id of the process that made it.
    pub uid: u32,
    /// Group id of that process.
    pub gid: u32,
    /// What it carries.
    pub payload: String,
}

/// Why there is no credential, or no trust in one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MungeError {
    /// munged or its programs are missing or ailing: the same credential may be good later.
    #[error("MUNGE is not available: {0}")]
    Unavailable(String),
    /// It was decoded before, here: somebody sends a copy.
    #[error("the MUNGE credential was used before")]
    Replayed,
    /// It is too old, or from the future: clocks differ, or it was held back.
    #[error("the MUNGE credential has expired, or the clocks of the nodes differ")]
    Expired,
    /// It is none, or was altered, or is from a cluster with another key.
    #[error("the MUNGE credential is not valid: {0}")]
    Invalid(String),
}

impl From<CommandError> for MungeError {
    fn from(e: CommandError) -> Self {
        MungeError::Unavailable(e.to_string())
    }
}

/// Makes a credential of this process's user that carries `payload`.
#[cfg(test)]
async fn encode_with(munge: &Path, payload: &str) -> Result<Secret, MungeError> {
    let program = Program { path: munge, args: &[], env: &[], stdin: payload.as_bytes(), limit: LIMIT };
    let out = program.run().await?;
    let text = String::from_utf8_lossy(&out.stdout);
    let credential = text.trim();
    if out.code != Some(0) || !is_credential(credential) {
        return Err(MungeError::Unavailable(format!("munge ended with {:?}: {}", out.code, out.stderr)));
    }
    Ok(Secret(credential.to_owned()))
}

/// Checks a credential and takes it apart. A credential can be decoded only once on one node.
///
/// # Errors
/// Any [`MungeError`]; only `Unavailable` is worth another try.
pub(crate) async fn decode(credential: &Secret) -> Result<Decoded, MungeError> {
    decode_with(Path::new("unmunge"), credential).await
}

async fn decode_with(unmunge: &Path, credential: &Secret) -> Result<Decoded, MungeError> {
    let text = credential.0.trim();
    if !is_credential(text) {
        return Err(MungeError::Invalid("it is not a MUNGE credential".to_owned()));
    }
    let program = Program { path: unmunge, args: &[], env: &[], stdin: text.as_bytes(), limit: LIMIT };
    judge(&program.run().await?)
}

fn is_credential(text: &str) -> bool {
    let inner = text.strip_prefix("MUNGE:").and_then(|t| t.strip_suffix(':'));
    let is_base64 = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'=');
    text.len() <= MAX_CREDENTIAL && inner.is_some_and(|t| !t.is_empty() && t.bytes().all(is_base64))
}

fn judge(out: &Output) -> Result<Decoded, MungeError> {
    match out.code {
        Some(0) => {
            let bad = |what: &str| MungeError::Invalid(format!("unmunge's answer: {what}"));
            let text = std::str::from_utf8(&out.stdout).map_err(|_| bad("it is not text"))?;
            parse(text).map_err(bad)
        }
        Some(REPLAYED) => Err(MungeError::Replayed),
        Some(EXPIRED | REWOUND) => Err(MungeError::Expired),
        Some(code) if code != SOCKET && code != 1 => Err(MungeError::Invalid(out.stderr.clone())),
        code => Err(MungeError::Unavailable(format!("unmunge ended with {code:?}: {}", out.stderr))),
    }
}

/// Reads `unmunge`'s output: metadata lines, an empty line, the payload. The payload comes from the other
/// side, so nothing after the empty line is taken for metadata.
fn parse(text: &str) -> Result<Decoded, &'static str> {
    let (metadata, payload) = text.split_once("\n\n").ok_or("no payload")?;
    let number = |key: &'static str, missing: &'static str| -> Result<u32, &'static str> {
        let mut lines = metadata.lines().filter_map(|l| l.split_once(':')).filter(|(k, _)| *k == key);
        let (Some((_, value)), None) = (lines.next(), lines.next()) else { return Err(missing) };
        in_parentheses(value.trim()).ok_or(missing)
    };
    if number("STATUS", "no status")? != 0 {
        return Err("the status is not success");
    }
    if number("LENGTH", "no length")? as usize != payload.len() {
        return Err("the payload has another length than it says");
    }
    let (uid, gid) = (number("UID", "no user")?, number("GID", "no group")?);
    Ok(Decoded { uid, gid, payload: payload.to_owned() })
}

/// `alice (6101)` or `6101`.
fn in_parentheses(value: &str) -> Option<u32> {
    let digits = match value.rsplit_once('(') {
        Some((_, rest)) => rest.strip_suffix(')')?,
        None => value,
    };
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {

    use super::*;

    const GOOD: &str = "STATUS:          Success (0)\nENCODE_HOST:     localhost (127.0.0.1)\n\
        ENCODE_TIME:     2026-11-20 22:33:58 +0000 (1795214038)\nTTL:             300\n\
        UID:             alice (6101)\nGID:             users (100)\nLENGTH:          2\n\nhi";

    fn judged(code: i32, stdout: &str) -> Result<Decoded, MungeError> {
        judge(&Output { code: Some(code), stdout: stdout.into(), stderr: "why".to_owned() })
    }

    #[test]
    fn a_good_credential_says_who() {
        let decoded = judged(0, GOOD).unwrap();
        assert_eq!(decoded, Decoded { uid: 6101, gid: 100, payload: "hi".to_owned() });
        // Without a passwd entry there is just the number.
        assert_eq!(judged(0, &GOOD.replace("alice (6101)", "6101")).unwrap().uid, 6101);
    }

    #[test]
    fn a_payload_cannot_pose_as_metadata() {
        let forged = GOOD.replace("LENGTH:          2\n\nhi", "LENGTH:          8\n\nUID:   0\n");
        assert_eq!(
            judged(0, &forged).unwrap_err().to_string(),
            "the MUNGE credential is not valid: unmunge's answer: the payload has another length than it says"
        );
        let forged = GOOD.replace("LENGTH:          2\n\nhi", "LENGTH:          9\n\nUID:   0\n");
        assert_eq!(judged(0, &forged).unwrap().uid, 6101);
    }

    #[test]
    fn everything_else_is_refused() {
        for (from, to) in
            [("Success (0)", "Expired (15)"), ("(6101)", "(x)"), ("UID:", "VID:"), ("2\n\nhi", "3\n\nhi")]
        {
            assert!(matches!(judged(0, &GOOD.replace(from, to)), Err(MungeError::Invalid(_))), "{from}");
        }
        let twice = format!("UID: root (0)\n{GOOD}");
        assert!(matches!(judged(0, &twice), Err(MungeError::Invalid(_))));
        assert!(matches!(judged(17, GOOD), Err(MungeError::Replayed)));
        assert!(matches!(judged(15, GOOD), Err(MungeError::Expired)));
        assert!(matches!(judged(16, GOOD), Err(MungeError::Expired)));
        assert!(matches!(judged(8, ""), Err(MungeError::Invalid(_))));
        assert!(matches!(judged(6, ""), Err(MungeError::Unavailable(_))));
    }

    #[tokio::test]
    async fn credentials_pass_on_stdin() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| infill_testkit::script(dir.path().join(name), text);
        let munge = script("munge", "[ $# = 0 ] && printf 'MUNGE:%s:\\n' \"$(cat)\"");
        let credential = encode_with(&munge, "aGk").await.unwrap();
        assert_eq!(credential.0, "MUNGE:aGk:");
        let answer = "printf 'STATUS: Success (0)\\nUID: a (7)\\nGID: a (8)\\nLENGTH: %s\\n\\n%s'";
        let unmunge = script("unmunge", &format!("[ $# = 0 ] && c=$(cat) && {answer} ${{#c}} \"$c\""));
        let decoded = decode_with(&unmunge, &credential).await.unwrap();
        assert_eq!((decoded.uid, decoded.payload.as_str()), (7, "MUNGE:aGk:"));
        let missing = decode_with(Path::new("/no/such/unmunge"), &credential).await;
        assert!(matches!(missing, Err(MungeError::Unavailable(_))));
        let junk = decode_with(&unmunge, &Secret("MUNGE:a b:".to_owned())).await;
        assert!(matches!(junk, Err(MungeError::Invalid(_))));
    }
}
