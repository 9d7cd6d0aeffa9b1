//! Losses while newcomers join, and the requests of new wings.

use crate::phase::JobPhase;
use infill_model::{AgentEvent, DeclaredPlan, ExecPlan, NodeName, PlanNeeds, PlannedNode};

use super::live::{last, went_on};
use super::rig::{Rig, alive, n, running};

/// Two members and a newcomer that joins. One member has died.
fn growing() -> Rig {
    let mut r = alive("1-8", &[1, 2]);
    r.pass(100);
    r.hang.insert(n(2));
    r.target(&[1, 2, 3]);
    r.run();
    assert!(matches!(r.m.phase, JobPhase::Regrouping { .. }), "{:?}", r.m.phase);
    assert_eq!(last(&r), ["n1", "n2", "n3"]);
    r
}

fn hear_survivors(r: &mut Rig) {
    for i in [1, 3] {
        r.m.record_heartbeat(&n(i), r.m.workers[&n(i)].slurm_job, r.now);
    }
}

#[test]
fn members_that_wait_for_a_dead_members_step_report_it() {
    for event in [AgentEvent::Failed { generation: 1 }, AgentEvent::Stuck { generation: 1 }] {
        let mut r = growing();
        r.event(&n(1), event);
        hear_survivors(&mut r);
        r.now = r.now + 3;
        r.with(|_, _, _| {});
        assert_eq!(last(&r), ["n1", "n3"], "{:?}", r.notes);
        r.run();
        went_on(&r, &["n1", "n3"]);
    }
}

#[test]
fn members_may_finish_their_step_if_none_reports_a_failure() {
    let mut r = growing();
    hear_survivors(&mut r);
    r.now = r.now + 3;
    r.with(|_, _, _| {});
    assert_eq!(last(&r), ["n1", "n2", "n3"]);
}

#[test]
fn newcomers_join_only_after_the_lost_member_is_found() {
    let mut r = alive("1-8", &[1, 2]);
    r.pass(100);
    r.hang.insert(n(2));
    r.event(&n(1), AgentEvent::Failed { generation: 1 });
    r.target(&[1, 2, 3]);
    r.run();
    assert!(matches!(r.m.phase, JobPhase::Running { .. }), "{:?}", r.m.phase);
    hear_survivors(&mut r);
    r.now = r.now + 3;
    r.with(|_, _, _| {});
    assert_eq!(last(&r), ["n1"], "{:?}", r.notes);
    r.run();
    went_on(&r, &["n1"]);
    r.target(&[1, 3]);
    r.run();
    went_on(&r, &["n1", "n3"]);
}

#[test]
fn a_wing_requests_the_needs_of_its_execution_plan() {
    let plan = |name: &str, needs| DeclaredPlan {
        name: ExecPlan(name.to_owned()),
        sizes: None,
        node_types: Vec::new(),
        shards: false,
        strategy: None,
        needs,
    };
    let much = PlanNeeds { cpus: Some(12), memory_mib: Some(64_000), gpu_memory_mib: Some(9) };
    let ordered = |exec_plan: &str, node: &str, cpus| {
        let mut r = running("1-8", &[1]);
        r.m.spec.plans = vec![plan("ddp", PlanNeeds::default()), plan("offload", much)];
        r.m.submitted.cpus = cpus;
        let place = |node| PlannedNode { node, lease_until: r.now + 600 };
        let nodes = vec![place(n(1)), place(NodeName::from(node))];
        r.target_of(ExecPlan(exec_plan.to_owned()), nodes);
        let order = &r.m.wings.values().next().expect("a wing").order;
        assert_eq!(order.nodes, [NodeName::from(node)]);
        (order.cpus, order.memory_mib)
    };
    assert_eq!(ordered("offload", "n2:1", None), (Some(12), Some(64_000)));
    assert_eq!(ordered("offload", "n2:1", Some(4)), (Some(12), Some(64_000)));
    assert_eq!(ordered("ddp", "n2:1", None), (None, None));
    assert_eq!(ordered("ddp", "n2:1", Some(4)), (Some(4), None));
    assert_eq!(ordered("unknown", "n2:1", None), (None, None));
    assert_eq!(ordered("offload", "n2", None), (None, None), "a whole node needs no request");
}
