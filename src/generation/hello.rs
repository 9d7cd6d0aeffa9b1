//! Agents that come, and signs that they live.

use crate::model::{JobId, NodeName, RunSpec, UnixTime};

use super::effect::Outcome;
use super::machine::Machine;
use super::phase::{Next, Phase, StopReason};
use super::worker::Worker;

/// An agent's hello after its identity was proved.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its node.
    pub node: NodeName,
    /// The Slurm job in which it runs: the lead's or a wing's.
    pub slurm_job: JobId,
    /// Host at which other nodes reach it.
    pub address: String,
    /// A free port.
    pub port: u16,
    /// The generation whose command runs there.
    pub running: Option<u64>,
    /// What the lead declared.
    pub spec: Option<RunSpec>,
}

impl Machine {
    /// Takes in an agent. Says no when it has no place in the job: it must leave.
    pub fn hello(&mut self, a: Arrival, now: UnixTime, out: &mut Outcome) -> bool {
        let is_lead = a.slurm_job == self.job;
        let is_ours = is_lead || self.wings.values().any(|w| w.order.nodes.contains(&a.node));
        if !is_ours || self.phase == Phase::Ended {
            return false;
        }
        if let Some(spec) = a.spec.filter(|_| is_lead) {
            self.spec = spec;
        }
        let known = self.workers.get(&a.node).filter(|w| w.slurm_job == a.slurm_job);
        // An agent that runs nothing though it should tells how that came once it is told to stop.
        let stopped = known.and_then(|w| w.stopped);
        let worker = Worker {
            slurm_job: a.slurm_job,
            address: a.address,
            port: a.port,
            last_seen: now,
            stopped,
            leaving: false,
        };
        self.workers.insert(a.node.clone(), worker);
        for wing in self.wings.values_mut().filter(|w| w.order.nodes.contains(&a.node) && !is_lead) {
            wing.job.get_or_insert(a.slurm_job);
            self.backoff.wing_came();
        }
        if is_lead {
            self.lead_arrived(&a.node, a.running, now, out);
        }
        true
    }

    fn lead_arrived(&mut self, node: &NodeName, running: Option<u64>, now: UnixTime, out: &mut Outcome) {
        let job = self.job;
        self.workers.retain(|n, w| w.slurm_job != job || n == node);
        match (&self.phase, running) {
            // The store knows less than the agent: take up its generation, and make a clean new one.
            (phase, Some(g)) if g > self.generation.number => {
                out.notes.push(format!("took up generation {g}, which the store does not know"));
                let next = phase.next().but("daemon lost its records");
                self.generation.number = g;
                let members = self.workers.keys().cloned().collect();
                self.enter(Phase::Stopping { members, reason: StopReason::Lost, next }, now);
            }
            (Phase::Queued { next } | Phase::Launching { next, .. } | Phase::Requeueing { next }, None) => {
                let next = next.clone();
                self.backoff.failed_starts = 0;
                self.enter(Phase::Idle { next }, now);
            }
            // The command has ended while nobody listened, or the lead's agent died with it.
            (Phase::Running { members }, None) => {
                let members = members.clone();
                let next = Next::because("the lead's agent was restarted");
                let reason = StopReason::Untold { lost: false };
                self.enter(Phase::Stopping { members, reason, next }, now);
            }
            _ => {}
        }
    }

    /// Notes a sign of life of the agent on `node`; says whether it belongs to the job.
    pub fn seen(&mut self, node: &NodeName, slurm_job: JobId, now: UnixTime) -> bool {
        match self.workers.get_mut(node).filter(|w| w.slurm_job == slurm_job) {
            Some(worker) => {
                worker.last_seen = now;
                true
            }
            None => false,
        }
    }
}
