//! What agents say: hellos, signs of life, events.

use crate::model::{AgentEvent, Exit, JobId, NodeName, RunSpec, UnixTime};

use super::{Machine, Outcome, Phase, Worker};

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
        if !is_ours || matches!(self.phase, Phase::Ended) {
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
            self.refusals = 0;
            self.orders_after = None;
        }
        if is_lead {
            self.lead_arrived(&a.node, a.running, now, out);
        }
        true
    }

    fn lead_arrived(&mut self, node: &NodeName, running: Option<u64>, now: UnixTime, out: &mut Outcome) {
        let stale = self.workers.iter().find(|(n, w)| w.slurm_job == self.job && *n != node);
        if let Some(old) = stale.map(|(n, _)| n.clone()) {
            self.workers.remove(&old);
        }
        match (&self.phase, running) {
            // The store knows less than the agent: take up its generation, and make a clean new one.
            (_, Some(g)) if g > self.generation => {
                out.notes.push(format!("took up generation {g}, which the store does not know"));
                self.generation = g;
                self.why = "daemon lost its records".to_owned();
                let members = self.workers.keys().cloned().collect();
                self.enter(Phase::Stopping { members, failed: None, lost: true, untold: false }, now);
            }
            (Phase::Queued | Phase::Launching { .. } | Phase::Requeueing, None) => {
                self.failed_starts = 0;
                self.enter(Phase::Idle, now);
            }
            // The command has ended while nobody listened, or the lead's agent died with it.
            (Phase::Running { members }, None) => {
                let members = members.clone();
                self.why = "the lead's agent was restarted".to_owned();
                self.enter(Phase::Stopping { members, failed: None, lost: false, untold: true }, now);
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

    /// Takes in one event of the agent on `node`.
    pub fn event(&mut self, node: &NodeName, event: &AgentEvent, now: UnixTime, out: &mut Outcome) {
        match event {
            AgentEvent::Stopped { generation, exit, port, stop_secs } if *generation == self.generation => {
                self.stopped(node, (*exit, *stop_secs), *port, now, out);
            }
            AgentEvent::Leaving => self.leaving(node, now, out),
            AgentEvent::WingSubmitted { order, job } => {
                if let Some(wing) = self.wings.get_mut(order) {
                    wing.job.get_or_insert(*job);
                }
            }
            AgentEvent::WingRefused { order, error } => {
                if let Some(wing) = self.wings.remove(order) {
                    out.notes.push(format!("sbatch refused a wing: {error}"));
                    wing.order.nodes.iter().for_each(|n| self.untarget(n));
                    self.refused(now);
                }
            }
            AgentEvent::Started { .. } | AgentEvent::Progress { .. } | AgentEvent::Stopped { .. } => {}
        }
    }

    /// A refusal says something of the user's limits, and nothing of the node: the job orders no wing for a
    /// while.
    fn refused(&mut self, now: UnixTime) {
        self.refusals += 1;
        let doubled = self.backoff_first * f64::powi(2.0, self.refusals.min(20) as i32 - 1);
        self.orders_after = Some(now.plus_secs(doubled.min(self.backoff_longest)));
    }

    fn stopped(
        &mut self,
        node: &NodeName,
        (exit, stop_secs): (Exit, f64),
        port: u16,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        let grace_secs = f64::from(self.spec.grace_secs);
        let Some(worker) = self.workers.get_mut(node) else { return };
        if worker.stopped.is_some() {
            return;
        }
        worker.stopped = Some(exit);
        worker.port = port;
        let leaving = worker.leaving;
        // What was cut off says nothing of how long it would have taken.
        if exit.asked && !exit.killed && !leaving && stop_secs > 0.0 {
            out.stop_secs.push(stop_secs.min(grace_secs));
        }
        if exit.killed {
            self.kills += 1;
            out.notes.push(format!("{node}: the command ignored its signal and was killed"));
        }
        let Phase::Running { members } = &self.phase else {
            self.note_failure(exit);
            return;
        };
        let members = members.clone();
        if exit.asked || leaving {
            self.why = format!("{node} left");
            self.enter(Phase::Stopping { members, failed: None, lost: true, untold: false }, now);
        } else if exit.code != 0 {
            out.notes.push(format!("{node}: the command failed with code {}", exit.code));
            self.why = format!("the command failed with code {} on {node}", exit.code);
            self.enter(Phase::Stopping { members, failed: Some(exit.code), lost: false, untold: false }, now);
        }
    }

    /// A failure seen while the others stop is a failure only if nothing else made them stop.
    fn note_failure(&mut self, exit: Exit) {
        if let Phase::Stopping { failed, .. } = &mut self.phase
            && failed.is_some()
            && !exit.asked
            && exit.code != 0
        {
            failed.get_or_insert(exit.code);
        }
    }

    fn leaving(&mut self, node: &NodeName, now: UnixTime, out: &mut Outcome) {
        let Some(worker) = self.workers.get_mut(node) else { return };
        if worker.leaving {
            return;
        }
        worker.leaving = true;
        // We requeue the lead ourselves: Slurm's SIGTERM is ours then, and no preemption.
        if self.phase == Phase::Requeueing && self.lead_node() == Some(node) {
            return;
        }
        out.notes.push(format!("{node}: Slurm takes the node back"));
        self.untarget(node);
        self.lose(std::slice::from_ref(node), &format!("Slurm took {node} back"), now);
        if self.lead_node() == Some(node) {
            self.preempted(now);
        }
    }

    /// Begins to stop the present generation because these nodes are lost to it.
    pub(super) fn lose(&mut self, nodes: &[NodeName], why: &str, now: UnixTime) {
        match &mut self.phase {
            Phase::Running { members } if nodes.iter().any(|n| members.contains(n)) => {
                let members = members.clone();
                self.why = why.to_owned();
                self.enter(Phase::Stopping { members, failed: None, lost: true, untold: false }, now);
            }
            Phase::Stopping { members, lost, .. } if nodes.iter().any(|n| members.contains(n)) => {
                *lost = true;
            }
            _ => {}
        }
    }

    /// Forgets that the planner wanted this node: it was lost since.
    pub(super) fn untarget(&mut self, node: &NodeName) {
        if let Some(target) = &mut self.target {
            if target.nodes.first().is_some_and(|p| p.node == *node) {
                target.nodes.clear();
            }
            target.nodes.retain(|p| p.node != *node);
        }
    }

    pub(super) fn preempted(&mut self, now: UnixTime) {
        if self.last_change.is_some_and(|t| now.secs_since(t) > super::CALM_SECS) {
            self.preemptions = 0;
        }
        self.preemptions += 1;
        let doubled = super::PREEMPTED_BACKOFF_SECS * f64::powi(2.0, self.preemptions.min(10) as i32 - 1);
        self.backoff_until = Some(now.plus_secs(doubled.min(super::PREEMPTED_BACKOFF_MAX_SECS)));
    }
}
