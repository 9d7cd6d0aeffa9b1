//! The end of a generation: who has stopped, who is given up, and what follows.

use infill_model::{CommandExit, NodeName, UnixTime};

use super::effect::{Outcome, Overflow};
use super::machine::Machine;
use super::phase::{Next, Phase, StopReason};
use super::settings::{FAILURES_END_SECS, LEAVING_SECS, PROOF_SECS, SILENT_SECS, STOP_MARGIN_SECS};

/// What shells return for a process that was killed: the code of a command of which only Slurm says that it
/// ran out of memory.
const KILLED_CODE: i32 = 137;

impl Machine {
    pub(super) fn step_stopping(
        &mut self,
        members: &[NodeName],
        reason: StopReason,
        next: &Next,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        if !members.iter().all(|n| self.has_stopped(n) || self.is_given_up(n, now)) {
            return;
        }
        let gone: Vec<NodeName> = members.iter().filter(|n| !self.has_stopped(n)).cloned().collect();
        let next = Next { lost: reason.is_loss(), ..next.clone() };
        if gone.is_empty() {
            self.all_stopped(members, reason, next, now, out);
            return;
        }
        out.notes.push(format!("gave up {} of {} workers that did not stop", gone.len(), members.len()));
        let lead = self.lead_node().cloned();
        let wings: Vec<NodeName> = gone.iter().filter(|n| Some(*n) != lead.as_ref()).cloned().collect();
        let next = match self.obstacles.trials.overflowed() {
            true => self.note_overflow(members.len(), out).map_or(next, Next::because),
            false => next,
        };
        self.drop_nodes(&wings, "a worker fell silent", now);
        if lead.is_some_and(|l| gone.contains(&l)) {
            self.target = None;
            self.requeue(next, now);
        } else {
            self.enter(Phase::Idle { next }, now);
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

    fn all_stopped(
        &mut self,
        members: &[NodeName],
        reason: StopReason,
        next: Next,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        // What tells of no progress shows by its life that it can run.
        let lived_secs = self.last_change.map_or(0.0, |began| self.since.secs_since(began));
        if lived_secs > PROOF_SECS {
            self.obstacles.trials.ran(self.generation.number, members);
        }
        if lived_secs > FAILURES_END_SECS {
            self.counts.restarts = 0;
        }
        let own = match reason {
            StopReason::Untold { .. } => self.own_end(members),
            StopReason::Failed { code } => Some(code),
            StopReason::Rescale | StopReason::Lost => None,
        };
        match own {
            Some(0) => {
                out.notes.push("the command had ended on all workers".to_owned());
                self.enter(Phase::Ending { code: 0 }, now);
            }
            Some(code) => self.failed(members, code, next, now, out),
            None if self.obstacles.trials.overflowed() => {
                self.ran_out_of_memory(members.len(), KILLED_CODE, next, now, out);
            }
            None => self.enter(Phase::Idle { next }, now),
        }
    }

    /// The code with which the command ended by itself: that of the first member that failed, or 0 if none
    /// did and nobody was asked to stop.
    fn own_end(&self, members: &[NodeName]) -> Option<i32> {
        let exits: Vec<CommandExit> = members.iter().filter_map(|n| self.workers.get(n)?.stopped).collect();
        let failed = exits.iter().find(|e| !e.asked && e.code != 0).map(|e| e.code);
        failed.or_else(|| exits.iter().all(|e| !e.asked).then_some(0))
    }

    /// The command has failed by itself: for lack of memory, on a node where it has never run, or as itself.
    fn failed(&mut self, members: &[NodeName], code: i32, next: Next, now: UnixTime, out: &mut Outcome) {
        if self.obstacles.trials.overflowed() {
            // No node is to blame for it.
            self.ran_out_of_memory(members.len(), code, next, now, out);
            return;
        }
        let by_itself = |n: &&NodeName| {
            self.workers.get(*n).and_then(|w| w.stopped).is_some_and(|e| !e.asked && e.code != 0)
        };
        let failed: Vec<&NodeName> = members.iter().filter(by_itself).collect();
        match self.obstacles.trials.culprit(&failed) {
            Some(node) => self.go_on_without(&node, code, now, out),
            None => self.retry(code, next, now, out),
        }
    }

    /// Whether it could be tried with another execution plan, or on more than so many nodes.
    pub(super) fn has_choice(&self, nodes: usize) -> bool {
        self.spec.plans.len() > 1 || self.allowed().max() as usize > nodes
    }

    /// Takes in that the command ran out of memory on so many nodes: waits for a plan that fits, with what
    /// the job has. Where there is no other plan or size, it has failed.
    fn ran_out_of_memory(&mut self, nodes: usize, code: i32, next: Next, now: UnixTime, out: &mut Outcome) {
        match self.note_overflow(nodes, out) {
            Some(why) => self.enter(Phase::Idle { next: Next::because(why) }, now),
            None => self.retry(code, next, now, out),
        }
    }

    /// Has it remembered that the present execution plan does not fit into memory on so many nodes, and the
    /// job wait for a plan; says why. `None` where it could not be tried otherwise.
    fn note_overflow(&mut self, nodes: usize, out: &mut Outcome) -> Option<String> {
        if !self.has_choice(nodes) || !self.obstacles.trials.may_fit_otherwise() {
            return None;
        }
        let why = self.remember_overflow(nodes, out);
        out.notes.push(format!("{why}: tried otherwise"));
        self.seek();
        Some(why)
    }

    /// Has it remembered that the present execution plan does not fit into memory on so many nodes; says so.
    pub(super) fn remember_overflow(&self, nodes: usize, out: &mut Outcome) -> String {
        let lead = self.lead_node().cloned();
        out.overflowed = u32::try_from(nodes).ok().map(|nodes| Overflow { nodes, lead });
        format!("execution plan {} does not fit into memory on {nodes} nodes", self.generation.exec_plan.0)
    }

    /// Tries the job without a node on which its command has failed, and has never run.
    fn go_on_without(&mut self, node: &NodeName, code: i32, now: UnixTime, out: &mut Outcome) {
        out.notes.push(format!("{node}: the command has not run there before: tried without it"));
        self.obstacles.trials.shun(node, now);
        out.strikes.push((node.clone(), format!("a command failed there with code {code}")));
        let next = Next { retry: true, ..Next::because(format!("without {node}, where the command failed")) };
        let holds_lead = self.lead_node() == Some(node);
        self.untarget(node);
        if holds_lead {
            self.requeue(next, now);
        } else {
            self.enter(Phase::Idle { next }, now);
        }
    }

    fn retry(&mut self, code: i32, next: Next, now: UnixTime, out: &mut Outcome) {
        out.acquitted |= self.obstacles.trials.acquit();
        let (restarts, most) = (&mut self.counts.restarts, self.spec.max_restarts);
        if *restarts >= most {
            out.notes.push(format!("the command failed with code {code} after {restarts} restarts"));
            self.enter(Phase::Ending { code }, now);
            return;
        }
        *restarts += 1;
        out.notes.push(format!("restart {restarts} of {most} after code {code}"));
        self.backoff.command_failed(*restarts, now);
        self.enter(Phase::Idle { next: Next { retry: true, ..next } }, now);
    }
}
