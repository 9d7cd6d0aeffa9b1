//! How long main jobs wait for nodes that malleable jobs hold or are leaving.

use super::cluster::{ClusterState, NodeOwner};
use super::job::CheckpointCosts;
use super::queue::{Foresight, MainQueue, NodeIx, TakenNodes};
use infill_gaps::CLEANUP_SECS;
use infill_model::JobId;

/// How much longer than leaving takes a window must have been known, seconds: a round has to run and to be
/// carried out.
const WINDOW_NOTICE_SECS: i64 = 10;

/// A main job that found a node held, or not yet left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayRecord {
    /// When it came, s on the log's clock.
    pub at: i64,
    /// The main job.
    pub job: JobId,
    /// The node for which it waits longest.
    pub node: NodeIx,
    /// The malleable job that holds or leaves this node.
    pub holder: JobId,
    /// Whether its start had been planned for longer than leaving takes.
    pub planned: bool,
    /// Seconds that it waits.
    pub secs: f64,
}

/// A malleable job that left a node because its policy took the node.
#[derive(Clone, Copy, Debug)]
struct NodeDeparture {
    at: i64,
    job: JobId,
}

/// The announced window of each node, and when the node was last left.
pub(super) struct WindowHistory {
    /// How the policy last took each node from a malleable job.
    left: Vec<Option<NodeDeparture>>,
    /// Seconds that leaving then takes until the next job can have the node.
    leaves_secs: Vec<f64>,
    /// The present window of each node, as (end, announced at).
    announced: Vec<Option<(i64, i64)>>,
    /// Number of the main queue's plan that announced these windows.
    pub plan_number: u64,
}

impl WindowHistory {
    /// Windows of this many nodes. None was announced.
    pub fn new(nodes: usize, leave_secs: f64) -> WindowHistory {
        WindowHistory {
            left: vec![None; nodes],
            leaves_secs: vec![leave_secs; nodes],
            announced: vec![None; nodes],
            plan_number: 0,
        }
    }

    /// Notes that a policy takes a node from a job.
    pub fn note_departure(&mut self, node: NodeIx, job: JobId, leave_secs: f64, at: i64) {
        self.left[node as usize] = Some(NodeDeparture { at, job });
        self.leaves_secs[node as usize] = leave_secs;
    }

    /// Sets the seconds that leaving a node takes.
    pub fn set_leave_secs(&mut self, node: NodeIx, secs: f64) {
        self.leaves_secs[node as usize] = secs;
    }

    /// Notes the windows of a new plan of the main queue.
    pub fn note_plan(&mut self, queue: &MainQueue, number: u64, now: i64) {
        self.plan_number = number;
        for (node, announced) in self.announced.iter_mut().enumerate() {
            let planned = queue.window_end(node as NodeIx, Foresight::Backfill).map(|p| p.at);
            *announced = match (planned, *announced) {
                (None, _) => None,
                // A window that has not become shorter keeps the time of its announcement.
                (Some(at), Some((before, since))) if at >= before => Some((at, since)),
                (Some(at), _) => Some((at, now)),
            };
        }
    }

    /// The node for which a main job that comes now waits longest, if it waits; and whether any of these
    /// waits had been announced in time.
    pub fn longest_delay(
        &self,
        taken: &TakenNodes,
        cluster: &ClusterState,
        checkpoints: &CheckpointCosts,
        now: i64,
    ) -> (Option<DelayRecord>, bool) {
        let at_once = checkpoints.save_secs.min(checkpoints.grace_secs) + CLEANUP_SECS;
        let mut worst: Option<DelayRecord> = None;
        let mut is_late = false;
        for node in &taken.nodes {
            let place = *node as usize;
            let leaves = self.leaves_secs[place];
            let waits = match (cluster.node_owner(*node), self.left[place]) {
                (NodeOwner::Held(holder), _) => Some((holder, at_once)),
                (_, Some(left)) => Some((left.job, left.at as f64 + leaves - now as f64)),
                _ => None,
            };
            let Some((holder, secs)) = waits.filter(|(_, secs)| *secs > 0.0) else { continue };
            let notice = leaves.ceil() as i64 + WINDOW_NOTICE_SECS;
            is_late |= self.announced[place].is_some_and(|(at, since)| at <= now && since <= now - notice);
            if worst.is_none_or(|worst| secs > worst.secs) {
                worst =
                    Some(DelayRecord { at: now, job: taken.job, node: *node, holder, planned: false, secs });
            }
        }
        (worst.map(|worst| DelayRecord { planned: is_late, ..worst }), is_late)
    }
}
