//! What a snapshot shows of the node that a lead was released to and waits for: whether Slurm will start it.

use crate::StartConditions;
use infill_model::{BackfillState, NodeName, Snapshot, UnixTime, WindowCause, WindowEnd};

/// What is known of the last snapshot that was trusted.
#[derive(Clone, Debug, Default)]
pub(super) struct LastTrustedSnapshot {
    /// When it was read, by our own clock.
    pub read_at: UnixTime,
    /// Backfill's state then.
    pub backfill: BackfillState,
}

/// What decides about the start of a lead on this node. The snapshot was read from `read_at` on.
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

/// From when on backfill keeps one of these nodes for a main job. What is planned for a moment that has gone
/// by says nothing: Slurm may be about to start the job elsewhere.
fn reserved_from(nodes: &[NodeName], snapshot: &Snapshot, malleable: &str) -> Option<UnixTime> {
    let waits = snapshot.jobs.iter().filter(|job| job.waits_in_main_queue(malleable));
    let on_these = waits.filter(|job| job.scheduled_nodes.iter().any(|n| nodes.contains(n)));
    let kept = on_these.filter_map(|job| {
        let at = job.start_time.filter(|at| *at > snapshot.taken_at)?;
        snapshot.backfill.reserves_from(&WindowEnd::Known { at, cause: WindowCause::PlannedJob(job.id) })
    });
    kept.min()
}

/// When backfill began its last look at the whole queue, by our clock, if that has ended.
fn last_full_cycle(snapshot: &Snapshot, read_at: UnixTime) -> Option<UnixTime> {
    let backfill = &snapshot.backfill;
    let began = backfill.last_cycle.filter(|_| backfill.complete && !backfill.active)?;
    Some(read_at.plus_secs(began.secs_since(snapshot.taken_at)))
}
