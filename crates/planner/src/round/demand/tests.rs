//! Rates on the kind of places that a job may use.

use super::super::tests::rates::rates;
use super::*;

fn shown(rates: &[RateCurve]) -> String {
    let mut shown = Vec::new();
    for rate in rates {
        let node_type = rate.node_type.as_ref().map_or("any".to_owned(), NodeType::to_string);
        shown.push(format!("{node_type}={}", rate.curve.rate(1)));
    }
    shown.join(" ")
}

#[test]
fn places_with_gpus_and_without_are_for_the_jobs_that_ask_for_them() {
    let types = ["cpu4", "gpu:a100:1/cpu4", "gpu:t4:1/cpu2"].map(NodeType::new);
    let on_own_kind =
        |text: &str, on_cpus: bool| shown(&rates_on_own_kind(rates(text), on_cpus, Some(&types), None));
    assert_eq!(on_own_kind("any=3", false), "gpu:a100:1/cpu4=3 gpu:t4:1/cpu2=3");
    assert_eq!(on_own_kind("any=3", true), "cpu4=3");
    assert_eq!(
        on_own_kind("gpu:a100:1/cpu4=9 any=9 cpu4=1", false),
        "gpu:a100:1/cpu4=9 gpu:t4:1/cpu2=9",
        "the rate of a type takes precedence there"
    );
    assert_eq!(on_own_kind("gpu:a100:1/cpu4=9 any=9 cpu4=1", true), "cpu4=1");
    assert_eq!(on_own_kind("gpu:a100:1/cpu4=9", true), "=1", "nowhere");
    let mut plans = rates("any=3 any=5 cpu4=1");
    plans[1].exec_plan = ExecPlan("other".to_owned());
    let kept = rates_on_own_kind(plans.clone(), false, Some(&types), None);
    let of_other = kept.iter().filter(|rate| rate.exec_plan.0 == "other").count();
    assert_eq!((kept.len(), of_other), (4, 2), "of each plan");
    assert_eq!(
        rates_on_own_kind(rates("any=3"), true, None, None),
        rates("any=3"),
        "whole nodes are for all"
    );
    let on_own = rates_on_own_kind(plans, false, Some(&types), Some(&types[2]));
    let of_own = on_own.iter().filter(|rate| rate.node_type.as_ref() == Some(&types[2])).count();
    assert_eq!((on_own.len(), of_own), (2, 2), "a main job is on its own type alone");
}
