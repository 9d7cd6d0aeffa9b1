//! What each worker shall do now, derived from the state.

use infill_model::{Directive, GenerationMember, GenerationRendezvous, NodeName, WingOrder};

use super::job_lifecycle::{JobLifecycle, RendezvousStore};
use super::phase::{JobPhase, StopReason};
use super::worker::LiveState;

impl JobLifecycle {
    /// What the worker on `node` shall do now.
    pub fn directive_for(&self, node: &NodeName) -> Directive {
        let is_lead = self.workers.get(node).is_some_and(|w| self.is_lead(w));
        let rest = if is_lead || self.wants_wing_on(node) { Directive::Hold } else { Directive::Leave };
        let generation = self.generation.number;
        match &self.phase {
            JobPhase::Ending { code } if is_lead => Directive::Finish { code: *code },
            JobPhase::Ending { .. } | JobPhase::Ended => Directive::Leave,
            JobPhase::Running { members } if members.contains(node) => {
                self.generation_member(members, node, false).map_or(rest, Directive::Run)
            }
            JobPhase::Regrouping { members, regroup, .. } if members.contains(node) => {
                self.generation_member(members, node, regroup.urgent).map_or(rest, Directive::Regroup)
            }
            JobPhase::Regrouping { regroup, .. } if regroup.from.contains(node) => {
                Directive::Part { generation, urgent: regroup.urgent }
            }
            JobPhase::Running { members } | JobPhase::Regrouping { members, .. } => {
                self.warming_membership(members, node).map_or(rest, Directive::Warm)
            }
            JobPhase::Stopping { members, .. } if members.contains(node) => match self.find_rescuer() {
                Some(first) if first == node => Directive::Rescue { generation },
                _ => Directive::Stop { generation },
            },
            // Until a lead that shall move is gone, its wings wait for it.
            JobPhase::Queued { .. } if self.target.is_none() => Directive::Leave,
            _ => rest,
        }
    }

    /// Wings that the lead's agent shall submit and has not reported.
    pub fn wing_orders(&self) -> Vec<WingOrder> {
        if self.outdated_lead_reason().is_some() {
            return Vec::new();
        }
        self.wings.values().filter(|w| w.job.is_none()).map(|w| w.order.clone()).collect()
    }

    /// The first member that still holds in its memory what the lost ones had, too.
    fn find_rescuer(&self) -> Option<&NodeName> {
        let JobPhase::Stopping { members, reason, .. } = &self.phase else { return None };
        members
            .iter()
            .find(|n: &&NodeName| {
                self.workers
                    .get(*n)
                    .is_some_and(|w| matches!(w.live, LiveState::In(_)) && w.stopped.is_none())
            })
            .filter(|_| *reason != StopReason::Rescale)
    }

    /// The place that a newcomer would have next. Nobody waits for it there: a command that takes it without
    /// being let in comes to nothing.
    fn warming_membership(&self, members: &[NodeName], node: &NodeName) -> Option<GenerationMember> {
        let worker = self.workers.get(node)?;
        let warms = matches!(worker.live, LiveState::Warming { .. } | LiveState::Ready { .. });
        if !warms || worker.leaving || !self.is_expected(node, worker) {
            return None;
        }
        let with_it: Vec<NodeName> = members.iter().chain(std::iter::once(node)).cloned().collect();
        self.generation_member(&with_it, node, false)
    }

    fn generation_member(
        &self,
        members: &[NodeName],
        node: &NodeName,
        urgent: bool,
    ) -> Option<GenerationMember> {
        let rank = members.iter().position(|n| n == node)?;
        let (master_addr, master_port) = self.generation.master.clone()?;
        Some(GenerationMember {
            generation: self.generation.number,
            rank: if rank == 0 { 0 } else { self.generation_node_count(rank) },
            world: self.generation_node_count(members.len()),
            master_addr,
            master_port,
            nodes: self.generation_nodes(members),
            exec_plan: self.generation.exec_plan.0.clone(),
            // Those on its further nodes have no agent that could tell them.
            meeting: (self.extra_lead_nodes() == 0).then(|| self.generation_rendezvous(node, urgent)),
        })
    }

    fn generation_rendezvous(&self, node: &NodeName, urgent: bool) -> GenerationRendezvous {
        let store = self.generation.store.as_ref();
        let address = |s: &RendezvousStore| Some((self.workers.get(&s.node)?.address.clone(), s.port?));
        let at = store.and_then(address).map(|(host, port)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        });
        GenerationRendezvous {
            host: at.is_none() && store.is_some_and(|s| s.node == *node),
            secret: self.generation.secret.clone().filter(|_| at.is_some()),
            store: at,
            urgent,
            rolls: self.generation.roll.map_or(0, |(times, _)| times),
        }
    }
}
