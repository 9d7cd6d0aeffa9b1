//! Nodes that Slurm takes back by itself: who waits for them does not want others as well.
//!
//! A job of the main queue that may start at once by preemption still waits until those that were preempted
//! have ended. Backfill goes on to plan it meanwhile, and often on other nodes than those, which it could
//! preempt just as well: if these were left too, the job would cost its nodes twice.

use rustc_hash::FxHashSet;

use super::{NodeOccupancy, OccupancyState};
use infill_model::{Job, NodeName, UnixTime};

/// Seconds after the end of what was preempted in which Slurm starts the job that it was preempted for. Seen:
/// 1 s.
const HANDOVER_SECS: f64 = 10.0;

/// How many nodes are on their way to jobs of the main queue without us, and not planned for any.
#[derive(Clone, Debug)]
pub(super) struct PreemptionHandover<'o, 'a> {
    occupancy: &'o NodeOccupancy<'a>,
    /// Taken back by Slurm.
    taken: FxHashSet<&'a NodeName>,
    /// Those of them that no job has been given credit for yet.
    coming: usize,
    /// Idle nodes, likewise.
    idle: usize,
}

impl<'o, 'a> PreemptionHandover<'o, 'a> {
    /// Counts them in a snapshot.
    pub fn from_snapshot(occupancy: &'o NodeOccupancy<'a>, now: UnixTime) -> Self {
        let snapshot = occupancy.snapshot();
        let told =
            snapshot.jobs.iter().filter(|j| j.partition == occupancy.partition() && j.was_told_to_leave());
        let taken: FxHashSet<&NodeName> = told.flat_map(|j| nodes_being_left(j, occupancy, now)).collect();
        let mut taking = PreemptionHandover { occupancy, taken, coming: 0, idle: 0 };
        if taking.taken.is_empty() {
            return taking;
        }
        let pending = snapshot.jobs.iter().filter(|j| j.state.is_pending());
        let planned: FxHashSet<&NodeName> = pending.flat_map(|j| &j.scheduled_nodes).collect();
        let spare = snapshot.nodes.iter().enumerate().filter(|(_, n)| !planned.contains(&n.name));
        for (at, node) in spare.filter(|(at, _)| occupancy.is_in_partition(*at)) {
            if taking.taken.contains(&node.name) {
                taking.coming += 1;
            } else if occupancy.use_at(at) == Some(OccupancyState::Free) {
                taking.idle += 1;
            }
        }
        taking
    }

    /// Whether this job, which could start now, gets enough nodes without those of ours that are planned for
    /// it. They are its own from then on.
    pub fn serves_job(&mut self, job: &Job) -> bool {
        // Of shared nodes one place does not stand in for another.
        if job.scheduled_nodes.iter().any(|n| n.is_place()) {
            return false;
        }
        let (own, others): (Vec<_>, Vec<_>) =
            job.scheduled_nodes.iter().partition(|n| self.taken.contains(n));
        let wanted = others
            .iter()
            .filter(|n: &&&NodeName| matches!(self.occupancy.use_of(n), Some(OccupancyState::Ours(_))))
            .count();
        // Idle nodes alone would have let it start: something speaks against them.
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

/// The nodes that this job, which was told to leave, is still on, or was on until just now.
fn nodes_being_left<'a>(
    job: &'a Job,
    occupancy: &NodeOccupancy<'a>,
    now: UnixTime,
) -> impl Iterator<Item = &'a NodeName> {
    let stays = job.state.occupies_nodes();
    let just_now = || job.end_time.is_some_and(|end| now.secs_since(end) <= HANDOVER_SECS);
    let ended = job.state.is_ended() && just_now();
    job.nodes.iter().filter(move |node| match occupancy.use_of(node) {
        Some(OccupancyState::Ours(_) | OccupancyState::Leaving(_)) => stays,
        Some(OccupancyState::Free) => ended,
        // Nodes are read before jobs: it was still there then.
        Some(OccupancyState::Unsound) => {
            ended && occupancy.snapshot().node(node).is_some_and(|n| n.state.has_word("COMPLETING"))
        }
        _ => false,
    })
}
