//! Rates of jobs on types of nodes, in words.

use infill_model::{ExecPlan, NodeType, ScalingCurve, malleable::RateCurve};

/// `TYPE=RATE`, with `any` for every type.
pub(in crate::round) fn rates(text: &str) -> Vec<RateCurve> {
    let rate = |word: &str| {
        let (node_type, rate) = word.split_once('=').expect("TYPE=RATE");
        let node_type = (node_type != "any").then(|| NodeType::new(node_type));
        let curve = ScalingCurve::parse(&format!("1:{rate}")).expect("a curve");
        RateCurve::new(ExecPlan::default(), node_type, curve, None)
    };
    text.split_whitespace().map(rate).collect()
}
