//! Handles agents that say hello, and their heartbeats.

use infill_api::AgentDialect;
use infill_model::{CommandExit, JobId, NodeName, RunSpec, UnixTime};

use super::effect::StepOutcome;
use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, NextGeneration, StopReason};
use super::worker::{LiveState, WorkerAgent};

/// Largest generation number: a job that changed every millisecond would reach it after nine thousand years.
pub const MAX_GENERATION: u64 = 1 << 48;

/// Stands for the end of a command whose exit code the agent no longer knows.
const UNKNOWN_EXIT: CommandExit = CommandExit { code: 0, asked: true, killed: false };

/// An agent's hello after authentication.
#[derive(Clone, Debug)]
pub struct AuthenticatedHello {
    /// The agent's node, or its place there.
    pub node: NodeName,
    /// The Slurm job in which the agent runs: the lead's or a wing's.
    pub slurm_job: JobId,
    /// Host name or IP address at which other nodes reach the agent.
    pub address: String,
    /// A port that is free on the agent's node.
    pub port: u16,
    /// The generation whose command runs there; `None` if no command runs.
    pub running: Option<u64>,
    /// The owner's declarations; only from a lead.
    pub spec: Option<RunSpec>,
    /// The messages that the agent understands.
    pub dialect: AgentDialect,
}

impl JobLifecycle {
    /// Takes in an agent. Returns whether it has a place in the job. If not, it must leave.
    pub fn handle_hello(&mut self, hello: AuthenticatedHello, now: UnixTime, out: &mut StepOutcome) -> bool {
        let is_lead = hello.slurm_job == self.job;
        let is_ours = is_lead || self.wings.values().any(|w| w.order.nodes.contains(&hello.node));
        // A larger number from an agent would use up the numbers of later generations.
        let is_sound = hello.running.is_none_or(|generation| generation <= MAX_GENERATION);
        if !is_ours || !is_sound || self.phase == JobPhase::Ended {
            return false;
        }
        if let Some(spec) = hello.spec.filter(|_| is_lead) {
            self.spec = spec;
        }
        let previous = self.workers.get(&hello.node).filter(|w| w.slurm_job == hello.slurm_job);
        // The time that this job's own preparation of a node takes says nothing about other jobs' starts.
        if previous.is_none()
            && hello.running.is_none()
            && self.spec.setup_secs == 0
            && let Some(ordered_at) = self.worker_ordered_at(&hello.node, is_lead)
        {
            out.arrived.push((hello.node.clone(), now.secs_since(ordered_at)));
        }
        // An agent whose command has ended unexpectedly reports the reason after its next order to stop.
        let mut stopped = previous.and_then(|w| w.stopped);
        let mut live = previous.map(|w| w.live).unwrap_or_default();
        let gpus = previous.and_then(|w| w.gpus);
        let is_member = self.phase.members().contains(&hello.node);
        if hello.running.is_none() && is_member && matches!(live, LiveState::Member(_)) {
            // The command that was alive there is gone, and its exit code is lost.
            stopped = stopped.or(Some(UNKNOWN_EXIT));
            live = LiveState::No;
        }
        let worker = WorkerAgent {
            slurm_job: hello.slurm_job,
            address: hello.address,
            port: hello.port,
            last_seen: now,
            answered: true,
            progress_at: None,
            stopped,
            leaving: false,
            live,
            standstill_secs: None,
            step_failed_at: None,
            dialect: hello.dialect,
            gpus,
        };
        self.workers.insert(hello.node.clone(), worker);
        for wing in self.wings.values_mut().filter(|w| w.order.nodes.contains(&hello.node) && !is_lead) {
            wing.job.get_or_insert(hello.slurm_job);
        }
        if is_lead {
            if let Some(why) = self.outdated_lead_reason() {
                out.notes.push(format!("{}: {why}", hello.node));
            }
            self.handle_lead_arrival(&hello.node, hello.running, now, out);
        }
        true
    }

    /// When the worker was ordered that says hello on this node; `None` if that is unknown.
    fn worker_ordered_at(&self, node: &NodeName, is_lead: bool) -> Option<UnixTime> {
        match &self.phase {
            JobPhase::Launching { node: launched_on, .. } if is_lead => {
                (launched_on == node).then_some(self.since)
            }
            _ if is_lead => None,
            _ => self.wings.values().find(|w| w.order.nodes.contains(node)).map(|w| w.ordered_at),
        }
    }

    /// The lead's agent has said hello on `node`, where the command of generation `running` runs, if any.
    fn handle_lead_arrival(
        &mut self,
        node: &NodeName,
        running: Option<u64>,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let job = self.job;
        self.workers.retain(|n, w| w.slurm_job != job || n == node);
        // A lead that runs is not held any more.
        self.obstacles.held_by = None;
        self.obstacles.awaits_new_plan = false;
        match (&self.phase, running) {
            // The agent's generation is newer than the stored one: take it over, and then start a new one.
            (phase, Some(number)) if number > self.generation.number => {
                out.notes.push(format!("took over generation {number}, which is not in the store"));
                let next = phase.next_generation().with_reason("the daemon lost its records");
                self.generation.number = number;
                let members = self.workers.keys().cloned().collect();
                self.enter_phase(JobPhase::Stopping { members, reason: StopReason::Lost, next }, now);
            }
            (
                JobPhase::Queued { next } | JobPhase::Launching { next, .. } | JobPhase::Requeueing { next },
                None,
            ) => {
                let next = next.clone();
                if matches!(self.phase, JobPhase::Launching { .. }) && self.claim_is_over(now) {
                    // Its other nodes may be gone. Its next start gets more time.
                    self.backoff.record_late_arrival();
                } else {
                    self.backoff.reset_after_arrival();
                }
                self.extend_lead_limit(node, now, out);
                self.enter_phase(JobPhase::Assembling { next }, now);
            }
            (JobPhase::Running { .. } | JobPhase::Regrouping { .. }, None)
                if self.generation.lead_absence.is_some() =>
            {
                self.end_lead_absence(node, now, out);
                // Older snapshots still show it in the queue.
                self.since = now;
            }
            // The command has ended while the daemon was away, or the lead's agent died with it.
            (JobPhase::Running { members } | JobPhase::Regrouping { members, .. }, None)
                if members.contains(node) =>
            {
                let members = members.clone();
                let next = NextGeneration::for_reason("the lead's agent was restarted");
                let reason = StopReason::UnknownEnd { lost: false };
                self.enter_phase(JobPhase::Stopping { members, reason, next }, now);
            }
            _ => {}
        }
    }

    /// Records a heartbeat of the agent on `node`. Returns whether the agent belongs to the job.
    pub fn record_heartbeat(&mut self, node: &NodeName, slurm_job: JobId, now: UnixTime) -> bool {
        let Some(worker) = self.workers.get_mut(node).filter(|w| w.slurm_job == slurm_job) else {
            return false;
        };
        worker.last_seen = now;
        worker.answered = true;
        true
    }
}
