//! Finds out from a snapshot whether Slurm will start a lead that was released to a node.

use crate::StartConditions;
use infill_model::{BackfillState, NodeName, Snapshot, UnixTime, WindowCause, WindowEnd};

/// Data that is kept of the last trusted snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct LastTrustedSnapshot {
    /// When reading it began, by the daemon's clock.
    pub read_at: UnixTime,
    /// The state of backfill in the snapshot.
    pub backfill: BackfillState,
}

/// Signs of whether Slurm will start a lead on this node. Reading the snapshot began at `read_at`.
pub(super) fn start_conditions_on(
    node: &NodeName,
    snapshot: &Snapshot,
    malleable: &str,
    read_at: UnixTime,
) -> StartConditions {
    let parts = node.single_places();
    let is_idle = parts.iter().all(|part| snapshot.node(part).is_some_and(|n| n.state.is_idle()));
    let kept_from = reserved_from(&parts, snapshot, malleable);
    StartConditions { is_idle, kept_from, looked_at: last_full_cycle(snapshot, read_at) }
}

/// When a reservation of one of these nodes by backfill, for a main job, begins. A planned start in the past
/// does not count: Slurm may be about to start that job elsewhere.
fn reserved_from(nodes: &[NodeName], snapshot: &Snapshot, malleable: &str) -> Option<UnixTime> {
    let waiting = snapshot.jobs.iter().filter(|job| job.waits_in_main_queue(malleable));
    let planned_here = waiting.filter(|job| job.scheduled_nodes.iter().any(|n| nodes.contains(n)));
    let reservations = planned_here.filter_map(|job| {
        let at = job.start_time.filter(|at| *at > snapshot.taken_at)?;
        snapshot.backfill.reserves_from(&WindowEnd::Known { at, cause: WindowCause::PlannedJob(job.id) })
    });
    reservations.min()
}

/// When backfill began its last cycle over the whole queue, by the daemon's clock; `None` if that cycle has
/// not ended.
fn last_full_cycle(snapshot: &Snapshot, read_at: UnixTime) -> Option<UnixTime> {
    let backfill = &snapshot.backfill;
    let began = backfill.last_cycle.filter(|_| backfill.complete && !backfill.active)?;
    Some(read_at.plus_secs(began.secs_since(snapshot.taken_at)))
}
