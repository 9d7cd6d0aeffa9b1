//! What Slurm said at one moment, and how far it can be trusted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Job, Node, NodeName, UnixTime};

/// A reservation that takes nodes away from ordinary jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// Name.
    pub name: String,
    /// First moment of the reservation.
    pub start_time: UnixTime,
    /// Last moment.
    pub end_time: UnixTime,
    /// Nodes that it covers.
    pub nodes: Vec<NodeName>,
    /// Flags, such as `MAINT`.
    pub flags: Vec<String>,
}

/// State of the backfill scheduler around the moment of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backfill {
    /// End of the last cycle; `None` if backfill has not run since slurmctld started.
    pub last_cycle: Option<UnixTime>,
    /// Whether the last cycle looked at the whole queue (`bf_exit` was `end_job_queue`).
    pub complete: bool,
    /// Why the last cycle ended, in Slurm's words.
    pub exit: String,
}

/// Why a snapshot must not be acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// A backfill cycle was under way: planned starts were wiped.
    BackfillActive,
    /// A backfill cycle ended while we were reading.
    BackfillMoved,
    /// slurmctld restarted while we were reading.
    ControllerRestarted,
    /// The answers contradict each other; the text says how.
    Inconsistent(String),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::BackfillActive => f.write_str("backfill was planning"),
            Doubt::BackfillMoved => f.write_str("backfill planned anew meanwhile"),
            Doubt::ControllerRestarted => f.write_str("slurmctld restarted meanwhile"),
            Doubt::Inconsistent(how) => f.write_str(how),
        }
    }
}

/// Nodes, jobs and reservations as Slurm told them in one reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When the reading began, by Slurm's clock.
    pub taken_at: UnixTime,
    /// All nodes, sorted by name.
    pub nodes: Vec<Node>,
    /// All jobs that slurmctld remembers, sorted by id.
    pub jobs: Vec<Job>,
    /// Reservations, sorted by name.
    pub reservations: Vec<Reservation>,
    /// Backfill's state.
    pub backfill: Backfill,
    /// Reasons not to act on this snapshot; empty means it can be trusted.
    pub doubts: Vec<Doubt>,
    /// Records of which something could not be read, and that are no reason for doubt.
    #[serde(default)]
    pub unread: Option<String>,
}

impl Snapshot {
    /// Whether it may be acted on.
    pub fn is_trusted(&self) -> bool {
        self.doubts.is_empty()
    }

    /// The node of this name.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.binary_search_by(|n| n.name.cmp(name)).ok().map(|i| &self.nodes[i])
    }

    /// The job with this id.
    pub fn job(&self, id: super::JobId) -> Option<&Job> {
        self.jobs.binary_search_by(|j| j.id.cmp(&id)).ok().map(|i| &self.jobs[i])
    }
}
