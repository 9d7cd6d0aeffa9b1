//! The kinds of readers, the facts that must be hidden, and which route shows which fact.

use infill_api::routes as paths;
use infill_model::{JobId, PrivateData, UnixTime, clock};

/// The owner of the hidden facts: a user that every system has.
pub const OWNER: &str = "nobody";

/// Another user that every system has.
pub const OTHER: &str = "daemon";

/// The kinds of readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderKind {
    Nobody,
    Other,
    Owner,
    Operator,
    Admin,
}

impl ReaderKind {
    /// All kinds of readers.
    pub const ALL: [ReaderKind; 5] =
        [ReaderKind::Nobody, ReaderKind::Other, ReaderKind::Owner, ReaderKind::Operator, ReaderKind::Admin];

    /// The `Authorization` header with which they prove their identity.
    pub fn credential(self) -> Option<&'static str> {
        match self {
            ReaderKind::Nobody => None,
            ReaderKind::Other => Some("Munge other's"),
            ReaderKind::Owner => Some("Munge owner's"),
            ReaderKind::Operator => Some("Munge operator's"),
            ReaderKind::Admin => Some("Slurm-JWT root's"),
        }
    }
}

/// Facts that must be hidden from some readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenFact {
    /// The owner's malleable job.
    Job,
    /// Its name.
    JobName,
    /// Its owner's name in a status.
    User,
    /// A main job of a third user.
    MainJob,
    /// A node of the third user.
    Node,
    /// A reservation.
    Reservation,
    /// The owner's profile.
    Profile,
    /// Why a generation of the owner's job was made.
    Generation,
    /// A job in a document without owners. Only readers who see everything may see it.
    Unowned,
    /// The owner's usage, from which the job's turn follows.
    Turn,
    /// The name of the profile that the owner's job measures.
    Subject,
    /// A node with a problem.
    BadNode,
    /// Why a generation was made of the job that had the owner's job's number before.
    Former,
}

impl HiddenFact {
    /// All facts.
    pub const ALL: [HiddenFact; 13] = [
        HiddenFact::Job,
        HiddenFact::JobName,
        HiddenFact::User,
        HiddenFact::MainJob,
        HiddenFact::Node,
        HiddenFact::Reservation,
        HiddenFact::Profile,
        HiddenFact::Generation,
        HiddenFact::Unowned,
        HiddenFact::Turn,
        HiddenFact::Subject,
        HiddenFact::BadNode,
        HiddenFact::Former,
    ];

    /// The text that shows that an answer reveals the fact.
    pub fn word(self) -> &'static str {
        match self {
            HiddenFact::Job => "424201",
            HiddenFact::JobName => "secret-train",
            HiddenFact::User => "\"user\":\"nobody\"",
            HiddenFact::MainJob => "424403",
            HiddenFact::Node => "\"n3\"",
            HiddenFact::Reservation => "secret-maintenance",
            HiddenFact::Profile => "secret-profile",
            HiddenFact::Generation => "secret-reason",
            HiddenFact::Unowned => "job 424999",
            HiddenFact::Turn => "used 7.7 node-hours",
            HiddenFact::Subject => "secret-subject",
            HiddenFact::BadNode => "broken-node",
            HiddenFact::Former => "former-reason",
        }
    }

    fn is_private(self, path: &str, private: PrivateData) -> bool {
        if path == paths::REPORT {
            return private.hides_spending();
        }
        if [paths::PROFILES, paths::PROFILE_HISTORY, paths::PROFILE_FIGURE].contains(&path) {
            return private.hides_profiles();
        }
        match self {
            HiddenFact::Job
            | HiddenFact::JobName
            | HiddenFact::Generation
            | HiddenFact::Unowned
            | HiddenFact::Former => private.jobs,
            HiddenFact::User => private.jobs || private.users,
            HiddenFact::Turn => private.jobs || private.usage || private.users,
            HiddenFact::Node | HiddenFact::BadNode => private.nodes,
            // Only nodes name them.
            HiddenFact::MainJob => private.jobs || private.nodes,
            HiddenFact::Reservation => private.reservations || private.nodes,
            HiddenFact::Profile | HiddenFact::Subject => private.hides_profiles(),
        }
    }

    /// Whether a route may tell it to this reader.
    pub fn may_be_seen_by(self, who: ReaderKind, path: &str, private: PrivateData) -> bool {
        use HiddenFact::{BadNode, Former, MainJob, Node, Reservation, Unowned};
        let is_owners = !matches!(self, MainJob | Node | Reservation | Unowned | BadNode | Former);
        match who {
            ReaderKind::Admin | ReaderKind::Operator => true,
            ReaderKind::Owner if is_owners => true,
            _ => !self.is_private(path, private),
        }
    }
}

/// What else is asked of a route, and tells the same.
pub fn also(path: &str) -> Vec<String> {
    let asked = match path {
        paths::STATUS => vec!["/v1/status?shared=true"],
        paths::FIGURE => {
            vec!["/v1/figures/node_time?from=997200&to=1000800", "/v1/figures/delays?from=997200&to=1000800"]
        }
        _ => Vec::new(),
    };
    asked.into_iter().map(str::to_owned).collect()
}

/// What each route for readers tells where nothing is private, and how it is asked.
pub fn told(path: &str) -> Option<(String, Vec<HiddenFact>)> {
    use HiddenFact::{
        BadNode, Former, Generation, Job, JobName, MainJob, Node, Profile, Reservation, Subject, Turn,
        Unowned, User,
    };
    let key = format!("user={OWNER}&name=secret-profile&node_type=cpu&exec_plan=default&batch=auto");
    let (asked, secrets) = match path {
        paths::STATUS => {
            (path.to_owned(), vec![Job, JobName, User, MainJob, Node, Reservation, Turn, Subject, BadNode])
        }
        paths::ROUND => (path.to_owned(), vec![Job, MainJob, Node]),
        paths::ROUNDS => (path.to_owned(), vec![Unowned]),
        paths::ROUND_AT => {
            (paths::round_path(UnixTime(i64::from(u32::MAX))), vec![Job, MainJob, Node, Unowned])
        }
        paths::PLAN => (path.to_owned(), vec![Job, MainJob, Node]),
        paths::GENERATIONS => (paths::generations_path(JobId(424_201)), vec![Job, Generation, Former]),
        paths::PROFILES => (path.to_owned(), vec![User, Profile]),
        paths::PROFILE_HISTORY => (format!("{path}?{key}"), vec![Job]),
        paths::EXPLAIN => ("/v1/explain/n2".to_owned(), vec![Reservation]),
        paths::FIGURE => ("/v1/figures/nodes?from=997200&to=1000800".to_owned(), vec![]),
        paths::PROFILE_FIGURE => (format!("{path}?{key}"), vec![Profile]),
        paths::REPORT => (format!("{path}?from=980000&to=1003600"), vec![User]),
        paths::COLLECTIVES => (path.to_owned(), vec![]),
        paths::SUMMARY => (format!("{path}?day={}", clock::now().0 - 3600), vec![]),
        paths::LANES => (format!("{path}?from=997200&to=1000800"), vec![Job, JobName, User, Generation]),
        paths::NODE => ("/v1/nodes/n2?from=997200&to=1000800".to_owned(), vec![Reservation]),
        paths::TIMELINE => (format!("{path}?from=997200&to=1000800"), vec![Node]),
        _ => return None,
    };
    Some((asked, secrets))
}
