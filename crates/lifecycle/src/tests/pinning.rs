//! A lead is pinned to a node only from its launch until it runs. Slurm ends a job, with all its work, if it
//! is pinned to a node that is removed from the configuration.

use crate::effect::Effect;
use crate::observed_job::ObservedJob;
use crate::phase::JobPhase;
use crate::settings::RETRY_SECS;
use infill_model::Job;

use super::rig::{LEAD, Rig, job, n, rig, running, settings};

const UNPIN: Effect = Effect::Unpin { job: LEAD };

fn unpinned(r: &Rig) -> usize {
    r.effects.iter().filter(|e| **e == UNPIN).count()
}

/// The lead as Slurm shows it, waiting and pinned to a node.
fn pinned(held: bool) -> Job {
    let mut lead = job(LEAD, &[], 0);
    lead.held = held;
    lead.asks.pinned = "n3".to_owned();
    lead
}

fn see(r: &mut Rig, lead: &Job) {
    r.now = r.now + 1;
    let observed =
        ObservedJob { lead: Some(lead), wings: Vec::new(), read_at: r.now, ..ObservedJob::default() };
    r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
}

#[test]
fn a_parked_lead_is_unpinned() {
    let mut r = running("1-4", &[3]);
    assert_eq!((r.pinned.clone(), unpinned(&r)), (Some(n(3)), 0), "it was launched there");
    r.target(&[]);
    r.run();
    r.observe();
    assert_eq!((r.m.malleable_state().word(), r.pinned.clone(), unpinned(&r)), ("queued", None, 1));
    r.observe();
    assert_eq!(unpinned(&r), 1, "it is unpinned already");
    r.target(&[2]);
    assert_eq!(r.pinned, Some(n(2)));
}

#[test]
fn a_pinned_lead_is_unpinned_at_the_next_snapshot() {
    // An older version pinned it, or an earlier attempt to unpin it failed.
    let mut r = rig("1-4");
    for looks in 1..=3 {
        see(&mut r, &pinned(true));
        assert_eq!(unpinned(&r), looks);
        r.now = r.now.plus_secs(RETRY_SECS);
    }
}

#[test]
fn a_lead_that_leaves_its_node_for_long_is_unpinned_meanwhile() {
    let mut r = running("1-4", &[3]);
    r.target(&[]);
    r.run();
    let mut lead = pinned(true);
    lead.state.flags.insert("COMPLETING".to_owned());
    see(&mut r, &lead);
    assert_eq!(unpinned(&r), 1);
}

#[test]
fn a_lead_that_may_start_keeps_its_node() {
    let mut r = rig("1-4");
    see(&mut r, &pinned(false));
    assert_eq!((&r.effects[..], unpinned(&r)), (&[Effect::Hold { job: LEAD }][..], 0), "it is held first");
    let mut r = rig("1-4");
    r.target(&[3]);
    assert!(matches!(r.m.phase, JobPhase::Launching { .. }));
    for held in [true, false] {
        see(&mut r, &pinned(held));
        assert_eq!(unpinned(&r), 0);
    }
    // Its launch is given up.
    r.target(&[]);
    r.run();
    see(&mut r, &pinned(true));
    assert_eq!(unpinned(&r), 1);
}
