//! The output of MUNGE's programs, and the form of its credentials.

/// The longest credential that is passed on, in bytes. Credentials of infill have about 200 characters.
const MAX_CREDENTIAL: usize = 16 * 1024;

/// The contents of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedCredential {
    /// User id of the process that created it.
    pub uid: u32,
    /// Group id of that process.
    pub gid: u32,
    /// The payload of the credential.
    pub payload: String,
}

/// Whether a text has the form of a credential, so that it may be passed on to `unmunge`.
pub fn is_credential(text: &str) -> bool {
    let encoded = text.strip_prefix("MUNGE:").and_then(|rest| rest.strip_suffix(':'));
    text.len() <= MAX_CREDENTIAL
        && encoded.is_some_and(|text| !text.is_empty() && text.bytes().all(is_base64))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Parses the output of `unmunge`: metadata lines, an empty line, and the payload. The sender of the
/// credential controls the payload, so nothing after the empty line is read as metadata.
///
/// # Errors
/// A missing or wrong part of the output.
pub fn parse(text: &str) -> Result<DecodedCredential, &'static str> {
    let (metadata, payload) = text.split_once("\n\n").ok_or("no payload")?;
    if find_number(metadata, "STATUS").ok_or("no status")? != 0 {
        return Err("the status is not success");
    }
    if find_number(metadata, "LENGTH").ok_or("no length")? as usize != payload.len() {
        return Err("the payload does not have the stated length");
    }
    let uid = find_number(metadata, "UID").ok_or("no user")?;
    let gid = find_number(metadata, "GID").ok_or("no group")?;
    Ok(DecodedCredential { uid, gid, payload: payload.to_owned() })
}

/// The number of the only metadata line with this key.
fn find_number(metadata: &str, key: &str) -> Option<u32> {
    let mut values = metadata
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value);
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    parse_id(value.trim())
}

/// The number of `alice (6101)` or `6101`.
fn parse_id(value: &str) -> Option<u32> {
    let digits = match value.rsplit_once('(') {
        Some((_, rest)) => rest.strip_suffix(')')?,
        None => value,
    };
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}
