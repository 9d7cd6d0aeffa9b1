//! Carries effects out at Slurm: stored first, but for those that give nodes back, then each guarded,
//! bounded, and never outside the partition.

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

/// Pause before a store that failed is tried again: it may take five seconds to fail, and effects wait for
/// it.
const STORE_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Setting that is written to see whether a store that failed works again.
const PROBE_SETTING: &str = "probe";

/// Effects that give nodes back and are carried out at a time: one that Slurm does not answer holds up few.
const LEAVING_AT_ONCE: usize = 4;

/// Carries out effects for as long as there are any to come. Leaving waits for nothing else, and changes are
/// stored meanwhile.
pub async fn run(context: Arc<DaemonContext>, queues: EffectReceivers) {
    tokio::join!(
        run_leaving(&context, queues.leaving),
        run_others(&context, queues.others),
        keep_saved(&context)
    );
}

/// What gives nodes back needs nobody's leave, not the store's either.
async fn run_leaving(context: &Arc<DaemonContext>, mut queue: mpsc::Receiver<QueuedBatch>) {
    let turns = Arc::new(Semaphore::new(LEAVING_AT_ONCE));
    let mut under_way = JoinSet::new();
    while let Some(QueuedBatch { batch, .. }) = queue.recv().await {
        for effect in batch.effects {
            // The gate is never closed.
            let Ok(turn) = turns.clone().acquire_owned().await else { return };
            while under_way.try_join_next().is_some() {}
            let context = context.clone();
            under_way.spawn(async move {
                let _turn = turn;
                let _hand = context.lanes.lock_job(effect.job()).await;
                execute_effect(&context, batch.job, &effect).await;
            });
        }
    }
}

/// Everything else, in its order, once it is stored.
async fn run_others(context: &DaemonContext, mut queue: mpsc::Receiver<QueuedBatch>) {
    while let Some(QueuedBatch { number, batch }) = queue.recv().await {
        let stored = save_changes(context).await;
        for effect in batch.effects {
            // Before the hand is taken: whoever gives the same job back waits for that.
            let overtaken = stored && effect.takes_nodes() && context.has_new_jobs().await;
            let _hand = context.lanes.lock_job(effect.job()).await;
            let at = now();
            if context.lanes.is_outdated(number, effect.job()) {
                tracing::debug!(job = %batch.job, "did not do {effect:?}: it is to leave");
            } else if overtaken {
                tracing::debug!(job = %batch.job, "did not do {effect:?}: a job has come since the look at Slurm");
                context.change_fleet(at, |state| state.fleet.effect_outdated(batch.job, &effect, at));
            } else if effect.takes_nodes() && !stored {
                let why = "the store is away: nothing is started";
                context
                    .change_fleet(at, |state| state.fleet.effect_failed(batch.job, &effect, why, true, at));
            } else {
                execute_effect(context, batch.job, &effect).await;
            }
        }
        context.lanes.mark_done(number);
    }
}

/// Stores what changed as soon as it has: agents are told of a new generation then, and do not wait for
/// Slurm.
async fn keep_saved(context: &DaemonContext) {
    loop {
        context.lanes.wait_for_batch().await;
        save_changes(context).await;
    }
}

async fn execute_effect(context: &DaemonContext, job: JobId, effect: &Effect) {
    // The machine asks again if it still wants it then.
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
            // That Slurm is away has been said; every effect fails then, again and again.
            if e.is_transient() && context.lock_state().health.has_problem(ProblemTopic::Slurm) {
                tracing::debug!(job = %job, "could not do {effect:?}: {e}");
            } else {
                tracing::warn!(job = %job, retry = e.is_transient(), "could not do {effect:?}: {e}");
            }
            let why = e.to_string();
            let passing = e.is_transient();
            let at = now();
            context.change_fleet(at, |state| state.fleet.effect_failed(job, effect, &why, passing, at));
        }
    }
}

/// Does one effect, after making sure that its Slurm job is ours to touch.
///
/// # Errors
/// [`SlurmError::Denied`] when the job lies outside the partition, or is no part of the malleable job; else
/// what Slurm says. A job that Slurm does not know any more is no error: there is nothing left to do.
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
        // Since the machine looked, somebody may have held it.
        Effect::Launch { .. } if job.held && job.is_held_by_admin() => {
            let doing = format!("launching job {}", job.id);
            // The next look tells the machine.
            Err(SlurmError::Transient { doing, what: "an administrator holds it".to_owned() })
        }
        Effect::Launch { job, node, limit_mins } => slurm.launch_job(*job, node, *limit_mins).await,
        Effect::Hold { job } => slurm.hold_job(*job).await,
        // Somebody has released it since: without its node Slurm would start it anywhere.
        Effect::Unpin { .. } if !job.held => Ok(()),
        Effect::Unpin { job } => slurm.unpin_job(*job).await,
        Effect::RequeueHold { .. } if job.state.is_pending() => slurm.hold_job(job.id).await,
        Effect::RequeueHold { job } => slurm.requeue_hold(*job).await,
        Effect::SetLimit { job, limit_mins } => slurm.set_time_limit(*job, *limit_mins).await,
        Effect::ShrinkWing { job, keep } => slurm.shrink_job(*job, keep).await,
        Effect::CancelWing { job } => slurm.cancel_job(*job).await,
    }
}

/// Refuses every job that is not in the partition and a part of this malleable job.
fn check_ownership(job: &Job, partition: &str, lead: JobId) -> Result<(), SlurmError> {
    let ours = job.id == lead || infill_model::lead_of_wing(job) == Some(lead);
    if job.partition == partition && ours {
        return Ok(());
    }
    Err(SlurmError::Denied {
        doing: format!("acting on job {} for malleable job {lead}", job.id),
        what: format!("it is in partition {:?}, and not ours to touch", job.partition),
    })
}

/// Stores what changed; says whether everything is in the store now.
pub(crate) async fn save_changes(context: &DaemonContext) -> bool {
    // One at a time: whoever finds nothing to store must know that nobody else is failing to store it.
    let mut failed_at = context.saving.jobs.lock().await;
    let (dirty, generations) = {
        let mut state = context.lock_state();
        let dirty = state.ledger.take_dirty();
        let records: Vec<LeadRecord> =
            dirty.iter().filter_map(|job| state.fleet.lead_record(*job, now())).collect();
        (records, state.ledger.take_generations())
    };
    let resting = failed_at.is_some_and(|at| at.elapsed() < STORE_RETRY_PAUSE);
    let result =
        if resting { Err(None) } else { write_changes(context, &dirty, &generations).await.map_err(Some) };
    let jobs: Vec<JobId> = dirty.iter().map(|d| d.job).collect();
    match result {
        Ok(()) => {
            *failed_at = None;
            record_saved(context, jobs);
            true
        }
        Err(e) => {
            if let Some(e) = e {
                *failed_at = Some(Instant::now());
                context.store_failed(&e);
            }
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
    state.ledger.mark_dirty(jobs.iter().copied());
    state.ledger.put_generations_back(generations);
    context.run_actions(state.release_orders(jobs, false));
}

async fn write_changes(
    context: &DaemonContext,
    dirty: &[LeadRecord],
    generations: &[GenerationRecord],
) -> Result<(), StoreError> {
    if !dirty.is_empty() {
        context.store.put_leads(dirty).await?;
    }
    if !generations.is_empty() {
        context.store.add_generations(generations).await?;
    }
    // With nothing to store, only trying tells whether a store that failed works again.
    if context.lock_state().health.has_problem(ProblemTopic::Store) {
        context.store.put_setting(PROBE_SETTING, &now().0.to_string()).await?;
    }
    Ok(())
}

/// Stores everything that has changed, and history, at the end. What is being stored by others is waited for.
pub(crate) async fn save_all(context: &DaemonContext) {
    if save_changes(context).await {
        context.lock_state().flush_records();
        history_writer::write_history(context).await;
        profile_storage::save_unsaved(context).await;
    } else {
        tracing::error!("the last changes could not be stored; the next daemon reads the truth from Slurm");
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

    /// A daemon that has just begun, beside this Slurm.
    async fn daemon(slurm: Arc<FakeSlurm>) -> (Arc<DaemonContext>, EffectReceivers) {
        let at = now();
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let services = DaemonServices { slurm, store, identity: Arc::new(FakeIdentity::default()) };
        let state = DaemonState::new(Arc::new(Config::default()), at);
        let (context, queues) = DaemonContext::new(services, state, LeadStanding::Alone, at);
        (Arc::new(context), queues)
    }

    #[tokio::test]
    async fn at_the_end_history_is_stored_too_after_what_is_being_stored() {
        let at = UnixTime(100);
        let (context, _queues) = daemon(Arc::new(FakeSlurm::new(1, "infill"))).await;
        let jobs = Vec::new();
        let steps = Vec::new();
        let plan = Plan { at, jobs, status: SolveStatus::Trivial, proof: None, objective: 0.0, steps };
        context.lock_state().ledger.add_round(RoundRecord {
            at,
            plan,
            report: RoundReport::default(),
            acted: true,
        });
        let saving = context.saving.jobs.lock().await;
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

    #[tokio::test]
    async fn nothing_is_started_when_a_job_has_come_since_the_look() {
        let slurm = Arc::new(FakeSlurm::new(1, "infill"));
        let job = slurm.submit_held(1, 6101, "infill:nodes=1");
        let (context, queues) = daemon(slurm.clone()).await;
        slurm.read_snapshot().await.unwrap();
        slurm.submit_held(9, 6102, "");
        slurm.edit_snapshot(|w| w.jobs.last_mut().unwrap().partition = "main".to_owned());
        let executor = tokio::spawn(run(context.clone(), queues));
        let send = || {
            let node = NodeName::new("n1");
            let effects = vec![Effect::Launch { job, node, limit_mins: 9 }, Effect::Hold { job }];
            context.lanes.send_batch(EffectBatch { job, effects });
        };
        let until = async |what: &str, done: &dyn Fn(&[FakeChange]) -> bool| {
            let end = Instant::now() + Duration::from_secs(10);
            while !done(&slurm.recorded_changes()) {
                assert!(Instant::now() < end, "{what}: {:?}", slurm.recorded_changes());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let holds =
            |acts: &[FakeChange]| acts.iter().filter(|a| matches!(a, FakeChange::Hold { .. })).count();
        let launches = |acts: &[FakeChange]| acts.iter().any(|a| matches!(a, FakeChange::Launch { .. }));
        send();
        until("what takes no nodes is done all the same", &|acts| holds(acts) == 1).await;
        assert!(!launches(&slurm.recorded_changes()), "{:?}", slurm.recorded_changes());
        // It is looked at once more, and that job is known.
        slurm.read_snapshot().await.unwrap();
        context.recheck.note_snapshot();
        send();
        until("it is started now", &|acts| launches(acts)).await;
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
        let limit = |job: usize| Effect::SetLimit { job: jobs[job], limit_mins: 9 };
        for (job, effects) in [
            (0, vec![limit(0)]),
            (1, vec![limit(1), Effect::RequeueHold { job: jobs[1] }]),
            (2, vec![limit(2)]),
            (2, vec![Effect::RequeueHold { job: jobs[2] }]),
        ] {
            context.lanes.send_batch(EffectBatch { job: jobs[job], effects });
        }
        let left = |act: &FakeChange| matches!(act, FakeChange::RequeueHold { .. });
        let end = Instant::now() + Duration::from_secs(10);
        while slurm.recorded_changes().iter().filter(|act| left(act)).count() < 2 {
            assert!(Instant::now() < end, "leaving stands behind a limit: {:?}", slurm.recorded_changes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // What was asked of those that have left is not done afterwards.
        slurm.hang_limits(false);
        context.lanes.send_batch(EffectBatch { job: jobs[3], effects: vec![limit(3)] });
        let done = |job: usize| {
            slurm.recorded_changes().contains(&FakeChange::SetTimeLimit { job: jobs[job], limit_mins: 9 })
        };
        while !done(3) {
            assert!(Instant::now() < end, "{:?}", slurm.recorded_changes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(done(0) && !done(2), "{:?}", slurm.recorded_changes());
        executor.abort();
    }

    #[tokio::test]
    async fn what_is_pending_when_the_lead_is_lost_is_not_done() {
        for leads in [true, false] {
            let slurm = Arc::new(FakeSlurm::new(1, "infill"));
            let job = slurm.submit_held(1, 6101, "infill:nodes=1");
            slurm.launch_job(job, &NodeName::new("n1"), 60).await.unwrap();
            let (context, mut queues) = daemon(slurm.clone()).await;
            let effects = vec![Effect::SetLimit { job, limit_mins: 9 }];
            context.lanes.send_batch(EffectBatch { job, effects });
            if !leads {
                context.leadership.mark_lost();
            }
            // It ends with what is in it.
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
        slurm.edit_snapshot(|world| world.jobs[0].state = JobState::from_base(BaseState::Completed));
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
