//! Access to the HTTP API: what the site keeps private, the sessions of readers who have proved their
//! identity, and how many credentials are checked at a time.

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

/// How long the proof of a reader's identity is valid.
const TICKET_LIFETIME: Duration = Duration::from_secs(600);

/// Most tickets of one user. This suffices for a page and some commands at the same time.
const MAX_TICKETS_A_USER: usize = 32;

/// How long a link to the page is valid. It can be opened once.
const LINK_LIFETIME: Duration = Duration::from_secs(60);

/// Most valid links of one user.
const MAX_LINKS_A_USER: usize = 4;

/// How long a browser that has opened a link may read.
const SESSION_LIFETIME: Duration = Duration::from_secs(8 * 3600);

/// Most requests of the site's web server at a time. Each open page has one waiting.
pub(crate) const MAX_PROXY_REQUESTS: usize = 1024;

/// How long the user number of a login name is cached.
const NAME_LOOKUP_LIFETIME: Duration = Duration::from_secs(300);

/// Most browser sessions of one user.
const MAX_SESSIONS_A_USER: usize = 20;

/// Agents' credentials that are checked at a time. Each check is a process of a few milliseconds.
const HELLOS_AT_ONCE: usize = 8;

/// People's credentials that are checked at a time.
const PEOPLE_AT_ONCE: usize = 4;

/// Credentials of clients that ask the daemon to prove itself, checked at a time.
const HEALTH_AT_ONCE: usize = 8;

/// Slurm tokens that are checked at a time. Each check is a process, or a request, and may wait for
/// slurmctld.
const TOKENS_AT_ONCE: usize = 8;

/// Requests with a long body that are handled at a time.
const LONG_AT_ONCE: usize = 4;

/// Lists of curves that are fitted at a time.
const FITS_AT_ONCE: usize = 2;

/// Limit on imports and deletions of profiles by one user: a thousand profiles at once, and 64 every three
/// seconds.
const PROFILE_CHANGE_RATE: RateLimit = RateLimit { burst: 20, every: Duration::from_secs(3) };

/// The secret and the names of this daemon.
struct ServerIdentity {
    /// Derives the keys of all sessions. `None` where the system gave no random numbers.
    master: Option<SessionKey>,
    names: DaemonNames,
}

/// Limits on changes of profiles.
pub(crate) struct ProfileChangeLimits {
    /// How often each user may change profiles.
    pub per_user: UserRateLimiter,
    /// Admits one change at a time, so that a round waits for at most one before it writes.
    pub turn: Semaphore,
}

/// How many requests of each kind are handled at a time. Each kind has a semaphore of its own, so that many
/// requests of one kind do not delay the others.
pub struct ConcurrencyLimits {
    /// Checks of agents' credentials.
    pub hellos: Semaphore,
    /// Checks of people's credentials.
    pub people: Semaphore,
    /// Checks of credentials of clients that ask the daemon to prove itself.
    pub health: Semaphore,
    /// Checks of Slurm tokens.
    pub tokens: Semaphore,
    /// Requests with a body of some megabytes.
    pub long: Semaphore,
    /// Requests of the site's web server.
    pub proxy: Semaphore,
}

impl ConcurrencyLimits {
    fn new() -> ConcurrencyLimits {
        ConcurrencyLimits {
            hellos: Semaphore::new(HELLOS_AT_ONCE),
            people: Semaphore::new(PEOPLE_AT_ONCE),
            health: Semaphore::new(HEALTH_AT_ONCE),
            tokens: Semaphore::new(TOKENS_AT_ONCE),
            long: Semaphore::new(LONG_AT_ONCE),
            proxy: Semaphore::new(MAX_PROXY_REQUESTS),
        }
    }
}

/// Everything that decides whether a request is served.
pub struct AccessControl {
    /// How many requests of each kind are handled at a time.
    pub limits: ConcurrencyLimits,
    /// Limits the fits of curves for readers. They run on the planner's threads.
    pub fits: Arc<Semaphore>,
    /// Limits the readers of long sums, which share the store with the rounds.
    pub sums: Arc<Semaphore>,
    /// Held while a plan is computed for a reader, because each takes a processor. The value is when the next
    /// one may begin.
    pub planning: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// Computes the plans for readers. The rounds have a planner of their own, so they never wait for
    /// readers.
    pub planner: PlannerThread,
    /// The secret and the names of this daemon.
    identity: ServerIdentity,
    /// Sessions of the command line, for its later requests.
    pub readers: SessionStore,
    /// Tickets of a command line without support for sessions.
    pub tickets: SessionStore,
    /// Links to the page. Each can be opened once.
    pub links: SessionStore,
    /// Sessions of browsers that have opened a link.
    pub sessions: SessionStore,
    /// Whether the store still has sessions that have ended.
    pub saved_sessions_stale: AtomicBool,
    /// Readers for whom the site's web server vouches, by their names.
    pub proxy_users: SessionStore,
    /// Limits on changes of profiles.
    pub(crate) changes: ProfileChangeLimits,
    privacy: Mutex<Arc<PrivacyRules>>,
}

impl AccessControl {
    /// The access control of a daemon with these names. Everything is private until Slurm says otherwise.
    pub(crate) fn new(names: DaemonNames) -> AccessControl {
        let mut master = [0; 32];
        let drawn = getrandom::fill(&mut master);
        AccessControl {
            identity: ServerIdentity { master: drawn.ok().map(|()| SessionKey::new(master)), names },
            readers: SessionStore::new(TICKET_LIFETIME, MAX_TICKETS_A_USER),
            limits: ConcurrencyLimits::new(),
            fits: Arc::new(Semaphore::new(FITS_AT_ONCE)),
            sums: Arc::new(Semaphore::new(1)),
            planning: Arc::default(),
            planner: PlannerThread::default(),
            tickets: SessionStore::new(TICKET_LIFETIME, MAX_TICKETS_A_USER),
            links: SessionStore::new(LINK_LIFETIME, MAX_LINKS_A_USER),
            sessions: SessionStore::new(SESSION_LIFETIME, MAX_SESSIONS_A_USER),
            saved_sessions_stale: AtomicBool::new(false),
            proxy_users: SessionStore::new(NAME_LOOKUP_LIFETIME, 1),
            changes: ProfileChangeLimits {
                per_user: UserRateLimiter::new(PROFILE_CHANGE_RATE),
                turn: Semaphore::new(1),
            },
            privacy: Mutex::new(Arc::new(PrivacyRules::all_hidden())),
        }
    }

    /// The key of a session. Each daemon derives other keys. `None` where the system gave no random numbers.
    pub(crate) fn session_key(&self, session: &str) -> Option<SessionKey> {
        Some(self.identity.master.as_ref()?.derive_session(session))
    }

    /// Whether a credential that was made for `to`, as `HOST:PORT`, is meant for this daemon.
    pub(crate) fn is_own_address(&self, to: &str) -> bool {
        self.identity.names.is_own(to)
    }

    /// What Slurm hides from users about each other.
    pub fn private_data(&self) -> PrivateData {
        self.privacy_rules().private
    }

    /// Whether Slurm lets this user see everything.
    pub(crate) fn is_operator(&self, name: &str) -> bool {
        self.privacy_rules().operators.contains(name)
    }

    /// The value is replaced at once, so a thread that panicked leaves it consistent.
    fn privacy_rules(&self) -> Arc<PrivacyRules> {
        self.privacy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets Slurm's privacy rules. Returns whether they have changed.
    pub fn set_privacy(&self, privacy: PrivacyRules) -> bool {
        let mut current = self.privacy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = **current != privacy;
        *current = Arc::new(privacy);
        is_new
    }

    /// Makes a reader of a user who has proved their identity. `trusted`: whether the daemon's configuration
    /// lets the user see everything.
    pub(crate) fn to_reader(&self, person: AuthenticatedUser, trusted: bool) -> ApiReader {
        let all = trusted || person.name.as_deref().is_some_and(|name| self.is_operator(name));
        ApiReader { uid: Some(person.uid), name: person.name, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::UserId;

    #[test]
    fn until_slurm_answers_users_see_only_their_own() {
        let access = AccessControl::new(DaemonNames::new(&infill_model::config::Config::default()));
        assert_eq!(access.private_data(), PrivateData::ALL);
        let operators = ["ann".to_owned()].into();
        assert!(access.set_privacy(PrivacyRules { private: PrivateData::default(), operators }));
        assert!(access.private_data().is_nothing());
        assert!(access.is_operator("ann") && !access.is_operator("bob"));
        for (name, trusted, sees_all) in [("ann", false, true), ("bob", false, false), ("bob", true, true)] {
            let user = AuthenticatedUser { uid: UserId(7), name: Some(name.to_owned()) };
            assert_eq!(access.to_reader(user, trusted).all, sees_all, "{name}, trusted: {trusted}");
        }
    }
}
