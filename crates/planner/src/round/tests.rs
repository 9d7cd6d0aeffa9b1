//! The state of rounds: what a snapshot shows, and what has happened since, is in the input of the planner.

use std::sync::Arc;

use super::*;
use infill_model::{
    AllowedSizes, ChangeKind, ChangePause, ExcludedNodes, ExecPlan, GenerationStop, HeldNode, JobDeclaration,
    JobFacts, JobId, JobLocation, JobProgress, JobReasonKind, LiveChange, NodeName, PlanningObjective, Probe,
    ProgramIdentity, ProgressReport, RescaleCosts, RescaleMode, ResizeState, SchedulingState, Snapshot,
    StopOutcome, TurnState, UnixTime, UserEstimate, UserId, WindowCause, WindowEnd, config::Config,
};
use infill_slurm::fake::{FakeSlurm, pending_job};
mod claims;
mod extended;
mod limits;
mod objectives;
mod plans;
mod promises;
pub(super) mod rates;
mod sharing;
mod turns;

const NOW: UnixTime = UnixTime(1_000_000);

/// Four idle nodes; a main job is planned on n4 for ten minutes from now.
fn snapshot() -> Snapshot {
    FakeSlurm::new(4, "infill").edit_snapshot(|world| {
        let mut planned = pending_job(50, 1);
        planned.start_time = Some(NOW + 600);
        planned.scheduled_nodes = vec![NodeName::from("n4")];
        world.jobs.push(planned);
        world.clone()
    })
}

fn round_state() -> RoundState {
    let mut config = Config::default();
    config.slurm.partition = "infill".to_owned();
    config.gaps.leave_secs = 15.0;
    config.daemon.poll_interval_secs = 5.0;
    RoundState::new(Arc::new(config), NOW)
}

/// A job that runs on these nodes, the lead's first.
fn job(id: u32, nodes: &str) -> JobFacts {
    let nodes: Vec<NodeName> = nodes.split_whitespace().map(NodeName::from).collect();
    let held = nodes.iter().map(|n| HeldNode { node: n.clone(), slurm_job: JobId(id) }).collect();
    let lead = nodes.first().cloned();
    JobFacts {
        job: JobId(id),
        user: UserId(1),
        program: ProgramIdentity {
            user: "alice".to_owned(),
            job_name: "bert".to_owned(),
            reported_profile: None,
            places_per_node: 1,
            on_cpus: false,
            exec_plan: ExecPlan::default(),
        },
        sizes: AllowedSizes::Range { min: 1, max: 4 },
        declaration: JobDeclaration::default(),
        scheduling_state: if nodes.is_empty() { SchedulingState::Waiting } else { SchedulingState::Running },
        since: NOW,
        waits_since: nodes.is_empty().then_some(NOW),
        running: None,
        location: JobLocation { held, lead_now: lead.clone(), lead, ..JobLocation::default() },
        resize: ResizeState::default(),
        progress: JobProgress::default(),
        submitted_at: NOW,
        excluded: ExcludedNodes::default(),
        ending: false,
    }
}

fn look(state: &mut RoundState, jobs: &[JobFacts]) {
    let mut snapshot = snapshot();
    for held in jobs.iter().flat_map(|j| &j.location.held) {
        let mut ours = pending_job(held.slurm_job.0, 1);
        ours.state = infill_model::JobState::from_base(infill_model::BaseState::Running);
        ours.partition = "infill".to_owned();
        ours.nodes = vec![held.node.clone()];
        snapshot.jobs.push(ours);
    }
    let _ = state.ingest_snapshot(&snapshot, jobs, AdvisorMode::Watch, NOW);
}

/// Each node with its holder, or with the reason why it is not a gap.
fn gaps(input: &RoundInput) -> String {
    let held = input.gaps.gaps.iter().map(|g| {
        let holder = g.holder.map_or("free".to_owned(), |job| job.to_string());
        format!("{}: {holder}", g.node)
    });
    let refused = input.gaps.refused.iter().map(|(node, why)| format!("{node}: {why}"));
    held.chain(refused).collect::<Vec<_>>().join("\n")
}

#[test]
fn changes_since_the_snapshot_are_in_the_input() {
    let mut state = round_state();
    look(&mut state, &[job(1, "n1 n2"), job(2, "")]);
    let unchanged = state.round_input(&[job(1, "n1 n2"), job(2, "")], RoundConstraints::FREE, NOW);
    insta::assert_snapshot!(gaps(&unchanged), @r"
    n1: 1
    n2: 1
    n3: free
    n4: free
    ");
    let mut first = job(1, "n1");
    let second = job(2, "n3");
    first.location.leaving_nodes = vec![NodeName::from("n2")];
    first.location.reclaimed_nodes = vec![NodeName::from("n1")];
    let moved = state.round_input(&[first, second], RoundConstraints::FREE, NOW);
    insta::assert_snapshot!(gaps(&moved), @r"
    n3: 2
    n4: free
    n1: Slurm is taking it back
    n2: job 1 is just leaving it
    ");
}

#[test]
fn nodes_that_an_ending_job_leaves_are_free_only_after_the_next_snapshot() {
    let mut state = round_state();
    look(&mut state, &[job(1, "n1 n2"), job(2, "")]);
    let ending = JobFacts { ending: true, ..job(1, "n1 n2") };
    let input = state.round_input(&[ending.clone(), job(2, "")], RoundConstraints::FREE, NOW);
    assert_eq!(input.jobs.iter().map(|j| j.id).collect::<Vec<_>>(), [JobId(2)]);
    assert_eq!(gaps(&input), "n1: 1\nn2: 1\nn3: free\nn4: free");
    look(&mut state, &[ending, job(2, "")]);
    assert_eq!(
        gaps(&state.round_input(&[job(2, "")], RoundConstraints::FREE, NOW)),
        "n1: free\nn2: free\nn3: free\nn4: free"
    );
}

/// A part of a malleable job that has ended and is cleaned up on this node.
fn cleans_up(id: u32, node: &str) -> infill_model::Job {
    let mut ours = pending_job(id, 1);
    ours.state = infill_model::JobState::from_base(infill_model::BaseState::Completed);
    ours.state.flags.insert("COMPLETING".to_owned());
    ours.partition = "infill".to_owned();
    ours.nodes = vec![NodeName::from(node)];
    ours
}

#[test]
fn a_node_stays_promised_while_another_malleable_job_is_cleaned_up_there() {
    let mut state = round_state();
    let coming = [JobFacts { scheduling_state: SchedulingState::Busy, ..job(2, "n2 n3") }];
    let mut snapshot = snapshot();
    snapshot.jobs.extend([cleans_up(71, "n1"), cleans_up(72, "n3")]);
    let mut taken = snapshot.clone();
    let _ = state.ingest_snapshot(&snapshot, &coming, AdvisorMode::Watch, NOW);
    let input = state.round_input(&coming, RoundConstraints::FREE, NOW);
    assert_eq!(gaps(&input), "n2: 2\nn3: 2\nn4: free\nn1: job 71 of ours is still cleaning up on it");
    let plan = input.solve_plan(&Config::default());
    assert_eq!(plan.job_plan(JobId(2)).map(|j| j.nodes.len()), Some(2), "its second node is still its own");
    taken.jobs.iter_mut().filter(|j| j.id == JobId(72)).for_each(|j| {
        j.start_time = Some(NOW + -60);
        j.preempt_time = Some(NOW + -1);
    });
    let _ = state.ingest_snapshot(&taken, &coming, AdvisorMode::Watch, NOW);
    let input = state.round_input(&coming, RoundConstraints::FREE, NOW);
    assert!(gaps(&input).contains("n3: job 72 of ours is still cleaning up on it"), "a main job comes now");
}

#[test]
fn without_a_trusted_snapshot_nothing_grows_and_no_job_leaves() {
    let mut state = round_state();
    look(&mut state, &[job(1, "n1")]);
    let until = |q: &RoundInput, node: &str| q.gaps.get(&NodeName::from(node)).unwrap().usable_until;
    let now = state.round_input(&[job(1, "n1")], RoundConstraints::FREE, NOW);
    let doubted = RoundConstraints { snapshot_is_trusted: false, ..RoundConstraints::FREE };
    let later = state.round_input(&[job(1, "n1")], doubted, NOW + 100);
    assert!(now.may_grow && !later.may_grow);
    assert_eq!(later.notes, ["no trusted snapshot: nothing is started or grown"]);
    assert_eq!(until(&later, "n1"), until(&now, "n1") + 100, "nothing is planned there");
    assert_eq!(until(&later, "n4"), until(&now, "n4"), "a planned start stays planned");
}

#[test]
fn windows_are_left_as_early_as_leaving_took() {
    let mut state = round_state();
    look(&mut state, &[]);
    let gap = state.gaps().get(&NodeName::from("n4")).cloned().unwrap();
    assert_eq!(gap.end, WindowEnd::Known { at: NOW + 600, cause: WindowCause::PlannedJob(JobId(50)) });
    let secs = (NOW + 600).secs_since(gap.vacate_by.unwrap());
    assert_eq!(secs, 20.0, "as configured, and a round");
}

/// Seconds before the planned start on n4 at which a job must leave it.
fn leaves_n4(state: &mut RoundState, job: &JobFacts) -> f64 {
    look(state, std::slice::from_ref(job));
    let gap = state.gaps().get(&NodeName::from("n4")).cloned().unwrap();
    (NOW + 600).secs_since(gap.vacate_by.unwrap())
}

/// A job on n4 with this profile and grace time.
fn of_profile(id: u32, profile: &str, grace_secs: f64) -> JobFacts {
    let mut facts = job(id, "n4");
    facts.program.reported_profile = Some((profile.to_owned(), Default::default()));
    facts.declaration.grace_secs = Some(grace_secs);
    facts
}

fn stops(state: &mut RoundState, job: &JobFacts, secs: f64, count: u64) {
    let key = state.profile_key(&job.program, job.location.lead_now.as_ref());
    for generation in 1..=count {
        let stop = GenerationStop { job: job.job, generation, secs, end: StopOutcome::Saved };
        state.record_stop(&key, &stop, true, NOW);
    }
}

#[test]
fn each_job_leaves_in_the_time_that_its_program_takes() {
    let mut state = round_state();
    let fast = of_profile(1, "fast", 60.0);
    let slow = of_profile(2, "slow", 60.0);
    assert_eq!(leaves_n4(&mut state, &fast), 68.0, "it was never stopped: all of its grace time");
    stops(&mut state, &fast, 1.0, 5);
    assert_eq!(leaves_n4(&mut state, &fast), 20.0, "at least as configured");
    assert_eq!(leaves_n4(&mut state, &slow), 68.0, "stops of another program do not count");
    stops(&mut state, &slow, 20.0, 1);
    assert_eq!(leaves_n4(&mut state, &slow), 48.0, "twice the only stop, the clean-up's 3 and a round");
    assert_eq!(leaves_n4(&mut state, &of_profile(3, "slow", 30.0)), 38.0, "then it is killed");
    let waiting = JobFacts { declaration: JobDeclaration::default(), ..job(4, "n4") };
    assert_eq!(leaves_n4(&mut state, &waiting), 32.0, "a sixth more than the longest of its owner's stops");
}

/// Seconds before a planned start on all nodes at which each of four jobs on one node each must leave, and
/// the words about leaving for the first of them.
fn leaves_with_others(state: &mut RoundState, jobs: &[JobFacts], now: UnixTime) -> (Vec<f64>, String) {
    let mut snapshot = snapshot();
    snapshot
        .jobs
        .iter_mut()
        .for_each(|j| j.scheduled_nodes = (1..=4).map(|n| NodeName::new(format!("n{n}"))).collect());
    let _ = state.ingest_snapshot(&snapshot, jobs, AdvisorMode::Watch, now);
    (
        state.gaps().gaps.iter().map(|gap| (NOW + 600).secs_since(gap.vacate_by.unwrap())).collect(),
        state.describe_leaving(&jobs[0]),
    )
}

/// Jobs on n1 to n4 that took 20 s to save when each was stopped alone.
fn four_jobs(state: &mut RoundState) -> Vec<JobFacts> {
    let jobs: Vec<JobFacts> = (1..=4)
        .map(|id: u32| JobFacts {
            location: job(id, &format!("n{id}")).location,
            ..of_profile(id, "x", 300.0)
        })
        .collect();
    look(state, &jobs);
    for (generation, at) in (1..=10).map(|n| (n, NOW + -10_000 + n as i64 * 100)) {
        let stop = GenerationStop { job: JobId(1), generation, secs: 20.0, end: StopOutcome::Saved };
        let key = state.profile_key(&jobs[0].program, Some(&NodeName::from("n1")));
        state.record_stop(&key, &stop, true, at);
    }
    jobs
}

#[test]
fn jobs_leave_together_earlier_until_their_saves_prove_not_to_slow_each_other_down() {
    let mut state = round_state();
    let jobs = four_jobs(&mut state);
    let (secs, words) = leaves_with_others(&mut state, &jobs, NOW);
    assert_eq!(secs, [96.0; 4], "22 s each in a row, the clean-up's 3 and a round");
    insta::assert_snapshot!(words.split(';').next().unwrap(), @"leaves a node 96 s before the main queue needs it, 66 s of them because others will save at the same time: 22 s are for saving, based on its last 10 stops");
    let mut as_if_alone = Config::default();
    as_if_alone.slurm.partition = "infill".to_owned();
    as_if_alone.gaps.contention_secs = 0.0;
    let mut other = RoundState::new(Arc::new(as_if_alone), NOW);
    let same = four_jobs(&mut other);
    assert_eq!(leaves_with_others(&mut other, &same, NOW).0, [30.0; 4]);
    // Some crowds later.
    for (crowd, job) in (1..8).flat_map(|crowd| jobs.iter().map(move |job| (crowd, job))) {
        let stop =
            GenerationStop { job: job.job, generation: 20 + crowd, secs: 20.0, end: StopOutcome::Saved };
        let key = state.profile_key(&job.program, job.location.lead_now.as_ref());
        state.record_stop(&key, &stop, true, NOW + (crowd as i64 - 9) * 100);
    }
    let (secs, words) = leaves_with_others(&mut state, &jobs, NOW);
    assert_eq!(secs, [29.0; 4]);
    assert!(words.starts_with("leaves a node 29 s before the main queue needs it: "), "{words}");
}

#[test]
fn no_job_starts_where_all_that_may_start_would_leave_late() {
    let mut state = round_state();
    let mut jobs = four_jobs(&mut state);
    jobs.iter_mut()
        .skip(1)
        .for_each(|j| (j.location, j.scheduling_state) = (JobLocation::default(), SchedulingState::Waiting));
    let (secs, _) = leaves_with_others(&mut state, &jobs, NOW);
    assert_eq!(secs, [30.0, 96.0, 96.0, 96.0], "the holder of n1 leaves alone");
    // Others may take its node over only while all of them could leave it in time.
    let excluded = |at: UnixTime| {
        let jobs = state.round_input(&jobs, RoundConstraints::FREE, at).jobs;
        jobs.iter().map(|j| j.excluded.iter().any(|n| n.as_str() == "n1")).collect::<Vec<_>>()
    };
    assert_eq!(excluded(NOW + 400), [false; 4]);
    assert_eq!(excluded(NOW + 450), [false, true, true, true]);
}

#[test]
fn a_job_that_left_and_saves_still_delays_the_next_one() {
    let mut state = round_state();
    let mut jobs = four_jobs(&mut state);
    jobs.truncate(2);
    assert_eq!(leaves_with_others(&mut state, &jobs, NOW).0[1], 52.0);
    jobs[0].location = JobLocation { leaving_nodes: vec![NodeName::from("n1")], ..JobLocation::default() };
    assert_eq!(leaves_with_others(&mut state, &jobs, NOW).0[1], 30.0, "it will be done long before");
    // By then no job starts on the other nodes any more.
    assert_eq!(leaves_with_others(&mut state, &jobs, NOW + 555).0, [52.0]);
}

#[test]
fn a_job_that_loses_its_checkpoints_is_changed_less_often() {
    let mut state = round_state();
    let mut facts = of_profile(1, "loses", 5.0);
    facts.running = Some(1);
    facts.since = NOW + -100;
    facts.resize.last_at = Some(NOW + -100);
    look(&mut state, std::slice::from_ref(&facts));
    let asked_for = |state: &RoundState| {
        let job = state.round_input(std::slice::from_ref(&facts), RoundConstraints::FREE, NOW).jobs.remove(0);
        (job.stay_secs, job.costs.up_secs, job.costs.start_secs)
    };
    assert_eq!(asked_for(&state), (0.0, 18.0, 18.0));
    let key = state.profile_key(&facts.program, facts.location.lead_now.as_ref());
    for generation in 1..=2 {
        let stop = GenerationStop { job: facts.job, generation, secs: 5.0, end: StopOutcome::Killed };
        state.record_stop(&key, &stop, true, NOW);
    }
    // In three of four cases it loses the 100 s since its last change.
    assert_eq!(asked_for(&state), (180.0, 93.0, 18.0));
}

#[test]
fn a_job_that_leaves_slowly_does_not_start_in_a_window_too_short_for_it() {
    let mut state = round_state();
    let mut slow = of_profile(2, "slow", 540.0);
    slow.location = JobLocation::default();
    slow.scheduling_state = SchedulingState::Waiting;
    let quick = JobFacts {
        declaration: JobDeclaration { grace_secs: Some(10.0), ..JobDeclaration::default() },
        ..job(1, "n1")
    };
    look(&mut state, &[quick.clone(), slow.clone()]);
    let input = state.round_input(&[quick, slow], RoundConstraints::FREE, NOW);
    let excluded: Vec<_> = input.jobs.iter().map(|j| j.excluded.to_vec()).collect();
    assert_eq!(excluded, [vec![], vec![NodeName::from("n4")]]);
}

#[test]
fn a_node_with_strikes_is_not_a_gap_unless_a_job_is_on_it() {
    let mut state = round_state();
    for node in ["n1", "n2"] {
        state.breaker_mut().trip_node(&NodeName::from(node), "a wing did not come up", NOW);
    }
    look(&mut state, &[job(1, "n1")]);
    insta::assert_snapshot!(gaps(&state.round_input(&[job(1, "n1")], RoundConstraints::FREE, NOW)), @r"
    n1: 1
    n3: free
    n4: free
    n2: left alone until 1970-01-12T13:47:10Z (circuit breaker): a wing did not come up
    ");
}

#[test]
fn a_present_pause_is_not_a_cost_of_a_further_change() {
    let mut state = round_state();
    let mut paused = job(1, "n1");
    paused.resize.pause = Some(ChangePause { since: NOW + -10, change: ChangeKind::Grow });
    look(&mut state, std::slice::from_ref(&paused));
    let costs = |job: &JobFacts| {
        state.round_input(std::slice::from_ref(job), RoundConstraints::FREE, NOW).jobs[0].costs
    };
    // 18 s to grow, 12 s to shrink, as configured; 8 s of the last change are left.
    let whole = costs(&job(1, "n1"));
    let less = costs(&paused);
    assert_eq!((whole.up_secs, whole.down_secs), (18.0, 12.0));
    assert_eq!((less.up_secs, less.down_secs, less.start_secs), (10.0, 4.0, 10.0));
}

#[test]
fn a_job_that_stays_alive_pays_for_changes_what_they_cost_alive() {
    let mut state = round_state();
    let alive = JobFacts {
        resize: ResizeState { mode: RescaleMode::Live, ..ResizeState::default() },
        ..job(1, "n1")
    };
    look(&mut state, std::slice::from_ref(&alive));
    let costs = |state: &RoundState, job: &JobFacts| {
        let costs = state.round_input(std::slice::from_ref(job), RoundConstraints::FREE, NOW).jobs[0].costs;
        (costs.up_secs, costs.down_secs, costs.start_secs)
    };
    assert_eq!(costs(&state, &alive), (3.0, 2.0, 18.0), "as configured");
    let key = state.profile_key(&alive.program, Some(&NodeName::from("n1")));
    state.job_advisor_mut().record_live_change(&key, &LiveChange { from: 1, to: 2, secs: 0.5 }, NOW);
    assert_eq!(costs(&state, &alive), (0.5, 0.5, 18.0), "as measured");
    assert_eq!(costs(&state, &job(1, "n1")), (18.0, 12.0, 18.0), "another job may run something else");
    assert_eq!(
        state.describe_rescale(&alive),
        "its processes stay alive: 0.5 s to grow, 0.5 s to shrink, 18 s to start"
    );
}

#[test]
fn a_waiting_job_has_the_profile_key_of_the_last_job_of_its_name_on_the_usual_type() {
    let mut state = round_state();
    let waiting = job(2, "").program;
    assert_eq!(state.profile_key(&waiting, None).node_type.as_str(), "", "before the first snapshot");
    look(&mut state, &[job(1, "n1")]);
    let usual = state.profile_key(&waiting, None);
    assert_eq!(usual.node_type, state.profile_key(&waiting, Some(&NodeName::from("n1"))).node_type);
    assert_eq!((usual.user.as_str(), usual.name.as_str()), ("alice", ""));
    let reported =
        ProgramIdentity { reported_profile: Some(("bert-large".to_owned(), Default::default())), ..waiting };
    assert_eq!(state.profile_key(&reported, None).name, "bert-large");
}

#[test]
fn a_size_that_the_advisor_wants_measured_is_called_a_probe_also_in_the_report() {
    let mut state = round_state();
    let mut facts = JobFacts { running: Some(8), ..job(1, "n1 n2 n3 n4 n5 n6 n7 n8") };
    facts.sizes = AllowedSizes::Range { min: 1, max: 8 };
    facts.declaration.costs = Some(RescaleCosts { up_secs: 2.0, down_secs: 2.0, start_secs: 2.0 });
    let snapshot = FakeSlurm::new(8, "infill").edit_snapshot(|world| world.clone());
    let _ = state.ingest_snapshot(&snapshot, std::slice::from_ref(&facts), AdvisorMode::Watch, NOW);
    let key = state.profile_key(&facts.program, facts.location.lead_now.as_ref());
    let node = NodeName::from("n1");
    let progress = ProgressReport {
        generation: 1,
        nodes: 8,
        hosts: 8,
        crosses: false,
        node: &node,
        samples: 50.0,
        secs: 1.0,
        step: None,
        startup: None,
    };
    for secs in 1..=60 {
        let _ = state.record_progress(JobId(1), &key, &progress, NOW + secs);
    }
    let now = NOW + 60;
    let _ = state.ingest_snapshot(&snapshot, std::slice::from_ref(&facts), AdvisorMode::Probe, now);
    let Some(nodes) = state.job_advisor().probe_size(JobId(1)) else {
        panic!("no size is worth trying: {}", state.job_advisor().describe_job(JobId(1)));
    };
    let probe = Some(Probe { nodes, with: None });
    let config = Config::default();
    let input = state.round_input(std::slice::from_ref(&facts), RoundConstraints::FREE, now);
    assert_eq!(input.jobs[0].probe, probe);
    let checked = check_solved_plan(&input, &config, Ok(input.solve_plan(&config))).unwrap();
    let planned = &checked.plan.jobs[0];
    assert_eq!((planned.nodes.len(), &planned.probe), (nodes as usize, &probe));
    let report = input.explain_plan(&config, &checked.plan);
    assert_eq!(report.jobs[0].why.kind(), JobReasonKind::Probes);
    // While it waits, it is raised at every size.
    let waits = JobFacts { waits_since: Some(NOW), ..facts };
    assert_eq!(state.round_input(&[waits], RoundConstraints::FREE, now).jobs[0].probe, None);
}
