//! The executor's guard, against anything that a plan could get wrong. It acts on no job outside the
//! partition and on no other malleable job. It launches no job that an administrator holds.

use std::sync::Mutex;

use async_trait::async_trait;
use infill_daemon::executor::perform_effect;
use infill_lifecycle::Effect;
use infill_model::{BaseState, Job, JobId, NodeName, Snapshot, Topology, UserId};
use infill_slurm::{PartitionSharing, PrivacyRules, RestEndpoint, SlurmApi, SlurmError};
use proptest::prelude::*;

/// A Slurm that does anything to any job, and records which jobs it changed.
struct Obedient {
    jobs: Vec<Job>,
    touched: Mutex<Vec<JobId>>,
    launched: Mutex<Vec<JobId>>,
}

impl Obedient {
    fn touch(&self, id: JobId) -> Result<(), SlurmError> {
        self.touched.lock().unwrap().push(id);
        Ok(())
    }
}

#[async_trait]
impl SlurmApi for Obedient {
    async fn rest_endpoint(&self) -> Result<RestEndpoint, SlurmError> {
        unreachable!("the executor does not ask for this")
    }
    async fn read_snapshot(&self) -> Result<Snapshot, SlurmError> {
        unreachable!("the executor does not ask for this")
    }
    async fn has_new_main_jobs(&self) -> Result<bool, SlurmError> {
        unreachable!("what carries one effect out does not ask for this")
    }
    async fn read_privacy(&self) -> Result<PrivacyRules, SlurmError> {
        unreachable!("the executor does not ask for this")
    }
    async fn read_partitions(&self) -> Result<Vec<PartitionSharing>, SlurmError> {
        unreachable!("the executor does not ask for this")
    }
    async fn read_topology(&self) -> Result<Topology, SlurmError> {
        unreachable!("the executor does not ask for this")
    }
    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        Ok(self.jobs.iter().find(|j| j.id == id).cloned())
    }
    async fn launch_job(&self, id: JobId, _: &NodeName, _: u32) -> Result<(), SlurmError> {
        self.launched.lock().unwrap().push(id);
        self.touch(id)
    }
    async fn set_time_limit(&self, id: JobId, _: u32) -> Result<(), SlurmError> {
        self.touch(id)
    }
    async fn shrink_job(&self, id: JobId, _: &[NodeName]) -> Result<(), SlurmError> {
        self.touch(id)
    }
    async fn cancel_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.touch(id)
    }
    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError> {
        self.touch(id)
    }
    async fn hold_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.touch(id)
    }
    async fn unpin_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.touch(id)
    }
    async fn split_array(&self, _: JobId, _: &[u32]) -> Result<(), SlurmError> {
        unreachable!("no effect splits an array")
    }

    async fn write_status(&self, id: JobId, _status: &str) -> Result<(), SlurmError> {
        self.touch(id)
    }
}

/// There are few ids, so that jobs and effects meet.
fn id() -> impl Strategy<Value = JobId> {
    (1u32..6).prop_map(JobId)
}

fn job(id: u32) -> impl Strategy<Value = Job> {
    let partition = prop::sample::select(vec![
        "infill",
        "main",
        "infill,main",
        "Infill",
        "infill2",
        "infil",
        "",
        " infill",
    ]);
    let name = prop_oneof![
        Just("train".to_owned()),
        (1u32..6).prop_map(|lead| format!("wing:{lead}")),
        Just("wing:".to_owned()),
        Just("wing:1x".to_owned()),
    ];
    let state = prop::sample::select(vec![BaseState::Pending, BaseState::Running, BaseState::Completed]);
    let reason = prop::sample::select(vec!["JobHeldUser", "JobHeldAdmin", "None"]);
    let all = (partition, name, state, any::<bool>(), reason);
    all.prop_map(move |(partition, name, state, held, reason)| Job {
        state_reason: reason.to_owned(),
        user_id: UserId(1),
        user_name: "u".to_owned(),
        name,
        qos: "infill".to_owned(),
        time_limit_mins: Some(1),
        nodes: vec![NodeName::from("n1"), NodeName::from("n2")],
        node_count: 2,
        held,
        comment: "infill:order=1;wing=1".to_owned(),
        admin_comment: "infill:nodes=1-8".to_owned(),
        ..Job::new(JobId(id), partition, state)
    })
}

fn effect() -> impl Strategy<Value = Effect> {
    let node = || NodeName::from("n1");
    prop_oneof![
        id().prop_map(move |job| Effect::Launch { job, node: node(), limit_mins: 1 }),
        id().prop_map(|job| Effect::Hold { job }),
        id().prop_map(|job| Effect::Unpin { job }),
        id().prop_map(|job| Effect::RequeueHold { job }),
        id().prop_map(|job| Effect::SetLimit { job, limit_mins: 1 }),
        id().prop_map(move |job| Effect::ShrinkWing { job, keep: vec![node()] }),
        id().prop_map(|job| Effect::CancelWing { job }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]
    #[test]
    fn nothing_outside_the_partition_is_ever_touched(
        jobs in (job(1), job(2), job(3), job(4)),
        lead in id(),
        effects in prop::collection::vec(effect(), 1..6),
    ) {
        let slurm = Obedient { jobs: vec![jobs.0, jobs.1, jobs.2, jobs.3], touched: Mutex::default(), launched: Mutex::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for effect in &effects {
            let result = runtime.block_on(perform_effect(&slurm, "infill", lead, effect));
            let target = slurm.jobs.iter().find(|j| j.id == effect.job());
            let foreign = target.is_some_and(|j| j.partition != "infill");
            prop_assert!(!foreign || matches!(result, Err(SlurmError::Denied { .. })), "{effect:?}: {result:?}");
        }
        for id in slurm.launched.into_inner().unwrap() {
            let job = slurm.jobs.iter().find(|j| j.id == id).unwrap();
            prop_assert!(!job.held || job.state_reason != "JobHeldAdmin", "{} is held by an administrator", id);
        }
        for id in slurm.touched.into_inner().unwrap() {
            let job = slurm.jobs.iter().find(|j| j.id == id).unwrap();
            prop_assert_eq!(&job.partition, "infill");
            let part = job.id == lead || job.name == format!("wing:{lead}");
            prop_assert!(part, "job {} is no part of malleable job {}", job.id, lead);
        }
    }
}
