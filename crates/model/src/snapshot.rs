//! The answers of Slurm at one moment, and whether they can be trusted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Job, Node, NodeName, UnixTime, WindowCause, WindowEnd};

/// The smallest time limit of a job, in seconds: Slurm counts limits in minutes. For jobs with
/// `flags=NoReserve`, as malleable jobs should have, backfill uses it instead of the job's limit.
pub const MIN_TIME_LIMIT_SECS: f64 = 60.0;

/// Seconds from a snapshot of Slurm until backfill has seen the jobs that were launched because of it, if
/// backfill runs often.
pub const LAUNCH_SECS: f64 = 3.0;

/// A reservation that takes nodes away from ordinary jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// The name of the reservation.
    pub name: String,
    /// First moment of the reservation.
    pub start_time: UnixTime,
    /// Last moment of the reservation.
    pub end_time: UnixTime,
    /// The nodes that it covers.
    pub nodes: Vec<NodeName>,
    /// Flags, such as `MAINT`.
    pub flags: Vec<String>,
}

/// State of the backfill scheduler around the moment of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackfillState {
    /// Start of the last cycle, by Slurm's clock; `None` if backfill has not run since slurmctld started.
    pub last_cycle: Option<UnixTime>,
    /// Whether a cycle may have been running while Slurm was read.
    #[serde(default)]
    pub active: bool,
    /// Whether the last cycle examined the whole queue (`bf_exit` was `end_job_queue`).
    pub complete: bool,
    /// Why the last cycle ended, in Slurm's words.
    pub exit: String,
    /// Seconds to which backfill rounds planned starts (`bf_resolution`). `None` until Slurm has reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_secs: Option<u32>,
}

impl BackfillState {
    /// From when on backfill keeps the node for the job that it has planned there: the planned start, rounded
    /// down. `None` if no job is planned, or the rounding is unknown.
    ///
    /// While a main job waits for nodes, only backfill starts malleable jobs, and only those whose limit ends
    /// before this moment.
    pub fn reserves_from(&self, end: &WindowEnd) -> Option<UnixTime> {
        let WindowEnd::Known { at, cause: WindowCause::PlannedJob(_) } = end else { return None };
        let step = i64::from(self.resolution_secs?.max(1));
        Some(*at + -at.0.rem_euclid(step))
    }

    /// Most seconds that a job launched now may take so that backfill starts it before this end of a window.
    /// Below [`MIN_TIME_LIMIT_SECS`], backfill starts no job. `None` as for [`BackfillState::reserves_from`].
    pub fn startable_secs(&self, end: &WindowEnd, now: UnixTime) -> Option<f64> {
        self.reserves_from(end).map(|from| from.secs_since(now) - LAUNCH_SECS)
    }
}

/// Why the daemon must not act on a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotDoubt {
    /// A backfill cycle was running, so planned starts were cleared.
    BackfillActive,
    /// A backfill cycle ended during the reading.
    BackfillMoved,
    /// slurmctld restarted during the reading.
    ControllerRestarted,
    /// The answers contradict each other. The text says how.
    Inconsistent(String),
}

impl fmt::Display for SnapshotDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotDoubt::BackfillActive => f.write_str("backfill was planning"),
            SnapshotDoubt::BackfillMoved => f.write_str("backfill planned again during the reading"),
            SnapshotDoubt::ControllerRestarted => f.write_str("slurmctld restarted during the reading"),
            SnapshotDoubt::Inconsistent(how) => f.write_str(how),
        }
    }
}

/// Nodes, jobs and reservations as Slurm reported them in one reading.
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
    /// The state of the backfill scheduler.
    pub backfill: BackfillState,
    /// Reasons not to act on this snapshot. If empty, the snapshot can be trusted.
    pub doubts: Vec<SnapshotDoubt>,
    /// A description of records that could not be read fully, but raise no doubt.
    #[serde(default)]
    pub unread: Option<String>,
}

impl Snapshot {
    /// Whether the daemon may act on it.
    pub fn is_trusted(&self) -> bool {
        self.doubts.is_empty()
    }

    /// The node with this name.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        let index = self.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
        Some(&self.nodes[index])
    }

    /// The job with this id.
    pub fn job(&self, id: super::JobId) -> Option<&Job> {
        let index = self.jobs.binary_search_by(|job| job.id.cmp(&id)).ok()?;
        Some(&self.jobs[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;

    #[test]
    fn a_node_is_kept_from_the_planned_start_rounded_down() {
        let planned = |at| WindowEnd::Known { at: UnixTime(at), cause: WindowCause::PlannedJob(JobId(7)) };
        let reserved =
            WindowEnd::Known { at: UnixTime(659), cause: WindowCause::Reservation("service".to_owned()) };
        for (resolution_secs, end, expected) in [
            (Some(60), planned(659), Some(600)),
            (Some(60), planned(660), Some(660)),
            (Some(1), planned(659), Some(659)),
            (Some(0), planned(659), Some(659)),
            // The rounding is unknown.
            (None, planned(659), None),
            (Some(60), reserved, None),
            (Some(60), WindowEnd::Unknown, None),
        ] {
            let backfill = BackfillState { resolution_secs, ..BackfillState::default() };
            let from = backfill.reserves_from(&end);
            assert_eq!(from, expected.map(UnixTime), "{resolution_secs:?} {end:?}");
        }
        let backfill = BackfillState { resolution_secs: Some(60), ..BackfillState::default() };
        assert_eq!(backfill.startable_secs(&planned(659), UnixTime(500)), Some(97.0));
    }
}
