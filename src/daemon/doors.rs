//! Who may come in: what the site keeps private, readers who have proved who they are, and how many proofs
//! are looked at at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::sight::Viewer;
use crate::model::{PrivateData, Secret, UserId};
use crate::slurm::Privacy;

/// How long a reader who has proved who they are need not do so again.
const TICKET: Duration = Duration::from_secs(600);

/// Most tickets of one user: a page and some commands at a time.
const MOST_OF_A_USER: usize = 32;

/// Most tickets of all users.
const MOST_TICKETS: usize = 8192;

/// Proofs of agents that are looked at at a time: each is a process of a few milliseconds.
const HELLOS_AT_ONCE: usize = 8;

/// Proofs of people that are looked at at a time. They have a gate of their own: a crowd of readers keeps no
/// agent waiting.
const PEOPLE_AT_ONCE: usize = 4;

/// Lists of curves that are fitted at a time.
const FITS_AT_ONCE: usize = 2;

/// Somebody who has proved who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ticket {
    uid: UserId,
    name: Option<String>,
    until: Instant,
}

/// See the module's text.
pub struct Doors {
    /// Gate of the agents' proofs.
    pub hellos: Semaphore,
    /// Gate of the people's proofs.
    pub people: Semaphore,
    /// Gate of what readers have computed, on the planner's threads.
    pub fits: Semaphore,
    privacy: Mutex<Arc<Privacy>>,
    tickets: Mutex<BTreeMap<[u8; 32], Ticket>>,
}

impl Default for Doors {
    fn default() -> Self {
        Doors {
            hellos: Semaphore::new(HELLOS_AT_ONCE),
            people: Semaphore::new(PEOPLE_AT_ONCE),
            fits: Semaphore::new(FITS_AT_ONCE),
            privacy: Mutex::new(Arc::new(Privacy::unknown())),
            tickets: Mutex::default(),
        }
    }
}

impl Doors {
    /// What users may not see of each other.
    pub fn private(&self) -> PrivateData {
        self.privacy().private
    }

    /// Whether Slurm lets this user see everything.
    pub fn is_operator(&self, name: &str) -> bool {
        self.privacy().operators.contains(name)
    }

    /// Everything is replaced at once: a thread that panicked leaves it whole.
    fn privacy(&self) -> Arc<Privacy> {
        self.privacy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in what Slurm says. Says whether that is new.
    pub fn set_privacy(&self, privacy: Privacy) -> bool {
        let mut known = self.privacy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = **known != privacy;
        *known = Arc::new(privacy);
        is_new
    }

    /// Remembers who was proved under a fresh secret. The user's oldest ticket makes room, or the oldest of
    /// all.
    pub fn admit(&self, secret: &Secret, uid: UserId, name: Option<String>, now: Instant) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|_, t| t.until > now);
        let oldest = |of: &dyn Fn(&Ticket) -> bool| {
            let all = tickets.iter().filter(|(_, t)| of(t));
            all.min_by_key(|(_, t)| t.until).map(|(key, _)| *key)
        };
        let of_user = tickets.values().filter(|t| t.uid == uid).count();
        let gone = match (of_user >= MOST_OF_A_USER, tickets.len() >= MOST_TICKETS) {
            (true, _) => oldest(&|t| t.uid == uid),
            (false, true) => oldest(&|_| true),
            (false, false) => None,
        };
        gone.map(|key| tickets.remove(&key));
        tickets.insert(hash(secret), Ticket { uid, name, until: now + TICKET });
    }

    /// Who was given this secret, if that still counts.
    pub fn recall(&self, secret: &Secret, now: Instant) -> Option<(UserId, Option<String>)> {
        let tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.get(&hash(secret)).filter(|t| t.until > now).map(|t| (t.uid, t.name.clone()))
    }

    /// Somebody who has proved who they are, as a reader. `trusted`: whether the daemon's own configuration
    /// lets them see everything.
    pub fn viewer(&self, uid: UserId, name: Option<String>, trusted: bool) -> Viewer {
        let all = trusted || name.as_deref().is_some_and(|n| self.is_operator(n));
        Viewer { uid: Some(uid), name, all }
    }
}

/// Tickets are looked up by what is no secret.
fn hash(secret: &Secret) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(secret.0.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_counts_for_a_while() {
        let (doors, now) = (Doors::default(), Instant::now());
        let secret = |n: usize| Secret(format!("secret-{n}"));
        doors.admit(&secret(0), UserId(7), Some("ann".to_owned()), now);
        assert_eq!(doors.recall(&secret(0), now), Some((UserId(7), Some("ann".to_owned()))));
        assert_eq!(doors.recall(&secret(1), now), None);
        assert_eq!(doors.recall(&secret(0), now + TICKET), None);
    }

    #[test]
    fn nobody_crowds_others_out() {
        let (doors, now) = (Doors::default(), Instant::now());
        let secret = |n: usize| Secret(format!("secret-{n}"));
        doors.admit(&Secret("bob's".to_owned()), UserId(8), None, now);
        for n in 0..3 * MOST_OF_A_USER {
            doors.admit(&secret(n), UserId(7), None, now + Duration::from_millis(n as u64));
        }
        let later = now + Duration::from_secs(1);
        let left = (0..3 * MOST_OF_A_USER).filter(|n| doors.recall(&secret(*n), later).is_some());
        assert_eq!(left.collect::<Vec<_>>(), (2 * MOST_OF_A_USER..3 * MOST_OF_A_USER).collect::<Vec<_>>());
        assert!(doors.recall(&Secret("bob's".to_owned()), later).is_some());
    }

    #[test]
    fn until_slurm_says_so_nothing_is_shown_to_others() {
        let doors = Doors::default();
        assert_eq!(doors.private(), PrivateData::ALL);
        let operators = ["ann".to_owned()].into();
        assert!(doors.set_privacy(Privacy { private: PrivateData::default(), operators }));
        assert!(doors.private().is_nothing() && doors.is_operator("ann") && !doors.is_operator("bob"));
        let all = |name: &str, trusted| doors.viewer(UserId(7), Some(name.to_owned()), trusted).all;
        assert_eq!((all("ann", false), all("bob", false), all("bob", true)), (true, false, true));
    }
}
