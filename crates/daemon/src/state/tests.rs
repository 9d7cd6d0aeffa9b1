//! What agents are told while the store is away, and once it is back.

#[path = "../../../lifecycle/src/fleet/tests/rig.rs"]
#[expect(dead_code, reason = "some of it is for the tests of the fleet alone")]
mod rig;

use super::*;
use infill_lifecycle::Effect;
use rig::{LEAD, Rig, fleet, n};

/// A daemon that has this fleet.
fn state(mode: DaemonMode, rig: &Rig) -> DaemonState {
    let mut config = Config::default();
    config.daemon.mode = mode;
    let mut state = DaemonState::new(Arc::new(config), rig.now);
    state.fleet = rig.fleet.clone();
    state
}

fn permits(errands: &PendingActions) -> Vec<OrderPermit> {
    errands.words.iter().map(|(_, permit)| *permit).collect()
}

#[test]
fn nothing_is_ordered_before_it_is_stored() {
    let mut rig = fleet("launching n1");
    let out = rig.hello(LEAD, LEAD, &n(1), None).unwrap();
    let mut state = state(DaemonMode::Act, &rig);
    let errands = state.apply_output(out, rig.now);
    assert_eq!(permits(&errands), [OrderPermit::Stop]);
    // The store is away: what runs may go on in new generations.
    let dirty = state.ledger.take_dirty();
    state.ledger.mark_dirty(dirty.iter().copied());
    assert_eq!(permits(&state.release_orders(dirty, false)), [OrderPermit::Run]);
    // It is back.
    let dirty = state.ledger.take_dirty();
    assert_eq!(permits(&state.release_orders(dirty.clone(), true)), [OrderPermit::Order]);
    // It changed once more while it was being written: the next writing tells.
    state.ledger.mark_dirty([LEAD]);
    assert_eq!(permits(&state.release_orders(dirty, true)), []);
}

#[test]
fn what_changes_no_record_is_told_at_once() {
    let mut rig = fleet("running n1 n2");
    let mut state = state(DaemonMode::Act, &rig);
    let out = rig.fleet.step_all_jobs(rig.now);
    assert_eq!(permits(&state.apply_output(out, rig.now)), [OrderPermit::Order]);
}

#[tokio::test]
async fn the_next_daemon_knows_what_was_promised() {
    let mut rig = fleet("running n1 n2");
    let at = rig.now + -60;
    let out = rig.fleet.set_promises(|job| (job == LEAD).then_some(at));
    let record_alone = EffectBatch { job: LEAD, effects: Vec::new() };
    assert_eq!(out.batches, vec![record_alone.clone()]);
    let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
    store.put_leads(&[rig.fleet.lead_record(LEAD, rig.now).unwrap()]).await.unwrap();

    let mut next = DaemonState::new(Arc::new(Config::default()), rig.now);
    let _ = crate::serve::restore_state(&mut next, store.as_ref()).await.unwrap();
    assert_eq!(next.scene.priorities().promised_at(LEAD), Some(at));
    // Its owner wants nothing any more: the record says so, too.
    let errands = next.update_rounds(Snapshot { taken_at: rig.now, ..Snapshot::default() }, rig.now);
    assert_eq!((next.fleet.promises().count(), errands.batches), (0, vec![record_alone]));
    assert!(!next.ledger.is_stored(LEAD));
}

#[test]
fn a_daemon_that_observes_stores_and_does_nothing() {
    for (mode, effects) in [(DaemonMode::Act, 1), (DaemonMode::Observe, 0)] {
        let mut rig = fleet("queued");
        let mut state = state(mode, &rig);
        let errands = state.apply_output(rig.target(LEAD, &[n(1)]), rig.now);
        let launches: Vec<&Effect> = errands.batches.iter().flat_map(|b| &b.effects).collect();
        assert_eq!(launches.len(), effects, "{mode}");
        assert!(!state.ledger.is_stored(LEAD), "{mode}");
    }
}
