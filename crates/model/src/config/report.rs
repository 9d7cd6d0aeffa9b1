//! `[report]`: the costs of node-time.

use super::rule::ConfigRule;
use crate::ReportConfig;

pub(super) const RULES: &[ConfigRule<ReportConfig>] = &[
    ConfigRule::within_bounds(
        "report.node_hour_cost",
        |c| c.node_hour_cost,
        0.0..=1e9,
        "expected a price of 0 to 1000000000",
    ),
    ConfigRule::within_bounds(
        "report.node_watts",
        |c| c.node_watts,
        0.0..=1e6,
        "expected 0 to 1000000 watts",
    ),
];
