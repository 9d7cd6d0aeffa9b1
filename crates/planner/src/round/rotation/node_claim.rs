//! A job's claim on nodes, and the length of its turns.

use infill_model::{JobFacts, RescaleCosts};

/// Largest share of the node time that exchanges may cost.
const MAX_LOSS: f64 = 0.01;

/// Factor on a turn's length while jobs wait for their first turn.
pub(super) const FIRST_SHARE: f64 = 0.125;

/// Shortest and longest turn, seconds.
const TURN_SECS_LIMITS: (f64, f64) = (60.0, 7_200.0);

/// A job that wants nodes, or holds some.
#[derive(Clone, Debug)]
pub(in crate::round) struct NodeClaim<'a> {
    /// The facts about the job.
    pub facts: &'a JobFacts,
    /// Whether it may be started if it holds no nodes.
    pub may_start: bool,
    /// The costs of its changes.
    pub costs: RescaleCosts,
    /// Remaining work, seconds on one node; `None` unless the objective is completion and this is well known.
    pub left_secs: Option<f64>,
    /// Places that its promised rate takes; `None` without a promise.
    pub promised_places: Option<u32>,
}

impl NodeClaim<'_> {
    pub(super) fn block_size(&self) -> u32 {
        self.facts.location.places_per_node.max(1)
    }

    /// Nodes or places that it needs at its smallest size.
    pub fn min_places(&self) -> u32 {
        self.facts.sizes.min().max(1).saturating_mul(self.block_size())
    }

    /// Places that are reserved for it while it has a turn: for its smallest size, or for its promised rate.
    pub(super) fn reserved_places(&self) -> u32 {
        self.min_places().max(self.promised_places.unwrap_or(0))
    }

    /// Nodes or places that it uses at its largest size.
    pub(super) fn max_places(&self) -> u32 {
        self.facts.sizes.max().max(1).saturating_mul(self.block_size())
    }

    pub(super) fn holds_nodes(&self) -> bool {
        !self.facts.location.held.is_empty()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.may_start && !self.holds_nodes()
    }

    pub(super) fn user(&self) -> &str {
        &self.facts.program.user
    }

    /// Length of its turn, seconds. `first_waits` says that some job waits for its first turn.
    pub(super) fn turn_secs(&self, first_waits: bool) -> f64 {
        self.length_secs() * if first_waits { FIRST_SHARE } else { 1.0 }
    }

    /// Length of its turns once all jobs have had their first turn, seconds.
    pub(super) fn length_secs(&self) -> f64 {
        let exchange_secs = self.costs.start_secs + self.costs.down_secs;
        (exchange_secs / MAX_LOSS).clamp(TURN_SECS_LIMITS.0, TURN_SECS_LIMITS.1)
    }
}
