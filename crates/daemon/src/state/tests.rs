//! Which orders agents receive while the store is down, and once it works again.

#[path = "../../../lifecycle/src/fleet/tests/rig.rs"]
#[expect(dead_code, reason = "some of it is used only by the fleet's tests")]
mod rig;

use super::*;
use infill_lifecycle::Effect;
use rig::{LEAD, Rig, fleet, n};

/// The state of a daemon that has this fleet.
fn state(mode: DaemonMode, rig: &Rig) -> DaemonState {
    let mut config = Config::default();
    config.daemon.mode = mode;
    let mut state = DaemonState::new(Arc::new(config), rig.now);
    state.fleet = rig.fleet.clone();
    state
}

fn scopes(actions: &PendingActions) -> Vec<SendScope> {
    actions.orders.iter().map(|(_, scope)| *scope).collect()
}

#[test]
fn nothing_is_ordered_before_it_is_stored() {
    let mut rig = fleet("launching n1");
    let out = rig.hello(LEAD, LEAD, &n(1), None).unwrap();
    let mut state = state(DaemonMode::Act, &rig);
    let actions = state.apply_output(out, rig.now);
    assert_eq!(scopes(&actions), [SendScope::NothingNew]);
    // The store is down: running jobs may go on in new generations.
    let dirty = state.write_queue.take_dirty();
    state.write_queue.mark_dirty(dirty.iter().copied());
    assert_eq!(scopes(&state.release_orders(dirty, false)), [SendScope::Generations]);
    // The store works again.
    let dirty = state.write_queue.take_dirty();
    assert_eq!(scopes(&state.release_orders(dirty.clone(), true)), [SendScope::Everything]);
    // The record changed again while it was being written. The next write releases the orders.
    state.write_queue.mark_dirty([LEAD]);
    assert_eq!(scopes(&state.release_orders(dirty, true)), []);
}

#[test]
fn orders_of_an_unchanged_record_are_sent_at_once() {
    let mut rig = fleet("running n1 n2");
    let mut state = state(DaemonMode::Act, &rig);
    let out = rig.fleet.step_all_jobs(rig.now);
    assert_eq!(scopes(&state.apply_output(out, rig.now)), [SendScope::Everything]);
}

#[tokio::test]
async fn promises_outlive_the_daemon() {
    let mut rig = fleet("running n1 n2");
    let at = rig.now + -60;
    let out = rig.fleet.set_promises(|job| (job == LEAD).then_some(at));
    let record_alone = EffectBatch { job: LEAD, effects: Vec::new() };
    assert_eq!(out.batches, vec![record_alone.clone()]);
    let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
    store.put_leads(&[rig.fleet.lead_record(LEAD, rig.now).unwrap()]).await.unwrap();

    let mut next = DaemonState::new(Arc::new(Config::default()), rig.now);
    let _ = crate::serve::restore_state(&mut next, store.as_ref()).await.unwrap();
    assert_eq!(next.round_state.priorities().promised_at(LEAD), Some(at));
    // The job's owner no longer waits for nodes, so the record loses the promise too.
    let actions = next.update_rounds(Snapshot { taken_at: rig.now, ..Snapshot::default() }, rig.now);
    assert_eq!((next.fleet.promises().count(), actions.batches), (0, vec![record_alone]));
    assert!(!next.write_queue.is_stored(LEAD));
}

#[test]
fn a_daemon_that_observes_stores_records_and_has_no_effects() {
    for (mode, expected) in [(DaemonMode::Act, 1), (DaemonMode::Observe, 0)] {
        let mut rig = fleet("queued");
        let mut state = state(mode, &rig);
        let actions = state.apply_output(rig.target(LEAD, &[n(1)]), rig.now);
        let effects: Vec<&Effect> = actions.batches.iter().flat_map(|batch| &batch.effects).collect();
        assert_eq!(effects.len(), expected, "{mode}");
        assert!(!state.write_queue.is_stored(LEAD), "{mode}");
    }
}

/// A state that does this about one delayed main job within an hour, and has just seen one.
fn after_a_delay(action: DelayAction) -> DaemonState {
    let mut config = Config::default();
    config.safety.on_delays = action;
    config.safety.max_delayed_jobs = 1;
    let mut state = DaemonState::new(Arc::new(config), UnixTime(100));
    let delay = MainDelay { job: JobId(7), at: UnixTime(100), secs: 40.0, planned: false };
    let _ = state.check_delays(&[delay], UnixTime(100));
    assert!(state.health.has_problem(ProblemTopic::Delays));
    state
}

#[test]
fn a_warning_is_over_when_its_delays_are_old_and_a_pause_is_not() {
    for (action, stays) in [(DelayAction::Warn, false), (DelayAction::Pause, true)] {
        let mut state = after_a_delay(action);
        assert_eq!(state.check_delays(&[], UnixTime(3600)), None);
        assert!(state.health.has_problem(ProblemTopic::Delays), "the hour is not over");
        assert_eq!(state.check_delays(&[], UnixTime(3800)), None);
        assert_eq!(state.health.has_problem(ProblemTopic::Delays), stays, "{action:?}");
        assert_eq!(state.control.state == ControlState::Paused, stays);
    }
}
