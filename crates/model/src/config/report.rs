//! `[report]`: what node-time costs.

use super::rule::Rule;
use crate::Prices;

pub(super) const RULES: &[Rule<Prices>] = &[
    Rule::within(
        "report.node_hour_cost",
        |c| c.node_hour_cost,
        0.0..=1e9,
        "expected a price of 0 to 1000000000",
    ),
    Rule::within("report.node_watts", |c| c.node_watts, 0.0..=1e6, "expected 0 to 1000000 watts"),
];
