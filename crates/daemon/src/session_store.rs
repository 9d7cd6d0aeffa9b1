//! Secrets that identify users who have proved their identity. Their lifetime and their number per user are
//! limited.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use infill_api::seal::encode_hex;
use infill_model::{Secret, UnixTime, UserId};

/// The store's setting that holds the browsers' sessions.
pub(crate) const SESSIONS_SETTING: &str = "web_sessions";

/// Most sessions of all users together.
const MAX_SESSIONS: usize = 8192;

/// A user who has proved their identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatedUser {
    /// The user's number.
    pub uid: UserId,
    /// The login name; `None` where the number has none.
    pub name: Option<String>,
}

#[derive(Debug)]
struct SessionEntry {
    person: AuthenticatedUser,
    until: Instant,
    /// Number of the session's last request.
    counter: u64,
}

/// The sessions by the hashes of their secrets.
type SessionEntries = BTreeMap<[u8; 32], SessionEntry>;

/// The sessions of one kind.
#[derive(Debug)]
pub struct SessionStore {
    /// How long each session is valid.
    lifetime: Duration,
    /// Most sessions of one user.
    max_per_user: usize,
    entries: Mutex<SessionEntries>,
}

impl SessionStore {
    /// A store without sessions.
    pub fn new(lifetime: Duration, max_per_user: usize) -> SessionStore {
        SessionStore { lifetime, max_per_user, entries: Mutex::default() }
    }

    /// How long each session is valid.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Adds a session with a fresh secret. Where the user has too many, their oldest session is removed;
    /// where all users together have too many, the oldest of all.
    pub fn add_session(&self, secret: &Secret, person: AuthenticatedUser, now: Instant) {
        let mut entries = self.lock_entries();
        entries.retain(|_, entry| entry.until > now);
        let of_user = entries.values().filter(|entry| entry.person.uid == person.uid).count();
        let replaced = if of_user >= self.max_per_user {
            oldest_session(&entries, |owner| owner.uid == person.uid)
        } else if entries.len() >= MAX_SESSIONS {
            oldest_session(&entries, |_| true)
        } else {
            None
        };
        if let Some(key) = replaced {
            entries.remove(&key);
        }
        entries.insert(hash_secret(secret), SessionEntry { person, until: now + self.lifetime, counter: 0 });
    }

    /// The user who has this secret, if it is still valid.
    pub(crate) fn find_user(&self, secret: &Secret, now: Instant) -> Option<AuthenticatedUser> {
        let entries = self.lock_entries();
        entries.get(&hash_secret(secret)).filter(|entry| entry.until > now).map(|entry| entry.person.clone())
    }

    /// The user of this session, if it is valid and `counter` exceeds the numbers of all its earlier
    /// requests.
    pub(crate) fn accept_request(
        &self,
        session: &Secret,
        counter: u64,
        now: Instant,
    ) -> Option<AuthenticatedUser> {
        let mut entries = self.lock_entries();
        let entry = entries.get_mut(&hash_secret(session))?;
        if entry.until <= now || counter <= entry.counter {
            return None;
        }
        entry.counter = counter;
        Some(entry.person.clone())
    }

    /// The user who has this secret, if it is still valid. The secret becomes invalid.
    pub(crate) fn redeem_secret(&self, secret: &Secret, now: Instant) -> Option<AuthenticatedUser> {
        let SessionEntry { person, until, .. } = self.lock_entries().remove(&hash_secret(secret))?;
        (until > now).then_some(person)
    }

    /// Ends all sessions of matching users. Returns how many there were.
    pub(crate) fn end_matching(&self, matches: impl Fn(&AuthenticatedUser) -> bool) -> usize {
        let mut entries = self.lock_entries();
        let before = entries.len();
        entries.retain(|_, entry| !matches(&entry.person));
        before - entries.len()
    }

    /// The users with a valid session, each once.
    pub(crate) fn active_users(&self, now: Instant) -> Vec<AuthenticatedUser> {
        let entries = self.lock_entries();
        let mut people: Vec<AuthenticatedUser> = Vec::new();
        let mut seen = BTreeSet::new();
        for SessionEntry { person, .. } in entries.values().filter(|entry| entry.until > now) {
            if seen.insert((person.uid, person.name.clone())) {
                people.push(person.clone());
            }
        }
        people
    }

    /// All valid sessions as text for the store. It contains no secrets.
    pub fn serialize_active(&self, now: Instant, clock: UnixTime) -> String {
        let entries = self.lock_entries();
        let active = entries.iter().filter(|(_, entry)| entry.until > now);
        let saved = active.map(|(key, entry)| SavedSession {
            key: encode_hex(key),
            uid: entry.person.uid,
            name: entry.person.name.clone(),
            until: clock.plus_secs((entry.until - now).as_secs_f64()),
        });
        serde_json::to_string(&saved.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Loads saved sessions. Unreadable ones are dropped, and their owners must prove their identity again.
    pub fn load(&self, text: &str, now: Instant, clock: UnixTime) {
        let saved: Vec<SavedSession> = serde_json::from_str(text).unwrap_or_default();
        let mut entries = self.lock_entries();
        for SavedSession { key, uid, name, until } in saved.into_iter().take(MAX_SESSIONS) {
            let secs_left = until.secs_since(clock);
            let Some(key) = from_hex(&key).filter(|_| secs_left > 0.0) else { continue };
            let until = now + Duration::from_secs_f64(secs_left).min(self.lifetime);
            let person = AuthenticatedUser { uid, name };
            entries.insert(key, SessionEntry { person, until, counter: 0 });
        }
    }

    /// Every change replaces values, so a thread that panicked leaves them consistent.
    fn lock_entries(&self) -> MutexGuard<'_, SessionEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of the matching session that ends first.
fn oldest_session(
    entries: &SessionEntries,
    matches: impl Fn(&AuthenticatedUser) -> bool,
) -> Option<[u8; 32]> {
    let matching = entries.iter().filter(|(_, entry)| matches(&entry.person));
    matching.min_by_key(|(_, entry)| entry.until).map(|(key, _)| *key)
}

/// A session as it is stored.
#[derive(Serialize, Deserialize)]
struct SavedSession {
    /// The secret's hash.
    key: String,
    uid: UserId,
    name: Option<String>,
    until: UnixTime,
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let bytes: Option<Vec<u8>> = text
        .as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

/// The hash under which a secret is stored and looked up. The secret itself is not kept.
fn hash_secret(secret: &Secret) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(secret.0.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(600);

    fn secret(n: usize) -> Secret {
        Secret(format!("secret-{n}"))
    }

    fn person(uid: u32) -> AuthenticatedUser {
        AuthenticatedUser { uid: UserId(uid), name: Some(format!("user{uid}")) }
    }

    #[test]
    fn a_secret_is_valid_for_its_lifetime() {
        let sessions = SessionStore::new(LIFETIME, 32);
        let now = Instant::now();
        sessions.add_session(&secret(0), person(7), now);
        assert_eq!(sessions.find_user(&secret(0), now), Some(person(7)));
        assert_eq!(sessions.find_user(&secret(1), now), None);
        assert_eq!(sessions.find_user(&secret(0), now + LIFETIME), None);
    }

    #[test]
    fn each_request_of_a_session_counts_once() {
        let sessions = SessionStore::new(LIFETIME, 32);
        let now = Instant::now();
        sessions.add_session(&secret(0), person(7), now);
        let accepted =
            [1, 1, 5, 4, 6, 0].map(|counter| sessions.accept_request(&secret(0), counter, now).is_some());
        assert_eq!(accepted, [true, false, true, false, true, false]);
        assert!(sessions.accept_request(&secret(1), 9, now).is_none());
        assert!(sessions.accept_request(&secret(0), 9, now + LIFETIME).is_none());
    }

    #[test]
    fn a_secret_is_redeemed_once_and_within_its_lifetime() {
        let sessions = SessionStore::new(LIFETIME, 32);
        let now = Instant::now();
        (0..2).for_each(|n| sessions.add_session(&secret(n), person(7), now));
        assert_eq!(sessions.redeem_secret(&secret(0), now), Some(person(7)));
        assert_eq!(sessions.redeem_secret(&secret(0), now), None);
        assert_eq!(sessions.redeem_secret(&secret(1), now + LIFETIME), None);
    }

    #[test]
    fn saved_sessions_keep_their_lifetimes() {
        let sessions = SessionStore::new(LIFETIME, 32);
        let now = Instant::now();
        let clock = UnixTime(1_000_000);
        sessions.add_session(&secret(0), person(7), now);
        sessions.add_session(&secret(1), person(8), now + Duration::from_secs(300));
        let saved = sessions.serialize_active(now + Duration::from_secs(301), clock);
        assert!(!saved.contains("secret") && saved.contains("user7"), "{saved}");
        let next = SessionStore::new(LIFETIME, 32);
        let later = now + Duration::from_secs(10_000);
        next.load(&saved, later, clock + 400);
        assert_eq!(next.find_user(&secret(0), later), None, "the session has ended meanwhile");
        assert_eq!(next.find_user(&secret(1), later), Some(person(8)));
        assert_eq!(next.find_user(&secret(1), later + Duration::from_secs(200)), None);
        for bad in ["", "{}", "[{\"key\":\"zz\"}]", &saved.replace("\"key\":\"", "\"key\":\"é")] {
            let other = SessionStore::new(LIFETIME, 32);
            other.load(bad, later, clock);
            assert_eq!(other.find_user(&secret(1), later), None, "{bad}");
        }
    }

    #[test]
    fn one_user_does_not_displace_others() {
        let sessions = SessionStore::new(LIFETIME, 32);
        let now = Instant::now();
        sessions.add_session(&Secret("bob's".to_owned()), person(8), now);
        for n in 0..96 {
            sessions.add_session(&secret(n), person(7), now + Duration::from_millis(n as u64));
        }
        let later = now + Duration::from_secs(1);
        let left = (0..96).filter(|n| sessions.find_user(&secret(*n), later).is_some());
        assert_eq!(left.collect::<Vec<_>>(), (64..96).collect::<Vec<_>>(), "the newest ones");
        assert_eq!(sessions.find_user(&Secret("bob's".to_owned()), later), Some(person(8)));
    }

    #[test]
    fn there_are_at_most_8192_sessions_and_the_oldest_is_replaced() {
        const MAX_SESSIONS: u32 = 8192;
        let sessions = SessionStore::new(LIFETIME, 32);
        let now = Instant::now();
        let clock = UnixTime(1_000_000);
        let saved = (0..MAX_SESSIONS + 9).map(|n| SavedSession {
            key: format!("{n:064x}"),
            uid: UserId(n),
            name: None,
            until: clock + if n == 77 { 100 } else { 200 },
        });
        let text = serde_json::to_string(&saved.collect::<Vec<_>>()).unwrap();
        sessions.load(&text, now, clock);
        assert_eq!(sessions.lock_entries().len(), 8192, "saved sessions have the same limit");
        sessions.add_session(&secret(0), person(20_000), now);
        assert_eq!(sessions.find_user(&secret(0), now), Some(person(20_000)));
        let left: BTreeSet<u32> = sessions.lock_entries().values().map(|entry| entry.person.uid.0).collect();
        assert_eq!(left.len(), 8192);
        let gone: Vec<u32> = (0..MAX_SESSIONS).filter(|uid| !left.contains(uid)).collect();
        assert_eq!(gone, [77], "the session that would have ended first");
    }
}
