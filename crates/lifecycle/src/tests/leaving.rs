//! Lessons from stops and starts.

use super::rig::{LEAD, Rig, job, n, running, settings};
use crate::effect::{Effect, StepOutcome};
use crate::observed_job::ObservedJob;
use infill_model::{AgentEvent, CommandExit, JobId, StopOutcome};

/// The lesson from a stop that took `stop_secs`, with 10 s of grace.
fn lesson(code: i32, killed: bool, stop_secs: f64, leaving: bool) -> Option<(f64, StopOutcome)> {
    let mut r = running("1-8", &[1, 2]);
    r.m.spec.grace_secs = 10;
    if leaving {
        r.event(&n(2), AgentEvent::Leaving);
    }
    let exit = CommandExit { code, asked: true, killed };
    let stopped = AgentEvent::Stopped { generation: 1, exit, stop_secs, port: 4000 };
    let mut out = StepOutcome::default();
    r.m.handle_event(&n(2), &stopped, &settings(), r.now, &mut out);
    out.stops.first().map(|stop| {
        assert_eq!((stop.job, stop.generation), (LEAD, 1));
        (stop.secs, stop.end)
    })
}

#[test]
fn every_requested_stop_is_a_lesson() {
    assert_eq!(lesson(0, false, 4.0, false), Some((4.0, StopOutcome::Saved)));
    assert_eq!(
        lesson(0, false, 0.5, true),
        Some((0.5, StopOutcome::Saved)),
        "in time, though Slurm took the node"
    );
    assert_eq!(lesson(138, false, 0.1, false), Some((0.1, StopOutcome::Saved)), "the signal ended it");
    assert_eq!(lesson(1, false, 3.0, false), Some((3.0, StopOutcome::Failed)));
    assert_eq!(lesson(137, true, 10.2, false), Some((10.0, StopOutcome::Killed)));
    assert_eq!(
        lesson(137, true, 2.0, true),
        Some((2.0, StopOutcome::Cut)),
        "Slurm gave it less than its own grace time"
    );
    assert_eq!(lesson(137, true, 10.2, true), Some((10.0, StopOutcome::Killed)));
    assert_eq!(lesson(0, false, 0.0, false), None, "it had ended before it was asked");
}

/// A job on n1 with a wing on n2 that Slurm runs, and that has not said hello.
fn with_wing_in_prolog() -> Rig {
    let mut r = running("1-8", &[1]);
    r.target(&[1, 2]);
    let order = r.m.wing_orders()[0].number;
    let id = JobId(100 + order as u32);
    r.event(&n(1), AgentEvent::WingSubmitted { order, job: id });
    r
}

/// The outcome of a snapshot after `secs`.
fn look(r: &mut Rig, secs: i64, configuring: bool) -> StepOutcome {
    let now = r.now + secs;
    r.m.workers.values_mut().for_each(|w| w.last_seen = now);
    let (number, wing) = r.m.wings.iter().next().unwrap();
    let mut wing = job(wing.job.unwrap(), &[n(2)], *number);
    if configuring {
        wing.state.flags.insert("CONFIGURING".to_owned());
    }
    let lead = job(LEAD, &[n(1)], 0);
    let observed =
        ObservedJob { lead: Some(&lead), wings: vec![&wing], read_at: now, ..ObservedJob::default() };
    let mut out = StepOutcome::default();
    r.m.apply_observation(&observed, &settings(), now, &mut out);
    r.m.step(&settings(), now, &mut out);
    out
}

fn cancels(out: &StepOutcome) -> bool {
    out.effects.iter().any(|e| matches!(e, Effect::CancelWing { .. }))
}

#[test]
fn a_wing_in_its_prolog_is_waited_for_and_its_node_is_not_blamed_while_it_is_prepared() {
    for configuring in [false, true] {
        let mut r = with_wing_in_prolog();
        let early = look(&mut r, 25, configuring);
        assert!(!cancels(&early) && early.strikes.is_empty(), "{early:?}");
        let late = look(&mut r, 101, configuring);
        assert!(cancels(&late), "{late:?}");
        assert_eq!(late.strikes.len(), usize::from(!configuring), "{late:?}");
    }
}

/// The durations of starts that two hellos of a wing report, 57 s after its order.
fn reported_starts(setup_secs: u32) -> Vec<(infill_model::NodeName, f64)> {
    let mut r = with_wing_in_prolog();
    r.m.spec.setup_secs = setup_secs;
    r.now = r.now + 57;
    let id = r.m.wings.values().next().unwrap().job.unwrap();
    let mut reported = Vec::new();
    for _ in 0..2 {
        let hello = crate::AuthenticatedHello {
            node: n(2),
            slurm_job: id,
            address: "n2".to_owned(),
            port: 4000,
            running: None,
            spec: None,
            dialect: infill_api::AgentDialect::present_protocol(),
        };
        let mut out = StepOutcome::default();
        assert!(r.m.handle_hello(hello, r.now, &mut out));
        reported.extend(out.arrived);
    }
    reported
}

#[test]
fn the_duration_of_a_start_is_reported_once() {
    assert_eq!(reported_starts(0), [(n(2), 57.0)]);
    assert_eq!(reported_starts(600), [], "the job has prepared its node");
}
