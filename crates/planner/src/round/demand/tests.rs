//! Rates on the types that a job may use.

use super::super::tests::rates::rates;
use super::*;

#[test]
fn parts_of_nodes_with_gpus_and_without_are_for_those_who_ask_for_them() {
    let types = ["cpu4", "gpu:a100:1/cpu4", "gpu:t4:1/cpu2"].map(NodeType::new);
    let left = |text: &str, on_cpus: bool| {
        let name = |t: &Option<NodeType>| t.as_ref().map_or("any".to_owned(), NodeType::to_string);
        let rates = rates_on_own_kind(rates(text), on_cpus, Some(&types), None);
        let said = rates.iter().map(|r| format!("{}={}", name(&r.node_type), r.curve.rate(1)));
        said.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(left("any=3", false), "gpu:a100:1/cpu4=3 gpu:t4:1/cpu2=3");
    assert_eq!(left("any=3", true), "cpu4=3");
    assert_eq!(
        left("gpu:a100:1/cpu4=9 any=9 cpu4=1", false),
        "gpu:a100:1/cpu4=9 gpu:t4:1/cpu2=9",
        "what is known of a type holds there"
    );
    assert_eq!(left("gpu:a100:1/cpu4=9 any=9 cpu4=1", true), "cpu4=1");
    assert_eq!(left("gpu:a100:1/cpu4=9", true), "=1", "nowhere");
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
