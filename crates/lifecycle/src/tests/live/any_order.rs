//! Random inputs: the job runs in the end.

use super::*;

/// Pseudo-random numbers, the same in every run (Knuth's MMIX constants).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

/// Applies a random input to a job on up to six nodes.
fn apply_random_input(r: &mut Rig, dice: &mut Dice) {
    let node = n(1 + dice.below(6));
    let generation = r.m.generation.number;
    let known = r.agents.get(&node).copied();
    match dice.below(14) {
        0 | 1 => {
            let lead = r.m.lead_node().map_or(1, |l| l.as_str()[1..].parse().unwrap());
            let others: Vec<u32> = (1..7).filter(|i| *i != lead && dice.below(2) == 0).collect();
            let nodes: Vec<u32> = std::iter::once(lead).chain(others).collect();
            r.target(&nodes);
        }
        2 => r.submit_wings(),
        3 => r.say_hello(),
        4..=7 => {
            if let Some(running) = known {
                r.obey(&node, running);
            }
        }
        8 if known.is_some_and(|g| g.is_some()) => {
            let exit = [KILLED, KILLED, CommandExit { code: 3, ..KILLED }][dice.below(3) as usize];
            r.stopped(&node, generation, exit);
        }
        // Slurm takes a wing's node, which its agent reports, or the node dies without a report.
        9 if known.is_some() && r.m.lead_node() != Some(&node) => {
            if dice.below(2) == 0 {
                r.event(&node, AgentEvent::Leaving);
            }
            r.slurm.retain(|_, nodes| !nodes.contains(&node));
            r.agents.remove(&node);
            r.warm.remove(&node);
        }
        10 => r.event(&node, AgentEvent::Failed { generation }),
        11 => r.event(&node, AgentEvent::Stuck { generation }),
        12 if dice.below(4) == 0 => {
            r.event(&node, AgentEvent::Hopeless { generation, why: "no way".into() });
        }
        12 => drop(r.hang.insert(node)),
        _ => r.pass(i64::from(dice.below(4))),
    }
}

#[test]
fn the_job_runs_in_the_end_after_random_inputs() {
    let mut dice = Dice(7);
    let mut regrouped = 0;
    let mut restarted = 0;
    for round in 0..200 {
        let mut r = alive("1-8", &[1, 2, 3]);
        r.m.spec.max_restarts = 1000;
        for _ in 0..60 {
            let before = r.m.generation.number;
            apply_random_input(&mut r, &mut dice);
            assert!(r.m.generation.number >= before);
            let members = r.m.phase.members();
            let distinct: std::collections::BTreeSet<_> = members.iter().collect();
            assert_eq!(distinct.len(), members.len(), "{:?} in round {round}", r.m.phase);
            regrouped += u32::from(r.m.malleable_state() == MalleableState::Regrouping);
        }
        r.hang.clear();
        for _ in 0..12 {
            r.observe();
            r.run();
            r.pass(31);
            let lead = r.m.lead_node().cloned().unwrap_or_else(|| n(1));
            r.target(&[lead.as_str()[1..].parse().unwrap()]);
            r.run();
        }
        assert_eq!(r.m.malleable_state(), MalleableState::Running, "round {round}: {:#?}", r.notes);
        restarted += r.stops;
    }
    assert!(regrouped > 500 && restarted > 100, "{regrouped} {restarted}");
}
