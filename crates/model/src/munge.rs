//! What MUNGE's programs print, and what its credentials look like.

/// Longest credential that is passed on; ours have some 200 characters.
const MAX_CREDENTIAL: usize = 16 * 1024;

/// Who made a credential, and what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedCredential {
    /// User id of the process that made it.
    pub uid: u32,
    /// Group id of that process.
    pub gid: u32,
    /// What it carries.
    pub payload: String,
}

/// Whether this looks like a credential, and may be passed on to `unmunge`.
pub fn is_credential(text: &str) -> bool {
    let inner = text.strip_prefix("MUNGE:").and_then(|t| t.strip_suffix(':'));
    text.len() <= MAX_CREDENTIAL
        && inner.is_some_and(|t| {
            !t.is_empty()
                && t.bytes().all(|c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'='))
        })
}

/// Reads `unmunge`'s output: metadata lines, an empty line, the payload. The payload comes from the other
/// side, so nothing after the empty line is taken for metadata.
///
/// # Errors
/// What is missing or wrong.
pub fn parse(text: &str) -> Result<DecodedCredential, &'static str> {
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
    let uid = number("UID", "no user")?;
    let gid = number("GID", "no group")?;
    Ok(DecodedCredential { uid, gid, payload: payload.to_owned() })
}

/// `alice (6101)` or `6101`.
fn in_parentheses(value: &str) -> Option<u32> {
    let digits = match value.rsplit_once('(') {
        Some((_, rest)) => rest.strip_suffix(')')?,
        None => value,
    };
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}
