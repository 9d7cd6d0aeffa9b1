//! Who may come in: what the site keeps private, readers who have proved who they are, and how many proofs
//! are looked at at a time.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::allowance::{Allowance, Rate};
use super::names::Names;
use super::passes::{Passes, Person};
use super::planner::PlannerThread;
use super::sight::Viewer;
use infill_api::seal::SessionKey;
use infill_model::PrivateData;
use infill_slurm::Privacy;

/// How long a reader who has proved who they are need not do so again.
const TICKET: Duration = Duration::from_secs(600);

/// Most tickets of one user: a page and some commands at a time.
const MOST_OF_A_USER: usize = 32;

/// How long a link to the page counts, for once.
const LINK: Duration = Duration::from_secs(60);

/// Most links of one user that count.
const MOST_LINKS: usize = 4;

/// How long a browser that has opened one may read.
const SESSION: Duration = Duration::from_secs(8 * 3600);

/// Requests of the site's web server at a time; each page waits with one.
pub(crate) const VOUCHED_AT_ONCE: usize = 1024;

/// How long the number of a user is believed.
const LOOKED_UP: Duration = Duration::from_secs(300);

/// Most sessions of one user.
const MOST_SESSIONS: usize = 20;

/// Proofs of agents that are looked at at a time: each is a process of a few milliseconds.
const HELLOS_AT_ONCE: usize = 8;

/// Proofs of people.
const PEOPLE_AT_ONCE: usize = 4;

/// Proofs of those who ask us to prove ourselves.
const HEALTH_AT_ONCE: usize = 8;

/// Tokens: each is a process, or a request, and may wait for slurmctld.
const TOKENS_AT_ONCE: usize = 8;

/// Orders that may be long.
const LONG_AT_ONCE: usize = 4;

/// Lists of curves that are fitted at a time.
const FITS_AT_ONCE: usize = 2;

/// Imports and deletions of profiles by one user: a thousand profiles at once, and 64 every three seconds.
const CHANGES: Rate = Rate { burst: 20, every: Duration::from_secs(3) };

struct Ourselves {
    /// From which the keys of all sessions follow; `None` where the system gave no random numbers.
    master: Option<SessionKey>,
    names: Names,
}

/// How profiles are changed.
pub(crate) struct Changes {
    /// How often each user may.
    pub of_users: Allowance,
    /// One at a time: the round's own writing waits for one at most.
    pub turn: Semaphore,
}

/// How many of each kind are checked at a time. Each kind has a gate of its own, so that a crowd of one kind
/// delays no other.
pub struct Gates {
    /// Agents' proofs.
    pub hellos: Semaphore,
    /// People's proofs.
    pub people: Semaphore,
    /// Proofs of those who ask us to prove ourselves.
    pub health: Semaphore,
    /// Tokens of Slurm's.
    pub tokens: Semaphore,
    /// Orders of some megabytes.
    pub long: Semaphore,
    /// Requests of the site's web server.
    pub vouching: Semaphore,
}

impl Gates {
    fn new() -> Gates {
        Gates {
            hellos: Semaphore::new(HELLOS_AT_ONCE),
            people: Semaphore::new(PEOPLE_AT_ONCE),
            health: Semaphore::new(HEALTH_AT_ONCE),
            tokens: Semaphore::new(TOKENS_AT_ONCE),
            long: Semaphore::new(LONG_AT_ONCE),
            vouching: Semaphore::new(VOUCHED_AT_ONCE),
        }
    }
}

/// See the module's text.
pub struct Doors {
    /// How many are looked at at a time.
    pub gates: Gates,
    /// Gate of what readers have computed, on the planner's threads.
    pub fits: Arc<Semaphore>,
    /// Gate of readers of long sums, which share the store with rounds.
    pub sums: Arc<Semaphore>,
    /// Held while a plan is computed for somebody who asks: each takes a processor. When the next one may
    /// begin.
    pub planning: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// Who computes it: not the planner of rounds, which wait for nobody's reading.
    pub planner: PlannerThread,
    /// What proves us, and how we are called.
    ourselves: Ourselves,
    /// Sessions of the command line, for what it reads next.
    pub readers: Passes,
    /// Tickets of a command line that knows of no sessions.
    pub tickets: Passes,
    /// Of links to the page, for once.
    pub links: Passes,
    /// Of browsers that have opened one.
    pub sessions: Passes,
    /// Whether the store still has sessions that have ended.
    pub unstruck: AtomicBool,
    /// Readers whom the site's web server vouches for, by their names.
    pub vouched: Passes,
    /// Of those who change profiles.
    pub(crate) changes: Changes,
    privacy: Mutex<Arc<Privacy>>,
}

impl Doors {
    /// Of a daemon with these names.
    pub(crate) fn new(names: Names) -> Doors {
        let mut master = [0; 32];
        let drawn = getrandom::fill(&mut master);
        Doors {
            ourselves: Ourselves { master: drawn.ok().map(|()| SessionKey::new(master)), names },
            readers: Passes::new(TICKET, MOST_OF_A_USER),
            gates: Gates::new(),
            fits: Arc::new(Semaphore::new(FITS_AT_ONCE)),
            sums: Arc::new(Semaphore::new(1)),
            planning: Arc::default(),
            planner: PlannerThread::default(),
            tickets: Passes::new(TICKET, MOST_OF_A_USER),
            links: Passes::new(LINK, MOST_LINKS),
            sessions: Passes::new(SESSION, MOST_SESSIONS),
            unstruck: AtomicBool::new(false),
            vouched: Passes::new(LOOKED_UP, 1),
            changes: Changes { of_users: Allowance::new(CHANGES), turn: Semaphore::new(1) },
            privacy: Mutex::new(Arc::new(Privacy::unknown())),
        }
    }

    /// The key of a session of this daemon's; those of another have other keys. `None` where there are none:
    /// the system gave no random numbers.
    pub(crate) fn key_of(&self, session: &str) -> Option<SessionKey> {
        Some(self.ourselves.master.as_ref()?.of_session(session))
    }

    /// Whether those who prove something for `to`, as `HOST:PORT`, mean this daemon.
    pub(crate) fn are_of(&self, to: &str) -> bool {
        self.ourselves.names.has(to)
    }

    /// What users may not see of each other.
    pub fn private(&self) -> PrivateData {
        self.privacy().private
    }

    /// Whether Slurm lets this user see everything.
    pub(crate) fn is_operator(&self, name: &str) -> bool {
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

    /// Somebody who has proved who they are, as a reader. `trusted`: whether the daemon's own configuration
    /// lets them see everything.
    pub(crate) fn viewer(&self, person: Person, trusted: bool) -> Viewer {
        let all = trusted || person.name.as_deref().is_some_and(|n| self.is_operator(n));
        Viewer { uid: Some(person.uid), name: person.name, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::UserId;

    #[test]
    fn until_slurm_says_so_nothing_is_shown_to_others() {
        let doors = Doors::new(Names::new(&infill_model::config::Config::default()));
        assert_eq!(doors.private(), PrivateData::ALL);
        let operators = ["ann".to_owned()].into();
        assert!(doors.set_privacy(Privacy { private: PrivateData::default(), operators }));
        assert!(doors.private().is_nothing() && doors.is_operator("ann") && !doors.is_operator("bob"));
        let all = |name: &str, trusted| {
            doors.viewer(Person { uid: UserId(7), name: Some(name.to_owned()) }, trusted).all
        };
        assert_eq!((all("ann", false), all("bob", false), all("bob", true)), (true, false, true));
    }
}
