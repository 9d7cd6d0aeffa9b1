//! The secret that lets members of a command that stays alive recognise each other.

use crate::job_lifecycle::JobLifecycle;
use infill_api::AgentDialect;
use infill_model::{AgentEvent, Directive, GenerationRendezvous, Secret};

use super::rig::{Rig, n, running};

/// The secret in each member's present order.
fn secrets(r: &Rig, members: &[u32]) -> Vec<Option<String>> {
    members
        .iter()
        .map(|i| match r.m.directive_for(&n(*i)) {
            Directive::Run(place) | Directive::Regroup(place) => place.meeting?.secret.map(|secret| secret.0),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// The dialect of agents with protocol 1 or 2.
fn dialect(version: u32) -> AgentDialect {
    if version == 1 { AgentDialect::first_protocol() } else { AgentDialect::present_protocol() }
}

/// Two members whose agents have these protocols. The first one's process has opened a store with a secret.
fn with_secret(versions: [u32; 2]) -> Rig {
    let mut r = running("1-8", &[1, 2]);
    for (i, version) in (1..).zip(versions) {
        r.m.workers.get_mut(&n(i)).unwrap().dialect = dialect(version);
    }
    assert_eq!(secrets(&r, &[1, 2]), [None, None]);
    open(&mut r);
    r
}

fn open(r: &mut Rig) {
    let secret = Some(Secret("ab01".to_owned()));
    r.event(&n(1), AgentEvent::Store { generation: 1, port: 5000, secret });
}

#[test]
fn members_get_a_secret_if_all_their_agents_can_pass_it_on() {
    let given = Some("ab01".to_owned());
    assert_eq!(secrets(&with_secret([2, 2]), &[1, 2]), [given.clone(), given]);
    for old in [[1, 2], [2, 1], [1, 1]] {
        let mut r = with_secret(old);
        assert_eq!(secrets(&r, &[1, 2]), [None, None]);
        // The secret stays the same for a whole generation, even if newer agents replace the old ones.
        r.m.workers.values_mut().for_each(|w| w.dialect = AgentDialect::present_protocol());
        open(&mut r);
        assert_eq!(secrets(&r, &[1, 2]), [None, None]);
    }
}

#[test]
fn a_secret_is_not_stored_and_its_host_is_asked_for_it_again() {
    let mut r = with_secret([2, 2]);
    let record = r.m.to_record();
    assert!(!record.to_string().contains("ab01"), "{record}");
    r.m = JobLifecycle::from_record(record).unwrap();
    let Directive::Run(place) = r.m.directive_for(&n(1)) else { panic!("{:?}", r.m.phase) };
    assert_eq!(place.meeting, Some(GenerationRendezvous { host: true, ..GenerationRendezvous::default() }));
    open(&mut r);
    assert_eq!(secrets(&r, &[1, 2]), vec![Some("ab01".to_owned()); 2]);
}

#[test]
fn a_newcomer_with_an_older_agent_joins_without_a_secret() {
    for (version, expected) in [(1, None), (2, Some("ab01".to_owned()))] {
        let mut r = with_secret([2, 2]);
        (1..=2).for_each(|i| r.event(&n(i), AgentEvent::Joined { generation: 1, secs: 0.1 }));
        r.target(&[1, 2, 3]);
        r.submit_wings();
        r.dialect = dialect(version);
        r.say_hello();
        assert!(matches!(r.m.directive_for(&n(3)), Directive::Warm(_)), "{:?}", r.m.phase);
        r.event(&n(3), AgentEvent::Ready { generation: 1 });
        assert_eq!(secrets(&r, &[1, 2, 3]), vec![expected; 3]);
    }
}
