//! How many nodes a job can usually get, and so what is at stake when it tries a size.

use std::collections::{BTreeMap, VecDeque};

use super::job_input::JobInput;
use super::node_capacity::NodeCapacity;
use super::probe_tracker::USUAL_PROBE_SECS;
use super::probe_value::ProbeContext;
use infill_model::NodeType;

/// Rounds from which the usual supply of nodes is known.
const SUPPLIES_REMEMBERED: usize = 512;

/// Most types of nodes whose supply is remembered.
const MOST_TYPES: usize = 256;

/// Shares of the time at which the usual supply is looked at.
const SUPPLY_QUANTILES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];

/// Most sizes between which a choice is weighed; more are thinned out.
const MOST_SIZES: usize = 16;

/// The supply of the last rounds, by type of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct SupplyHistory {
    seen: BTreeMap<NodeType, VecDeque<u32>>,
}

impl SupplyHistory {
    /// Notes how many nodes malleable jobs hold or could. Of a type that was there before and is not in it,
    /// there are none now.
    pub(super) fn record_round(&mut self, room: &NodeCapacity) {
        let now: BTreeMap<&NodeType, u32> = room.usable_by_type().collect();
        for node_type in now.keys() {
            if self.seen.len() < MOST_TYPES && !self.seen.contains_key(*node_type) {
                self.seen.insert((*node_type).clone(), VecDeque::new());
            }
        }
        for (node_type, seen) in &mut self.seen {
            seen.push_back(now.get(node_type).copied().unwrap_or(0));
            if seen.len() > SUPPLIES_REMEMBERED {
                seen.pop_front();
            }
        }
        // Those that have long gone.
        self.seen.retain(|_, seen| seen.len() < SUPPLIES_REMEMBERED || seen.iter().any(|n| *n > 0));
    }

    /// What is at stake for a job at its `present` size, which may have these sizes of a type of nodes;
    /// nothing is triable yet. What is learned is of use for `horizon_secs`.
    pub(super) fn probe_context(
        &self,
        subject: &JobInput,
        node_type: &NodeType,
        sizes: Vec<u32>,
        present: u32,
        horizon_secs: f64,
    ) -> ProbeContext {
        let sizes = thin_sizes(sizes, present);
        // What the main queue leaves is one thing, what other jobs leave of that another: any size may be the
        // largest.
        let supplies = [half_weighted(&self.usual_supplies(node_type)), half_weighted(&sizes)].concat();
        ProbeContext {
            triable: Vec::new(),
            sizes,
            supplies,
            present,
            rivals: Vec::new(),
            elsewhere: None,
            horizon_secs,
            probe_secs: USUAL_PROBE_SECS,
            costs: subject.costs,
        }
    }

    /// In nodes of this type, which may be several places.
    fn usual_supplies(&self, node_type: &NodeType) -> Vec<u32> {
        let (one, width) = node_type.single_place();
        let seen = self.seen.get(&one).into_iter().flatten();
        let mut seen: Vec<u32> = seen.map(|places| places / width.max(1)).collect();
        seen.sort_unstable();
        let last = (seen.len().max(1) - 1) as f64;
        SUPPLY_QUANTILES.iter().filter_map(|q: &f64| seen.get((last * q).round() as usize).copied()).collect()
    }
}

/// Half of the time divided over these supplies.
fn half_weighted(supplies: &[u32]) -> Vec<(u32, f64)> {
    let share = 0.5 / supplies.len().max(1) as f64;
    supplies.iter().map(|n| (*n, share)).collect()
}

/// At most [`MOST_SIZES`] of these, spread evenly, the present one among them.
fn thin_sizes(sizes: Vec<u32>, present: u32) -> Vec<u32> {
    let every = sizes.len().div_ceil(MOST_SIZES).max(1);
    let last = sizes.len().saturating_sub(1);
    let powers = |n: u32| n.is_power_of_two();
    let keep = |i: usize, n: u32| {
        every == 1 || i == 0 || i == last || n == present || powers(n) || i.is_multiple_of(2 * every)
    };
    sizes.into_iter().enumerate().filter(|(i, n)| keep(*i, *n)).map(|(_, n)| n).collect()
}
