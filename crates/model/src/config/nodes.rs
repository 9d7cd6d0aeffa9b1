//! `[nodes]`: what parts of nodes are lent.

use super::rule::ConfigRule;
use crate::LendingRules;

/// No node has as many CPUs.
const MOST_CPUS: u32 = 65_536;

pub(super) const RULES: &[ConfigRule<LendingRules>] = &[
    ConfigRule::within_bounds(
        "nodes.cpus",
        |p| f64::from(p.cpus),
        0.0..=MOST_CPUS as f64,
        "expected 0 to 65536 CPUs",
    ),
    ConfigRule::custom_check(
        "nodes.gpus",
        |p| {
            let is_wrong = |cpus: u32| !(1..=MOST_CPUS).contains(&cpus);
            let wrong =
                p.gpus.iter().find_map(|(kind, with)| Some((kind, with.cpus.filter(|c| is_wrong(*c))?)));
            wrong.map(|(kind, cpus)| format!("{{{kind} = {{cpus = {cpus}}}}}"))
        },
        "expected 1 to 65536 CPUs with a GPU",
    ),
];
