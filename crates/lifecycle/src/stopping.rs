//! The end of a generation: which members have stopped, which are given up, and what follows.

use infill_model::{CommandExit, NodeCount, NodeName, UnixTime, counted_noun};

use super::effect::{MemoryOverflow, StepOutcome};
use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, NextGeneration, StopReason};
use super::settings::{FAILURES_END_SECS, LEAVING_SECS, PROOF_SECS, SILENT_SECS, STOP_MARGIN_SECS};

/// The exit code that shells report for a killed process. It stands for a command whose out-of-memory end
/// only Slurm has reported.
const KILLED_CODE: i32 = 137;

impl JobLifecycle {
    /// Moves on once each member has stopped or is given up.
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
        let next = if self.obstacles.trials.has_overflowed() {
            self.await_fitting_plan(members.len(), out).map_or(next, NextGeneration::for_reason)
        } else {
            next
        };
        self.drop_nodes(&wings, "a worker fell silent", now);
        if lead.is_some_and(|l| gone.contains(&l)) {
            self.target = None;
            self.requeue_lead(next, now);
        } else {
            self.enter_phase(JobPhase::Assembling { next }, now);
        }
    }

    fn has_stopped(&self, node: &NodeName) -> bool {
        self.workers.get(node).is_some_and(|w| w.stopped.is_some())
    }

    /// Whether the job no longer waits for this worker to stop.
    fn is_given_up(&self, node: &NodeName, now: UnixTime) -> bool {
        let Some(worker) = self.workers.get(node) else { return true };
        let max_stop_secs = f64::from(self.spec.grace_secs) + STOP_MARGIN_SECS;
        let is_overdue = now.secs_since(self.since) > max_stop_secs;
        let max_silent_secs = if worker.leaving { LEAVING_SECS } else { SILENT_SECS };
        worker.stopped.is_none() && (is_overdue || worker.silent_secs(now) > max_silent_secs)
    }

    /// All members have stopped.
    fn finish_stop(
        &mut self,
        members: &[NodeName],
        reason: StopReason,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        // A long run proves that the command can run here, even if it does not report progress.
        let run_secs = self.last_change.map_or(0.0, |began| self.since.secs_since(began));
        if run_secs > PROOF_SECS {
            self.obstacles.trials.record_run(self.generation.number, members);
        }
        if run_secs > FAILURES_END_SECS {
            self.counts.restarts = 0;
        }
        let own_code = match reason {
            StopReason::UnknownEnd { .. } => self.own_exit_code(members),
            StopReason::Failed { code } => Some(code),
            StopReason::Rescale | StopReason::Lost => None,
        };
        match own_code {
            Some(0) => {
                out.notes.push("the command had ended on all workers".to_owned());
                self.enter_phase(JobPhase::Ending { code: 0 }, now);
            }
            Some(code) => self.handle_command_failure(members, code, next, now, out),
            None if self.obstacles.trials.has_overflowed() => {
                self.handle_out_of_memory(members.len(), KILLED_CODE, next, now, out);
            }
            None => self.enter_phase(JobPhase::Assembling { next }, now),
        }
    }

    /// The code with which the command ended by itself: that of the first member that failed, or 0 if no
    /// member failed. `None` if no member failed and an agent had asked some member to stop.
    fn own_exit_code(&self, members: &[NodeName]) -> Option<i32> {
        let exits: Vec<CommandExit> = members.iter().filter_map(|n| self.workers.get(n)?.stopped).collect();
        if let Some(failed) = exits.iter().find(|exit| !exit.asked && exit.code != 0) {
            return Some(failed.code);
        }
        let was_asked = exits.iter().any(|exit| exit.asked);
        if was_asked { None } else { Some(0) }
    }

    /// The command has failed by itself: it ran out of memory, its node is to blame, or it is itself to
    /// blame.
    fn handle_command_failure(
        &mut self,
        members: &[NodeName],
        code: i32,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.obstacles.trials.has_overflowed() {
            // No node is to blame for that.
            self.handle_out_of_memory(members.len(), code, next, now, out);
            return;
        }
        let failed = members.iter().filter(|node| {
            let exit = self.workers.get(*node).and_then(|w| w.stopped);
            exit.is_some_and(|exit| !exit.asked && exit.code != 0)
        });
        let failed: Vec<&NodeName> = failed.collect();
        match self.obstacles.trials.blame_node(&failed) {
            Some(node) => self.retry_without_node(&node, code, now, out),
            None => self.retry_command(code, next, now, out),
        }
    }

    /// Whether the job could be tried with another execution plan, or on more than `nodes` nodes.
    pub(super) fn has_alternative(&self, nodes: usize) -> bool {
        self.spec.plans.len() > 1 || self.allowed_sizes().max() as usize > nodes
    }

    /// The command ran out of memory on `nodes` nodes. The job keeps its nodes and waits for a plan that
    /// fits. If there is no other plan or size, the command has failed.
    fn handle_out_of_memory(
        &mut self,
        nodes: usize,
        code: i32,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        match self.await_fitting_plan(nodes, out) {
            Some(why) => {
                self.enter_phase(JobPhase::Assembling { next: NextGeneration::for_reason(why) }, now)
            }
            None => self.retry_command(code, next, now, out),
        }
    }

    /// Records that the present execution plan does not fit into memory on `nodes` nodes, and lets the job
    /// wait for another plan. Returns the reason; `None` if there is no alternative.
    fn await_fitting_plan(&mut self, nodes: usize, out: &mut StepOutcome) -> Option<String> {
        if !self.has_alternative(nodes) || !self.obstacles.trials.may_retry_overflow() {
            return None;
        }
        let why = self.record_overflow(nodes, out);
        out.notes.push(format!("{why}: infill tries another plan or size"));
        self.await_new_plan();
        Some(why)
    }

    /// Records that the present execution plan does not fit into memory on `nodes` nodes. Returns that as
    /// text.
    pub(super) fn record_overflow(&self, nodes: usize, out: &mut StepOutcome) -> String {
        let lead = self.lead_node().cloned();
        out.out_of_memory = u32::try_from(nodes).ok().map(|nodes| MemoryOverflow { nodes, lead });
        format!(
            "execution plan {} does not fit into memory on {}",
            self.generation.exec_plan.0,
            NodeCount(nodes)
        )
    }

    /// Tries the job without a node on which its command has failed and never ran.
    fn retry_without_node(&mut self, node: &NodeName, code: i32, now: UnixTime, out: &mut StepOutcome) {
        out.notes
            .push(format!("{node}: the command has not run there before: infill tries without this node"));
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
            self.enter_phase(JobPhase::Assembling { next }, now);
        }
    }

    /// Restarts the command after a failure of its own, or ends the job after too many restarts.
    fn retry_command(&mut self, code: i32, next: NextGeneration, now: UnixTime, out: &mut StepOutcome) {
        out.acquitted |= self.obstacles.trials.clear_blame();
        let restarts = &mut self.counts.restarts;
        let max_restarts = self.spec.max_restarts;
        if *restarts >= max_restarts {
            out.notes.push(format!(
                "the command failed with code {code} after {}",
                counted_noun(u64::from(*restarts), "restart")
            ));
            self.enter_phase(JobPhase::Ending { code }, now);
            return;
        }
        *restarts += 1;
        out.notes.push(format!("restart {restarts} of {max_restarts} after code {code}"));
        self.backoff.record_command_failure(*restarts, now);
        self.enter_phase(JobPhase::Assembling { next: NextGeneration { retry: true, ..next } }, now);
    }
}
