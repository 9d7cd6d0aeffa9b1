//! The types of the nodes that leads are on, and the types on which waiting jobs would most likely run.

use std::collections::BTreeMap;

use super::RoundState;
use crate::round::extended_jobs;
use infill_model::{JobFacts, NodeName, NodeType, Snapshot};

impl RoundState {
    /// The type of the lead's node, else the most common type of its kind.
    pub(super) fn lead_or_usual_type(&self, lead_now: Option<&NodeName>, on_cpus: bool) -> Option<&NodeType> {
        let usual = if on_cpus { &self.nodes.usual_cpu_type } else { &self.nodes.usual_type };
        lead_now.and_then(|n| self.type_at(n)).or(usual.as_ref())
    }

    /// The type of a node that a lead was on at the last snapshot, or that was a gap then.
    pub fn type_at(&self, node: &NodeName) -> Option<&NodeType> {
        self.nodes
            .lead_types
            .get(node)
            .or_else(|| self.gaps.get(node.single_places().first()?).map(|g| &g.node_type))
    }

    /// Replaces the facts about nodes by what a snapshot shows.
    pub(super) fn record_types(&mut self, snapshot: &Snapshot, jobs: &[JobFacts]) {
        let mut lead_types = BTreeMap::new();
        for node in jobs.iter().filter_map(|job| job.location.lead_now.as_ref()) {
            let place = node.single_places().into_iter().next();
            let node_type = place.and_then(|place| Some(snapshot.node(&place)?.node_type.clone()));
            lead_types.extend(node_type.map(|node_type| (node.clone(), node_type)));
        }
        let usual_type = self.most_common_type(false).or(self.nodes.usual_type.take());
        let usual_cpu_type = self.most_common_type(true).or(self.nodes.usual_cpu_type.take());
        let own_shares = extended_jobs::place_shares(snapshot, jobs);
        self.nodes.lead_types = lead_types;
        self.nodes.own_shares = own_shares;
        self.nodes.usual_type = usual_type;
        self.nodes.usual_cpu_type = usual_cpu_type;
    }

    /// The most common type of gaps: of places without GPUs if `on_cpus`, else of the other gaps.
    fn most_common_type(&self, on_cpus: bool) -> Option<NodeType> {
        let mut counts: BTreeMap<&NodeType, usize> = BTreeMap::new();
        for gap in &self.gaps.gaps {
            let is_on_cpus = gap.node.is_place() && !gap.node_type.has_gpus();
            if is_on_cpus == on_cpus {
                *counts.entry(&gap.node_type).or_default() += 1;
            }
        }
        counts.into_iter().max_by_key(|(_, n)| *n).map(|(t, _)| t.clone())
    }
}
