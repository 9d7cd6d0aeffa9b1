//! Leads whose agents are older than the daemon.

use std::collections::BTreeSet;

use infill_api::{AgentDialect, Capability, CapabilitySet};

use super::rig::{Rig, n, rig, running};
use crate::JobLifecycle;
use crate::effect::Effect;

/// A job with older agents on these nodes. An older daemon ordered its wings before an upgrade.
fn older(sizes: &str, nodes: &[u32]) -> Rig {
    let mut r = running(sizes, nodes);
    r.m.workers.values_mut().for_each(|w| w.dialect = AgentDialect::first_protocol());
    r.dialect = AgentDialect::first_protocol();
    r
}

#[test]
fn an_older_lead_orders_no_wings_and_the_job_shows_why() {
    let mut r = older("1-8", &[1, 2]);
    let members = r.m.phase.members().to_vec();
    let generation = r.m.generation.number;
    r.target(&[1, 2, 3, 4]);
    assert_eq!((r.m.wing_orders().len(), r.m.wings.len()), (0, 1), "{:?}", r.m.wings);
    let held: Vec<_> = r.m.held_nodes(r.now).into_keys().collect();
    assert_eq!(held, [n(1), n(2)], "other jobs may have the rest");
    let why = r.m.shortage_reason(r.now).unwrap();
    assert!(why.starts_with("its agent is older than the daemon (protocol 1,"), "{why}");
    assert_eq!((r.m.phase.members(), r.m.generation.number), (&members[..], generation), "it trains on");
    // A plan that takes a node back is still followed.
    r.target(&[1]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1"]);
}

#[test]
fn an_order_of_an_older_daemon_is_not_passed_on_to_an_older_lead() {
    let mut r = running("1-8", &[1]);
    r.target(&[1, 2]);
    assert_eq!(r.m.wing_orders().len(), 1);
    r.m.workers.values_mut().for_each(|w| w.dialect = AgentDialect::first_protocol());
    assert_eq!(r.m.wing_orders(), []);
}

#[test]
fn a_lead_that_restarts_with_a_newer_agent_grows_again() {
    let mut r = older("1-8", &[1]);
    r.dialect = AgentDialect::present_protocol();
    // It moves, so Slurm requeues the lead and starts it on the new node.
    for _ in 0..4 {
        r.target(&[2, 3]);
        r.run();
        r.observe();
    }
    assert_eq!(r.started.last().unwrap(), &["n2", "n3"], "{:?}", r.notes);
    assert_eq!(r.m.shortage_reason(r.now), None);
}

#[test]
fn a_job_that_needs_wings_waits_longer_after_each_older_agent() {
    let mut r = rig("2-8");
    r.dialect = AgentDialect::first_protocol();
    let mut launches = Vec::new();
    for _ in 0..400 {
        let before = r.effects.len();
        // The planner gives no nodes to a job that must wait.
        if r.m.backoff.start_barred_until(r.now).is_none() {
            r.target(&[1, 2]);
        }
        r.run();
        r.look();
        let launched = r.effects[before..].iter().any(|e| matches!(e, Effect::Launch { .. }));
        launches.extend(launched.then_some(r.now));
        assert!(r.m.wings.is_empty(), "{:?}", r.m.wings);
        r.pass(1);
    }
    let waits: Vec<f64> = launches.windows(2).map(|pair| pair[1].secs_since(pair[0])).collect();
    assert!(waits.len() >= 2 && waits.is_sorted() && waits[0] > 15.0, "{waits:?}, {:?}", r.notes);
}

#[test]
fn dialects_are_stored() {
    let mut r = running("1-8", &[1]);
    let sealed =
        AgentDialect { protocol: 2, capabilities: CapabilitySet::from_iter([Capability::SealedSession]) };
    r.m.workers.values_mut().for_each(|w| w.dialect = sealed.clone());
    let record = r.m.to_record();
    let read = JobLifecycle::from_record(record.clone()).unwrap();
    assert!(read.workers.values().all(|w| w.dialect == sealed));
    // Records of older daemons do not contain the dialect.
    let mut record = record;
    for worker in record["workers"].as_object_mut().unwrap().values_mut() {
        let fields = worker.as_object_mut().unwrap();
        assert!(fields.remove("protocol").is_some() && fields.remove("capabilities").is_some());
    }
    let read = JobLifecycle::from_record(record).unwrap();
    let dialects: BTreeSet<u32> = read.workers.values().map(|w| w.dialect.protocol).collect();
    assert_eq!(dialects, BTreeSet::from([1]));
}
