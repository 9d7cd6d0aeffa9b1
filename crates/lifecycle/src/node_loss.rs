//! Handles nodes that a job loses.

use infill_model::{NodeName, UnixTime};

use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, NextGeneration, StopReason};

impl JobLifecycle {
    /// Begins to stop the present generation because it has lost these nodes.
    ///
    /// If the other members can live on, it does nothing: the next step finds the nodes gone and regroups.
    pub(super) fn handle_lost_nodes(&mut self, nodes: &[NodeName], why: &str, now: UnixTime) {
        if self.survives_loss(nodes, now) {
            return;
        }
        match &mut self.phase {
            JobPhase::Running { members } if nodes.iter().any(|n| members.contains(n)) => {
                let members = std::mem::take(members);
                let reason = StopReason::Lost;
                let next = NextGeneration::for_reason(why);
                self.enter_phase(JobPhase::Stopping { members, reason, next }, now);
            }
            JobPhase::Stopping { members, reason, .. } if nodes.iter().any(|n| members.contains(n)) => {
                *reason = reason.with_loss();
            }
            _ => {}
        }
    }

    /// Forgets nodes of wings that are gone, and stops the generation if it ran there.
    pub(super) fn drop_nodes(&mut self, nodes: &[NodeName], why: &str, now: UnixTime) {
        for node in nodes {
            self.workers.remove(node);
            self.drop_from_target(node);
        }
        self.handle_lost_nodes(nodes, why, now);
    }

    /// Forgets the agent that ran in the lead.
    pub(super) fn forget_lead(&mut self) {
        let job = self.job;
        self.workers.retain(|_, w| w.slurm_job != job);
    }
}
