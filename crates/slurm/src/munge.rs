//! MUNGE through its two programs: `munge` creates a credential, and `unmunge` shows who created one.
//!
//! Credentials are passed on standard input and output only, because the process list shows arguments.

use std::path::Path;
use std::time::Duration;

use super::command::{CommandError, ProgramCall, ProgramOutput};
use infill_model::{
    Secret, UserId,
    munge::{DecodedCredential, is_credential, parse},
};

/// Longest wait for munged. It normally answers in milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

// MUNGE's error numbers, which are also `unmunge`'s exit codes.
const EXPIRED: i32 = 15;
const REWOUND: i32 = 16;
const REPLAYED: i32 = 17;
/// munged does not run, or did not answer.
const SOCKET: i32 = 6;

/// Why a credential cannot be created, or cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MungeError {
    /// munged or its programs are missing or fail: the same credential may be accepted later.
    #[error("MUNGE is not available: {0}")]
    Unavailable(String),
    /// It was decoded on this node before, so this is a copy.
    #[error("the MUNGE credential was used before")]
    Replayed,
    /// It is too old, or from the future: clocks differ, or it was held back.
    #[error("the MUNGE credential has expired, or the clocks of the nodes differ")]
    Expired,
    /// It is not a credential, or it was altered, or it is from a cluster with another key.
    #[error("the MUNGE credential is not valid: {0}")]
    Invalid(String),
}

impl From<CommandError> for MungeError {
    fn from(e: CommandError) -> Self {
        MungeError::Unavailable(e.to_string())
    }
}

/// Creates a credential of this process's user that carries `payload` and that only `reader` can decode.
///
/// # Errors
/// [`MungeError::Unavailable`].
pub(crate) async fn encode_for(reader: UserId, payload: &Secret) -> Result<Secret, MungeError> {
    encode_with(Path::new("munge"), reader, payload).await
}

async fn encode_with(munge: &Path, reader: UserId, payload: &Secret) -> Result<Secret, MungeError> {
    let restrict = format!("--restrict-uid={reader}");
    let args = [restrict.as_str()];
    let stdin = payload.0.as_bytes();
    let program = ProgramCall { path: munge, args: &args, env: &[], stdin, limit: LIMIT };
    let out = program.run().await?;
    let text = String::from_utf8_lossy(&out.stdout);
    let credential = text.trim();
    if out.code != Some(0) || !is_credential(credential) {
        return Err(MungeError::Unavailable(format!("munge ended with {:?}: {}", out.code, out.stderr)));
    }
    Ok(Secret(credential.to_owned()))
}

/// Checks a credential and decodes it. A credential can be decoded only once on one node.
///
/// # Errors
/// Any [`MungeError`]; only `Unavailable` is worth another try.
pub(crate) async fn decode_credential(credential: &Secret) -> Result<DecodedCredential, MungeError> {
    decode_with(Path::new("unmunge"), credential).await
}

async fn decode_with(unmunge: &Path, credential: &Secret) -> Result<DecodedCredential, MungeError> {
    let text = credential.0.trim();
    if !is_credential(text) {
        return Err(MungeError::Invalid("it is not a MUNGE credential".to_owned()));
    }
    let program = ProgramCall { path: unmunge, args: &[], env: &[], stdin: text.as_bytes(), limit: LIMIT };
    classify_output(&program.run().await?)
}

fn classify_output(out: &ProgramOutput) -> Result<DecodedCredential, MungeError> {
    match out.code {
        Some(0) => {
            let text = std::str::from_utf8(&out.stdout).map_err(|_| invalid_answer("it is not text"))?;
            parse(text).map_err(invalid_answer)
        }
        Some(REPLAYED) => Err(MungeError::Replayed),
        Some(EXPIRED | REWOUND) => Err(MungeError::Expired),
        Some(code) if code != SOCKET && code != 1 => Err(MungeError::Invalid(out.stderr.clone())),
        code => Err(MungeError::Unavailable(format!("unmunge ended with {code:?}: {}", out.stderr))),
    }
}

fn invalid_answer(what: &str) -> MungeError {
    MungeError::Invalid(format!("unmunge's answer: {what}"))
}

#[cfg(test)]
mod tests {

    use super::*;

    const GOOD: &str = "STATUS:          Success (0)\nENCODE_HOST:     localhost (127.0.0.1)\n\
        ENCODE_TIME:     2026-11-20 22:33:58 +0000 (1795214038)\nTTL:             300\n\
        UID:             alice (6101)\nGID:             users (100)\nLENGTH:          2\n\nhi";

    fn judged(code: i32, stdout: &str) -> Result<DecodedCredential, MungeError> {
        classify_output(&ProgramOutput { code: Some(code), stdout: stdout.into(), stderr: "why".to_owned() })
    }

    #[test]
    fn a_good_credential_names_its_user() {
        let decoded = judged(0, GOOD).unwrap();
        assert_eq!(decoded, DecodedCredential { uid: 6101, gid: 100, payload: "hi".to_owned() });
        // Without a passwd entry there is just the number.
        assert_eq!(judged(0, &GOOD.replace("alice (6101)", "6101")).unwrap().uid, 6101);
    }

    #[test]
    fn a_payload_cannot_pose_as_metadata() {
        let forged = GOOD.replace("LENGTH:          2\n\nhi", "LENGTH:          8\n\nUID:   0\n");
        assert_eq!(
            judged(0, &forged).unwrap_err().to_string(),
            "the MUNGE credential is not valid: unmunge's answer: the payload does not have the stated length"
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
        let script = |name: &str, text: &str| infill_testkit::write_script(dir.path().join(name), text);
        let munge = script("munge", "[ \"$*\" = --restrict-uid=6101 ] && printf 'MUNGE:%s:\\n' \"$(cat)\"");
        let credential = encode_with(&munge, UserId(6101), &Secret("aGk".to_owned())).await.unwrap();
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
