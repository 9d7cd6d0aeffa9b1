//! Why a job must not be started now, even if nodes are free: its own request or a person forbids it.

use serde::{Deserialize, Serialize};

use super::{NodeCount, UnixTime};

/// Who holds a job in Slurm's queue. While malleable jobs wait, infill itself holds them. That is not a hold
/// in this sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// The job's owner, with `scontrol hold` or `sbatch --hold`.
    Owner,
    /// An administrator; only an administrator can release it.
    Admin,
}

/// Why a job must not be started now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartBlocker {
    /// A person holds the job.
    Held(HoldKind),
    /// It asks for nodes of a reservation, but infill fills only nodes without reservations.
    Reservation(String),
    /// It has a request that infill cannot follow, such as a `--constraint`. The text is the error.
    Constraint(String),
    /// No node of the partition meets its request. The text is the request.
    NoNode(String),
    /// Jobs that it depends on have not reached the required state. The text is that part of the dependency.
    Dependency(String),
    /// It must not begin before this moment.
    Begin(UnixTime),
    /// As many tasks of its array run or come first as the array may have at a time (`--array=…%N`).
    ArrayLimit(u32),
    /// As many jobs train as the administrator lets train at a time.
    JobLimit {
        /// That number.
        max: u32,
    },
    /// As many of its owner's jobs train as the administrator lets train at a time.
    UserJobLimit {
        /// That number.
        max: u32,
    },
    /// Its owner's jobs have as many nodes as the administrator allows, or too many for it beside them.
    UserNodeLimit {
        /// Most nodes (or places) of one user.
        max: u32,
        /// Nodes (or places) of its smallest size.
        needs: u64,
    },
    /// Slurm did not start it, for a reason of its own.
    Refused {
        /// The reason in Slurm's words, such as `QOSMaxJobsPerUserLimit`.
        reason: String,
        /// When infill tries to start it again.
        until: UnixTime,
    },
}

impl StartBlocker {
    /// A sentence without its subject, for the moment `now`.
    pub fn describe_at(&self, now: UnixTime) -> String {
        match self {
            StartBlocker::Begin(at) => {
                format!("must not begin for another {:.0} s (--begin)", at.secs_since(now).max(0.0))
            }
            StartBlocker::Refused { reason, until } => {
                let wait_secs = until.secs_since(now).max(0.0);
                format!("could not start: Slurm says {reason}; infill tries again in {wait_secs:.0} s")
            }
            StartBlocker::Held(HoldKind::Owner) => {
                "is held by its owner: `scontrol release` releases it".to_owned()
            }
            StartBlocker::Held(HoldKind::Admin) => "is held by an administrator".to_owned(),
            StartBlocker::Reservation(name) => {
                format!("asks for reservation {name}: infill fills only nodes without reservations")
            }
            StartBlocker::Constraint(error) => format!("has a request that infill cannot follow: {error}"),
            StartBlocker::NoNode(request) => {
                format!("asks for {request}, and no node of the partition has that")
            }
            StartBlocker::ArrayLimit(limit) => {
                format!("waits for other tasks of its array: at most {limit} run at a time (%{limit})")
            }
            StartBlocker::JobLimit { max } => {
                format!("waits until another job ends: no more than {max} train at a time (safety.max_jobs)")
            }
            StartBlocker::UserJobLimit { max } => format!(
                "waits until another job of its owner ends: no more than {max} of them train at a time \
                 (safety.max_jobs_a_user)"
            ),
            StartBlocker::UserNodeLimit { max, needs } => format!(
                "waits for its owner's other jobs: together they may hold {}, and it needs {needs} \
                 (safety.max_nodes_a_user)",
                NodeCount(*max)
            ),
            StartBlocker::Dependency(part) => format!("waits for its dependency {part}"),
        }
    }
}
