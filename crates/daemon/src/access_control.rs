//! Who may come in: what the site keeps private, readers who have proved who they are, and how many proofs
//! are looked at at a time.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::daemon_names::DaemonNames;
use super::planner_thread::PlannerThread;
use super::rate_limit::{RateLimit, UserRateLimiter};
use super::redaction::ApiReader;
use super::session_store::{AuthenticatedUser, SessionStore};
use infill_api::seal::SessionKey;
use infill_model::PrivateData;
use infill_slurm::PrivacyRules;

/// How long a reader who has proved who they are need not do so again.
const TICKET_LIFETIME: Duration = Duration::from_secs(600);

/// Most tickets of one user: a page and some commands at a time.
const MAX_TICKETS_A_USER: usize = 32;

/// How long a link to the page counts, for once.
const LINK_LIFETIME: Duration = Duration::from_secs(60);

/// Most links of one user that count.
const MAX_LINKS_A_USER: usize = 4;

/// How long a browser that has opened one may read.
const SESSION_LIFETIME: Duration = Duration::from_secs(8 * 3600);

/// Requests of the site's web server at a time; each page waits with one.
pub(crate) const MAX_PROXY_REQUESTS: usize = 1024;

/// How long the number of a user is believed.
const NAME_LOOKUP_LIFETIME: Duration = Duration::from_secs(300);

/// Most sessions of one user.
const MAX_SESSIONS_A_USER: usize = 20;

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
const PROFILE_CHANGE_RATE: RateLimit = RateLimit { burst: 20, every: Duration::from_secs(3) };

struct ServerIdentity {
    /// From which the keys of all sessions follow; `None` where the system gave no random numbers.
    master: Option<SessionKey>,
    names: DaemonNames,
}

/// How profiles are changed.
pub(crate) struct ProfileChangeLimits {
    /// How often each user may.
    pub of_users: UserRateLimiter,
    /// One at a time: the round's own writing waits for one at most.
    pub turn: Semaphore,
}

/// How many of each kind are checked at a time. Each kind has a gate of its own, so that a crowd of one kind
/// delays no other.
pub struct ConcurrencyLimits {
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

impl ConcurrencyLimits {
    fn new() -> ConcurrencyLimits {
        ConcurrencyLimits {
            hellos: Semaphore::new(HELLOS_AT_ONCE),
            people: Semaphore::new(PEOPLE_AT_ONCE),
            health: Semaphore::new(HEALTH_AT_ONCE),
            tokens: Semaphore::new(TOKENS_AT_ONCE),
            long: Semaphore::new(LONG_AT_ONCE),
            vouching: Semaphore::new(MAX_PROXY_REQUESTS),
        }
    }
}

/// See the module's text.
pub struct AccessControl {
    /// How many are looked at at a time.
    pub gates: ConcurrencyLimits,
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
    ourselves: ServerIdentity,
    /// Sessions of the command line, for what it reads next.
    pub readers: SessionStore,
    /// Tickets of a command line that knows of no sessions.
    pub tickets: SessionStore,
    /// Of links to the page, for once.
    pub links: SessionStore,
    /// Of browsers that have opened one.
    pub sessions: SessionStore,
    /// Whether the store still has sessions that have ended.
    pub unstruck: AtomicBool,
    /// Readers whom the site's web server vouches for, by their names.
    pub vouched: SessionStore,
    /// Of those who change profiles.
    pub(crate) changes: ProfileChangeLimits,
    privacy: Mutex<Arc<PrivacyRules>>,
}

impl AccessControl {
    /// Of a daemon with these names.
    pub(crate) fn new(names: DaemonNames) -> AccessControl {
        let mut master = [0; 32];
        let drawn = getrandom::fill(&mut master);
        AccessControl {
            ourselves: ServerIdentity { master: drawn.ok().map(|()| SessionKey::new(master)), names },
            readers: SessionStore::new(TICKET_LIFETIME, MAX_TICKETS_A_USER),
            gates: ConcurrencyLimits::new(),
            fits: Arc::new(Semaphore::new(FITS_AT_ONCE)),
            sums: Arc::new(Semaphore::new(1)),
            planning: Arc::default(),
            planner: PlannerThread::default(),
            tickets: SessionStore::new(TICKET_LIFETIME, MAX_TICKETS_A_USER),
            links: SessionStore::new(LINK_LIFETIME, MAX_LINKS_A_USER),
            sessions: SessionStore::new(SESSION_LIFETIME, MAX_SESSIONS_A_USER),
            unstruck: AtomicBool::new(false),
            vouched: SessionStore::new(NAME_LOOKUP_LIFETIME, 1),
            changes: ProfileChangeLimits {
                of_users: UserRateLimiter::new(PROFILE_CHANGE_RATE),
                turn: Semaphore::new(1),
            },
            privacy: Mutex::new(Arc::new(PrivacyRules::all_hidden())),
        }
    }

    /// The key of a session of this daemon's; those of another have other keys. `None` where there are none:
    /// the system gave no random numbers.
    pub(crate) fn session_key(&self, session: &str) -> Option<SessionKey> {
        Some(self.ourselves.master.as_ref()?.derive_session(session))
    }

    /// Whether those who prove something for `to`, as `HOST:PORT`, mean this daemon.
    pub(crate) fn is_own_address(&self, to: &str) -> bool {
        self.ourselves.names.is_own(to)
    }

    /// What users may not see of each other.
    pub fn private_data(&self) -> PrivateData {
        self.privacy_rules().private
    }

    /// Whether Slurm lets this user see everything.
    pub(crate) fn is_operator(&self, name: &str) -> bool {
        self.privacy_rules().operators.contains(name)
    }

    /// Everything is replaced at once: a thread that panicked leaves it whole.
    fn privacy_rules(&self) -> Arc<PrivacyRules> {
        self.privacy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in what Slurm says. Says whether that is new.
    pub fn set_privacy(&self, privacy: PrivacyRules) -> bool {
        let mut known = self.privacy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = **known != privacy;
        *known = Arc::new(privacy);
        is_new
    }

    /// Somebody who has proved who they are, as a reader. `trusted`: whether the daemon's own configuration
    /// lets them see everything.
    pub(crate) fn to_reader(&self, person: AuthenticatedUser, trusted: bool) -> ApiReader {
        let all = trusted || person.name.as_deref().is_some_and(|n| self.is_operator(n));
        ApiReader { uid: Some(person.uid), name: person.name, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::UserId;

    #[test]
    fn until_slurm_says_so_nothing_is_shown_to_others() {
        let doors = AccessControl::new(DaemonNames::new(&infill_model::config::Config::default()));
        assert_eq!(doors.private_data(), PrivateData::ALL);
        let operators = ["ann".to_owned()].into();
        assert!(doors.set_privacy(PrivacyRules { private: PrivateData::default(), operators }));
        assert!(doors.private_data().is_nothing() && doors.is_operator("ann") && !doors.is_operator("bob"));
        let all = |name: &str, trusted| {
            doors.to_reader(AuthenticatedUser { uid: UserId(7), name: Some(name.to_owned()) }, trusted).all
        };
        assert_eq!((all("ann", false), all("bob", false), all("bob", true)), (true, false, true));
    }
}
