//! Rounds with a Slurm in memory: which jobs get nodes, what a snapshot is worth, and how long a round waits.

use super::*;
use crate::context::DaemonServices;
use crate::effect_queue::EffectReceivers;
use crate::planner_thread::{STILL_AT_WORK, TOO_SLOW};
use infill_lifecycle::{Effect, WingNumbers as _};
use infill_model::{
    BaseState, DaemonMode, ExecPlan, Job, JobId, JobState, NodeName, PlannedNode, SnapshotDoubt, SolveStatus,
    UserId, wing_name,
};
use infill_slurm::{
    SlurmApi as _,
    fake::{FakeSlurm, pending_job},
    identity::FakeIdentity,
};
use infill_store::LeadStanding;

/// A daemon that acts, and its Slurm.
struct Site {
    slurm: Arc<FakeSlurm>,
    context: DaemonContext,
    planner: PlannerThread,
    queues: EffectReceivers,
}

impl Site {
    /// A site with `count` idle nodes and `count` waiting malleable jobs, which have the numbers 1, 2, and
    /// so on.
    async fn new(count: u32, configure: impl FnOnce(&mut Config)) -> Site {
        let slurm = Arc::new(FakeSlurm::new(count, "infill"));
        let at = now();
        slurm.edit_snapshot(|snapshot| snapshot.taken_at = at);
        for id in 1..=count {
            slurm.submit_held(id, 6101, "infill:nodes=1");
        }
        let mut config = Config::default();
        config.daemon.mode = DaemonMode::Act;
        configure(&mut config);
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let services =
            DaemonServices { slurm: slurm.clone(), store, identity: Arc::new(FakeIdentity::default()) };
        let state = DaemonState::new(Arc::new(config), at);
        let (context, queues) = DaemonContext::new(services, state, LeadStanding::Alone, at);
        Site { slurm, context, planner: PlannerThread::default(), queues }
    }

    /// The first half of a round.
    async fn read_snapshot(&self) -> Option<UnixTime> {
        let ingested = ingest_snapshot(&self.context, self.slurm.read_snapshot().await.unwrap(), now()).await;
        ingested.map(|(at, _)| at)
    }

    /// Submits a job to the main queue.
    fn submit_main(&self) {
        self.slurm.edit_snapshot(|snapshot| snapshot.jobs.push(pending_job(99, 6102)));
    }

    /// Cancels that job.
    fn cancel_main(&self) {
        self.slurm.edit_snapshot(|snapshot| snapshot.jobs.retain(|job| job.id != JobId(99)));
    }

    /// Starts the first job on n1 and one of its wings on n2.
    async fn run_on_two_nodes(&self) {
        let wing = Job {
            user_id: UserId(6101),
            name: wing_name(JobId(1)),
            comment: "infill:order=1".to_owned(),
            state: JobState::from_base(BaseState::Running),
            nodes: vec![NodeName::new("n2")],
            batch_host: Some(NodeName::new("n2")),
            start_time: Some(now()),
            time_limit_mins: Some(60),
            ..pending_job(98, 6101)
        };
        let partition = self.context.config.slurm.partition.clone();
        self.slurm.edit_snapshot(|snapshot| snapshot.jobs.push(Job { partition, ..wing }));
        self.slurm.launch_job(JobId(1), &NodeName::new("n1"), 60).await.unwrap();
    }

    /// Gives the first job these nodes.
    async fn plan(&self, nodes: &[&str]) {
        let at = now();
        let nodes = nodes
            .iter()
            .map(|name| PlannedNode { node: NodeName::new(name), lease_until: at + 3600 })
            .collect();
        let exec_plan = ExecPlan::default();
        let job = JobPlan { job: JobId(1), nodes, exec_plan, rate: 1.0, probe: None, forecast: vec![] };
        let plan = Plan {
            at,
            jobs: vec![job],
            status: SolveStatus::Optimal,
            proof: None,
            objective: 1.0,
            steps: Vec::new(),
        };
        set_targets(&self.context, &plan).await;
    }

    /// The target nodes of the first job; `None` while it has no target.
    fn target_nodes(&self) -> Option<Vec<String>> {
        let state = self.context.lock_state();
        let target = state.fleet.job_lifecycle(JobId(1)).and_then(|job| job.target.as_ref());
        target.map(|target| target.plan.nodes.iter().map(|planned| planned.node.to_string()).collect())
    }

    /// The jobs that were to be launched since the last call.
    fn launched(&mut self) -> Vec<JobId> {
        let mut launched = Vec::new();
        while let Ok(queued) = self.queues.others.try_recv() {
            let launches =
                queued.batch.effects.iter().filter(|effect| matches!(effect, Effect::Launch { .. }));
            launched.extend(launches.map(Effect::job));
        }
        launched
    }
}

#[tokio::test]
async fn no_job_takes_nodes_by_a_plan_that_a_main_job_has_overtaken() {
    let mut site = Site::new(1, |_| ()).await;
    assert!(site.read_snapshot().await.is_some());
    site.submit_main();
    plan_and_apply(&site.context, &site.planner, true, 0.0).await;
    assert_eq!(site.launched(), []);
    assert_eq!(
        site.context.lock_state().fleet.job_lifecycle(JobId(1)).map(|m| m.target.is_some()),
        Some(false)
    );
    site.cancel_main();
    assert!(run_round(&site.context, &site.planner).await.is_some());
    assert_eq!(site.launched(), [JobId(1)], "the next snapshot shows no main job");
}

#[tokio::test]
async fn a_plan_that_takes_nodes_from_a_job_holds_even_if_a_main_job_has_overtaken_it() {
    let site = Site::new(4, |_| ()).await;
    site.run_on_two_nodes().await;
    assert!(site.read_snapshot().await.is_some());
    let occupied = site.context.lock_state().fleet.job_lifecycle(JobId(1)).map(|m| m.occupied_nodes().len());
    assert_eq!(occupied, Some(2));
    site.submit_main();
    site.plan(&["n1", "n2", "n3"]).await;
    assert_eq!(site.target_nodes(), None, "the job would only gain nodes");
    site.plan(&["n1", "n3", "n4"]).await;
    assert_eq!(site.target_nodes().unwrap(), ["n1", "n3", "n4"], "n2 must be left at once");
}

#[tokio::test]
async fn slurm_that_does_not_answer_is_a_problem_until_it_does() {
    let site = Site::new(1, |_| ()).await;
    let doing = "ping".to_owned();
    let what = "connection refused".to_owned();
    site.slurm.fail_next(SlurmError::Transient { doing, what });
    assert_eq!(run_round(&site.context, &site.planner).await, None);
    let problems = site.context.lock_state().health.problem_sentences();
    let expected = "Slurm does not answer (ping: connection refused): jobs run on, nothing is started";
    assert_eq!(problems, [expected]);
    assert!(run_round(&site.context, &site.planner).await.is_some());
    assert_eq!(site.context.lock_state().health.problem_sentences(), [""; 0]);
}

#[tokio::test]
async fn wing_numbers_are_fetched_when_they_run_low_unless_the_store_is_down() {
    let site = Site::new(1, |_| ()).await;
    let next_number = || site.context.lock_state().fleet.wing_numbers.next_number();
    site.context.lock_state().health.raise_problem(HealthProblem::Store("it sleeps".to_owned()));
    refill_wing_numbers(&site.context).await;
    assert_eq!(next_number(), None, "a store that is down takes time to fail");
    site.context.lock_state().health.clear_problem(ProblemTopic::Store);
    refill_wing_numbers(&site.context).await;
    let first = next_number().unwrap();
    refill_wing_numbers(&site.context).await;
    assert_eq!(next_number(), Some(first + 1), "there were enough");
    for _ in 2..500 {
        next_number();
    }
    refill_wing_numbers(&site.context).await;
    assert_eq!(next_number(), Some(first + 1000), "half of a thousand are used up");
}

#[tokio::test]
async fn a_doubtful_snapshot_does_not_count() {
    let mut site = Site::new(1, |_| ()).await;
    assert!(site.read_snapshot().await.is_some());
    site.submit_main();
    assert!(site.context.must_defer_growth().await);
    site.slurm.edit_snapshot(|snapshot| {
        snapshot.doubts = vec![SnapshotDoubt::Inconsistent("two and two are five".to_owned())]
    });
    assert_eq!(run_round(&site.context, &site.planner).await, None);
    assert!(site.context.lock_state().health.has_problem(ProblemTopic::Snapshot));
    assert!(site.context.must_defer_growth().await, "that job came after the last trusted snapshot");
    assert_eq!(site.launched(), []);
    site.slurm.edit_snapshot(|snapshot| snapshot.doubts.clear());
    site.cancel_main();
    assert!(run_round(&site.context, &site.planner).await.is_some());
    assert!(!site.context.lock_state().health.has_problem(ProblemTopic::Snapshot));
    assert!(!site.context.must_defer_growth().await);
    assert_eq!(site.launched(), [JobId(1)]);
}

#[tokio::test]
async fn a_round_starts_at_most_the_configured_number_of_jobs() {
    let mut site = Site::new(5, |config| config.daemon.max_actions_a_round = 2).await;
    let mut launched = Vec::new();
    for count in [2, 2, 1, 0] {
        assert!(run_round(&site.context, &site.planner).await.is_some());
        let more = site.launched();
        assert_eq!(more.len(), count, "{more:?} after {launched:?}");
        launched.extend(more);
    }
    launched.sort_unstable();
    assert_eq!(launched, [1, 2, 3, 4, 5].map(JobId));
}

/// A planner that finishes only after the sender sends or is dropped.
fn hangs() -> (std::sync::mpsc::Sender<()>, impl FnOnce(&RoundInput, &Config) -> Plan + Send + 'static) {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    (end, move |input: &RoundInput, config: &Config| {
        let _ = ended.recv();
        input.solve_plan(config)
    })
}

/// Advances the paused clock by this many seconds, and lets other tasks run.
async fn pass(secs: f64) {
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs_f64(secs)).await;
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn a_round_waits_for_its_planner_up_to_twice_the_limit() {
    let site = Site::new(1, |config| config.planner.solve_secs = 10.0).await;
    assert!(site.read_snapshot().await.is_some());
    let input = Arc::new(site.context.lock_state().round_input(true, now()).unwrap());
    let (end, plan) = hangs();
    let planner = site.planner.clone();
    let config = site.context.config.clone();
    tokio::time::pause();
    let solving = tokio::spawn(async move { planner.solve_round(config, input, plan).await });
    pass(20.0).await;
    assert!(!solving.is_finished());
    drop(end);
    assert_eq!(solving.await.unwrap().map(|plan| plan.jobs.len()), Ok(1));
}

#[tokio::test]
async fn a_planner_that_never_returns_is_given_up_at_the_outer_deadline() {
    let mut site = Site::new(2, |config| config.planner.solve_secs = 0.0).await;
    assert!(site.read_snapshot().await.is_some());
    let (_end, plan) = hangs();
    tokio::time::pause();
    {
        let answering = plan_and_apply_with(&site.context, &site.planner, plan, true, 0.0);
        tokio::pin!(answering);
        tokio::select! {
            biased;
            () = &mut answering => panic!("the planner hangs"),
            () = pass(0.4) => {}
        }
        tokio::time::advance(Duration::from_secs_f64(0.2)).await;
        answering.await;
    }
    let round = site.context.lock_state().round.clone().unwrap();
    assert_eq!(round.plan.status, SolveStatus::LastResort(TOO_SLOW.to_owned()));
    assert_eq!(round.plan.jobs.len(), 2, "there is still a plan");
    assert_eq!(site.launched(), [], "and it starts no job");
}

#[tokio::test]
async fn while_a_planner_hangs_no_other_begins_and_a_problem_is_shown() {
    let mut site = Site::new(1, |config| config.planner.solve_secs = 0.0).await;
    assert!(site.read_snapshot().await.is_some());
    let (end, plan) = hangs();
    let planner = site.planner.clone();
    let config = site.context.config.clone();
    let input = Arc::new(site.context.lock_state().round_input(true, now()).unwrap());
    tokio::time::pause();
    let first = tokio::spawn(async move { planner.solve_round(config, input, plan).await });
    pass(1.0).await;
    assert_eq!(first.await.unwrap(), Err(TOO_SLOW));
    for _ in 0..3 {
        plan_and_apply_with(&site.context, &site.planner, |_, _| panic!("a second planner"), true, 0.0).await;
        let status = site.context.lock_state().round.clone().unwrap().plan.status;
        assert_eq!(status, SolveStatus::LastResort(STILL_AT_WORK.to_owned()));
    }
    assert_eq!(site.launched(), []);
    let problems = site.context.lock_state().health.problem_sentences();
    let expected = "nothing is planned (the planner is still at work on an earlier round): jobs keep what they \
                    have, nothing is started";
    assert_eq!(problems, [expected]);
    // Once it returns, the next round is planned.
    drop(end);
    site.planner.wait_idle().await;
    tokio::time::resume();
    plan_and_apply(&site.context, &site.planner, true, 0.0).await;
    assert_eq!(site.launched(), [JobId(1)]);
    assert_eq!(site.context.lock_state().health.problem_sentences(), [""; 0]);
}
