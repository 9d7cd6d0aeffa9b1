//! A main job that wings extend: its own nodes are guaranteed, and infill never changes the main job itself.
//!
//! The planner sees the job's own nodes as a single node, the first one, which no other job can have. A plan
//! without it means this node alone. The workers on the own nodes count as one, of rank 0, and the wings'
//! workers follow. Where infill lends GPUs, the main job's GPUs on its one node are a worker of as many
//! places, and each wing has the same number of places.

use infill_model::{Job, NodeName, PlannedNode, UnixTime};

use super::job_lifecycle::{JobLifecycle, Target};

/// Lease of a main job on its own nodes, for the planner, seconds. The next rounds renew it long before its
/// end.
const OWN_LEASE_SECS: f64 = 86_400.0;

impl JobLifecycle {
    /// Whether the lead is a main job that wings extend.
    pub(crate) fn is_extended_main_job(&self) -> bool {
        !self.submitted.own_nodes.is_empty()
    }

    /// Number of the lead's nodes beyond its first.
    pub fn extra_lead_nodes(&self) -> u32 {
        u32::try_from(self.submitted.own_nodes.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Number of nodes of a generation with `members` members: each member has one node, a lead perhaps more.
    pub fn generation_node_count(&self, members: usize) -> u32 {
        u32::try_from(members).unwrap_or(u32::MAX).saturating_add(self.extra_lead_nodes())
    }

    /// The nodes of a generation with these members, by rank.
    pub fn generation_nodes(&self, members: &[NodeName]) -> Vec<NodeName> {
        let (lead, wings) = members.split_at(members.len().min(1));
        let extra = self.submitted.own_nodes.iter().skip(1);
        lead.iter().chain(extra).chain(wings).cloned().collect()
    }

    /// Records which nodes a lead of the main queue has now.
    pub(super) fn observe_own_nodes(&mut self, lead: &Job) {
        if self.is_extended_main_job() && lead.state.is_running() {
            let own = main_job_nodes(lead);
            if !own.is_empty() {
                self.set_own_nodes(own);
            }
        }
    }

    /// Sets the lead's own nodes, or its places on one node. With places, each wing gets as many places.
    pub(super) fn set_own_nodes(&mut self, own: Vec<NodeName>) {
        if let Some(place) = own.first().filter(|node| node.is_place()) {
            self.submitted.places_per_worker = u32::try_from(place.single_places().len()).unwrap_or(u32::MAX);
        }
        self.submitted.own_nodes = own;
    }

    /// Puts the lead's own node first in the target of a main job that wings extend.
    pub(super) fn plan_own_nodes_first(&mut self, now: UnixTime) {
        let Some(lead) = self.lead_node().filter(|_| self.is_extended_main_job()).cloned() else { return };
        let Some(Target { plan, .. }) = &mut self.target else { return };
        let own = match plan.nodes.iter().position(|p| p.node == lead) {
            Some(index) => plan.nodes.remove(index),
            None => PlannedNode { node: lead, lease_until: now.plus_secs(OWN_LEASE_SECS) },
        };
        plan.nodes.insert(0, own);
    }
}

/// The nodes of a main job, the node of its batch script first. Where infill lends parts of nodes: the job's
/// places on its one node, as one entry.
pub(crate) fn main_job_nodes(job: &Job) -> Vec<NodeName> {
    let first = job.first_node();
    if let Some(place) = first.filter(|node| node.is_place()) {
        return vec![place.clone()];
    }
    first.into_iter().chain(job.nodes.iter().filter(|n| Some(*n) != first)).cloned().collect()
}
