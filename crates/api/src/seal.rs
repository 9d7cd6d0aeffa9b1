//! How the daemon and its clients prove their identity to each other, message by message.
//!
//! **Proof.** The client shows a credential, in headers. Its payload names the daemon that it is for: host
//! and port of the URL, as in [`headers::TO`]. So no one can pass the credential on to another daemon. For a
//! hello or an order the payload also contains the [`request_digest`] of route and body, so that no one can
//! change them: see [`infill_model::bound_payload`].
//!
//! **Seal.** The answer carries [`headers::SEAL`]: `munge CREDENTIAL` or `open PAYLOAD`. The daemon makes the
//! credential for that user alone (`munge --restrict-uid`, so that munged encrypts it). Clients without MUNGE
//! get the open payload. The payload is [`seal_payload`]: `infill1 welcome JOB NONCE SESSION KEY`. JOB and
//! NONCE are those of the proof; JOB is 0 without a job. SESSION is public. KEY is 32 random bytes in
//! hexadecimal digits, which are never sent again. The client checks who made the credential: root, the
//! daemon's user, or Slurm's user.
//!
//! **Messages.** A request of a session carries [`headers::SESSION`], [`headers::COUNTER`] and
//! [`headers::MAC`]. Its counter is greater than that of each earlier request on its route. An answer carries
//! [`headers::MAC`]. So does the answer with the seal, whose counter is 0.
//!
//! ```text
//! request = HMAC-SHA256(KEY, "request" | route | counter | body)
//! answer  = HMAC-SHA256(KEY, "answer"  | route | counter | status | body)
//! ```
//!
//! Each field follows its length in bytes, a 64-bit number with the high byte first. Counter and status are
//! decimal digits. The route is path and query as the daemon sees them. The counter of an answer is that of
//! its request. Clients do not trust an answer without a valid MAC.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use infill_model::{JobId, Secret};
use sha2::{Digest as _, Sha256};

#[cfg(doc)]
use crate::headers;

/// First word of the header if a MUNGE credential follows.
const MUNGE: &str = "munge";

/// First word of the header if an unsealed payload follows.
const OPEN: &str = "open";

/// Longest name of a session, characters.
const MAX_SESSION_CHARS: usize = 64;

/// The secret key of a session, with which both sides sign.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; 32]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(redacted)")
    }
}

impl SessionKey {
    /// A key of 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> SessionKey {
        SessionKey(bytes)
    }

    /// Derives the key of a session from this master key, so that the daemon need not store each session's
    /// key.
    pub fn derive_session(&self, session: &str) -> SessionKey {
        SessionKey(self.fields_mac(&[b"session", session.as_bytes()]).finalize().into_bytes().into())
    }

    /// The MAC of a request, in hexadecimal digits.
    pub fn sign_request(&self, route: &str, counter: u64, body: &[u8]) -> String {
        encode_hex(&self.request_mac(route, counter, body).finalize().into_bytes())
    }

    /// Whether the MAC of a request is valid. Takes the same time if it is not.
    pub fn verify_request(&self, mac: &str, route: &str, counter: u64, body: &[u8]) -> bool {
        verify_mac(self.request_mac(route, counter, body), mac)
    }

    /// The MAC of the answer to a request, in hexadecimal digits.
    pub fn sign_answer(&self, route: &str, counter: u64, status: u16, body: &[u8]) -> String {
        encode_hex(&self.answer_mac(route, counter, status, body).finalize().into_bytes())
    }

    /// Whether the MAC of the answer to a request is valid. Takes the same time if it is not.
    pub fn verify_answer(&self, mac: &str, route: &str, counter: u64, status: u16, body: &[u8]) -> bool {
        verify_mac(self.answer_mac(route, counter, status, body), mac)
    }

    fn request_mac(&self, route: &str, counter: u64, body: &[u8]) -> Hmac<Sha256> {
        self.fields_mac(&[b"request", route.as_bytes(), counter.to_string().as_bytes(), body])
    }

    fn answer_mac(&self, route: &str, counter: u64, status: u16, body: &[u8]) -> Hmac<Sha256> {
        let counter = counter.to_string();
        let status = status.to_string();
        self.fields_mac(&[b"answer", route.as_bytes(), counter.as_bytes(), status.as_bytes(), body])
    }

    fn fields_mac(&self, fields: &[&[u8]]) -> Hmac<Sha256> {
        // HMAC pads the key with zeros to the hash's block size.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        for field in fields {
            mac.update(&(field.len() as u64).to_be_bytes());
            mac.update(field);
        }
        mac
    }
}

fn verify_mac(expected: Hmac<Sha256>, received: &str) -> bool {
    decode_hex(received).is_some_and(|received| expected.verify_slice(&received).is_ok())
}

/// The digest of route and body that the credential of a hello or an order contains, in hexadecimal digits.
pub fn request_digest(route: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    for field in [route.as_bytes(), body] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    encode_hex(&hash.finalize())
}

/// A session that the daemon opened for this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    /// The session's public name.
    pub session: String,
    /// The session's key.
    pub key: SessionKey,
}

/// The payload that the daemon seals.
pub fn seal_payload(job: Option<JobId>, nonce: &str, session: &str, key: &SessionKey) -> Secret {
    Secret(format!("infill1 welcome {} {nonce} {session} {}", job.map_or(0, |j| j.0), encode_hex(&key.0)))
}

/// The session in a payload that answers the proof with this job and nonce; `None` for any other payload.
pub fn parse_seal_payload(payload: &Secret, job: Option<JobId>, nonce: &str) -> Option<OpenSession> {
    let words: Vec<&str> = payload.0.split(' ').collect();
    let ["infill1", "welcome", payload_job, payload_nonce, session, key] = words[..] else { return None };
    let answers_proof = payload_job == job.map_or(0, |j| j.0).to_string() && payload_nonce == nonce;
    if !answers_proof || !is_session_name(session) {
        return None;
    }
    let key = decode_hex(key)?.try_into().ok()?;
    Some(OpenSession { session: session.to_owned(), key: SessionKey(key) })
}

/// Whether a text is a valid session name: ASCII letters and digits, at most 64.
pub fn is_session_name(name: &str) -> bool {
    (1..=MAX_SESSION_CHARS).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// A session's key on its way to a client that has proved its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSeal {
    /// A MUNGE credential that only this client can open.
    Munge(Secret),
    /// The plain payload, for a client without MUNGE.
    Open(Secret),
}

impl SessionSeal {
    /// The value of [`headers::SEAL`].
    pub fn to_header(&self) -> String {
        match self {
            SessionSeal::Munge(Secret(credential)) => format!("{MUNGE} {credential}"),
            SessionSeal::Open(Secret(payload)) => format!("{OPEN} {payload}"),
        }
    }

    /// Parses the value of [`headers::SEAL`]; `None` if it is invalid.
    pub fn from_header(value: &str) -> Option<SessionSeal> {
        match value.split_once(' ')? {
            (MUNGE, credential) => Some(SessionSeal::Munge(Secret(credential.to_owned()))),
            (OPEN, payload) => Some(SessionSeal::Open(Secret(payload.to_owned()))),
            _ => None,
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    // Each message needs this twice. Formatting byte by byte would be half of the cost of its proof.
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
    }
    text
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(hex_digit(*high)? * 16 + hex_digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// The value of a lower-case hexadecimal digit.
fn hex_digit(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SessionKey {
        SessionKey::new(std::array::from_fn(|i| u8::try_from(i).unwrap()))
    }

    /// The expected values were computed with Python's hmac and hashlib.
    #[test]
    fn macs_and_digests_match_the_test_vectors() {
        let route = "/v1/agent/poll";
        let body = br#"{"job":7}"#;
        assert_eq!(
            key().sign_request(route, 3, body),
            "fed819a15cd72a3098f433711bd7c89034f888f13137aaa11e70a136058fd910"
        );
        assert_eq!(
            key().sign_answer(route, 3, 200, body),
            "520fa9bef88f71b6cfb817d5096b8cb922821b746abc8ad0639b98f11ae4c41e"
        );
        assert_eq!(
            request_digest(route, body),
            "4499a8f15a6bb631e0ec6e209fdc8245da9525248aa424d556c6cdf67c36de45"
        );
        assert_eq!(
            encode_hex(&key().derive_session("s1").0),
            "1f91b5d2afdc6bb11eb43dff0c715b2066fa6c228fbda82ec363a0c7ba33efe7"
        );
    }

    #[test]
    fn a_mac_depends_on_each_field_and_its_boundaries() {
        let good = key().sign_answer("/a", 1, 200, b"x");
        assert!(key().verify_answer(&good, "/a", 1, 200, b"x"));
        assert!(!key().derive_session("s").verify_answer(&good, "/a", 1, 200, b"x"));
        for (route, counter, status, body) in [
            ("/b", 1, 200, &b"x"[..]),
            ("/a", 2, 200, b"x"),
            ("/a", 1, 401, b"x"),
            ("/a", 1, 200, b"y"),
            ("/a", 1, 200, b""),
            ("/a1", 1, 200, b"x"),
            ("/a", 12, 0, b"0x"),
            ("/", 1, 200, b"ax"),
        ] {
            assert!(!key().verify_answer(&good, route, counter, status, body), "{route} {counter} {status}");
        }
        let request = key().sign_request("/a", 1, b"x");
        assert!(
            key().verify_request(&request, "/a", 1, b"x")
                && !key().verify_answer(&request, "/a", 1, 200, b"x")
        );
        assert!(!key().verify_request(&key().sign_answer("/a", 1, 1, b"x"), "/a", 1, b"x"));
        for bad in ["", "0", "zz", &good[..62], &good.to_uppercase(), &format!("{good}00"), "é"] {
            assert!(!key().verify_answer(bad, "/a", 1, 200, b"x"), "{bad}");
        }
    }

    #[test]
    fn a_seal_answers_one_proof_only() {
        let payload = seal_payload(Some(JobId(7)), "n0", "s1", &key());
        let opened = parse_seal_payload(&payload, Some(JobId(7)), "n0").unwrap();
        assert_eq!(opened, OpenSession { session: "s1".to_owned(), key: key() });
        assert_eq!(parse_seal_payload(&payload, Some(JobId(8)), "n0"), None);
        assert_eq!(parse_seal_payload(&payload, None, "n0"), None);
        assert_eq!(parse_seal_payload(&payload, Some(JobId(7)), "n1"), None);
        for bad in [
            "",
            "infill1 welcome 7 n0 s1",
            "infill1 hello 7 n0 s1 00",
            "infill1 welcome 7 n0 s1 00",
            &format!("{} x", payload.0),
            &payload.0.replace("s1", "s/1"),
            &payload.0.replace("1f", "1g"),
        ] {
            assert_eq!(parse_seal_payload(&Secret(bad.to_owned()), Some(JobId(7)), "n0"), None, "{bad}");
        }
    }

    #[test]
    fn a_seal_travels_in_a_header_and_shows_in_no_log() {
        for seal in [
            SessionSeal::Munge(Secret("MUNGE:x:".to_owned())),
            SessionSeal::Open(Secret("infill1 …".to_owned())),
        ] {
            assert_eq!(SessionSeal::from_header(&seal.to_header()), Some(seal.clone()));
            assert!(
                !format!("{seal:?} {:?}", key()).contains("MUNGE:x") && !format!("{seal:?}").contains("…")
            );
        }
        assert_eq!(SessionSeal::from_header("other x"), None);
        assert_eq!(SessionSeal::from_header("munge"), None);
    }
}
