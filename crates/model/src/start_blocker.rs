//! Why a job must not be started now, whatever is free: its own request says so, or a person.

use serde::{Deserialize, Serialize};

use super::UnixTime;

/// Who holds a job in Slurm's queue. Infill holds malleable jobs itself while they wait; that is no hold in
/// this sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// The job's owner, with `scontrol hold` or `sbatch --hold`.
    Owner,
    /// An administrator: only one can release it.
    Admin,
}

/// Why a job must not be started now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartBlocker {
    /// A person holds it.
    Held(HoldKind),
    /// It asks for a reservation's nodes, and infill fills what is not reserved.
    Reservation(String),
    /// Its `--constraint` is beyond what infill understands; the text says how.
    Constraint(String),
    /// No node of the partition is what it asks for; the text is what it asks for.
    NoNode(String),
    /// Jobs that it depends on have not come so far.
    Dependency(String),
    /// It is not to begin before this moment.
    Begin(UnixTime),
    /// Slurm did not start it, for a reason of its own.
    Refused {
        /// In Slurm's words, such as `QOSMaxJobsPerUserLimit`.
        reason: String,
        /// When it is tried again.
        until: UnixTime,
    },
}

impl StartBlocker {
    /// A sentence without its subject, as of this moment.
    pub fn describe_at(&self, now: UnixTime) -> String {
        let secs = |until: UnixTime| until.secs_since(now).max(0.0);
        match self {
            StartBlocker::Begin(at) => format!("is not to begin for another {:.0} s (--begin)", secs(*at)),
            StartBlocker::Refused { reason, until } => {
                format!("could not start: Slurm says {reason}; it is tried again in {:.0} s", secs(*until))
            }
            StartBlocker::Held(HoldKind::Owner) => {
                "is held by its owner: `scontrol release` lets it go".to_owned()
            }
            StartBlocker::Held(HoldKind::Admin) => "is held by an administrator".to_owned(),
            StartBlocker::Reservation(name) => {
                format!("asks for reservation {name}: infill fills only what nobody has reserved")
            }
            StartBlocker::Constraint(why) => format!("asks for what infill cannot follow: {why}"),
            StartBlocker::NoNode(what) => format!("asks for {what}, and no node of the partition has that"),
            StartBlocker::Dependency(what) => format!("waits for its dependency {what}"),
        }
    }
}
