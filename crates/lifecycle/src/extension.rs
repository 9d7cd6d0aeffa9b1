//! A job of the main queue that wings extend: its own nodes are guaranteed, and nothing is ever done to it.
//!
//! To the planner its nodes are one that nobody else can have, its first; a plan without it means that node
//! alone. Its workers on them count as one, of rank 0, and those of its wings come after them. Where GPUs are
//! lent, its GPUs of its one node are a worker of that many places, and each wing has as many.

use infill_model::{Job, NodeName, PlannedNode, UnixTime};

use super::job_lifecycle::{JobLifecycle, Target};

/// How long a main job is sure of its own nodes, for the planner, seconds: it asks again long before.
const OWN_LEASE_SECS: f64 = 86_400.0;

impl JobLifecycle {
    /// Whether the lead is a job of the main queue.
    pub(crate) fn is_extension(&self) -> bool {
        !self.submitted.own.is_empty()
    }

    /// How many nodes the lead has beyond its first.
    pub fn extra_lead_nodes(&self) -> u32 {
        u32::try_from(self.submitted.own.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// How many nodes a generation with so many members has.
    pub fn generation_node_count(&self, members: usize) -> u32 {
        u32::try_from(members).unwrap_or(u32::MAX).saturating_add(self.extra_lead_nodes())
    }

    /// The nodes of a generation with these members, by rank.
    pub fn generation_nodes(&self, members: &[NodeName]) -> Vec<NodeName> {
        let (lead, wings) = members.split_at(members.len().min(1));
        lead.iter().chain(self.submitted.own.iter().skip(1)).chain(wings).cloned().collect()
    }

    /// Takes in which nodes a lead of the main queue has now.
    pub(super) fn observe_own_nodes(&mut self, lead: &Job) {
        if self.is_extension() && lead.state.is_running() {
            let own = main_job_nodes(lead);
            if !own.is_empty() {
                self.set_own_nodes(own);
            }
        }
    }

    /// Takes in what is a lead's own: its nodes, or its places of one node. Then its wings have as many each.
    pub(super) fn set_own_nodes(&mut self, own: Vec<NodeName>) {
        if let Some(place) = own.first().filter(|node| node.is_place()) {
            self.submitted.block = u32::try_from(place.single_places().len()).unwrap_or(u32::MAX);
        }
        self.submitted.own = own;
    }

    /// Puts what is its own first in what the planner wants.
    pub(super) fn plan_own_nodes_first(&mut self, now: UnixTime) {
        let Some(lead) = self.lead_node().filter(|_| self.is_extension()).cloned() else { return };
        let Some(Target { plan, .. }) = &mut self.target else { return };
        let known = plan.nodes.iter().position(|p| p.node == lead).map(|at| plan.nodes.remove(at));
        let own = known.unwrap_or(PlannedNode { node: lead, lease_until: now.plus_secs(OWN_LEASE_SECS) });
        plan.nodes.insert(0, own);
    }
}

/// The nodes of a job of the main queue, that of its script first; where parts of nodes are lent its places
/// of one node, as one.
pub(crate) fn main_job_nodes(job: &Job) -> Vec<NodeName> {
    let first = job.first_node();
    if let Some(place) = first.filter(|node| node.is_place()) {
        return vec![place.clone()];
    }
    first.into_iter().chain(job.nodes.iter().filter(|n| Some(*n) != first)).cloned().collect()
}
