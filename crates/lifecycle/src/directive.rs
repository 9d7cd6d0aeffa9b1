//! Derives from the job's state what each worker shall do now.

use infill_model::{Directive, GenerationMember, GenerationRendezvous, NodeName, WingOrder};

use super::job_lifecycle::{JobLifecycle, RendezvousStore};
use super::phase::{JobPhase, StopReason};
use super::worker::LiveState;

impl JobLifecycle {
    /// The present directive of the worker on `node`.
    pub fn directive_for(&self, node: &NodeName) -> Directive {
        let is_lead = self.workers.get(node).is_some_and(|w| self.is_lead(w));
        let default = if is_lead || self.wants_wing_on(node) { Directive::Hold } else { Directive::Leave };
        let generation = self.generation.number;
        match &self.phase {
            JobPhase::Ending { code } if is_lead => Directive::Finish { code: *code },
            JobPhase::Ending { .. } | JobPhase::Ended => Directive::Leave,
            JobPhase::Running { members } if members.contains(node) => {
                self.generation_member(members, node, false).map_or(default, Directive::Run)
            }
            JobPhase::Regrouping { members, regroup, .. } if members.contains(node) => {
                self.generation_member(members, node, regroup.urgent).map_or(default, Directive::Regroup)
            }
            JobPhase::Regrouping { regroup, .. } if regroup.from.contains(node) => {
                Directive::Part { generation, urgent: regroup.urgent }
            }
            JobPhase::Running { members } | JobPhase::Regrouping { members, .. } => {
                self.warming_membership(members, node).map_or(default, Directive::Warm)
            }
            JobPhase::Stopping { members, .. } if members.contains(node) => match self.find_rescuer() {
                Some(rescuer) if rescuer == node => Directive::Rescue { generation },
                _ => Directive::Stop { generation },
            },
            // Wings wait until a lead that moves is gone.
            JobPhase::Queued { .. } if self.target.is_none() => Directive::Leave,
            _ => default,
        }
    }

    /// Wings that the lead's agent shall submit and has not reported yet.
    pub fn wing_orders(&self) -> Vec<WingOrder> {
        if self.outdated_lead_reason().is_some() {
            return Vec::new();
        }
        self.wings.values().filter(|w| w.job.is_none()).map(|w| w.order.clone()).collect()
    }

    /// After a failure or loss: the first member that still has the training state in memory and can save it.
    fn find_rescuer(&self) -> Option<&NodeName> {
        let JobPhase::Stopping { members, reason, .. } = &self.phase else { return None };
        if *reason == StopReason::Rescale {
            return None;
        }
        members.iter().find(|node| {
            let worker = self.workers.get(*node);
            worker.is_some_and(|w| matches!(w.live, LiveState::Member(_)) && w.stopped.is_none())
        })
    }

    /// The membership that a newcomer would have next. The members do not wait for it: a command that takes
    /// the place before it is let in fails.
    fn warming_membership(&self, members: &[NodeName], node: &NodeName) -> Option<GenerationMember> {
        let worker = self.workers.get(node)?;
        let warms_up = matches!(worker.live, LiveState::Warming { .. } | LiveState::Ready { .. });
        if !warms_up || worker.leaving || !self.is_expected(node, worker) {
            return None;
        }
        let with_newcomer: Vec<NodeName> = members.iter().chain(std::iter::once(node)).cloned().collect();
        self.generation_member(&with_newcomer, node, false)
    }

    /// The membership of `node` in the present generation; `None` if it is not a member.
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
            // Processes on the lead's further nodes have no agent that could pass this on.
            meeting: (self.extra_lead_nodes() == 0).then(|| self.generation_rendezvous(node, urgent)),
        })
    }

    /// Where and how the process on `node` meets the other members.
    fn generation_rendezvous(&self, node: &NodeName, urgent: bool) -> GenerationRendezvous {
        let store = self.generation.store.as_ref();
        let address = store.and_then(|store| self.store_address(store));
        GenerationRendezvous {
            host: address.is_none() && store.is_some_and(|s| s.node == *node),
            secret: self.generation.secret.clone().filter(|_| address.is_some()),
            store: address,
            urgent,
            rolls: self.generation.last_roll_call.map_or(0, |(times, _)| times),
        }
    }

    /// The address of a store as `HOST:PORT`, with an IPv6 host in brackets; `None` until its port is known.
    fn store_address(&self, store: &RendezvousStore) -> Option<String> {
        let host = &self.workers.get(&store.node)?.address;
        let port = store.port?;
        if host.contains(':') { Some(format!("[{host}]:{port}")) } else { Some(format!("{host}:{port}")) }
    }
}
