//! Agents that are older than the daemon.

use infill_api::{AgentDialect, Capability};
use infill_model::{AgentEvent, Directive, FaultSource, MinimumRate, RequestedSize, RunSpec};

use super::rig::{LEAD, WING, fleet, n};
use crate::AuthenticatedHello;
use crate::fleet::agent_orders::can_read_directive;

/// Number of strikes if the wing on n2 cannot start anything, and the lead's agent has this dialect.
fn strikes(dialect: AgentDialect) -> usize {
    let mut rig = fleet("running n1 n2");
    let node = n(1);
    let address = "n1".to_owned();
    let running = Some(1);
    let hello =
        AuthenticatedHello { node, slurm_job: LEAD, address, port: 4000, running, spec: None, dialect };
    drop(rig.fleet.handle_hello(LEAD, hello, rig.now).unwrap());
    let unfit = AgentEvent::Unfit { blame: FaultSource::Node, why: "no such program".to_owned() };
    rig.report(WING, &n(2), unfit).unwrap().strikes.len()
}

#[test]
fn nodes_are_not_blamed_for_failed_wings_of_an_older_lead() {
    assert_eq!((strikes(AgentDialect::present_protocol()), strikes(AgentDialect::first_protocol())), (1, 0));
}

#[test]
fn the_minimum_rate_refers_to_the_requested_or_the_submitted_size() {
    let wants = |spec: RunSpec| {
        let mut rig = fleet("running n1 n2");
        let node = n(1);
        let address = "n1".to_owned();
        let running = Some(1);
        let spec = Some(spec);
        let dialect = AgentDialect::present_protocol();
        let hello = AuthenticatedHello { node, slurm_job: LEAD, address, port: 4000, running, spec, dialect };
        drop(rig.fleet.handle_hello(LEAD, hello, rig.now).unwrap());
        rig.fleet.facts_for_job(LEAD, rig.now).unwrap().declaration.at_least
    };
    let asks = |nodes| RunSpec { as_asked: Some(RequestedSize { nodes }), ..RunSpec::default() };
    assert_eq!(wants(asks(Some(4))), Some(MinimumRate::Requested(4)));
    assert_eq!(wants(asks(None)), Some(MinimumRate::Requested(1)), "the smallest of 1-8");
    assert_eq!(wants(RunSpec { at_least: Some(9.0), ..asks(None) }), Some(MinimumRate::Rate(9.0)));
    assert_eq!(wants(RunSpec::default()), None);
}

#[test]
fn only_agents_with_the_required_capability_can_read_a_directive() {
    let sealed = Some(Capability::SealedSession);
    let able = AgentDialect {
        capabilities: [Capability::SealedSession].into_iter().collect(),
        ..AgentDialect::present_protocol()
    };
    for (dialect, required, expected) in [
        (AgentDialect::first_protocol(), None, true),
        (AgentDialect::first_protocol(), sealed, false),
        (AgentDialect::present_protocol(), sealed, false),
        (able, sealed, true),
    ] {
        assert_eq!(
            can_read_directive(&dialect, &Directive::Hold, |_| required),
            expected,
            "{dialect:?} {required:?}"
        );
    }
}
