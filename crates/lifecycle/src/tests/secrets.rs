//! What members of a command that stays alive are told to know each other by.

use crate::job_lifecycle::JobLifecycle;
use infill_api::AgentDialect;
use infill_model::{AgentEvent, Directive, GenerationRendezvous, Secret};

use super::rig::{Rig, n, running};

/// What each member would be told now to know the others by.
fn secrets(r: &Rig, members: &[u32]) -> Vec<Option<String>> {
    members
        .iter()
        .map(|i: &u32| match r.m.directive_for(&n(*i)) {
            Directive::Run(place) | Directive::Regroup(place) => place.meeting?.secret.map(|secret| secret.0),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// What agents of version 1 or 2 understand.
fn dialect(version: u32) -> AgentDialect {
    if version == 1 { AgentDialect::first_protocol() } else { AgentDialect::present_protocol() }
}

/// Two members whose agents are of these versions; the first one's has opened a store with a secret.
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
fn members_are_told_a_secret_if_all_of_their_agents_can_pass_it_on() {
    let given = Some("ab01".to_owned());
    assert_eq!(secrets(&with_secret([2, 2]), &[1, 2]), [given.clone(), given]);
    for old in [[1, 2], [2, 1], [1, 1]] {
        let mut r = with_secret(old);
        assert_eq!(secrets(&r, &[1, 2]), [None, None]);
        // What some were told in a generation, all are, also where a newer agent has replaced one.
        r.m.workers.values_mut().for_each(|w| w.dialect = AgentDialect::present_protocol());
        open(&mut r);
        assert_eq!(secrets(&r, &[1, 2]), [None, None]);
    }
}

#[test]
fn a_secret_is_in_no_record_and_its_host_is_asked_for_it_again() {
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
fn a_newcomer_whose_agent_is_older_gets_in_and_no_secret_is_told() {
    for (version, told) in [(1, None), (2, Some("ab01".to_owned()))] {
        let mut r = with_secret([2, 2]);
        (1..=2).for_each(|i| r.event(&n(i), AgentEvent::Joined { generation: 1, secs: 0.1 }));
        r.target(&[1, 2, 3]);
        r.submit_wings();
        r.dialect = dialect(version);
        r.say_hello();
        assert!(matches!(r.m.directive_for(&n(3)), Directive::Warm(_)), "{:?}", r.m.phase);
        r.event(&n(3), AgentEvent::Ready { generation: 1 });
        assert_eq!(secrets(&r, &[1, 2, 3]), vec![told; 3]);
    }
}
