//! `[nodes]`: the parts of nodes that are lent.

use super::rule::ConfigRule;
use crate::LendingRules;

/// More CPUs than any node has.
const MOST_CPUS: u32 = 65_536;

pub(super) const RULES: &[ConfigRule<LendingRules>] = &[
    ConfigRule::within_bounds(
        "nodes.cpus",
        |rules| f64::from(rules.cpus),
        0.0..=MOST_CPUS as f64,
        "expected 0 to 65536 CPUs",
    ),
    ConfigRule::custom_check(
        "nodes.gpus",
        |rules| {
            let wrong = rules.gpus.iter().find_map(|(kind, share)| {
                let cpus = share.cpus?;
                if (1..=MOST_CPUS).contains(&cpus) { None } else { Some((kind, cpus)) }
            });
            wrong.map(|(kind, cpus)| format!("{{{kind} = {{cpus = {cpus}}}}}"))
        },
        "expected 1 to 65536 CPUs with a GPU",
    ),
];
