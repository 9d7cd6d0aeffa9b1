//! Changes that measure a size.

use super::rig::{Rig, alive, n, running};
use infill_model::Probe;

/// Why the last generation began, after a plan with these nodes that probes this size.
fn why(r: &mut Rig, nodes: &[u32], probed: Option<u32>) -> String {
    r.pass(100);
    r.probe = probed.map(|nodes| Probe { nodes, with: None });
    for _ in 0..2 {
        r.target(nodes);
        r.run();
        r.observe();
    }
    let on: Vec<String> = nodes.iter().map(|i| n(*i).to_string()).collect();
    assert_eq!(r.nodes_running(), on);
    r.whys.last().unwrap().clone()
}

#[test]
fn the_reason_of_a_generation_names_its_probe() {
    for mut r in [running("1-8", &[1, 2, 3]), alive("1-8", &[1, 2, 3])] {
        let reasons = [
            why(&mut r, &[1], Some(1)),
            why(&mut r, &[1, 2, 3], None),
            why(&mut r, &[1, 2], None),
            why(&mut r, &[1, 2, 3, 4], Some(4)),
        ];
        assert_eq!(
            reasons,
            [
                "shrunk by 2 (n2 ...): a probe, to measure how fast it is on 1 node",
                "grown from 1 to 3",
                "shrunk by 1 (n3 ...)",
                "grown from 2 to 4: a probe, to measure how fast it is on 4 nodes",
            ]
        );
    }
}
