//! Repeated inputs, and inputs that contradict earlier ones.

use infill_model::{AgentEvent, BaseState, JobId, MalleableState, NodeName, SchedulingState, WorkerStartup};

use super::rig::{DONE, LEAD, Rig, WING, fleet, n};

/// Asserts that a second identical input neither changes the job nor has consequences.
#[track_caller]
fn assert_idempotent(rig: &mut Rig, again: impl Fn(&mut Rig) -> Option<super::super::FleetOutcome>) {
    drop(again(rig));
    let before = rig.fleet.job_lifecycle(LEAD).cloned();
    let out = again(rig).expect("it has a place");
    assert_eq!(rig.fleet.job_lifecycle(LEAD).cloned(), before);
    assert!(out.changed.is_empty() && out.batches.is_empty() && out.generations.is_empty(), "{out:?}");
    assert!(out.strikes.is_empty() && out.interrupted.is_empty(), "{out:?}");
}

#[test]
fn a_repeated_input_changes_nothing() {
    let submitted = AgentEvent::WingSubmitted { order: 1, job: WING };
    assert_idempotent(&mut fleet("starting n1 n2"), |r| r.report(LEAD, &n(1), submitted.clone()));
    assert_idempotent(&mut fleet("running n1 n2"), |r| r.report(LEAD, &n(1), AgentEvent::Leaving));
    assert_idempotent(&mut fleet("running n1 n2"), |r| r.hello(LEAD, LEAD, &n(1), Some(1)));
    assert_idempotent(&mut fleet("starting n1 n2"), |r| r.hello(LEAD, LEAD, &n(1), None));
    for phase in ["queued", "launching", "starting", "running", "shrinking", "parking", "ending"] {
        let mut rig = fleet(&format!("{phase} n1 n2"));
        assert_idempotent(&mut rig, |r| Some(r.target(LEAD, &[n(1), n(2)])));
    }
}

/// State and node of the lead after a snapshot that shows it on these nodes, or waiting.
fn after_snapshot(nodes: &[NodeName]) -> (MalleableState, Option<NodeName>) {
    let mut rig = fleet("running n1 n2");
    rig.slurm.get_mut(&LEAD).unwrap().nodes = nodes.to_vec();
    drop(rig.look());
    let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
    (lifecycle.malleable_state(), lifecycle.lead_node().cloned())
}

#[test]
fn slurm_decides_whether_a_lead_waits_and_its_agent_where_it_runs() {
    assert_eq!(after_snapshot(&[]), (MalleableState::Queued, None), "its agent cannot have been asked since");
    assert_eq!(after_snapshot(&[n(1)]), (MalleableState::Running, Some(n(1))));
    // Another node in Slurm does not count: the lead stays with the agent that said hello last.
    assert_eq!(after_snapshot(&[n(6)]), (MalleableState::Running, Some(n(1))));
}

#[test]
fn a_snapshot_from_before_the_agents_hello_does_not_count() {
    let mut rig = fleet("launching n1");
    let read_at = rig.now;
    let mut snapshot = rig.snapshot();
    snapshot.jobs.iter_mut().for_each(|job| *job = infill_model::Job { held: true, ..pending(job.id) });
    drop(rig.hello(LEAD, LEAD, &n(1), None));
    drop(rig.fleet.ingest_snapshot(&snapshot, read_at, rig.now));
    assert_ne!(rig.fleet.job_lifecycle(LEAD).unwrap().malleable_state(), MalleableState::Queued);
}

fn pending(id: JobId) -> infill_model::Job {
    super::rig::job(id, &super::rig::Shown { lead: id, order: 0, nodes: Vec::new() })
}

#[test]
fn the_reason_of_an_ended_job_is_its_end_and_not_its_last_plan() {
    let why = |rig: &Rig| rig.fleet.job_details(LEAD).unwrap().why.clone();
    let mut rig = fleet("running n1 n2");
    drop(rig.stopped(LEAD, &n(1), DONE));
    drop(rig.stopped(LEAD, &n(2), DONE));
    assert_eq!(why(&rig), "its command has ended with code 0");
    for (state, want) in [(BaseState::Completed, "has completed"), (BaseState::Cancelled, "was cancelled")] {
        let mut rig = fleet("running n1 n2");
        let mut snapshot = rig.snapshot();
        snapshot.jobs.iter_mut().filter(|j| j.id == LEAD).for_each(|j| j.state.base = state.clone());
        drop(rig.look_at(snapshot));
        assert_eq!(why(&rig), want);
    }
    let mut rig = fleet("running n1 n2");
    let mut snapshot = rig.snapshot();
    snapshot.jobs.retain(|j| j.id != LEAD);
    drop(rig.look_at(snapshot));
    assert_eq!(why(&rig), "has ended; Slurm no longer knows how");
}

#[test]
fn a_pause_lasts_from_the_stop_until_the_first_samples() {
    let pause = |rig: &Rig| rig.fleet.facts_for_job(LEAD, rig.now).unwrap().resize.pause;
    let mut rig = fleet("running n1 n2");
    assert!(pause(&rig).is_some(), "it was launched a moment ago");
    let mut first = super::rig::progress();
    if let AgentEvent::Progress { startup, .. } = &mut first {
        *startup = Some(WorkerStartup::default());
    }
    drop(rig.report(LEAD, &n(1), first));
    assert_eq!(pause(&rig), None);
}

#[test]
fn a_reused_job_id_of_another_user_inherits_nothing() {
    let mut rig = fleet("running n1 n2");
    let stored = rig.fleet.lead_record(LEAD, rig.now).unwrap();
    // In the middle of its life, and after a restart of the daemon: the record contains the owner.
    let mut restored = super::rig::empty();
    restored.slurm = rig.slurm.clone();
    drop(restored.fleet.restore_jobs(vec![stored], restored.now));
    for mut rig in [rig.clone(), restored] {
        let mut snapshot = rig.snapshot();
        let lead = snapshot.jobs.iter_mut().find(|j| j.id == LEAD).unwrap();
        *lead = infill_model::Job { user_id: infill_model::UserId(1002), ..pending(LEAD) };
        let (out, _) = rig.fleet.ingest_snapshot(&snapshot, rig.now, rig.now);
        assert_eq!(out.ended.iter().map(|e| e.job).collect::<Vec<_>>(), [LEAD], "the former job is over");
        let lifecycle = rig.fleet.job_lifecycle(LEAD).unwrap();
        assert_eq!((lifecycle.malleable_state(), lifecycle.generation.number), (MalleableState::Queued, 0));
        assert!(lifecycle.workers.is_empty() && !rig.fleet.has_agent(&(LEAD, n(1))));
        assert_eq!(rig.fleet.agent_owner(LEAD), Some(infill_model::UserId(1002)));
        // The former user's wing has no lead any more.
        let wing = crate::Effect::CancelWing { job: WING };
        assert!(out.batches.iter().any(|b| b.effects.contains(&wing)), "{out:?}");
    }
    // The same user's job that was requeued is the same job.
    let number = rig.fleet.job_lifecycle(LEAD).unwrap().generation.number;
    drop(rig.look());
    assert_eq!(rig.fleet.job_lifecycle(LEAD).unwrap().generation.number, number);
}

/// A failed start does not end the wait. Otherwise a job that is called back repeatedly would wait forever
/// behind jobs that train.
#[test]
fn a_job_that_is_called_back_has_waited_without_a_break() {
    let mut r = fleet("queued");
    let waits_since = |r: &Rig| r.fleet.facts_for_job(LEAD, r.now).unwrap().waits_since;
    drop(r.look());
    let began = waits_since(&r);
    assert!(began.is_some());
    drop(r.target(LEAD, &[n(1)]));
    assert_eq!(waits_since(&r), None, "it was launched");
    drop(r.target(LEAD, &[]));
    drop(r.look());
    drop(r.look());
    assert_eq!(r.fleet.facts_for_job(LEAD, r.now).unwrap().scheduling_state, SchedulingState::Waiting);
    assert_eq!(waits_since(&r), began);
    for _ in 0..2 {
        drop(r.target(LEAD, &[n(1)]));
        r.run();
    }
    drop(r.look());
    assert_eq!(r.fleet.facts_for_job(LEAD, r.now).unwrap().running, Some(1));
    assert_eq!(waits_since(&r), None);
}

/// The samples of the job, and how often progress was passed on, after reports with these numbers.
fn counted_samples(numbers: &[Option<u64>]) -> (f64, usize) {
    let mut rig = fleet("running n1 n2");
    let generation = rig.fleet.job_lifecycle(LEAD).unwrap().generation.number;
    let mut passed_on = 0;
    for number in numbers {
        let event = AgentEvent::Progress {
            generation,
            samples: 10.0,
            secs: 1.0,
            step: None,
            loss: None,
            total: None,
            weight: None,
            startup: None,
        };
        let out = rig.numbered_report(LEAD, &n(1), event, *number).expect("it has a place");
        passed_on += out.progress.len();
    }
    (rig.fleet.job_lifecycle(LEAD).unwrap().counts.progress.samples, passed_on)
}

#[test]
fn progress_whose_answer_was_lost_counts_once() {
    assert_eq!(counted_samples(&[Some(7), Some(7)]), (10.0, 1));
    assert_eq!(counted_samples(&[Some(7), Some(8), Some(8)]), (20.0, 2));
    // Another process of the agent begins anywhere.
    assert_eq!(counted_samples(&[Some(7), Some(3)]), (20.0, 2));
    assert_eq!(counted_samples(&[None, None]), (20.0, 2), "an older agent");
}
