//! Rates of jobs on types of nodes, in words.

use infill_model::{ExecPlan, NodeType, ScalingCurve, malleable::RateCurve};

/// `TYPE=RATE`, with `any` for every type.
pub(in crate::round) fn rates(text: &str) -> Vec<RateCurve> {
    let mut rates = Vec::new();
    for word in text.split_whitespace() {
        let (node_type, rate) = word.split_once('=').expect("TYPE=RATE");
        let node_type = (node_type != "any").then(|| NodeType::new(node_type));
        let curve = ScalingCurve::parse(&format!("1:{rate}")).expect("a curve");
        rates.push(RateCurve::new(ExecPlan::default(), node_type, curve, None));
    }
    rates
}
