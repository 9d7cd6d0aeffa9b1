//! What each worker shall do now, derived from the state.

use infill_model::{Directive, GenerationMember, GenerationRendezvous, NodeName, WingOrder};

use super::machine::{Machine, Store};
use super::phase::{Phase, StopReason};
use super::worker::Live;

impl Machine {
    /// What the worker on `node` shall do now.
    pub fn directive(&self, node: &NodeName) -> Directive {
        let is_lead = self.workers.get(node).is_some_and(|w| self.is_lead(w));
        let rest = if is_lead || self.wants_wing_on(node) { Directive::Hold } else { Directive::Leave };
        let generation = self.generation.number;
        match &self.phase {
            Phase::Ending { code } if is_lead => Directive::Finish { code: *code },
            Phase::Ending { .. } | Phase::Ended => Directive::Leave,
            Phase::Running { members } if members.contains(node) => {
                self.membership(members, node, false).map_or(rest, Directive::Run)
            }
            Phase::Regrouping { members, regroup, .. } if members.contains(node) => {
                self.membership(members, node, regroup.urgent).map_or(rest, Directive::Regroup)
            }
            Phase::Regrouping { regroup, .. } if regroup.from.contains(node) => {
                Directive::Part { generation, urgent: regroup.urgent }
            }
            Phase::Running { members } | Phase::Regrouping { members, .. } => {
                self.warming(members, node).map_or(rest, Directive::Warm)
            }
            Phase::Stopping { members, .. } if members.contains(node) => match self.rescuer() {
                Some(first) if first == node => Directive::Rescue { generation },
                _ => Directive::Stop { generation },
            },
            // Until a lead that shall move is gone, its wings wait for it.
            Phase::Queued { .. } if self.target.is_none() => Directive::Leave,
            _ => rest,
        }
    }

    /// Wings that the lead's agent shall submit and has not reported.
    pub fn orders(&self) -> Vec<WingOrder> {
        if self.older_lead().is_some() {
            return Vec::new();
        }
        self.wings.values().filter(|w| w.job.is_none()).map(|w| w.order.clone()).collect()
    }

    /// The first member that still holds in its memory what the lost ones had, too.
    fn rescuer(&self) -> Option<&NodeName> {
        let Phase::Stopping { members, reason, .. } = &self.phase else { return None };
        let holds = |n: &&NodeName| {
            self.workers.get(*n).is_some_and(|w| matches!(w.live, Live::In(_)) && w.stopped.is_none())
        };
        members.iter().find(holds).filter(|_| *reason != StopReason::Rescale)
    }

    /// The place that a newcomer would have next. Nobody waits for it there: a command that takes it without
    /// being let in comes to nothing.
    fn warming(&self, members: &[NodeName], node: &NodeName) -> Option<GenerationMember> {
        let worker = self.workers.get(node)?;
        let warms = matches!(worker.live, Live::Warming { .. } | Live::Ready { .. });
        if !warms || worker.leaving || !self.is_expected(node, worker) {
            return None;
        }
        let with_it: Vec<NodeName> = members.iter().chain(std::iter::once(node)).cloned().collect();
        self.membership(&with_it, node, false)
    }

    fn membership(&self, members: &[NodeName], node: &NodeName, urgent: bool) -> Option<GenerationMember> {
        let rank = members.iter().position(|n| n == node)?;
        let (master_addr, master_port) = self.generation.master.clone()?;
        Some(GenerationMember {
            generation: self.generation.number,
            rank: if rank == 0 { 0 } else { self.nodes_of(rank) },
            world: self.nodes_of(members.len()),
            master_addr,
            master_port,
            nodes: self.all_nodes(members),
            exec_plan: self.generation.exec_plan.0.clone(),
            // Those on its further nodes have no agent that could tell them.
            meeting: (self.more_of_its_own() == 0).then(|| self.meeting(node, urgent)),
        })
    }

    fn meeting(&self, node: &NodeName, urgent: bool) -> GenerationRendezvous {
        let store = self.generation.store.as_ref();
        let address = |s: &Store| Some((self.workers.get(&s.node)?.address.clone(), s.port?));
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
