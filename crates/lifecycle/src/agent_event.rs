//! Applies the events that agents report.

use infill_model::{AgentEvent, CommandExit, FaultSource, GenerationStop, NodeName, StopOutcome, UnixTime};

use super::effect::StepOutcome;
use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, NextGeneration, StopReason};
use super::settings::LifecycleSettings;
use super::worker::LiveState;

/// Exit codes of commands that die from the signal that asks them to stop (HUP, INT, USR1, USR2, TERM). Many
/// commands that have saved end in this way.
const SIGNAL_EXIT_CODES: [i32; 5] = [129, 130, 138, 140, 143];

/// A worker's report of the end of its command.
struct CommandEnd {
    exit: CommandExit,
    /// How long the command took to stop, seconds.
    stop_secs: f64,
    /// A port that is free on the worker's node.
    port: u16,
}

impl JobLifecycle {
    /// Applies one event of the agent on `node`.
    pub fn handle_event(
        &mut self,
        node: &NodeName,
        event: &AgentEvent,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        match *event {
            AgentEvent::Stopped { generation, exit, port, stop_secs } => {
                if self.is_newcomer(node) {
                    self.handle_newcomer_end(node, exit, now, out);
                } else if generation == self.generation.number {
                    self.handle_command_end(node, &CommandEnd { exit, stop_secs, port }, now, out);
                }
            }
            AgentEvent::OutOfMemory { generation } if generation == self.generation.number => {
                self.obstacles.trials.record_overflow();
            }
            AgentEvent::OutOfMemory { .. } => {}
            AgentEvent::Ready { .. }
            | AgentEvent::Store { .. }
            | AgentEvent::Joined { .. }
            | AgentEvent::Stuck { .. }
            | AgentEvent::Failed { .. }
            | AgentEvent::Hopeless { .. } => self.handle_live_event(node, event, now, out),
            AgentEvent::Leaving => self.handle_leaving(node, now, out),
            AgentEvent::WingSubmitted { order, job } => {
                if let Some(wing) = self.wings.get_mut(&order) {
                    wing.job.get_or_insert(job);
                }
            }
            AgentEvent::WingRefused { order, ref error } => {
                self.handle_refused_wing(order, error, settings, now, out);
            }
            AgentEvent::Unfit { blame, ref why } => {
                self.handle_unfit_node(node, blame, why, settings, now, out)
            }
            AgentEvent::Started { generation } => {
                let is_wing = self.workers.get(node).is_some_and(|w| !self.is_lead(w));
                if is_wing && generation == self.generation.number {
                    self.backoff.reset_after_wing();
                    self.obstacles.shortage = None;
                }
            }
            AgentEvent::Progress { generation, .. } if generation == self.generation.number => {
                if let Some(worker) = self.workers.get_mut(node) {
                    worker.progress_at = Some(now);
                }
                if let JobPhase::Running { members } = &self.phase {
                    self.obstacles.trials.record_run(generation, members);
                }
            }
            AgentEvent::Progress { .. } => {}
        }
    }

    /// sbatch refused the wing with this number.
    fn handle_refused_wing(
        &mut self,
        order: u64,
        error: &str,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(wing) = self.wings.remove(&order) else { return };
        out.notes.push(format!("sbatch refused a wing: {error}"));
        self.obstacles.shortage = Some(format!("sbatch refuses its wings: {error}"));
        for node in &wing.order.nodes {
            self.drop_from_target(node);
        }
        self.backoff.record_refusal(settings, now);
    }

    /// A wing's agent cannot start anything on its node. If the job is to blame, the same would happen on
    /// other nodes.
    fn handle_unfit_node(
        &mut self,
        node: &NodeName,
        blame: FaultSource,
        why: &str,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.workers.get(node).is_none_or(|w| self.is_lead(w)) {
            return;
        }
        out.notes.push(format!("{node}: nothing can be started there: {why}"));
        match blame {
            FaultSource::Job => {
                self.obstacles.shortage = Some(format!("nothing can be started on further nodes: {why}"));
                self.backoff.record_refusal(settings, now);
            }
            FaultSource::Node => {
                self.obstacles.trials.shun_node(node, now);
                out.strikes.push((node.clone(), why.to_owned()));
            }
        }
        self.drop_nodes(std::slice::from_ref(node), "a wing could not start anything", now);
    }

    /// Whether the command on this node does not belong to the generation that runs or is being formed.
    fn is_newcomer(&self, node: &NodeName) -> bool {
        let has_generation = matches!(self.phase, JobPhase::Running { .. } | JobPhase::Regrouping { .. });
        has_generation && !self.phase.involved_nodes().any(|n| n == node)
    }

    fn handle_command_end(
        &mut self,
        node: &NodeName,
        end: &CommandEnd,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(worker) = self.workers.get_mut(node).filter(|w| w.stopped.is_none()) else { return };
        let exit = end.exit;
        worker.stopped = Some(exit);
        worker.port = end.port;
        worker.live = LiveState::No;
        let leaving = worker.leaving;
        if exit.asked && end.stop_secs > 0.0 {
            self.record_stop(node, end, leaving, out);
        }
        if exit.killed {
            self.counts.kills += 1;
            out.notes.push(format!("{node}: the command ignored its signal and was killed"));
        }
        let JobPhase::Running { members } = &self.phase else { return };
        let members = members.clone();
        let failed = !exit.asked && exit.code != 0;
        if (leaving || failed) && self.survives_loss(std::slice::from_ref(node), now) {
            // The other members live on: the next step regroups them.
            if !leaving && self.obstacles.trials.has_overflowed() && self.has_alternative(members.len()) {
                let why = self.record_overflow(members.len(), out);
                out.notes.push(format!("{node}: {why}"));
            }
        } else if exit.asked || leaving {
            let next = NextGeneration::for_reason(format!("{node} left"));
            self.enter_phase(JobPhase::Stopping { members, reason: StopReason::Lost, next }, now);
        } else if exit.code != 0 {
            let code = exit.code;
            self.obstacles.trials.record_failure_on(node);
            out.notes.push(format!("{node}: the command failed with code {code}"));
            let next = NextGeneration::for_reason(format!("the command failed with code {code} on {node}"));
            self.enter_phase(JobPhase::Stopping { members, reason: StopReason::Failed { code }, next }, now);
        }
    }

    /// Reports how a requested stop went, from which infill learns how long stops take.
    fn record_stop(&self, node: &NodeName, end: &CommandEnd, leaving: bool, out: &mut StepOutcome) {
        let grace_secs = f64::from(self.spec.grace_secs);
        let secs = end.stop_secs.min(grace_secs);
        let end = match end.exit {
            // Slurm took the node before the command's own grace time had passed.
            CommandExit { killed: true, .. } if leaving && secs < grace_secs => StopOutcome::Cut,
            CommandExit { killed: true, .. } => StopOutcome::Killed,
            CommandExit { code, .. } if code == 0 || SIGNAL_EXIT_CODES.contains(&code) => StopOutcome::Saved,
            CommandExit { code, .. } => {
                out.notes.push(format!("{node}: the command failed with code {code} while it saved"));
                StopOutcome::Failed
            }
        };
        out.stops.push(GenerationStop { job: self.job, generation: self.generation.number, secs, end });
    }

    /// Slurm takes this node back.
    pub(super) fn handle_leaving(&mut self, node: &NodeName, now: UnixTime, out: &mut StepOutcome) {
        let Some(worker) = self.workers.get_mut(node).filter(|w| !w.leaving) else { return };
        worker.leaving = true;
        // infill itself requeues the lead, so the SIGTERM from Slurm is not a preemption.
        if self.phase.is_requeueing() && self.lead_node() == Some(node) {
            return;
        }
        out.notes.push(format!("{node}: Slurm takes the node back"));
        if self.lead_node() == Some(node) && self.survives_loss(std::slice::from_ref(node), now) {
            // The next step finds that it is gone, and finds a new place for it.
            return;
        }
        self.drop_from_target(node);
        self.handle_lost_nodes(std::slice::from_ref(node), &format!("Slurm took {node} back"), now);
        if self.lead_node() == Some(node) {
            self.backoff.record_preemption(self.last_change, now);
        }
    }
}
