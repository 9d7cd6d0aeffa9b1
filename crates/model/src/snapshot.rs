//! What Slurm said at one moment, and how far it can be trusted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Job, Node, NodeName, UnixTime, WindowCause, WindowEnd};

/// The least time limit that a job can have, seconds: Slurm counts limits in minutes. With
/// `flags=NoReserve`, which malleable jobs shall have, backfill reckons with it whatever their limit is.
pub const LEAST_LIMIT_SECS: f64 = 60.0;

/// Seconds that go by from a look at Slurm until backfill has looked at what was launched by it, where
/// backfill runs often.
pub const LAUNCH_SECS: f64 = 3.0;

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
pub struct BackfillState {
    /// Start of the last cycle, by Slurm's clock; `None` if backfill has not run since slurmctld started.
    pub last_cycle: Option<UnixTime>,
    /// Whether that may have been under way while Slurm was read.
    #[serde(default)]
    pub active: bool,
    /// Whether the last cycle looked at the whole queue (`bf_exit` was `end_job_queue`).
    pub complete: bool,
    /// Why the last cycle ended, in Slurm's words.
    pub exit: String,
    /// Seconds to which backfill rounds the starts that it plans (`bf_resolution`); `None` until Slurm has
    /// told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_secs: Option<u32>,
}

impl BackfillState {
    /// From when on backfill keeps the node for the job that it has planned there: the planned start, rounded
    /// down. `None` where it has planned none, and where nobody knows how it rounds.
    ///
    /// While a main job waits for nodes, only backfill starts malleable jobs, and only those whose limit ends
    /// before this moment.
    pub fn reserves_from(&self, end: &WindowEnd) -> Option<UnixTime> {
        let WindowEnd::Known { at, cause: WindowCause::PlannedJob(_) } = end else { return None };
        let step = i64::from(self.resolution_secs?.max(1));
        Some(*at + -at.0.rem_euclid(step))
    }

    /// Seconds for which a job that is launched now may be there at the most, for backfill to start it before
    /// this end of a window; less than [`LEAST_LIMIT_SECS`]: it starts none. `None` as for `keeps_from`.
    pub fn startable_secs(&self, end: &WindowEnd, now: UnixTime) -> Option<f64> {
        self.reserves_from(end).map(|from| from.secs_since(now) - LAUNCH_SECS)
    }
}

/// Why a snapshot must not be acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotDoubt {
    /// A backfill cycle was under way: planned starts were wiped.
    BackfillActive,
    /// A backfill cycle ended while we were reading.
    BackfillMoved,
    /// slurmctld restarted while we were reading.
    ControllerRestarted,
    /// The answers contradict each other; the text says how.
    Inconsistent(String),
}

impl fmt::Display for SnapshotDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotDoubt::BackfillActive => f.write_str("backfill was planning"),
            SnapshotDoubt::BackfillMoved => f.write_str("backfill planned anew meanwhile"),
            SnapshotDoubt::ControllerRestarted => f.write_str("slurmctld restarted meanwhile"),
            SnapshotDoubt::Inconsistent(how) => f.write_str(how),
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
    pub backfill: BackfillState,
    /// Reasons not to act on this snapshot; empty means it can be trusted.
    pub doubts: Vec<SnapshotDoubt>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;

    #[test]
    fn a_node_is_kept_from_the_planned_start_rounded_down() {
        let planned = |at| WindowEnd::Known { at: UnixTime(at), cause: WindowCause::PlannedJob(JobId(7)) };
        let of = |resolution_secs| BackfillState { resolution_secs, ..BackfillState::default() };
        let from = |resolution, end: &WindowEnd| of(resolution).reserves_from(end).map(|t| t.0);
        assert_eq!(from(Some(60), &planned(659)), Some(600));
        assert_eq!(from(Some(60), &planned(660)), Some(660));
        assert_eq!((from(Some(1), &planned(659)), from(Some(0), &planned(659))), (Some(659), Some(659)));
        assert_eq!(from(None, &planned(659)), None, "nobody knows how it rounds");
        let reserved =
            WindowEnd::Known { at: UnixTime(659), cause: WindowCause::Reservation("service".to_owned()) };
        assert_eq!((from(Some(60), &reserved), from(Some(60), &WindowEnd::Unknown)), (None, None));
        assert_eq!(of(Some(60)).startable_secs(&planned(659), UnixTime(500)), Some(97.0));
    }
}
