//! Agents that come, and signs that they live.

use infill_api::AgentDialect;
use infill_model::{CommandExit, JobId, NodeName, RunSpec, UnixTime};

use super::effect::StepOutcome;
use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, NextGeneration, StopReason};
use super::worker::{LiveState, Worker};

/// Largest number of a generation: a job that changed every millisecond would need nine thousand years for
/// it.
pub const MAX_GENERATION: u64 = 1 << 48;

/// The end of a command of which its agent knows nothing any more.
const UNKNOWN_EXIT: CommandExit = CommandExit { code: 0, asked: true, killed: false };

/// An agent's hello after its identity was proved.
#[derive(Clone, Debug)]
pub struct AuthenticatedHello {
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
    /// What it understands.
    pub dialect: AgentDialect,
}

impl JobLifecycle {
    /// Takes in an agent. Says no when it has no place in the job: it must leave.
    pub fn handle_hello(&mut self, a: AuthenticatedHello, now: UnixTime, out: &mut StepOutcome) -> bool {
        let is_lead = a.slurm_job == self.job;
        let is_ours = is_lead || self.wings.values().any(|w| w.order.nodes.contains(&a.node));
        // Beyond that an agent's word would take the numbers away that are to come.
        let is_sound = a.running.is_none_or(|g| g <= MAX_GENERATION);
        if !is_ours || !is_sound || self.phase == JobPhase::Ended {
            return false;
        }
        if let Some(spec) = a.spec.filter(|_| is_lead) {
            self.spec = spec;
        }
        let known = self.workers.get(&a.node).filter(|w| w.slurm_job == a.slurm_job);
        if known.is_none() && a.running.is_none() {
            out.arrived.extend(
                self.worker_ordered_at(&a.node, is_lead).map(|t| (a.node.clone(), now.secs_since(t))),
            );
        }
        // An agent that runs nothing though it should tells how that came once it is told to stop.
        let mut stopped = known.and_then(|w| w.stopped);
        let mut live = known.map(|w| w.live).unwrap_or_default();
        let is_member = self.phase.members().contains(&a.node);
        if a.running.is_none() && is_member && matches!(live, LiveState::In(_)) {
            // What lived there is gone, and nobody can tell how.
            stopped = stopped.or(Some(UNKNOWN_EXIT));
            live = LiveState::No;
        }
        let worker = Worker {
            slurm_job: a.slurm_job,
            address: a.address,
            port: a.port,
            last_seen: now,
            answered: true,
            progress_at: None,
            stopped,
            leaving: false,
            live,
            stood_secs: None,
            doubt: None,
            dialect: a.dialect,
        };
        self.workers.insert(a.node.clone(), worker);
        for wing in self.wings.values_mut().filter(|w| w.order.nodes.contains(&a.node) && !is_lead) {
            wing.job.get_or_insert(a.slurm_job);
        }
        if is_lead {
            if let Some(older) = self.outdated_lead_reason() {
                out.notes.push(format!("{}: {older}", a.node));
            }
            self.handle_lead_arrival(&a.node, a.running, now, out);
        }
        true
    }

    /// When the worker on this node was ordered that says hello now.
    fn worker_ordered_at(&self, node: &NodeName, is_lead: bool) -> Option<UnixTime> {
        match &self.phase {
            JobPhase::Launching { node: wanted, .. } if is_lead => (wanted == node).then_some(self.since),
            _ if is_lead => None,
            _ => self.wings.values().find(|w| w.order.nodes.contains(node)).map(|w| w.ordered_at),
        }
    }

    fn handle_lead_arrival(
        &mut self,
        node: &NodeName,
        running: Option<u64>,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let job = self.job;
        self.workers.retain(|n, w| w.slurm_job != job || n == node);
        // Whoever held it has let it go.
        (self.obstacles.held_by, self.obstacles.seeks) = (None, false);
        match (&self.phase, running) {
            // The store knows less than the agent: take up its generation, and make a clean new one.
            (phase, Some(g)) if g > self.generation.number => {
                out.notes.push(format!("took up generation {g}, which the store does not know"));
                let next = phase.next_generation().with_reason("daemon lost its records");
                self.generation.number = g;
                let members = self.workers.keys().cloned().collect();
                self.enter_phase(JobPhase::Stopping { members, reason: StopReason::Lost, next }, now);
            }
            (
                JobPhase::Queued { next } | JobPhase::Launching { next, .. } | JobPhase::Requeueing { next },
                None,
            ) => {
                let next = next.clone();
                if matches!(self.phase, JobPhase::Launching { .. }) && self.claim_is_over(now) {
                    // Its other nodes may be gone: next time it is given longer.
                    self.backoff.record_late_arrival();
                } else {
                    self.backoff.reset_after_arrival();
                }
                self.extend_lead_limit(node, now, out);
                self.enter_phase(JobPhase::Idle { next }, now);
            }
            (JobPhase::Running { .. } | JobPhase::Regrouping { .. }, None)
                if self.generation.away.is_some() =>
            {
                self.end_lead_absence(node, now, out);
                // A look from before still shows it in the queue.
                self.since = now;
            }
            // The command has ended while nobody listened, or the lead's agent died with it.
            (JobPhase::Running { members } | JobPhase::Regrouping { members, .. }, None)
                if members.contains(node) =>
            {
                let members = members.clone();
                let next = NextGeneration::for_reason("the lead's agent was restarted");
                let reason = StopReason::Untold { lost: false };
                self.enter_phase(JobPhase::Stopping { members, reason, next }, now);
            }
            _ => {}
        }
    }

    /// Notes a sign of life of the agent on `node`; says whether it belongs to the job.
    pub fn record_heartbeat(&mut self, node: &NodeName, slurm_job: JobId, now: UnixTime) -> bool {
        match self.workers.get_mut(node).filter(|w| w.slurm_job == slurm_job) {
            Some(worker) => {
                (worker.last_seen, worker.answered) = (now, true);
                true
            }
            None => false,
        }
    }
}
