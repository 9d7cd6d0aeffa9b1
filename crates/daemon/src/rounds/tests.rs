//! Rounds beside a Slurm in memory: who gets nodes, what a look is worth, and who is waited for.

use super::*;
use crate::context::Services;
use crate::lanes::Queues;
use infill_lifecycle::Effect;
use infill_model::{Doubt, JobId, Mode, SolveStatus};
use infill_slurm::{
    SlurmApi as _,
    fake::{FakeSlurm, pending_job},
    identity::FakeIdentity,
};
use infill_store::LeadStanding;

/// A daemon that acts, and the Slurm that it looks at.
struct Site {
    slurm: Arc<FakeSlurm>,
    context: Context,
    queues: Queues,
}

impl Site {
    /// As many idle nodes as malleable jobs that wait, with the numbers 1, 2, and so on.
    async fn new(count: u32, configure: impl FnOnce(&mut Config)) -> Site {
        let slurm = Arc::new(FakeSlurm::new(count, "infill"));
        let at = now();
        slurm.edit(|world| world.taken_at = at);
        for id in 1..=count {
            slurm.submit_held(id, 6101, "infill:nodes=1");
        }
        let mut config = Config::default();
        config.daemon.mode = Mode::Act;
        configure(&mut config);
        let store = infill_store::open("sqlite::memory:", || ()).await.unwrap();
        let services = Services { slurm: slurm.clone(), store, identity: Arc::new(FakeIdentity::default()) };
        let state = State::new(Arc::new(config), at);
        let (context, queues) = Context::new(services, state, LeadStanding::Alone, at);
        Site { slurm, context, queues }
    }

    /// The first half of a round.
    async fn look(&self) -> Option<UnixTime> {
        take_in(&self.context, self.slurm.snapshot().await.unwrap(), now()).await
    }

    /// Somebody submits a job to the main queue.
    fn submit_main(&self) {
        self.slurm.edit(|world| world.jobs.push(pending_job(99, 6102)));
    }

    /// That job is gone.
    fn cancel_main(&self) {
        self.slurm.edit(|world| world.jobs.retain(|job| job.id != JobId(99)));
    }

    /// The jobs that were to be launched since the last call.
    fn launched(&mut self) -> Vec<JobId> {
        let mut launched = Vec::new();
        while let Ok(sent) = self.queues.others.try_recv() {
            let launches = sent.batch.effects.iter().filter(|e| matches!(e, Effect::Launch { .. }));
            launched.extend(launches.map(Effect::job));
        }
        launched
    }
}

#[tokio::test]
async fn no_job_takes_nodes_by_a_plan_that_a_main_job_has_overtaken() {
    let mut site = Site::new(1, |_| ()).await;
    assert!(site.look().await.is_some());
    site.submit_main();
    answer_question(&site.context, true, 0.0).await;
    assert_eq!(site.launched(), []);
    assert_eq!(site.context.state().fleet.machine(JobId(1)).map(|m| m.target.is_some()), Some(false));
    site.cancel_main();
    assert!(one(&site.context).await.is_some());
    assert_eq!(site.launched(), [JobId(1)], "the next look finds nothing that stands in the way");
}

#[tokio::test]
async fn a_doubtful_snapshot_does_not_count_as_a_look() {
    let mut site = Site::new(1, |_| ()).await;
    assert!(site.look().await.is_some());
    site.submit_main();
    assert!(site.context.is_overtaken().await);
    site.slurm.edit(|world| world.doubts = vec![Doubt::Inconsistent("two and two are five".to_owned())]);
    assert_eq!(one(&site.context).await, None);
    assert!(site.context.state().health.ails(Topic::Snapshot));
    assert!(site.context.is_overtaken().await, "that job came after the last look that can be trusted");
    assert_eq!(site.launched(), []);
    site.slurm.edit(|world| world.doubts.clear());
    site.cancel_main();
    assert!(one(&site.context).await.is_some());
    assert!(!site.context.state().health.ails(Topic::Snapshot));
    assert!(!site.context.is_overtaken().await);
    assert_eq!(site.launched(), [JobId(1)]);
}

#[tokio::test]
async fn a_round_has_no_more_actions_than_it_may() {
    let mut site = Site::new(5, |config| config.daemon.max_actions_a_round = 2).await;
    let mut launched = Vec::new();
    for count in [2, 2, 1, 0] {
        assert!(one(&site.context).await.is_some());
        let more = site.launched();
        assert_eq!(more.len(), count, "{more:?} after {launched:?}");
        launched.extend(more);
    }
    launched.sort_unstable();
    assert_eq!(launched, [1, 2, 3, 4, 5].map(JobId));
}

#[tokio::test]
async fn a_planner_that_never_returns_is_given_up_at_the_outer_deadline() {
    /// Much longer than the deadline, which is half a second here.
    const PATIENCE: Duration = Duration::from_secs(20);
    let site = Site::new(2, |config| config.planner.solve_secs = 0.0).await;
    site.slurm.submit_held(3, 6101, "infill:nodes=1-2");
    assert!(site.look().await.is_some());
    let question = site.context.state().question(true, now()).unwrap();
    // It ends with this test, however that ends.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let planner = move |question: &Question, config: &Config| {
        let _ = ended.recv();
        question.solve(config)
    };
    let decided =
        tokio::time::timeout(PATIENCE, decide(site.context.config.clone(), question, planner)).await;
    let Ok(Ok(decision)) = decided else { panic!("the planner is waited for") };
    let why = "the outer deadline has passed".to_owned();
    assert_eq!(decision.view.plan.status, SolveStatus::Fallback(why));
    assert_eq!(decision.view.plan.jobs.len(), 3, "there is still a plan");
    drop(end);
}
