//! A job's claim on nodes, and the length of its turns.

use infill_model::{JobFacts, RescaleCosts};

/// Largest share of the node time that exchanges may cost.
const MOST_LOSS: f64 = 0.01;

/// Share of a turn's length while jobs wait for their first.
pub(super) const FIRST_SHARE: f64 = 0.125;

/// Shortest and longest turn, seconds.
const SHORTEST_AND_LONGEST_SECS: (f64, f64) = (60.0, 7_200.0);

/// A job that wants nodes, or has some.
#[derive(Clone, Debug)]
pub(in crate::round) struct NodeClaim<'a> {
    /// The job.
    pub facts: &'a JobFacts,
    /// Whether it may be started if it holds nothing.
    pub may_start: bool,
    /// What its changes cost.
    pub costs: RescaleCosts,
    /// Work that it has ahead, seconds on one node, where jobs shall end soon and that is well known.
    pub left_secs: Option<f64>,
    /// Places that the rate takes which it was promised, if it was promised any.
    pub promised_places: Option<u32>,
}

impl NodeClaim<'_> {
    pub(super) fn block_size(&self) -> u32 {
        self.facts.place.block.max(1)
    }

    /// Nodes, or places of such, that it needs at the least.
    pub fn min_places(&self) -> u32 {
        self.facts.sizes.min().max(1).saturating_mul(self.block_size())
    }

    /// Places that are kept for it while it has a turn.
    pub(super) fn reserved_places(&self) -> u32 {
        self.min_places().max(self.promised_places.unwrap_or(0))
    }

    /// The same at the most.
    pub(super) fn max_places(&self) -> u32 {
        self.facts.sizes.max().max(1).saturating_mul(self.block_size())
    }

    pub(super) fn holds_nodes(&self) -> bool {
        !self.facts.place.held.is_empty()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.may_start && !self.holds_nodes()
    }

    pub(super) fn user(&self) -> &str {
        &self.facts.program.user
    }

    /// Length of its turn while somebody waits for a first one, or nobody does, seconds.
    pub(super) fn turn_secs(&self, first_waits: bool) -> f64 {
        self.length_secs() * if first_waits { FIRST_SHARE } else { 1.0 }
    }

    /// Length of its turns once all have had their first, seconds.
    pub(super) fn length_secs(&self) -> f64 {
        let exchange_secs = self.costs.start_secs + self.costs.down_secs;
        (exchange_secs / MOST_LOSS).clamp(SHORTEST_AND_LONGEST_SECS.0, SHORTEST_AND_LONGEST_SECS.1)
    }
}
