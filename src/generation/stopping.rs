//! The end of a generation: who has stopped, who is given up, and what follows.

use crate::model::{Exit, NodeName, UnixTime};

use super::effect::Outcome;
use super::machine::Machine;
use super::phase::{Next, Phase, StopReason};
use super::settings::{LEAVING_SECS, SILENT_SECS, STOP_MARGIN_SECS};

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
        let lead = members.first();
        let wings: Vec<NodeName> = gone.iter().filter(|n| Some(*n) != lead).cloned().collect();
        self.drop_nodes(&wings, "a worker fell silent", now);
        if lead.is_some_and(|l| gone.contains(l)) {
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
            Some(code) => self.retry(code, next, now, out),
            None => self.enter(Phase::Idle { next }, now),
        }
    }

    /// The code with which the command ended by itself: that of the first member that failed, or 0 if none
    /// did and nobody was asked to stop.
    fn own_end(&self, members: &[NodeName]) -> Option<i32> {
        let exits: Vec<Exit> = members.iter().filter_map(|n| self.workers.get(n)?.stopped).collect();
        let failed = exits.iter().find(|e| !e.asked && e.code != 0).map(|e| e.code);
        failed.or_else(|| exits.iter().all(|e| !e.asked).then_some(0))
    }

    fn retry(&mut self, code: i32, next: Next, now: UnixTime, out: &mut Outcome) {
        let (restarts, most) = (&mut self.counts.restarts, self.spec.max_restarts);
        if *restarts >= most {
            out.notes.push(format!("the command failed with code {code} after {restarts} restarts"));
            self.enter(Phase::Ending { code }, now);
            return;
        }
        *restarts += 1;
        out.notes.push(format!("restart {restarts} of {most} after code {code}"));
        self.enter(Phase::Idle { next: Next { retry: true, ..next } }, now);
    }
}
