//! The scene: what a look takes in, and what has happened since is in the question.

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

fn scene() -> RoundState {
    let mut config = Config::default();
    config.slurm.partition = "infill".to_owned();
    (config.gaps.leave_secs, config.daemon.poll_interval_secs) = (15.0, 5.0);
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
            told: None,
            block: 1,
            on_cpus: false,
            exec_plan: ExecPlan::default(),
        },
        sizes: AllowedSizes::Range { min: 1, max: 4 },
        claims: JobDeclaration::default(),
        standing: if nodes.is_empty() { SchedulingState::Waiting } else { SchedulingState::Running },
        since: NOW,
        waits_since: nodes.is_empty().then_some(NOW),
        running: None,
        place: JobLocation { held, lead_now: lead.clone(), lead, ..JobLocation::default() },
        changing: ResizeState::default(),
        course: JobProgress::default(),
        submitted_at: NOW,
        excluded: ExcludedNodes::default(),
        ending: false,
    }
}

fn look(scene: &mut RoundState, jobs: &[JobFacts]) {
    let mut snapshot = snapshot();
    for held in jobs.iter().flat_map(|j| &j.place.held) {
        let mut ours = pending_job(held.slurm_job.0, 1);
        ours.state = infill_model::JobState::from_base(infill_model::BaseState::Running);
        (ours.partition, ours.nodes) = ("infill".to_owned(), vec![held.node.clone()]);
        snapshot.jobs.push(ours);
    }
    let _ = scene.ingest_snapshot(&snapshot, jobs, AdvisorMode::Watch, NOW);
}

/// Each node with who holds it, or why it is no gap.
fn gaps(question: &RoundInput) -> String {
    let held = question.gaps.gaps.iter().map(|g| {
        let holder = g.holder.map_or("free".to_owned(), |job| job.to_string());
        format!("{}: {holder}", g.node)
    });
    let refused = question.gaps.refused.iter().map(|(node, why)| format!("{node}: {why}"));
    held.chain(refused).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_has_happened_since_the_look_is_in_the_question() {
    let mut scene = scene();
    look(&mut scene, &[job(1, "n1 n2"), job(2, "")]);
    let unchanged = scene.round_input(&[job(1, "n1 n2"), job(2, "")], RoundConstraints::FREE, NOW);
    insta::assert_snapshot!(gaps(&unchanged), @r"
    n1: 1
    n2: 1
    n3: free
    n4: free
    ");
    let mut first = job(1, "n1");
    let second = job(2, "n3");
    (first.place.left, first.place.taken) = (vec![NodeName::from("n2")], vec![NodeName::from("n1")]);
    let moved = scene.round_input(&[first, second], RoundConstraints::FREE, NOW);
    insta::assert_snapshot!(gaps(&moved), @r"
    n3: 2
    n4: free
    n1: Slurm is taking it back
    n2: job 1 is just leaving it
    ");
}

#[test]
fn what_a_job_leaves_that_has_ended_is_nobody_s_yet() {
    let mut scene = scene();
    look(&mut scene, &[job(1, "n1 n2"), job(2, "")]);
    let ending = JobFacts { ending: true, ..job(1, "n1 n2") };
    let question = scene.round_input(&[ending.clone(), job(2, "")], RoundConstraints::FREE, NOW);
    assert_eq!(question.jobs.iter().map(|j| j.id).collect::<Vec<_>>(), [JobId(2)]);
    assert_eq!(gaps(&question), "n1: 1\nn2: 1\nn3: free\nn4: free");
    look(&mut scene, &[ending, job(2, "")]);
    assert_eq!(
        gaps(&scene.round_input(&[job(2, "")], RoundConstraints::FREE, NOW)),
        "n1: free\nn2: free\nn3: free\nn4: free"
    );
}

/// A part of a malleable job that has ended and cleans up on this node.
fn cleans_up(id: u32, node: &str) -> infill_model::Job {
    let mut ours = pending_job(id, 1);
    ours.state = infill_model::JobState::from_base(infill_model::BaseState::Completed);
    ours.state.flags.insert("COMPLETING".to_owned());
    (ours.partition, ours.nodes) = ("infill".to_owned(), vec![NodeName::from(node)]);
    ours
}

#[test]
fn a_node_stays_promised_while_another_part_of_ours_cleans_up_there() {
    let mut scene = scene();
    let coming = [JobFacts { standing: SchedulingState::Busy, ..job(2, "n2 n3") }];
    let mut snapshot = snapshot();
    snapshot.jobs.extend([cleans_up(71, "n1"), cleans_up(72, "n3")]);
    let mut taken = snapshot.clone();
    let _ = scene.ingest_snapshot(&snapshot, &coming, AdvisorMode::Watch, NOW);
    let question = scene.round_input(&coming, RoundConstraints::FREE, NOW);
    assert_eq!(gaps(&question), "n2: 2\nn3: 2\nn4: free\nn1: job 71 of ours is still cleaning up on it");
    let plan = question.solve_plan(&Config::default());
    assert_eq!(plan.job_plan(JobId(2)).map(|j| j.nodes.len()), Some(2), "its second node is still its own");
    taken.jobs.iter_mut().filter(|j| j.id == JobId(72)).for_each(|j| {
        (j.start_time, j.preempt_time) = (Some(NOW + -60), Some(NOW + -1));
    });
    let _ = scene.ingest_snapshot(&taken, &coming, AdvisorMode::Watch, NOW);
    let question = scene.round_input(&coming, RoundConstraints::FREE, NOW);
    assert!(gaps(&question).contains("n3: job 72 of ours is still cleaning up on it"), "a main job comes");
}

#[test]
fn without_a_trusted_snapshot_nothing_may_grow_and_doubt_makes_nobody_leave() {
    let mut scene = scene();
    look(&mut scene, &[job(1, "n1")]);
    let until = |q: &RoundInput, node: &str| q.gaps.get(&NodeName::from(node)).unwrap().usable_until;
    let now = scene.round_input(&[job(1, "n1")], RoundConstraints::FREE, NOW);
    let doubted = RoundConstraints { trusted: false, ..RoundConstraints::FREE };
    let later = scene.round_input(&[job(1, "n1")], doubted, NOW + 100);
    assert!(now.may_grow && !later.may_grow);
    assert_eq!(later.notes, ["no trusted snapshot: nothing is started or grown"]);
    assert_eq!(until(&later, "n1"), until(&now, "n1") + 100, "nothing is planned there");
    assert_eq!(until(&later, "n4"), until(&now, "n4"), "what is planned stays planned");
}

#[test]
fn windows_are_left_by_what_leaving_has_taken() {
    let mut scene = scene();
    let leave_by = |scene: &mut RoundState| {
        look(scene, &[]);
        let gap = scene.gaps().get(&NodeName::from("n4")).cloned().unwrap();
        assert_eq!(gap.end, WindowEnd::Known { at: NOW + 600, cause: WindowCause::PlannedJob(JobId(50)) });
        (NOW + 600).secs_since(gap.vacate_by.unwrap())
    };
    assert_eq!(leave_by(&mut scene), 20.0, "as configured, and a round");
}

/// Seconds before the planned start on n4 at which a job must leave it.
fn leaves_n4(scene: &mut RoundState, job: &JobFacts) -> f64 {
    look(scene, std::slice::from_ref(job));
    let gap = scene.gaps().get(&NodeName::from("n4")).cloned().unwrap();
    (NOW + 600).secs_since(gap.vacate_by.unwrap())
}

/// A job on n4 with this profile and grace time.
fn of_profile(id: u32, profile: &str, grace_secs: f64) -> JobFacts {
    let mut facts = job(id, "n4");
    facts.program.told = Some((profile.to_owned(), Default::default()));
    facts.claims.grace_secs = Some(grace_secs);
    facts
}

fn stops(scene: &mut RoundState, job: &JobFacts, secs: f64, count: u64) {
    let key = scene.profile_key(&job.program, job.place.lead_now.as_ref());
    for generation in 1..=count {
        let stop = GenerationStop { job: job.job, generation, secs, end: StopOutcome::Saved };
        scene.record_stop(&key, &stop, true, NOW);
    }
}

#[test]
fn each_job_leaves_in_the_time_that_its_executable_takes() {
    let mut scene = scene();
    let fast = of_profile(1, "fast", 60.0);
    let slow = of_profile(2, "slow", 60.0);
    assert_eq!(leaves_n4(&mut scene, &fast), 68.0, "it was never stopped: all of its grace time");
    stops(&mut scene, &fast, 1.0, 5);
    assert_eq!(leaves_n4(&mut scene, &fast), 20.0, "what is configured is the least");
    assert_eq!(leaves_n4(&mut scene, &slow), 68.0, "the stops of another program say nothing of it");
    stops(&mut scene, &slow, 20.0, 1);
    assert_eq!(leaves_n4(&mut scene, &slow), 48.0, "twice the only stop, the clean-up's 3 and a round");
    assert_eq!(leaves_n4(&mut scene, &of_profile(3, "slow", 30.0)), 38.0, "then it is killed");
    let waiting = JobFacts { claims: JobDeclaration::default(), ..job(4, "n4") };
    assert_eq!(leaves_n4(&mut scene, &waiting), 32.0, "a sixth more than the longest of its owner's stops");
}

/// Seconds before a planned start on all nodes at which each of four jobs of a node each must leave, and what
/// the first is told of it.
fn leaves_with_others(scene: &mut RoundState, jobs: &[JobFacts], now: UnixTime) -> (Vec<f64>, String) {
    let mut snapshot = snapshot();
    snapshot.jobs.iter_mut().for_each(|j: &mut infill_model::Job| {
        j.scheduled_nodes = (1..=4).map(|n| NodeName::new(format!("n{n}"))).collect()
    });
    let _ = scene.ingest_snapshot(&snapshot, jobs, AdvisorMode::Watch, now);
    (
        scene
            .gaps()
            .gaps
            .iter()
            .map(|gap: &infill_model::Gap| (NOW + 600).secs_since(gap.vacate_by.unwrap()))
            .collect(),
        scene.describe_leaving(&jobs[0]),
    )
}

/// Jobs on n1 to n4 that took 20 s to save when each was stopped alone.
fn four_jobs(scene: &mut RoundState) -> Vec<JobFacts> {
    let jobs: Vec<JobFacts> = (1..=4)
        .map(|id: u32| JobFacts { place: job(id, &format!("n{id}")).place, ..of_profile(id, "x", 300.0) })
        .collect();
    look(scene, &jobs);
    for (generation, at) in (1..=10).map(|n| (n, NOW + -10_000 + n as i64 * 100)) {
        let stop = GenerationStop { job: JobId(1), generation, secs: 20.0, end: StopOutcome::Saved };
        let key = scene.profile_key(&jobs[0].program, Some(&NodeName::from("n1")));
        scene.record_stop(&key, &stop, true, at);
    }
    jobs
}

#[test]
fn jobs_that_leave_together_leave_earlier_until_their_saves_are_known_not_to_slow_each_other_down() {
    let mut scene = scene();
    let jobs = four_jobs(&mut scene);
    let (secs, words) = leaves_with_others(&mut scene, &jobs, NOW);
    assert_eq!(secs, [96.0; 4], "22 s each in a row, the clean-up's 3 and a round");
    insta::assert_snapshot!(words.split(';').next().unwrap(), @"leaves a node 96 s before the main queue wants it, 66 s of them because others will save at the same time: 22 s are allowed for saving, by its last 10 stops");
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
        let key = scene.profile_key(&job.program, job.place.lead_now.as_ref());
        scene.record_stop(&key, &stop, true, NOW + (crowd as i64 - 9) * 100);
    }
    let (secs, words) = leaves_with_others(&mut scene, &jobs, NOW);
    assert_eq!(secs, [29.0; 4]);
    assert!(words.starts_with("leaves a node 29 s before the main queue wants it: "), "{words}");
}

#[test]
fn nobody_starts_where_all_who_may_start_there_would_leave_late() {
    let mut scene = scene();
    let mut jobs = four_jobs(&mut scene);
    jobs.iter_mut()
        .skip(1)
        .for_each(|j| (j.place, j.standing) = (JobLocation::default(), SchedulingState::Waiting));
    let (secs, _) = leaves_with_others(&mut scene, &jobs, NOW);
    assert_eq!(secs, [30.0, 96.0, 96.0, 96.0], "n1 is held by one that leaves alone");
    // Others may take its node over only while all of them could leave it in time.
    let excluded = |at: UnixTime| {
        let jobs = scene.round_input(&jobs, RoundConstraints::FREE, at).jobs;
        jobs.iter().map(|j| j.excluded.iter().any(|n| n.as_str() == "n1")).collect::<Vec<_>>()
    };
    assert_eq!(excluded(NOW + 400), [false; 4]);
    assert_eq!(excluded(NOW + 450), [false, true, true, true]);
}

#[test]
fn who_has_left_and_saves_still_holds_up_who_leaves_next() {
    let mut scene = scene();
    let mut jobs = four_jobs(&mut scene);
    jobs.truncate(2);
    assert_eq!(leaves_with_others(&mut scene, &jobs, NOW).0[1], 52.0);
    jobs[0].place = JobLocation { left: vec![NodeName::from("n1")], ..JobLocation::default() };
    assert_eq!(leaves_with_others(&mut scene, &jobs, NOW).0[1], 30.0, "it will be done long before");
    // By then nothing starts on the other nodes any more.
    assert_eq!(leaves_with_others(&mut scene, &jobs, NOW + 555).0, [52.0]);
}

#[test]
fn a_job_that_loses_its_checkpoints_is_left_alone() {
    let mut scene = scene();
    let mut facts = of_profile(1, "loses", 5.0);
    (facts.running, facts.since, facts.changing.last_at) = (Some(1), NOW + -100, Some(NOW + -100));
    look(&mut scene, std::slice::from_ref(&facts));
    let asked = |scene: &RoundState| {
        let job = scene.round_input(std::slice::from_ref(&facts), RoundConstraints::FREE, NOW).jobs.remove(0);
        (job.stay_secs, job.costs.up_secs, job.costs.start_secs)
    };
    assert_eq!(asked(&scene), (0.0, 18.0, 18.0));
    let key = scene.profile_key(&facts.program, facts.place.lead_now.as_ref());
    for generation in 1..=2 {
        let stop = GenerationStop { job: facts.job, generation, secs: 5.0, end: StopOutcome::Killed };
        scene.record_stop(&key, &stop, true, NOW);
    }
    // Three times in four it loses the 100 s since its last change.
    assert_eq!(asked(&scene), (180.0, 93.0, 18.0));
}

#[test]
fn a_job_that_leaves_slowly_does_not_start_in_a_window_too_short_for_it() {
    let mut scene = scene();
    let mut slow = of_profile(2, "slow", 540.0);
    (slow.place, slow.standing) = (JobLocation::default(), SchedulingState::Waiting);
    let quick = JobFacts {
        claims: JobDeclaration { grace_secs: Some(10.0), ..JobDeclaration::default() },
        ..job(1, "n1")
    };
    look(&mut scene, &[quick.clone(), slow.clone()]);
    let question = scene.round_input(&[quick, slow], RoundConstraints::FREE, NOW);
    let excluded: Vec<_> = question.jobs.iter().map(|j| j.excluded.to_vec()).collect();
    assert_eq!(excluded, [vec![], vec![NodeName::from("n4")]]);
}

#[test]
fn a_node_with_strikes_is_no_gap_unless_a_job_is_on_it() {
    let mut scene = scene();
    for node in ["n1", "n2"] {
        scene.breaker_mut().trip_node(&NodeName::from(node), "a wing did not come up", NOW);
    }
    look(&mut scene, &[job(1, "n1")]);
    insta::assert_snapshot!(gaps(&scene.round_input(&[job(1, "n1")], RoundConstraints::FREE, NOW)), @r"
    n1: 1
    n3: free
    n4: free
    n2: left alone until 1970-01-12T13:47:10Z (circuit breaker): a wing did not come up
    ");
}

#[test]
fn a_pause_that_is_on_is_no_cost_of_a_further_change() {
    let mut scene = scene();
    let mut paused = job(1, "n1");
    paused.changing.pause = Some(ChangePause { since: NOW + -10, change: ChangeKind::Grow });
    look(&mut scene, std::slice::from_ref(&paused));
    let costs = |job: &JobFacts| {
        scene.round_input(std::slice::from_ref(job), RoundConstraints::FREE, NOW).jobs[0].costs
    };
    // 18 s to grow, 12 s to shrink, as configured; 8 s of the last change are left.
    let whole = costs(&job(1, "n1"));
    let less = costs(&paused);
    assert_eq!((whole.up_secs, whole.down_secs), (18.0, 12.0));
    assert_eq!((less.up_secs, less.down_secs, less.start_secs), (10.0, 4.0, 10.0));
}

#[test]
fn a_job_that_stays_alive_pays_for_changes_what_these_cost_alive() {
    let mut scene = scene();
    let alive = JobFacts {
        changing: ResizeState { way: RescaleMode::Live, ..ResizeState::default() },
        ..job(1, "n1")
    };
    look(&mut scene, std::slice::from_ref(&alive));
    let costs = |scene: &RoundState, job: &JobFacts| {
        let costs = scene.round_input(std::slice::from_ref(job), RoundConstraints::FREE, NOW).jobs[0].costs;
        (costs.up_secs, costs.down_secs, costs.start_secs)
    };
    assert_eq!(costs(&scene, &alive), (3.0, 2.0, 18.0), "as configured");
    let key = scene.profile_key(&alive.program, Some(&NodeName::from("n1")));
    scene.job_advisor_mut().record_live_change(&key, &LiveChange { from: 1, to: 2, secs: 0.5 }, NOW);
    assert_eq!(costs(&scene, &alive), (0.5, 0.5, 18.0), "as measured");
    assert_eq!(costs(&scene, &job(1, "n1")), (18.0, 12.0, 18.0), "another job may run something else");
    assert_eq!(scene.describe_rescale(&alive), "stays alive: 0.5 s to grow, 0.5 s to shrink, 18 s to start");
}

#[test]
fn a_job_that_waits_has_the_signature_of_the_last_of_its_name_on_the_usual_node() {
    let mut scene = scene();
    let waiting = job(2, "").program;
    assert_eq!(scene.profile_key(&waiting, None).node_type.as_str(), "", "nobody has looked yet");
    look(&mut scene, &[job(1, "n1")]);
    let usual = scene.profile_key(&waiting, None);
    assert_eq!(usual.node_type, scene.profile_key(&waiting, Some(&NodeName::from("n1"))).node_type);
    assert_eq!((usual.user.as_str(), usual.name.as_str()), ("alice", ""));
    let told = ProgramIdentity { told: Some(("bert-large".to_owned(), Default::default())), ..waiting };
    assert_eq!(scene.profile_key(&told, None).name, "bert-large");
}

#[test]
fn a_size_that_the_advisor_wants_measured_is_called_a_probe_up_to_the_report() {
    let mut scene = scene();
    let mut facts = JobFacts { running: Some(8), ..job(1, "n1 n2 n3 n4 n5 n6 n7 n8") };
    facts.sizes = AllowedSizes::Range { min: 1, max: 8 };
    facts.claims.costs = Some(RescaleCosts { up_secs: 2.0, down_secs: 2.0, start_secs: 2.0 });
    let snapshot = FakeSlurm::new(8, "infill").edit_snapshot(|world| world.clone());
    let _ = scene.ingest_snapshot(&snapshot, std::slice::from_ref(&facts), AdvisorMode::Watch, NOW);
    let key = scene.profile_key(&facts.program, facts.place.lead_now.as_ref());
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
        opening: None,
    };
    for secs in 1..=60 {
        let _ = scene.record_progress(JobId(1), &key, &progress, NOW + secs);
    }
    let now = NOW + 60;
    let _ = scene.ingest_snapshot(&snapshot, std::slice::from_ref(&facts), AdvisorMode::Probe, now);
    let Some(nodes) = scene.job_advisor().probe_size(JobId(1)) else {
        panic!("no size is worth trying: {}", scene.job_advisor().describe_job(JobId(1)));
    };
    let probe = Some(Probe { nodes, with: None });
    let config = Config::default();
    let question = scene.round_input(std::slice::from_ref(&facts), RoundConstraints::FREE, now);
    assert_eq!(question.jobs[0].probe, probe);
    let judged = check_solved_plan(&question, &config, Ok(question.solve_plan(&config))).unwrap();
    let planned = &judged.plan.jobs[0];
    assert_eq!((planned.nodes.len(), &planned.probe), (nodes as usize, &probe));
    let report = question.explain_plan(&config, &judged.plan);
    assert_eq!(report.jobs[0].why.kind(), JobReasonKind::Probes);
    // While it waits, it is raised at every size.
    let waits = JobFacts { waits_since: Some(NOW), ..facts };
    assert_eq!(scene.round_input(&[waits], RoundConstraints::FREE, now).jobs[0].probe, None);
}
