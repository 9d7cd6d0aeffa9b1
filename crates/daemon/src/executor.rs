//! Carries effects out at Slurm.
//!
//! Records are stored before their effects, except for effects that give nodes back. Each effect is checked
//! and bounded in time, and never touches a job outside the partition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::context::DaemonContext;
use super::effect_queue::{EffectReceivers, QueuedBatch};
use super::health::ProblemTopic;
use super::history_writer;
use super::metrics::ActionEnd;
use super::profile_storage;
use infill_lifecycle::Effect;
use infill_model::{GenerationRecord, Job, JobId, LeadRecord, clock::now};
use infill_slurm::{SlurmApi, SlurmError};
use infill_store::StoreError;

/// Pause before a store that failed is tried again. It may take five seconds to fail, and effects wait for
/// it.
const STORE_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The setting that is written to test whether a store that failed works again.
const PROBE_SETTING: &str = "probe";

/// Most effects that give nodes back and are carried out at the same time. An effect that Slurm does not
/// answer delays few others.
const MAX_CONCURRENT_LEAVING: usize = 4;

/// Carries out effects until the queues close. Effects that give nodes back wait for no others, and changes
/// are stored meanwhile.
pub async fn run(context: Arc<DaemonContext>, queues: EffectReceivers) {
    tokio::join!(
        run_leaving(&context, queues.leaving),
        run_others(&context, queues.others),
        keep_saved(&context)
    );
}

/// Carries out the effects that give nodes back. They wait neither for checks nor for the store.
async fn run_leaving(context: &Arc<DaemonContext>, mut queue: mpsc::Receiver<QueuedBatch>) {
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_LEAVING));
    let mut under_way = JoinSet::new();
    while let Some(QueuedBatch { batch, .. }) = queue.recv().await {
        for effect in batch.effects {
            // The semaphore is never closed.
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            while under_way.try_join_next().is_some() {}
            let context = context.clone();
            under_way.spawn(async move {
                let _permit = permit;
                let _lock = context.effect_queues.lock_job(effect.job()).await;
                execute_effect(&context, batch.job, &effect).await;
            });
        }
    }
}

/// Carries out all other effects in their order, once their records are stored.
async fn run_others(context: &DaemonContext, mut queue: mpsc::Receiver<QueuedBatch>) {
    while let Some(QueuedBatch { number, batch }) = queue.recv().await {
        let stored = save_changes(context).await;
        for effect in batch.effects {
            // Slurm is asked before the job is locked, because effects that give this job back wait for the
            // lock.
            let overtaken = stored && effect.takes_nodes() && context.must_defer_growth().await;
            let _lock = context.effect_queues.lock_job(effect.job()).await;
            let at = now();
            if context.effect_queues.is_outdated(number, effect.job()) {
                tracing::debug!(job = %batch.job, "did not do {effect:?}: the job must leave");
            } else if overtaken {
                tracing::debug!(job = %batch.job, "did not do {effect:?}: a main job has been submitted since");
                context.change_fleet(at, |state| state.fleet.effect_outdated(batch.job, &effect, at));
            } else if effect.takes_nodes() && !stored {
                let why = "the store fails: nothing is started";
                context
                    .change_fleet(at, |state| state.fleet.effect_failed(batch.job, &effect, why, true, at));
            } else {
                execute_effect(context, batch.job, &effect).await;
            }
        }
        context.effect_queues.mark_done(number);
    }
}

/// Stores changes as soon as they happen, so that agents receive new generations without waiting for Slurm.
async fn keep_saved(context: &DaemonContext) {
    loop {
        context.effect_queues.wait_for_batch().await;
        save_changes(context).await;
    }
}

async fn execute_effect(context: &DaemonContext, job: JobId, effect: &Effect) {
    // The job's lifecycle requests the effect again if it is still needed.
    if !context.leadership.may_act() {
        tracing::debug!(job = %job, "did not do {effect:?}: another daemon may lead by now");
        return;
    }
    let partition = &context.config.slurm.partition;
    let result = perform_effect(context.slurm.as_ref(), partition, job, effect).await;
    let end = if result.is_ok() { ActionEnd::Ok } else { ActionEnd::Failed };
    context.metrics.jobs.count_action(effect.kind(), end);
    match result {
        Ok(()) => {
            tracing::info!(job = %job, "did {effect:?}");
            let at = now();
            context.change_fleet(at, |state| state.fleet.effect_done(job, effect, at));
        }
        Err(e) => {
            // While Slurm does not answer, every effect fails again and again. That was logged already.
            if e.is_transient() && context.lock_state().health.has_problem(ProblemTopic::Slurm) {
                tracing::debug!(job = %job, "could not do {effect:?}: {e}");
            } else {
                tracing::warn!(job = %job, retry = e.is_transient(), "could not do {effect:?}: {e}");
            }
            let why = e.to_string();
            let is_transient = e.is_transient();
            let at = now();
            context.change_fleet(at, |state| state.fleet.effect_failed(job, effect, &why, is_transient, at));
        }
    }
}

/// Carries out one effect, after it has checked that infill may change its Slurm job.
///
/// # Errors
/// [`SlurmError::Denied`] when the job is outside the partition, or does not belong to the malleable job;
/// else Slurm's error. A job that Slurm no longer knows is not an error, because nothing is left to do.
pub async fn perform_effect(
    slurm: &dyn SlurmApi,
    partition: &str,
    lead: JobId,
    effect: &Effect,
) -> Result<(), SlurmError> {
    let Some(job) = slurm.find_job(effect.job()).await? else { return Ok(()) };
    check_ownership(&job, partition, lead)?;
    if job.state.is_ended() {
        return Ok(());
    }
    match effect {
        // An administrator may have held the job since the snapshot.
        Effect::Launch { .. } if job.held && job.is_held_by_admin() => {
            let doing = format!("launching job {}", job.id);
            // The next snapshot shows the hold to the job's lifecycle.
            Err(SlurmError::Transient { doing, what: "an administrator holds it".to_owned() })
        }
        Effect::Launch { job, node, limit_mins } => slurm.launch_job(*job, node, *limit_mins).await,
        Effect::Hold { job } => slurm.hold_job(*job).await,
        // Someone has released the job since. Without its required node Slurm would start it anywhere.
        Effect::Unpin { .. } if !job.held => Ok(()),
        Effect::Unpin { job } => slurm.unpin_job(*job).await,
        Effect::RequeueHold { .. } if job.state.is_pending() => slurm.hold_job(job.id).await,
        Effect::RequeueHold { job } => slurm.requeue_hold(*job).await,
        Effect::SetLimit { job, limit_mins } => slurm.set_time_limit(*job, *limit_mins).await,
        Effect::ShrinkWing { job, keep } => slurm.shrink_job(*job, keep).await,
        Effect::CancelWing { job } => slurm.cancel_job(*job).await,
    }
}

/// Refuses a Slurm job unless it is in the partition and belongs to this malleable job.
fn check_ownership(job: &Job, partition: &str, lead: JobId) -> Result<(), SlurmError> {
    let ours = job.id == lead || infill_model::lead_of_wing(job) == Some(lead);
    if job.partition == partition && ours {
        return Ok(());
    }
    Err(SlurmError::Denied {
        doing: format!("acting on job {} for malleable job {lead}", job.id),
        what: format!(
            "it is in partition {:?}; infill changes only this malleable job's Slurm jobs in {partition:?}",
            job.partition
        ),
    })
}

/// Stores all changed records. Returns whether everything is in the store now.
pub(crate) async fn save_changes(context: &DaemonContext) -> bool {
    // The lock makes sure that a caller with nothing to store does not miss that another one is failing.
    let mut failed_at = context.save_locks.jobs.lock().await;
    let (records, generations) = {
        let mut state = context.lock_state();
        let dirty = state.write_queue.take_dirty();
        let records: Vec<LeadRecord> =
            dirty.iter().filter_map(|job| state.fleet.lead_record(*job, now())).collect();
        (records, state.write_queue.take_generations())
    };
    let jobs: Vec<JobId> = records.iter().map(|record| record.job).collect();
    if failed_at.is_some_and(|at| at.elapsed() < STORE_RETRY_PAUSE) {
        requeue_unsaved(context, jobs, generations);
        return false;
    }
    match write_changes(context, &records, &generations).await {
        Ok(()) => {
            *failed_at = None;
            record_saved(context, jobs);
            true
        }
        Err(e) => {
            *failed_at = Some(Instant::now());
            context.store_failed(&e);
            requeue_unsaved(context, jobs, generations);
            false
        }
    }
}

fn record_saved(context: &DaemonContext, jobs: Vec<JobId>) {
    context.metrics.store.up.set(1);
    let mut state = context.lock_state();
    if state.health.clear_problem(ProblemTopic::Store) {
        tracing::info!("the store works again");
    }
    context.run_actions(state.release_orders(jobs, true));
}

fn requeue_unsaved(context: &DaemonContext, jobs: Vec<JobId>, generations: Vec<GenerationRecord>) {
    let mut state = context.lock_state();
    state.write_queue.mark_dirty(jobs.iter().copied());
    state.write_queue.put_generations_back(generations);
    context.run_actions(state.release_orders(jobs, false));
}

async fn write_changes(
    context: &DaemonContext,
    records: &[LeadRecord],
    generations: &[GenerationRecord],
) -> Result<(), StoreError> {
    if !records.is_empty() {
        context.store.put_leads(records).await?;
    }
    if !generations.is_empty() {
        context.store.add_generations(generations).await?;
    }
    // With nothing to store, only a test write shows whether a store that failed works again.
    if context.lock_state().health.has_problem(ProblemTopic::Store) {
        context.store.put_setting(PROBE_SETTING, &now().0.to_string()).await?;
    }
    Ok(())
}

/// Stores all changed records and history when the daemon ends. Waits for writes that are under way.
pub(crate) async fn save_all(context: &DaemonContext) {
    if save_changes(context).await {
        context.lock_state().flush_records();
        history_writer::write_history(context).await.ok();
        profile_storage::save_unsaved(context).await;
    } else {
        tracing::error!("cannot store the last changes; the next daemon recovers them from Slurm");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::DaemonServices;
    use crate::state::DaemonState;
    use infill_lifecycle::fleet::EffectBatch;
    use infill_model::{
        BaseState, JobState, NodeName, Plan, RoundReport, SolveStatus, UnixTime, config::Config,
    };
    use infill_slurm::{
        fake::{FakeChange, FakeSlurm},
        identity::FakeIdentity,
    };
    use infill_store::{LeadStanding, RoundRecord};

    /// A daemon that has just started with this Slurm.
    async fn daemon(slurm: Arc<FakeSlurm>) -> (Arc<DaemonContext>, EffectReceivers) {
        let at = now();
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let services = DaemonServices { slurm, store, identity: Arc::new(FakeIdentity::default()) };
        let state = DaemonState::new(Arc::new(Config::default()), at);
        let (context, queues) = DaemonContext::new(services, state, LeadStanding::Alone, at);
        (Arc::new(context), queues)
    }

    #[tokio::test]
    async fn the_last_save_waits_for_other_writes_and_includes_history() {
        let at = UnixTime(100);
        let (context, _queues) = daemon(Arc::new(FakeSlurm::new(1, "infill"))).await;
        let plan = Plan {
            at,
            jobs: Vec::new(),
            status: SolveStatus::Trivial,
            proof: None,
            objective: 0.0,
            steps: Vec::new(),
        };
        let round = RoundRecord { at, plan, report: RoundReport::default(), acted: true };
        context.lock_state().write_queue.add_round(round);
        let saving = context.save_locks.jobs.lock().await;
        let end = tokio::spawn({
            let context = context.clone();
            async move { save_all(&context).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!end.is_finished());
        drop(saving);
        end.await.unwrap();
        assert_eq!(context.store.round_at(at).await.unwrap().map(|r| r.at), Some(at));
    }

    /// Waits until `done` is true of the changes that Slurm has recorded.
    async fn wait_for(what: &str, slurm: &FakeSlurm, done: impl Fn(&[FakeChange]) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done(&slurm.recorded_changes()) {
            assert!(Instant::now() < end, "{what}: {:?}", slurm.recorded_changes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn has_launch(changes: &[FakeChange]) -> bool {
        changes.iter().any(|change| matches!(change, FakeChange::Launch { .. }))
    }

    #[tokio::test]
    async fn nothing_is_started_when_a_job_was_submitted_since_the_snapshot() {
        let slurm = Arc::new(FakeSlurm::new(1, "infill"));
        let job = slurm.submit_held(1, 6101, "infill:nodes=1");
        let (context, queues) = daemon(slurm.clone()).await;
        slurm.read_snapshot().await.unwrap();
        slurm.submit_held(9, 6102, "");
        slurm.edit_snapshot(|snapshot| snapshot.jobs.last_mut().unwrap().partition = "main".to_owned());
        let executor = tokio::spawn(run(context.clone(), queues));
        let launch = Effect::Launch { job, node: NodeName::new("n1"), limit_mins: 9 };
        let batch = EffectBatch { job, effects: vec![launch, Effect::Hold { job }] };
        context.effect_queues.send_batch(batch.clone());
        wait_for("effects that take no nodes are still carried out", &slurm, |changes| {
            changes.iter().filter(|change| matches!(change, FakeChange::Hold { .. })).count() == 1
        })
        .await;
        assert!(!has_launch(&slurm.recorded_changes()), "{:?}", slurm.recorded_changes());
        // The next snapshot contains the new job.
        slurm.read_snapshot().await.unwrap();
        context.new_job_check.note_snapshot();
        context.effect_queues.send_batch(batch);
        wait_for("the job is started now", &slurm, has_launch).await;
        executor.abort();
    }

    #[tokio::test]
    async fn leaving_overtakes_limits_that_slurm_does_not_answer() {
        let slurm = Arc::new(FakeSlurm::new(4, "infill"));
        let jobs: Vec<JobId> = (1..=4).map(|id| slurm.submit_held(id, 6101, "infill:nodes=1")).collect();
        for (job, node) in jobs.iter().zip(["n1", "n2", "n3", "n4"]) {
            slurm.launch_job(*job, &NodeName::new(node), 60).await.unwrap();
        }
        let (context, queues) = daemon(slurm.clone()).await;
        slurm.hang_limits(true);
        let executor = tokio::spawn(run(context.clone(), queues));
        let limits: Vec<Effect> =
            jobs.iter().map(|job| Effect::SetLimit { job: *job, limit_mins: 9 }).collect();
        for (index, effects) in [
            (0, vec![limits[0].clone()]),
            (1, vec![limits[1].clone(), Effect::RequeueHold { job: jobs[1] }]),
            (2, vec![limits[2].clone()]),
            (2, vec![Effect::RequeueHold { job: jobs[2] }]),
        ] {
            context.effect_queues.send_batch(EffectBatch { job: jobs[index], effects });
        }
        wait_for("leaving waits behind a limit", &slurm, |changes| {
            changes.iter().filter(|change| matches!(change, FakeChange::RequeueHold { .. })).count() == 2
        })
        .await;
        // Outdated effects on the jobs that have left are not carried out afterwards.
        slurm.hang_limits(false);
        context.effect_queues.send_batch(EffectBatch { job: jobs[3], effects: vec![limits[3].clone()] });
        let set_limits: Vec<FakeChange> =
            jobs.iter().map(|job| FakeChange::SetTimeLimit { job: *job, limit_mins: 9 }).collect();
        wait_for("the last limit is set", &slurm, |changes| changes.contains(&set_limits[3])).await;
        let changes = slurm.recorded_changes();
        assert!(changes.contains(&set_limits[0]) && !changes.contains(&set_limits[2]), "{changes:?}");
        executor.abort();
    }

    #[tokio::test]
    async fn pending_effects_are_dropped_when_leadership_is_lost() {
        for leads in [true, false] {
            let slurm = Arc::new(FakeSlurm::new(1, "infill"));
            let job = slurm.submit_held(1, 6101, "infill:nodes=1");
            slurm.launch_job(job, &NodeName::new("n1"), 60).await.unwrap();
            let (context, mut queues) = daemon(slurm.clone()).await;
            let effects = vec![Effect::SetLimit { job, limit_mins: 9 }];
            context.effect_queues.send_batch(EffectBatch { job, effects });
            if !leads {
                context.leadership.mark_lost();
            }
            // A closed queue ends after the batches that it holds.
            queues.others.close();
            run_others(&context, queues.others).await;
            execute_effect(&context, job, &Effect::RequeueHold { job }).await;
            let done = [FakeChange::SetTimeLimit { job, limit_mins: 9 }, FakeChange::RequeueHold { job }];
            let expected = if leads { &done[..] } else { &[] };
            assert_eq!(&slurm.recorded_changes()[1..], expected, "leads: {leads}");
        }
    }

    #[tokio::test]
    async fn nothing_is_done_to_a_job_that_has_ended() {
        let slurm = FakeSlurm::new(1, "infill");
        let job = slurm.submit_held(1, 6101, "infill:nodes=1");
        slurm.edit_snapshot(|snapshot| snapshot.jobs[0].state = JobState::from_base(BaseState::Completed));
        let node = NodeName::new("n1");
        let keep = vec![node.clone()];
        for effect in [
            Effect::Launch { job, node, limit_mins: 9 },
            Effect::Hold { job },
            Effect::Unpin { job },
            Effect::RequeueHold { job },
            Effect::SetLimit { job, limit_mins: 9 },
            Effect::ShrinkWing { job, keep },
            Effect::CancelWing { job },
        ] {
            let done = perform_effect(&slurm, "infill", job, &effect).await;
            assert!(done.is_ok(), "{effect:?}: {done:?}");
        }
        assert_eq!(slurm.recorded_changes(), []);
    }
}
