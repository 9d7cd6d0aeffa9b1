//! The end of a generation: who has stopped, who is given up, and what follows.

use infill_model::{CommandExit, NodeName, UnixTime};

use super::effect::{MemoryOverflow, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, NextGeneration, StopReason};
use super::settings::{FAILURES_END_SECS, LEAVING_SECS, PROOF_SECS, SILENT_SECS, STOP_MARGIN_SECS};

/// What shells return for a process that was killed: the code of a command of which only Slurm says that it
/// ran out of memory.
const KILLED_CODE: i32 = 137;

impl JobLifecycle {
    pub(super) fn step_stopping(
        &mut self,
        members: &[NodeName],
        reason: StopReason,
        next: &NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if !members.iter().all(|n| self.has_stopped(n) || self.is_given_up(n, now)) {
            return;
        }
        let gone: Vec<NodeName> = members.iter().filter(|n| !self.has_stopped(n)).cloned().collect();
        let next = NextGeneration { lost: reason.is_loss(), ..next.clone() };
        if gone.is_empty() {
            self.finish_stop(members, reason, next, now, out);
            return;
        }
        out.notes.push(format!("gave up {} of {} workers that did not stop", gone.len(), members.len()));
        let lead = self.lead_node().cloned();
        let wings: Vec<NodeName> = gone.iter().filter(|n| Some(*n) != lead.as_ref()).cloned().collect();
        let next = match self.obstacles.trials.has_overflowed() {
            true => self.await_fitting_plan(members.len(), out).map_or(next, NextGeneration::for_reason),
            false => next,
        };
        self.drop_nodes(&wings, "a worker fell silent", now);
        if lead.is_some_and(|l| gone.contains(&l)) {
            self.target = None;
            self.requeue_lead(next, now);
        } else {
            self.enter_phase(JobPhase::Idle { next }, now);
        }
    }

    fn has_stopped(&self, node: &NodeName) -> bool {
        self.workers.get(node).is_some_and(|w| w.stopped.is_some())
    }

    /// Whether nobody waits any longer for this worker to stop.
    fn is_given_up(&self, node: &NodeName, now: UnixTime) -> bool {
        let over = now.secs_since(self.since) > f64::from(self.spec.grace_secs) + STOP_MARGIN_SECS;
        self.workers.get(node).is_none_or(|w| {
            let patience = if w.leaving { LEAVING_SECS } else { SILENT_SECS };
            w.stopped.is_none() && (over || w.silent_secs(now) > patience)
        })
    }

    fn finish_stop(
        &mut self,
        members: &[NodeName],
        reason: StopReason,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        // What tells of no progress shows by its life that it can run.
        let lived_secs = self.last_change.map_or(0.0, |began| self.since.secs_since(began));
        if lived_secs > PROOF_SECS {
            self.obstacles.trials.record_run(self.generation.number, members);
        }
        if lived_secs > FAILURES_END_SECS {
            self.counts.restarts = 0;
        }
        let own = match reason {
            StopReason::Untold { .. } => self.own_exit_code(members),
            StopReason::Failed { code } => Some(code),
            StopReason::Rescale | StopReason::Lost => None,
        };
        match own {
            Some(0) => {
                out.notes.push("the command had ended on all workers".to_owned());
                self.enter_phase(JobPhase::Ending { code: 0 }, now);
            }
            Some(code) => self.handle_command_failure(members, code, next, now, out),
            None if self.obstacles.trials.has_overflowed() => {
                self.handle_out_of_memory(members.len(), KILLED_CODE, next, now, out);
            }
            None => self.enter_phase(JobPhase::Idle { next }, now),
        }
    }

    /// The code with which the command ended by itself: that of the first member that failed, or 0 if none
    /// did and nobody was asked to stop.
    fn own_exit_code(&self, members: &[NodeName]) -> Option<i32> {
        let exits: Vec<CommandExit> = members.iter().filter_map(|n| self.workers.get(n)?.stopped).collect();
        let failed = exits.iter().find(|e| !e.asked && e.code != 0).map(|e| e.code);
        failed.or_else(|| exits.iter().all(|e| !e.asked).then_some(0))
    }

    /// The command has failed by itself: for lack of memory, on a node where it has never run, or as itself.
    fn handle_command_failure(
        &mut self,
        members: &[NodeName],
        code: i32,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.obstacles.trials.has_overflowed() {
            // No node is to blame for it.
            self.handle_out_of_memory(members.len(), code, next, now, out);
            return;
        }
        let failed: Vec<&NodeName> = members
            .iter()
            .filter(|n: &&NodeName| {
                self.workers.get(*n).and_then(|w| w.stopped).is_some_and(|e| !e.asked && e.code != 0)
            })
            .collect();
        match self.obstacles.trials.blame_node(&failed) {
            Some(node) => self.retry_without_node(&node, code, now, out),
            None => self.retry_command(code, next, now, out),
        }
    }

    /// Whether it could be tried with another execution plan, or on more than so many nodes.
    pub(super) fn has_alternative(&self, nodes: usize) -> bool {
        self.spec.plans.len() > 1 || self.allowed_sizes().max() as usize > nodes
    }

    /// Takes in that the command ran out of memory on so many nodes: waits for a plan that fits, with what
    /// the job has. Where there is no other plan or size, it has failed.
    fn handle_out_of_memory(
        &mut self,
        nodes: usize,
        code: i32,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        match self.await_fitting_plan(nodes, out) {
            Some(why) => self.enter_phase(JobPhase::Idle { next: NextGeneration::for_reason(why) }, now),
            None => self.retry_command(code, next, now, out),
        }
    }

    /// Has it remembered that the present execution plan does not fit into memory on so many nodes, and the
    /// job wait for a plan; says why. `None` where it could not be tried otherwise.
    fn await_fitting_plan(&mut self, nodes: usize, out: &mut StepOutcome) -> Option<String> {
        if !self.has_alternative(nodes) || !self.obstacles.trials.may_retry_overflow() {
            return None;
        }
        let why = self.record_overflow(nodes, out);
        out.notes.push(format!("{why}: tried otherwise"));
        self.await_new_plan();
        Some(why)
    }

    /// Has it remembered that the present execution plan does not fit into memory on so many nodes; says so.
    pub(super) fn record_overflow(&self, nodes: usize, out: &mut StepOutcome) -> String {
        let lead = self.lead_node().cloned();
        out.overflowed = u32::try_from(nodes).ok().map(|nodes| MemoryOverflow { nodes, lead });
        format!("execution plan {} does not fit into memory on {nodes} nodes", self.generation.exec_plan.0)
    }

    /// Tries the job without a node on which its command has failed, and has never run.
    fn retry_without_node(&mut self, node: &NodeName, code: i32, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("{node}: the command has not run there before: tried without it"));
        self.obstacles.trials.shun_node(node, now);
        out.strikes.push((node.clone(), format!("a command failed there with code {code}")));
        let next = NextGeneration {
            retry: true,
            ..NextGeneration::for_reason(format!("without {node}, where the command failed"))
        };
        let holds_lead = self.lead_node() == Some(node);
        self.drop_from_target(node);
        if holds_lead {
            self.requeue_lead(next, now);
        } else {
            self.enter_phase(JobPhase::Idle { next }, now);
        }
    }

    fn retry_command(&mut self, code: i32, next: NextGeneration, now: UnixTime, out: &mut StepOutcome) {
        out.acquitted |= self.obstacles.trials.clear_blame();
        let restarts = &mut self.counts.restarts;
        let most = self.spec.max_restarts;
        if *restarts >= most {
            out.notes.push(format!("the command failed with code {code} after {restarts} restarts"));
            self.enter_phase(JobPhase::Ending { code }, now);
            return;
        }
        *restarts += 1;
        out.notes.push(format!("restart {restarts} of {most} after code {code}"));
        self.backoff.record_command_failure(*restarts, now);
        self.enter_phase(JobPhase::Idle { next: NextGeneration { retry: true, ..next } }, now);
    }
}
