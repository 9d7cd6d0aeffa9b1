//! Main jobs that wings extend.

use crate::effect::Effect;
use crate::observed_job::ObservedJob;
use crate::phase::JobPhase;
use infill_model::{Directive, ExecPlan, JobId, NodeName, PlannedNode, SchedulingState};

use super::rig::{LEAD, Rig, job, n, rig, settings};

/// A main job of one node whose agent has said hello.
fn extended(sizes: &str) -> Rig {
    let mut r = rig(sizes);
    r.m.submitted.own_nodes = vec![n(1)];
    r.slurm.insert(LEAD, vec![n(1)]);
    r.held = false;
    r.run();
    r
}

fn effects_on_lead(r: &Rig) -> Vec<&Effect> {
    r.effects.iter().filter(|e| e.job() == LEAD).collect()
}

#[test]
fn a_main_job_is_never_changed_and_keeps_its_own_node() {
    let mut r = extended("1-4");
    // Plans without nodes, with all nodes, and without nodes again.
    for (target, expected) in [(vec![], 1), (vec![1, 3, 4], 3), (vec![3, 1], 2), (vec![], 1), (vec![4], 2)] {
        for _ in 0..2 {
            r.target(&target);
            r.run();
            r.observe();
        }
        assert_eq!(r.nodes_running().len(), expected, "{target:?}: {:?}", r.m.phase);
        assert!(matches!(&r.m.phase, JobPhase::Running { members } if members[0] == n(1)), "{target:?}");
    }
    assert_eq!(effects_on_lead(&r), Vec::<&Effect>::new());
    assert!(r.effects.iter().any(|e| matches!(e, Effect::CancelWing { job } if *job != LEAD)));
    // The job waits for a silent agent.
    r.now = r.now + 1000;
    r.with(|_, _, _| {});
    r.with(|_, _, _| {});
    assert_eq!(effects_on_lead(&r), Vec::<&Effect>::new());
}

#[test]
fn only_slurm_restarts_a_requeued_main_job() {
    let mut r = extended("1-4");
    r.target(&[1, 3]);
    r.run();
    r.agents.remove(&n(1));
    r.slurm.remove(&LEAD);
    for held in [false, true, false] {
        let mut lead = job(LEAD, &[], 0);
        lead.held = held;
        lead.state_reason = "Resources".to_owned();
        r.now = r.now + 5;
        let observed =
            ObservedJob { lead: Some(&lead), wings: Vec::new(), read_at: r.now, ..ObservedJob::default() };
        r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
        r.target(&[1, 3]);
    }
    assert!(r.m.phase.is_queued());
    assert_eq!(effects_on_lead(&r), Vec::<&Effect>::new());
    // It runs elsewhere now.
    r.slurm.insert(LEAD, vec![n(5)]);
    r.observe();
    r.run();
    r.target(&[]);
    r.run();
    assert_eq!((r.m.submitted.own_nodes.clone(), r.nodes_running()), (vec![n(5)], vec!["n5".to_owned()]));
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Running);
}

#[test]
fn its_own_nodes_have_the_first_ranks() {
    let mut r = extended("1-4");
    r.target(&[1, 7]);
    r.run();
    r.observe();
    r.m.submitted.own_nodes = vec![n(1), n(2), n(3)];
    let member = |node| match r.m.directive_for(&n(node)) {
        Directive::Run(member) => member,
        other => panic!("{other:?}"),
    };
    let lead = member(1);
    let wing = member(7);
    assert_eq!(((lead.rank, lead.world), (wing.rank, wing.world)), ((0, 4), (3, 4)));
    assert_eq!(wing.nodes, [n(1), n(2), n(3), n(7)]);
    assert!(wing.meeting.is_none(), "the lead's further nodes have no agents");
    assert!(r.m.wings.values().any(|w| w.order.qos.is_none()), "a main job's QOS does not apply to wings");
    assert_ne!(r.m.job, JobId(0));
    let read = crate::JobLifecycle::from_record(r.m.to_record()).unwrap();
    assert_eq!(read.submitted.own_nodes.len(), 3);
}

#[test]
fn gpus_of_its_one_node_are_its_own_and_each_wing_has_as_many() {
    let places = |text: &str| text.split_whitespace().map(NodeName::from).collect::<Vec<_>>();
    let mut lead = job(LEAD, &[], 0);
    lead.partition = "main".to_owned();
    lead.gres = "gpu:1".to_owned();
    // Slurm also blocks n1:3, which is not one of the job's places.
    lead.nodes = places("n1:0 n1:2 n1:3");
    lead.batch_host = Some(NodeName::new("n1:0+2"));
    assert_eq!(crate::main_job_nodes(&lead), places("n1:0+2"));
    let mut r = extended("1-4");
    r.m.set_own_nodes(crate::main_job_nodes(&lead));
    assert_eq!((r.m.submitted.places_per_worker, r.m.extra_lead_nodes()), (2, 0));
    assert_eq!(r.m.generation_nodes(&places("n1:0+2 n2:0+1")), places("n1:0+2 n2:0+1"));
    // A plan without its own places.
    let own = r.m.workers.remove(&n(1)).unwrap();
    r.m.workers.insert(NodeName::new("n1:0+2"), own);
    r.m.phase = JobPhase::Running { members: places("n1:0+2") };
    r.m.submitted.gres = lead.gres;
    let wing = PlannedNode { node: NodeName::new("n2:0+1"), lease_until: r.now + 600 };
    r.target_of(ExecPlan::default(), vec![wing]);
    let planned = r.m.target.as_ref().unwrap().plan.nodes.iter().map(|p| p.node.clone());
    assert_eq!(planned.collect::<Vec<_>>(), places("n1:0+2 n2:0+1"));
    let orders: Vec<_> = r.m.wings.values().map(|w| (w.order.nodes.clone(), w.order.gres.clone())).collect();
    assert_eq!(orders, [(places("n2:0+1"), Some("gpu:2".to_owned()))]);
    let read = crate::JobLifecycle::from_record(r.m.to_record()).unwrap();
    assert_eq!((read.submitted.own_nodes, read.submitted.places_per_worker), (places("n1:0+2"), 2));
    assert_eq!(effects_on_lead(&r), Vec::<&Effect>::new());
}
