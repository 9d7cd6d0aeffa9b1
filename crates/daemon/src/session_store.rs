//! Secrets by which people are known who have proved who they are: so many of each user, for so long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use infill_api::seal::encode_hex;
use infill_model::{Secret, UnixTime, UserId};

/// Under which name browsers' sessions are kept in the store.
pub(crate) const SESSIONS_SETTING: &str = "web_sessions";

/// Most of all users.
const MAX_SESSIONS: usize = 8192;

/// Somebody who has proved who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatedUser {
    /// The user.
    pub uid: UserId,
    /// Their login name, if they have one.
    pub name: Option<String>,
}

#[derive(Debug)]
struct SessionEntry {
    person: AuthenticatedUser,
    until: Instant,
    /// Of a session's last request.
    counter: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct SessionStore {
    /// How long each counts.
    lasts: Duration,
    /// Most of one user.
    most_of_a_user: usize,
    known: Mutex<BTreeMap<[u8; 32], SessionEntry>>,
}

impl SessionStore {
    /// None yet.
    pub fn new(lasts: Duration, most_of_a_user: usize) -> SessionStore {
        SessionStore { lasts, most_of_a_user, known: Mutex::default() }
    }

    /// How long each counts.
    pub fn lifetime(&self) -> Duration {
        self.lasts
    }

    /// Remembers who was proved under a fresh secret. The user's oldest makes room, or the oldest of all.
    pub fn add_session(&self, secret: &Secret, person: AuthenticatedUser, now: Instant) {
        let mut known = self.lock_entries();
        known.retain(|_, k| k.until > now);
        let oldest = |is: &dyn Fn(&AuthenticatedUser) -> bool| {
            let all = known.iter().filter(|(_, k)| is(&k.person));
            all.min_by_key(|(_, k)| k.until).map(|(key, _)| *key)
        };
        let of_user = known.values().filter(|k| k.person.uid == person.uid).count();
        let gone = match (of_user >= self.most_of_a_user, known.len() >= MAX_SESSIONS) {
            (true, _) => oldest(&|other| other.uid == person.uid),
            (false, true) => oldest(&|_| true),
            (false, false) => None,
        };
        gone.map(|key| known.remove(&key));
        known.insert(hash_secret(secret), SessionEntry { person, until: now + self.lasts, counter: 0 });
    }

    /// Who was given this secret, if that still counts.
    pub(crate) fn find_user(&self, secret: &Secret, now: Instant) -> Option<AuthenticatedUser> {
        let known = self.lock_entries();
        known.get(&hash_secret(secret)).filter(|k| k.until > now).map(|k| k.person.clone())
    }

    /// Whose session this is, if it still counts and none of its requests had this number or a greater one.
    pub(crate) fn accept_request(
        &self,
        session: &Secret,
        counter: u64,
        now: Instant,
    ) -> Option<AuthenticatedUser> {
        let mut known = self.lock_entries();
        let found = known.get_mut(&hash_secret(session)).filter(|k| k.until > now && counter > k.counter)?;
        found.counter = counter;
        Some(found.person.clone())
    }

    /// The same for the only time: it counts no more after that.
    pub(crate) fn redeem_secret(&self, secret: &Secret, now: Instant) -> Option<AuthenticatedUser> {
        let SessionEntry { person, until, .. } = self.lock_entries().remove(&hash_secret(secret))?;
        (until > now).then_some(person)
    }

    /// Ends all of those whom this names; says how many that were.
    pub(crate) fn end_matching(&self, is_one: impl Fn(&AuthenticatedUser) -> bool) -> usize {
        let mut known = self.lock_entries();
        let before = known.len();
        known.retain(|_, k| !is_one(&k.person));
        before - known.len()
    }

    /// Those who have any that still count, each once.
    pub(crate) fn active_users(&self, now: Instant) -> Vec<AuthenticatedUser> {
        let known = self.lock_entries();
        let all = known.values().filter(|k| k.until > now);
        let mut people: Vec<AuthenticatedUser> = Vec::new();
        let mut seen = BTreeSet::new();
        for SessionEntry { person, .. } in all {
            if seen.insert((person.uid, person.name.clone())) {
                people.push(person.clone());
            }
        }
        people
    }

    /// All that still count, to be kept: no secret is among them.
    pub fn serialize_active(&self, now: Instant, clock: UnixTime) -> String {
        let known = self.lock_entries();
        let kept = known.iter().filter(|(_, k)| k.until > now).map(|(key, k)| SavedSession {
            key: encode_hex(key),
            uid: k.person.uid,
            name: k.person.name.clone(),
            until: clock.plus_secs((k.until - now).as_secs_f64()),
        });
        serde_json::to_string(&kept.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Takes in what was kept. What cannot be read counts no more: its owners prove who they are again.
    pub fn load(&self, text: &str, now: Instant, clock: UnixTime) {
        let kept: Vec<SavedSession> = serde_json::from_str(text).unwrap_or_default();
        let mut known = self.lock_entries();
        for SavedSession { key, uid, name, until } in kept.into_iter().take(MAX_SESSIONS) {
            let left = until.secs_since(clock);
            let Some(key) = from_hex(&key).filter(|_| left > 0.0) else { continue };
            let left = Duration::from_secs_f64(left).min(self.lasts);
            known.insert(
                key,
                SessionEntry { person: AuthenticatedUser { uid, name }, until: now + left, counter: 0 },
            );
        }
    }

    /// Everything is replaced at once: a thread that panicked leaves it whole.
    fn lock_entries(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], SessionEntry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that is kept.
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
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

/// Secrets are looked up by what is none.
fn hash_secret(secret: &Secret) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(secret.0.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(600);

    fn secret(n: usize) -> Secret {
        Secret(format!("secret-{n}"))
    }

    fn person(uid: u32) -> AuthenticatedUser {
        AuthenticatedUser { uid: UserId(uid), name: Some(format!("user{uid}")) }
    }

    #[test]
    fn a_secret_counts_for_a_while() {
        let passes = SessionStore::new(LASTS, 32);
        let now = Instant::now();
        passes.add_session(&secret(0), person(7), now);
        assert_eq!(passes.find_user(&secret(0), now), Some(person(7)));
        assert_eq!(passes.find_user(&secret(1), now), None);
        assert_eq!(passes.find_user(&secret(0), now + LASTS), None);
    }

    #[test]
    fn each_request_of_a_session_counts_once() {
        let passes = SessionStore::new(LASTS, 32);
        let now = Instant::now();
        passes.add_session(&secret(0), person(7), now);
        let counts = |counter| passes.accept_request(&secret(0), counter, now).is_some();
        assert_eq!([1, 1, 5, 4, 6].map(counts), [true, false, true, false, true]);
        assert!(!counts(0) && passes.accept_request(&secret(1), 9, now).is_none());
        assert!(passes.accept_request(&secret(0), 9, now + LASTS).is_none());
    }

    #[test]
    fn what_is_for_once_is_for_once_and_not_too_late() {
        let passes = SessionStore::new(LASTS, 32);
        let now = Instant::now();
        (0..2).for_each(|n| passes.add_session(&secret(n), person(7), now));
        assert_eq!(passes.redeem_secret(&secret(0), now), Some(person(7)));
        assert_eq!(passes.redeem_secret(&secret(0), now), None);
        assert_eq!(passes.redeem_secret(&secret(1), now + LASTS), None);
    }

    #[test]
    fn what_is_kept_counts_for_as_long_as_it_would_have() {
        let passes = SessionStore::new(LASTS, 32);
        let now = Instant::now();
        let clock = UnixTime(1_000_000);
        passes.add_session(&secret(0), person(7), now);
        passes.add_session(&secret(1), person(8), now + Duration::from_secs(300));
        let kept = passes.serialize_active(now + Duration::from_secs(301), clock);
        assert!(!kept.contains("secret") && kept.contains("user7"), "{kept}");
        let next = SessionStore::new(LASTS, 32);
        let later = now + Duration::from_secs(10_000);
        next.load(&kept, later, clock + 400);
        assert_eq!(next.find_user(&secret(0), later), None, "it has ended meanwhile");
        assert_eq!(next.find_user(&secret(1), later), Some(person(8)));
        assert_eq!(next.find_user(&secret(1), later + Duration::from_secs(200)), None);
        for bad in ["", "{}", "[{\"key\":\"zz\"}]", &kept.replace("\"key\":\"", "\"key\":\"é")] {
            let other = SessionStore::new(LASTS, 32);
            other.load(bad, later, clock);
            assert_eq!(other.find_user(&secret(1), later), None, "{bad}");
        }
    }

    #[test]
    fn nobody_crowds_others_out() {
        let passes = SessionStore::new(LASTS, 32);
        let now = Instant::now();
        passes.add_session(&Secret("bob's".to_owned()), person(8), now);
        for n in 0..96 {
            passes.add_session(&secret(n), person(7), now + Duration::from_millis(n as u64));
        }
        let later = now + Duration::from_secs(1);
        let left = (0..96).filter(|n| passes.find_user(&secret(*n), later).is_some());
        assert_eq!(left.collect::<Vec<_>>(), (64..96).collect::<Vec<_>>(), "the newest");
        assert_eq!(passes.find_user(&Secret("bob's".to_owned()), later), Some(person(8)));
    }

    #[test]
    fn of_all_users_at_most_8192_are_known_and_the_oldest_makes_room() {
        const MOST_OF_ALL: u32 = 8192;
        let passes = SessionStore::new(LASTS, 32);
        let now = Instant::now();
        let clock = UnixTime(1_000_000);
        let kept = |n: u32| SavedSession {
            key: format!("{n:064x}"),
            uid: UserId(n),
            name: None,
            until: clock + if n == 77 { 100 } else { 200 },
        };
        let text = serde_json::to_string(&(0..MOST_OF_ALL + 9).map(kept).collect::<Vec<_>>()).unwrap();
        passes.load(&text, now, clock);
        let known = || {
            let passes = passes.lock_entries();
            passes.values().map(|k| k.person.uid.0).collect::<Vec<u32>>()
        };
        assert_eq!(known().len(), 8192, "the store's have the same bound");
        passes.add_session(&secret(0), person(20_000), now);
        assert_eq!(passes.find_user(&secret(0), now), Some(person(20_000)));
        let left = BTreeSet::from_iter(known());
        assert_eq!(left.len(), 8192);
        let gone: Vec<u32> = (0..MOST_OF_ALL).filter(|uid| !left.contains(uid)).collect();
        assert_eq!(gone, [77], "the one that would have ended first");
    }
}
