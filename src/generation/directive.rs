//! What each worker shall do now, derived from the state.

use crate::model::{Directive, Member, NodeName, WingOrder};

use super::machine::Machine;
use super::phase::Phase;

impl Machine {
    /// What the worker on `node` shall do now.
    pub fn directive(&self, node: &NodeName) -> Directive {
        let is_lead = self.workers.get(node).is_some_and(|w| self.is_lead(w));
        let rest = if is_lead || self.wants_wing_on(node) { Directive::Hold } else { Directive::Leave };
        match &self.phase {
            Phase::Ending { code } if is_lead => Directive::Finish { code: *code },
            Phase::Ending { .. } | Phase::Ended => Directive::Leave,
            Phase::Running { members } => self.membership(members, node).map_or(rest, Directive::Run),
            Phase::Stopping { members, .. } if members.contains(node) => {
                Directive::Stop { generation: self.generation.number }
            }
            // Until a lead that shall move is gone, its wings wait for it.
            Phase::Queued { .. } if self.target.is_none() => Directive::Leave,
            _ => rest,
        }
    }

    /// Wings that the lead's agent shall submit and has not reported.
    pub fn orders(&self) -> Vec<WingOrder> {
        self.wings.values().filter(|w| w.job.is_none()).map(|w| w.order.clone()).collect()
    }

    fn membership(&self, members: &[NodeName], node: &NodeName) -> Option<Member> {
        let rank = members.iter().position(|n| n == node)?;
        let (master_addr, master_port) = self.generation.master.clone()?;
        Some(Member {
            generation: self.generation.number,
            rank: u32::try_from(rank).ok()?,
            world: u32::try_from(members.len()).ok()?,
            master_addr,
            master_port,
            nodes: members.to_vec(),
            exec_plan: self.generation.exec_plan.0.clone(),
        })
    }
}
