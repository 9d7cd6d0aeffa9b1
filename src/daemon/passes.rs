//! Secrets by which people are known who have proved who they are: so many of each user, for so long.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::model::{Secret, UserId};

/// Most of all users.
const MOST: usize = 8192;

/// Somebody who has proved who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The user.
    pub uid: UserId,
    /// Their login name, if they have one.
    pub name: Option<String>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Passes {
    /// How long each counts.
    lasts: Duration,
    /// Most of one user.
    most_of_a_user: usize,
    known: Mutex<BTreeMap<[u8; 32], (Person, Instant)>>,
}

impl Passes {
    /// None yet.
    pub fn new(lasts: Duration, most_of_a_user: usize) -> Passes {
        Passes { lasts, most_of_a_user, known: Mutex::default() }
    }

    /// How long each counts.
    pub fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Remembers who was proved under a fresh secret. The user's oldest makes room, or the oldest of all.
    pub fn admit(&self, secret: &Secret, person: Person, now: Instant) {
        let mut known = self.known();
        known.retain(|_, (_, until)| *until > now);
        let oldest = |is: &dyn Fn(&Person) -> bool| {
            let all = known.iter().filter(|(_, (person, _))| is(person));
            all.min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key)
        };
        let of_user = known.values().filter(|(other, _)| other.uid == person.uid).count();
        let gone = match (of_user >= self.most_of_a_user, known.len() >= MOST) {
            (true, _) => oldest(&|other| other.uid == person.uid),
            (false, true) => oldest(&|_| true),
            (false, false) => None,
        };
        gone.map(|key| known.remove(&key));
        known.insert(hash(secret), (person, now + self.lasts));
    }

    /// Who was given this secret, if that still counts.
    pub fn recall(&self, secret: &Secret, now: Instant) -> Option<Person> {
        let known = self.known();
        known.get(&hash(secret)).filter(|(_, until)| *until > now).map(|(person, _)| person.clone())
    }

    /// The same for the only time: it counts no more after that.
    pub fn redeem(&self, secret: &Secret, now: Instant) -> Option<Person> {
        let (person, until) = self.known().remove(&hash(secret))?;
        (until > now).then_some(person)
    }

    /// Everything is replaced at once: a thread that panicked leaves it whole.
    fn known(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], (Person, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Secrets are looked up by what is none.
fn hash(secret: &Secret) -> [u8; 32] {
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

    fn person(uid: u32) -> Person {
        Person { uid: UserId(uid), name: Some(format!("user{uid}")) }
    }

    #[test]
    fn a_secret_counts_for_a_while() {
        let (passes, now) = (Passes::new(LASTS, 32), Instant::now());
        passes.admit(&secret(0), person(7), now);
        assert_eq!(passes.recall(&secret(0), now), Some(person(7)));
        assert_eq!(passes.recall(&secret(1), now), None);
        assert_eq!(passes.recall(&secret(0), now + LASTS), None);
    }

    #[test]
    fn what_is_for_once_is_for_once_and_not_too_late() {
        let (passes, now) = (Passes::new(LASTS, 32), Instant::now());
        (0..2).for_each(|n| passes.admit(&secret(n), person(7), now));
        assert_eq!(passes.redeem(&secret(0), now), Some(person(7)));
        assert_eq!(passes.redeem(&secret(0), now), None);
        assert_eq!(passes.redeem(&secret(1), now + LASTS), None);
    }

    #[test]
    fn nobody_crowds_others_out() {
        let (passes, now) = (Passes::new(LASTS, 32), Instant::now());
        passes.admit(&Secret("bob's".to_owned()), person(8), now);
        for n in 0..96 {
            passes.admit(&secret(n), person(7), now + Duration::from_millis(n as u64));
        }
        let later = now + Duration::from_secs(1);
        let left = (0..96).filter(|n| passes.recall(&secret(*n), later).is_some());
        assert_eq!(left.collect::<Vec<_>>(), (64..96).collect::<Vec<_>>(), "the newest");
        assert_eq!(passes.recall(&Secret("bob's".to_owned()), later), Some(person(8)));
    }
}
