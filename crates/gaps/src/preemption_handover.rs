//! Nodes that Slurm takes back by itself. A job that waits for these does not need others as well.
//!
//! A main job that may start at once by preemption still waits until the preempted jobs have ended. Backfill
//! plans it meanwhile, often on other nodes, which it could preempt just as well. If malleable jobs left
//! these nodes too, the job would cost them its nodes twice.

use rustc_hash::FxHashSet;

use super::{NodeOccupancy, OccupancyState};
use infill_model::{Job, NodeName, UnixTime};

/// Seconds within which Slurm starts a job after the jobs that it preempted for it have ended. Seen: 1 s.
const HANDOVER_SECS: f64 = 10.0;

/// The nodes that are on their way to main jobs without our help, and not planned for any job.
#[derive(Clone, Debug)]
pub(super) struct PreemptionHandover<'o, 'a> {
    occupancy: &'o NodeOccupancy<'a>,
    /// The nodes that Slurm takes back.
    taken: FxHashSet<&'a NodeName>,
    /// The number of taken nodes that no main job has been credited with yet.
    coming: usize,
    /// The number of idle nodes that no main job has been credited with yet.
    idle: usize,
}

impl<'o, 'a> PreemptionHandover<'o, 'a> {
    /// Counts the nodes of a snapshot.
    pub fn from_snapshot(occupancy: &'o NodeOccupancy<'a>, now: UnixTime) -> Self {
        let snapshot = occupancy.snapshot();
        let partition = occupancy.partition();
        let leaving = snapshot.jobs.iter().filter(|j| j.partition == partition && j.was_preempted());
        let taken: FxHashSet<&NodeName> = leaving.flat_map(|j| nodes_being_left(j, occupancy, now)).collect();
        let mut handover = PreemptionHandover { occupancy, taken, coming: 0, idle: 0 };
        if handover.taken.is_empty() {
            return handover;
        }
        let pending = snapshot.jobs.iter().filter(|j| j.state.is_pending());
        let planned: FxHashSet<&NodeName> = pending.flat_map(|j| &j.scheduled_nodes).collect();
        let spare = snapshot.nodes.iter().enumerate().filter(|(_, n)| !planned.contains(&n.name));
        for (index, node) in spare.filter(|(index, _)| occupancy.is_in_partition(*index)) {
            if handover.taken.contains(&node.name) {
                handover.coming += 1;
            } else if occupancy.state_at(index) == Some(OccupancyState::Free) {
                handover.idle += 1;
            }
        }
        handover
    }

    /// Whether this job, which could start now, gets enough nodes without those of ours that are planned for
    /// it. If so, it is credited with the other nodes.
    pub fn serves_job(&mut self, job: &Job) -> bool {
        // One place of a shared node does not replace another.
        if job.scheduled_nodes.iter().any(|n| n.is_place()) {
            return false;
        }
        let (own, others): (Vec<_>, Vec<_>) =
            job.scheduled_nodes.iter().partition(|n| self.taken.contains(n));
        let ours = others
            .iter()
            .filter(|node| matches!(self.occupancy.state_of(node), Some(OccupancyState::Malleable(_))));
        let wanted = ours.count();
        // The job has not started on idle nodes alone, so that it cannot use them as they are.
        let waits_for_some = self.coming + own.len() > 0;
        if !waits_for_some || wanted == 0 || self.coming + self.idle < wanted {
            return false;
        }
        let coming = self.coming.min(wanted);
        self.coming -= coming;
        self.idle -= wanted - coming;
        true
    }
}

/// The nodes that this preempted job is still on, or was on until a moment ago.
fn nodes_being_left<'a>(
    job: &'a Job,
    occupancy: &NodeOccupancy<'a>,
    now: UnixTime,
) -> impl Iterator<Item = &'a NodeName> {
    let stays = job.state.occupies_nodes();
    let has_just_ended =
        job.state.is_ended() && job.end_time.is_some_and(|end| now.secs_since(end) <= HANDOVER_SECS);
    job.nodes.iter().filter(move |node| match occupancy.state_of(node) {
        Some(OccupancyState::Malleable(_) | OccupancyState::Leaving(_)) => stays,
        Some(OccupancyState::Free) => has_just_ended,
        // Nodes are read before jobs, so that the job was still there then.
        Some(OccupancyState::Unsound) => {
            has_just_ended && occupancy.snapshot().node(node).is_some_and(|n| n.state.has_word("COMPLETING"))
        }
        _ => false,
    })
}
