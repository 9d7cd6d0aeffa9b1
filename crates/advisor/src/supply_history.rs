//! How many nodes a job can usually get, which decides what a probe of a size can gain.

use std::collections::{BTreeMap, VecDeque};

use super::job_input::JobInput;
use super::node_capacity::NodeCapacity;
use super::probe_tracker::USUAL_PROBE_SECS;
use super::probe_value::ProbeContext;
use infill_model::NodeType;

/// Rounds that the usual supply of nodes is computed from.
const SUPPLIES_REMEMBERED: usize = 512;

/// Most types of nodes whose supply is remembered.
const MAX_TYPES: usize = 256;

/// The quantiles of the supply that stand for it.
const SUPPLY_QUANTILES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];

/// Most sizes that a choice considers; longer lists are thinned out.
const MAX_SIZES: usize = 16;

/// The supply of the last rounds, by type of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct SupplyHistory {
    by_type: BTreeMap<NodeType, VecDeque<u32>>,
}

impl SupplyHistory {
    /// Records how many nodes malleable jobs hold or could hold. A known type that is missing has 0 nodes.
    pub(super) fn record_round(&mut self, capacity: &NodeCapacity) {
        let now: BTreeMap<&NodeType, u32> = capacity.usable_by_type().collect();
        for node_type in now.keys() {
            if self.by_type.len() < MAX_TYPES && !self.by_type.contains_key(*node_type) {
                self.by_type.insert((*node_type).clone(), VecDeque::new());
            }
        }
        for (node_type, supplies) in &mut self.by_type {
            supplies.push_back(now.get(node_type).copied().unwrap_or(0));
            if supplies.len() > SUPPLIES_REMEMBERED {
                supplies.pop_front();
            }
        }
        // Types that have been gone for all remembered rounds are forgotten.
        self.by_type.retain(|_, supplies| {
            supplies.len() < SUPPLIES_REMEMBERED || supplies.iter().any(|nodes| *nodes > 0)
        });
    }

    /// What a probe could gain and cost a job at its `present` size, which may have these sizes on a type of
    /// nodes. `horizon_secs`: for how long the result is of use. No size may be probed yet, and no rival is
    /// set.
    pub(super) fn probe_context(
        &self,
        input: &JobInput,
        node_type: &NodeType,
        sizes: Vec<u32>,
        present: u32,
        horizon_secs: f64,
    ) -> ProbeContext {
        let sizes = thin_sizes(sizes, present);
        // The main queue limits what a job can get, and so do other malleable jobs. Any size may therefore be
        // the largest.
        let supplies = [half_weighted(&self.usual_supplies(node_type)), half_weighted(&sizes)].concat();
        ProbeContext {
            probe_sizes: Vec::new(),
            sizes,
            supplies,
            present,
            rivals: Vec::new(),
            elsewhere: None,
            horizon_secs,
            probe_secs: USUAL_PROBE_SECS,
            costs: input.costs,
        }
    }

    /// The usual supplies in nodes of this type, which may be several places.
    fn usual_supplies(&self, node_type: &NodeType) -> Vec<u32> {
        let (one, width) = node_type.single_place();
        let supplies = self.by_type.get(&one).into_iter().flatten();
        let mut sorted: Vec<u32> = supplies.map(|places| places / width.max(1)).collect();
        sorted.sort_unstable();
        let last = (sorted.len().max(1) - 1) as f64;
        SUPPLY_QUANTILES.iter().filter_map(|q| sorted.get((last * q).round() as usize).copied()).collect()
    }
}

/// These supplies with equal shares that sum to half of the time.
fn half_weighted(supplies: &[u32]) -> Vec<(u32, f64)> {
    let share = 0.5 / supplies.len().max(1) as f64;
    supplies.iter().map(|n| (*n, share)).collect()
}

/// At most [`MAX_SIZES`] of these sizes, spread evenly, the present one among them.
fn thin_sizes(sizes: Vec<u32>, present: u32) -> Vec<u32> {
    let every = sizes.len().div_ceil(MAX_SIZES).max(1);
    let last = sizes.len().saturating_sub(1);
    let mut kept = Vec::new();
    for (i, nodes) in sizes.into_iter().enumerate() {
        let is_end = i == 0 || i == last;
        let is_preferred = nodes == present || nodes.is_power_of_two();
        if every == 1 || is_end || is_preferred || i.is_multiple_of(2 * every) {
            kept.push(nodes);
        }
    }
    kept
}
