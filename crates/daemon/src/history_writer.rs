//! Writes history after each round, keeps it in memory while the store is down, and deletes old rows.

use std::sync::Arc;

use super::context::DaemonContext;
use super::write_queue::{HistoryKind, WriteBatch};
use crate::timeline;
use crate::timeline::UsageHour;
use infill_model::{UnixTime, clock::now};
use infill_store::{RetentionLimits, StoreError};

/// The store's setting that holds how long nodes take to come up and to become free.
pub(crate) const NODE_TIMES_SETTING: &str = "node_times";

/// The store's setting that holds which stops of jobs overlapped.
pub(crate) const SHARED_SAVES_SETTING: &str = "shared_saves";

/// The store's setting that holds how much of the gaps each user has used.
pub(crate) const USAGE_SETTING: &str = "usage";

/// The operation that errors of [`write_hour`] name.
const PACKING_HOUR: &str = "packing what nodes were used for";

/// Seconds in a day.
const DAY_SECS: i64 = 86_400;

/// Writes all waiting rows, one kind after the other. Rows that fail wait for the next call.
///
/// # Errors
/// If something waits on. The daemon's health says so too.
pub(crate) async fn write_history(context: &DaemonContext) -> Result<(), StoreError> {
    // Without this lock, measurements of profiles that are deleted meanwhile would come back.
    let _lock = context.save_locks.learned.lock().await;
    let mut batch = context.lock_state().write_queue.take_batch();
    if let Err(e) = write_batch(context, &mut batch).await {
        context.store_failed(&e);
        context.lock_state().write_queue.put_batch_back(batch);
        return Err(e);
    }
    let times = context.lock_state().round_state.node_times_mut().take_unsaved();
    let times = write_setting(context, NODE_TIMES_SETTING, times).await;
    if times.is_err() {
        context.lock_state().round_state.node_times_mut().mark_unsaved();
    }
    let saves = context.lock_state().round_state.shared_saves_mut().take_unsaved();
    let saves = write_setting(context, SHARED_SAVES_SETTING, saves).await;
    if saves.is_err() {
        context.lock_state().round_state.shared_saves_mut().mark_unsaved();
    }
    let usage = context.lock_state().round_state.priorities_mut().usage.take_unsaved();
    let usage = write_setting(context, USAGE_SETTING, usage).await;
    if usage.is_err() {
        context.lock_state().round_state.priorities_mut().usage.mark_unsaved();
    }
    times.and(saves).and(usage)
}

/// Writes a setting, if it has changed.
async fn write_setting(context: &DaemonContext, key: &str, text: Option<String>) -> Result<(), StoreError> {
    let Some(text) = text else { return Ok(()) };
    context.store.put_setting(key, &text).await.inspect_err(|e| context.store_failed(e))
}

/// Writes the rows of a batch. On an error the batch holds the rows that could not be written.
async fn write_batch(context: &DaemonContext, batch: &mut WriteBatch) -> Result<(), StoreError> {
    while let Some(round) = batch.rounds.front() {
        drop_if_refused(context, HistoryKind::Rounds, 1, context.store.add_round(round).await)?;
        batch.rounds.pop_front();
    }
    if !batch.gaps.is_empty() {
        drop_if_refused(
            context,
            HistoryKind::Gaps,
            batch.gaps.len(),
            context.store.add_gaps(&batch.gaps).await,
        )?;
        batch.gaps.clear();
    }
    if !batch.ended.is_empty() {
        let result = context.store.add_ended_jobs(&batch.ended).await.map(drop);
        drop_if_refused(context, HistoryKind::Ended, batch.ended.len(), result)?;
        batch.ended.clear();
    }
    if !batch.measurements.is_empty() {
        let result = context.store.add_measurements(&batch.measurements).await;
        drop_if_refused(context, HistoryKind::Measurements, batch.measurements.len(), result)?;
        batch.measurements.clear();
    }
    while let Some(hour) = batch.hours.front() {
        drop_if_refused(context, HistoryKind::Hours, 1, write_hour(context, hour.clone()).await)?;
        batch.hours.pop_front();
    }
    if !batch.delays.is_empty() {
        drop_if_refused(
            context,
            HistoryKind::Delays,
            batch.delays.len(),
            context.store.add_delays(&batch.delays).await,
        )?;
        batch.delays.clear();
    }
    if !batch.spent.is_empty() {
        drop_if_refused(
            context,
            HistoryKind::Spent,
            batch.spent.len(),
            context.store.put_node_time(&batch.spent).await,
        )?;
        batch.spent.clear();
    }
    Ok(())
}

/// Packs an hour and writes it. Packing takes a tenth of a second on a large cluster.
async fn write_hour(context: &DaemonContext, hour: Arc<UsageHour>) -> Result<(), StoreError> {
    let packing = tokio::task::spawn_blocking(move || (hour.pack(), timeline::sum_hour(&hour)));
    let (packed, sums) = packing.await.map_err(packing_error)?;
    context.store.put_hour(&packed.map_err(packing_error)?, &sums).await
}

fn packing_error(error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { doing: PACKING_HOUR.to_owned(), what: error.to_string() }
}

/// Drops rows that the store will never accept, so that they do not block the rest.
fn drop_if_refused(
    context: &DaemonContext,
    kind: HistoryKind,
    rows: usize,
    result: Result<(), StoreError>,
) -> Result<(), StoreError> {
    match result {
        Err(e @ StoreError::Corrupt { .. }) => {
            tracing::error!(kind = kind.word(), rows, "history is dropped because the store refuses it: {e}");
            context.lock_state().write_queue.count_lost(kind, rows);
            Ok(())
        }
        result => result,
    }
}

/// Deletes old rows.
pub(crate) async fn prune_history(context: &DaemonContext) {
    let now = now();
    let store = &context.config.store;
    // Rows that name users are kept no longer than the users' usage.
    let users = days_before(now, store.keep_usage_days);
    let since = RetentionLimits {
        rounds: days_before(now, context.config.daemon.keep_days).max(users),
        profiles: days_before(now, store.keep_profile_days).max(users),
        ended: days_before(now, store.keep_history_days).max(users),
        hours: days_before(now, store.keep_node_days).max(users),
        users,
        profiles_a_user: store.max_profiles_a_user,
    };
    match context.store.prune_history(&since).await {
        Ok(rows) => tracing::debug!(rows, "deleted old rows"),
        Err(e) => tracing::warn!("cannot delete old rows: {e}"),
    }
}

fn days_before(now: UnixTime, days: u32) -> UnixTime {
    UnixTime(now.0 - i64::from(days) * DAY_SECS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::DaemonServices;
    use crate::serve::restore_state;
    use crate::state::DaemonState;
    use infill_model::{
        BatchMode, ExecPlan, GenerationStop, JobId, NodeType, ProfileKey, StopOutcome, UserId, config::Config,
    };
    use infill_slurm::{fake::FakeSlurm, identity::FakeIdentity};
    use infill_store::LeadStanding;

    fn state() -> DaemonState {
        DaemonState::new(Arc::new(Config::default()), now())
    }

    /// Records three stops of 10 s each, one after the other, and thirty at once.
    fn record_stops(state: &mut DaemonState) {
        let node_type = NodeType::new("a");
        let exec_plan = ExecPlan::default();
        let user = "anna".to_owned();
        let name = "x".to_owned();
        let key = ProfileKey { user, name, node_type, exec_plan, batch: BatchMode::Auto };
        for n in 0..33 {
            let stop = GenerationStop { job: JobId(n), generation: 1, secs: 10.0, end: StopOutcome::Saved };
            state.round_state.record_stop(&key, &stop, true, now() + (i64::from(n.min(3)) * 100 - 1000));
        }
    }

    #[tokio::test]
    async fn the_contention_of_overlapping_saves_outlives_the_daemon() {
        infill_slurm::install_crypto();
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let services = DaemonServices {
            slurm: Arc::new(FakeSlurm::new(1, "infill")),
            store: store.clone(),
            identity: Arc::new(FakeIdentity { users: [("root's".to_owned(), UserId(0))].into() }),
        };
        let (context, _queues) = DaemonContext::new(services, state(), LeadStanding::Alone, now());
        record_stops(&mut context.lock_state());
        write_history(&context).await.unwrap();
        let mut next = state();
        let _actions = restore_state(&mut next, store.as_ref()).await.unwrap();
        let shared = next.round_state.shared_saves_mut();
        let [_, most_before] = shared.contention_bounds();
        shared.learn_contention();
        let [_, most_after] = shared.contention_bounds();
        assert_eq!(most_before.slowdown_factor(10.0), 1.0);
        assert_eq!(most_after.slowdown_factor(10.0), 0.0, "the saves do not slow each other down");
    }
}
