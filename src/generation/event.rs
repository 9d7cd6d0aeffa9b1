//! What agents report.

use crate::model::{AgentEvent, Exit, NodeName, UnixTime};

use super::effect::Outcome;
use super::machine::Machine;
use super::phase::{Next, Phase, StopReason};
use super::settings::Settings;

/// What a worker says of the end of its command.
struct End {
    exit: Exit,
    stop_secs: f64,
    port: u16,
}

impl Machine {
    /// Takes in one event of the agent on `node`.
    pub fn event(
        &mut self,
        node: &NodeName,
        event: &AgentEvent,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        match *event {
            AgentEvent::Stopped { generation, exit, port, stop_secs } => {
                if generation == self.generation.number {
                    self.stopped(node, &End { exit, stop_secs, port }, now, out);
                }
            }
            AgentEvent::Leaving => self.leaving(node, now, out),
            AgentEvent::WingSubmitted { order, job } => {
                if let Some(wing) = self.wings.get_mut(&order) {
                    wing.job.get_or_insert(job);
                }
            }
            AgentEvent::WingRefused { order, ref error } => {
                if let Some(wing) = self.wings.remove(&order) {
                    out.notes.push(format!("sbatch refused a wing: {error}"));
                    wing.order.nodes.iter().for_each(|n| self.untarget(n));
                    self.backoff.refused(settings, now);
                }
            }
            AgentEvent::Started { .. } | AgentEvent::Progress { .. } => {}
        }
    }

    fn stopped(&mut self, node: &NodeName, end: &End, now: UnixTime, out: &mut Outcome) {
        let Some(worker) = self.workers.get_mut(node).filter(|w| w.stopped.is_none()) else { return };
        let exit = end.exit;
        worker.stopped = Some(exit);
        worker.port = end.port;
        let leaving = worker.leaving;
        // What was cut off says nothing of how long it would have taken.
        if exit.asked && !exit.killed && !leaving && end.stop_secs > 0.0 {
            out.stop_secs.push(end.stop_secs.min(f64::from(self.spec.grace_secs)));
        }
        if exit.killed {
            self.counts.kills += 1;
            out.notes.push(format!("{node}: the command ignored its signal and was killed"));
        }
        let Phase::Running { members } = &self.phase else { return };
        let members = members.clone();
        if exit.asked || leaving {
            let next = Next::because(format!("{node} left"));
            self.enter(Phase::Stopping { members, reason: StopReason::Lost, next }, now);
        } else if exit.code != 0 {
            let code = exit.code;
            out.notes.push(format!("{node}: the command failed with code {code}"));
            let next = Next::because(format!("the command failed with code {code} on {node}"));
            self.enter(Phase::Stopping { members, reason: StopReason::Failed { code }, next }, now);
        }
    }

    fn leaving(&mut self, node: &NodeName, now: UnixTime, out: &mut Outcome) {
        let Some(worker) = self.workers.get_mut(node).filter(|w| !w.leaving) else { return };
        worker.leaving = true;
        // We requeue the lead ourselves: Slurm's SIGTERM is ours then, and no preemption.
        if self.phase.is_requeueing() && self.lead_node() == Some(node) {
            return;
        }
        out.notes.push(format!("{node}: Slurm takes the node back"));
        self.untarget(node);
        self.lose(std::slice::from_ref(node), &format!("Slurm took {node} back"), now);
        if self.lead_node() == Some(node) {
            self.backoff.preempted(self.last_change, now);
        }
    }
}
