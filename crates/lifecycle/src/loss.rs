//! Nodes that are lost to a job.

use infill_model::{NodeName, UnixTime};

use super::machine::Machine;
use super::phase::{Next, Phase, StopReason};

impl Machine {
    /// Begins to stop the present generation because these nodes are lost to it.
    ///
    /// Where the others stay alive, what follows is left to the next step, which finds the nodes gone.
    pub(super) fn lose(&mut self, nodes: &[NodeName], why: &str, now: UnixTime) {
        if self.outlives(nodes, now) {
            return;
        }
        match &mut self.phase {
            Phase::Running { members } if nodes.iter().any(|n| members.contains(n)) => {
                let members = std::mem::take(members);
                let (reason, next) = (StopReason::Lost, Next::because(why));
                self.enter(Phase::Stopping { members, reason, next }, now);
            }
            Phase::Stopping { members, reason, .. } if nodes.iter().any(|n| members.contains(n)) => {
                *reason = reason.with_loss();
            }
            _ => {}
        }
    }

    /// Forgets wing nodes that are gone, and stops the generation if it ran there.
    pub(super) fn drop_nodes(&mut self, nodes: &[NodeName], why: &str, now: UnixTime) {
        for node in nodes {
            self.workers.remove(node);
            self.untarget(node);
        }
        self.lose(nodes, why, now);
    }

    /// Forgets the agent that ran in the lead.
    pub(super) fn forget_lead(&mut self) {
        let job = self.job;
        self.workers.retain(|_, w| w.slurm_job != job);
    }
}
