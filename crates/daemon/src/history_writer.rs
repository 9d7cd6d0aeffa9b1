//! History: written after each round, kept in memory while the store is away, thrown away where it is old.

use std::sync::Arc;

use super::context::DaemonContext;
use super::write_queue::{HistoryKind, WriteBatch};
use crate::timeline;
use crate::timeline::UsageHour;
use infill_model::{UnixTime, clock::now};
use infill_store::{RetentionLimits, StoreError};

/// Setting of the store that keeps how long nodes take to come up and to become free.
pub(crate) const NODE_TIMES_SETTING: &str = "node_times";

/// Setting of the store that keeps which stops of jobs overlapped.
pub(crate) const SHARED_SAVES_SETTING: &str = "shared_saves";

/// Setting of the store that keeps what users have had of the gaps.
pub(crate) const USAGE_SETTING: &str = "usage";

const PACKING_HOUR: &str = "packing what nodes were used for";

/// Seconds in a day.
const DAY_SECS: i64 = 86_400;

/// Writes what waits, one kind after the other. What fails waits for the next time.
pub(crate) async fn write_history(context: &DaemonContext) {
    // Whoever deletes profiles meanwhile would get their measurements back.
    let _turn = context.saving.learned.lock().await;
    let mut pages = context.lock_state().ledger.take_batch();
    if let Err(e) = write_batch(context, &mut pages).await {
        context.store_failed(&e);
        context.lock_state().ledger.put_batch_back(pages);
        return;
    }
    let times = context.lock_state().scene.node_times_mut().take_unsaved();
    if let Some(text) = times
        && let Err(e) = context.store.put_setting(NODE_TIMES_SETTING, &text).await
    {
        context.store_failed(&e);
        context.lock_state().scene.node_times_mut().not_saved();
    }
    let saves = context.lock_state().scene.shared_saves_mut().take_unsaved();
    if let Some(text) = saves
        && let Err(e) = context.store.put_setting(SHARED_SAVES_SETTING, &text).await
    {
        context.store_failed(&e);
        context.lock_state().scene.shared_saves_mut().mark_unsaved();
    }
    let usage = context.lock_state().scene.priorities_mut().usage.take_unsaved();
    if let Some(text) = usage
        && let Err(e) = context.store.put_setting(USAGE_SETTING, &text).await
    {
        context.store_failed(&e);
        context.lock_state().scene.priorities_mut().usage.not_saved();
    }
}

/// Writes page after page; those that are left could not be written.
async fn write_batch(context: &DaemonContext, pages: &mut WriteBatch) -> Result<(), StoreError> {
    while let Some(round) = pages.rounds.front() {
        drop_if_refused(context, HistoryKind::Rounds, 1, context.store.add_round(round).await)?;
        pages.rounds.pop_front();
    }
    if !pages.gaps.is_empty() {
        drop_if_refused(
            context,
            HistoryKind::Gaps,
            pages.gaps.len(),
            context.store.add_gaps(&pages.gaps).await,
        )?;
        pages.gaps.clear();
    }
    if !pages.ended.is_empty() {
        let result = context.store.add_ended_jobs(&pages.ended).await.map(drop);
        drop_if_refused(context, HistoryKind::Ended, pages.ended.len(), result)?;
        pages.ended.clear();
    }
    if !pages.measurements.is_empty() {
        let result = context.store.add_measurements(&pages.measurements).await;
        drop_if_refused(context, HistoryKind::Measurements, pages.measurements.len(), result)?;
        pages.measurements.clear();
    }
    while let Some(hour) = pages.hours.front() {
        drop_if_refused(context, HistoryKind::Hours, 1, write_hour(context, hour.clone()).await)?;
        pages.hours.pop_front();
    }
    if !pages.delays.is_empty() {
        drop_if_refused(
            context,
            HistoryKind::Delays,
            pages.delays.len(),
            context.store.add_delays(&pages.delays).await,
        )?;
        pages.delays.clear();
    }
    if !pages.spent.is_empty() {
        drop_if_refused(
            context,
            HistoryKind::Spent,
            pages.spent.len(),
            context.store.put_node_time(&pages.spent).await,
        )?;
        pages.spent.clear();
    }
    Ok(())
}

/// Packs an hour, which takes a tenth of a second for a large machine, and writes it.
async fn write_hour(context: &DaemonContext, hour: Arc<UsageHour>) -> Result<(), StoreError> {
    let refused = |what: String| StoreError::Corrupt { doing: PACKING_HOUR.to_owned(), what };
    let packing = tokio::task::spawn_blocking(move || (hour.pack(), timeline::sum_hour(&hour)));
    let (packed, sums) = packing.await.map_err(|e| refused(e.to_string()))?;
    context.store.put_hour(&packed.map_err(|e| refused(e.to_string()))?, &sums).await
}

/// What the store will never take is given up, so that it does not hold up the rest for ever.
fn drop_if_refused(
    context: &DaemonContext,
    kind: HistoryKind,
    rows: usize,
    result: Result<(), StoreError>,
) -> Result<(), StoreError> {
    match result {
        Err(e @ StoreError::Corrupt { .. }) => {
            tracing::error!(kind = kind.word(), rows, "history is given up, for the store refuses it: {e}");
            context.lock_state().ledger.count_lost(kind, rows);
            Ok(())
        }
        result => result,
    }
}

/// Forgets what is old.
pub(crate) async fn prune_history(context: &DaemonContext) {
    let days_ago = |days: u32| UnixTime(now().0 - i64::from(days) * DAY_SECS);
    let store = &context.config.store;
    // What names users is kept for no longer than their usage is.
    let users = days_ago(store.keep_usage_days);
    let named = |days| days_ago(days).max(users);
    let since = RetentionLimits {
        rounds: named(context.config.daemon.keep_days),
        profiles: named(store.keep_profile_days),
        ended: named(store.keep_history_days),
        hours: named(store.keep_node_days),
        users,
        profiles_a_user: store.max_profiles_a_user,
    };
    match context.store.prune_history(&since).await {
        Ok(rows) => tracing::debug!(rows, "old rows deleted"),
        Err(e) => tracing::warn!("old rows could not be deleted: {e}"),
    }
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

    /// Three stops of 10 s each, one after the other, and thirty at once.
    fn note_stops(state: &mut DaemonState) {
        let node_type = NodeType::new("a");
        let exec_plan = ExecPlan::default();
        let user = "anna".to_owned();
        let name = "x".to_owned();
        let key = ProfileKey { user, name, node_type, exec_plan, batch: BatchMode::Auto };
        for n in 0..33 {
            let stop = GenerationStop { job: JobId(n), generation: 1, secs: 10.0, end: StopOutcome::Saved };
            state.scene.record_stop(&key, &stop, true, now() + (i64::from(n.min(3)) * 100 - 1000));
        }
    }

    #[tokio::test]
    async fn what_saves_that_overlapped_have_shown_outlives_the_daemon() {
        infill_slurm::install_crypto();
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let services = DaemonServices {
            slurm: Arc::new(FakeSlurm::new(1, "infill")),
            store: store.clone(),
            identity: Arc::new(FakeIdentity { users: [("root's".to_owned(), UserId(0))].into() }),
        };
        let (context, _queues) = DaemonContext::new(services, state(), LeadStanding::Alone, now());
        note_stops(&mut context.lock_state());
        write_history(&context).await;
        let mut next = state();
        let _errands = restore_state(&mut next, store.as_ref()).await.unwrap();
        let shared = next.scene.shared_saves_mut();
        let before = shared.contention_bounds();
        shared.learn_contention();
        let most = |[_, most]: [infill_model::SaveContention; 2]| most.slowdown_factor(10.0);
        assert_eq!(
            (most(before), most(shared.contention_bounds())),
            (1.0, 0.0),
            "they do not slow each other down"
        );
    }
}
