//! History: written after each round, kept in memory while the store is away, thrown away where it is old.

use std::sync::Arc;

use super::context::Context;
use super::ledger::{Kind, Pages};
use crate::timeline;
use crate::timeline::Hour;
use infill_model::{UnixTime, clock::now};
use infill_store::{KeptSince, StoreError};

/// Setting of the store that keeps how long nodes take to come up and to become free.
pub(crate) const NODE_TIMES_SETTING: &str = "node_times";

/// Setting of the store that keeps which stops of jobs overlapped.
pub(crate) const SHARED_SAVES_SETTING: &str = "shared_saves";

/// Setting of the store that keeps what users have had of the gaps.
pub(crate) const USAGE_SETTING: &str = "usage";

const PACKING: &str = "packing what nodes were used for";

/// Seconds in a day.
const DAY_SECS: i64 = 86_400;

/// Writes what waits, one kind after the other. What fails waits for the next time.
pub(crate) async fn write(context: &Context) {
    // Whoever deletes profiles meanwhile would get their measurements back.
    let _turn = context.saving.learned.lock().await;
    let mut pages = context.state().ledger.take_pages();
    if let Err(e) = write_pages(context, &mut pages).await {
        context.store_failed(&e);
        context.state().ledger.put_pages_back(pages);
        return;
    }
    let times = context.state().scene.node_times_mut().take_unsaved();
    if let Some(text) = times
        && let Err(e) = context.store.put_setting(NODE_TIMES_SETTING, &text).await
    {
        context.store_failed(&e);
        context.state().scene.node_times_mut().not_saved();
    }
    let saves = context.state().scene.shared_saves_mut().take_unsaved();
    if let Some(text) = saves
        && let Err(e) = context.store.put_setting(SHARED_SAVES_SETTING, &text).await
    {
        context.store_failed(&e);
        context.state().scene.shared_saves_mut().not_saved();
    }
    let usage = context.state().scene.turns_mut().usage.take_unsaved();
    if let Some(text) = usage
        && let Err(e) = context.store.put_setting(USAGE_SETTING, &text).await
    {
        context.store_failed(&e);
        context.state().scene.turns_mut().usage.not_saved();
    }
}

/// Writes page after page; those that are left could not be written.
async fn write_pages(context: &Context, pages: &mut Pages) -> Result<(), StoreError> {
    while let Some(round) = pages.rounds.front() {
        settle(context, Kind::Rounds, 1, context.store.add_round(round).await)?;
        pages.rounds.pop_front();
    }
    if !pages.gaps.is_empty() {
        settle(context, Kind::Gaps, pages.gaps.len(), context.store.add_gaps(&pages.gaps).await)?;
        pages.gaps.clear();
    }
    if !pages.ended.is_empty() {
        let result = context.store.add_ended(&pages.ended).await.map(drop);
        settle(context, Kind::Ended, pages.ended.len(), result)?;
        pages.ended.clear();
    }
    if !pages.measurements.is_empty() {
        let result = context.store.add_measurements(&pages.measurements).await;
        settle(context, Kind::Measurements, pages.measurements.len(), result)?;
        pages.measurements.clear();
    }
    while let Some(hour) = pages.hours.front() {
        settle(context, Kind::Hours, 1, write_hour(context, hour.clone()).await)?;
        pages.hours.pop_front();
    }
    if !pages.delays.is_empty() {
        settle(context, Kind::Delays, pages.delays.len(), context.store.add_delays(&pages.delays).await)?;
        pages.delays.clear();
    }
    if !pages.spent.is_empty() {
        settle(context, Kind::Spent, pages.spent.len(), context.store.put_spent(&pages.spent).await)?;
        pages.spent.clear();
    }
    Ok(())
}

/// Packs an hour, which takes a tenth of a second for a large machine, and writes it.
async fn write_hour(context: &Context, hour: Arc<Hour>) -> Result<(), StoreError> {
    let refused = |what: String| StoreError::Corrupt { doing: PACKING.to_owned(), what };
    let packing = tokio::task::spawn_blocking(move || (hour.pack(), timeline::sums(&hour)));
    let (packed, sums) = packing.await.map_err(|e| refused(e.to_string()))?;
    context.store.put_hour(&packed.map_err(|e| refused(e.to_string()))?, &sums).await
}

/// What the store will never take is given up, so that it does not hold up the rest for ever.
fn settle(
    context: &Context,
    kind: Kind,
    rows: usize,
    result: Result<(), StoreError>,
) -> Result<(), StoreError> {
    match result {
        Err(e @ StoreError::Corrupt { .. }) => {
            tracing::error!(kind = kind.word(), rows, "history is given up, for the store refuses it: {e}");
            context.state().ledger.lose(kind, rows);
            Ok(())
        }
        result => result,
    }
}

/// Forgets what is old.
pub(crate) async fn prune(context: &Context) {
    let days_ago = |days: u32| UnixTime(now().0 - i64::from(days) * DAY_SECS);
    let store = &context.config.store;
    // What names users is kept for no longer than their usage is.
    let users = days_ago(store.keep_usage_days);
    let named = |days| days_ago(days).max(users);
    let since = KeptSince {
        rounds: named(context.config.daemon.keep_days),
        profiles: named(store.keep_profile_days),
        ended: named(store.keep_history_days),
        hours: named(store.keep_node_days),
        users,
        profiles_a_user: store.max_profiles_a_user,
    };
    match context.store.prune(&since).await {
        Ok(rows) => tracing::debug!(rows, "old rows deleted"),
        Err(e) => tracing::warn!("old rows could not be deleted: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Services;
    use crate::serve::restore;
    use crate::state::State;
    use infill_model::{
        BatchMode, ExecPlan, GenerationStop, JobId, NodeType, ProfileKey, StopOutcome, UserId, config::Config,
    };
    use infill_slurm::{fake::FakeSlurm, identity::FakeIdentity};
    use infill_store::LeadStanding;

    fn state() -> State {
        State::new(Arc::new(Config::default()), now())
    }

    /// Three stops of 10 s each, one after the other, and thirty at once.
    fn note_stops(state: &mut State) {
        let (node_type, exec_plan) = (NodeType::new("a"), ExecPlan::default());
        let (user, name) = ("anna".to_owned(), "x".to_owned());
        let key = ProfileKey { user, name, node_type, exec_plan, batch: BatchMode::Auto };
        for n in 0..33 {
            let stop = GenerationStop { job: JobId(n), generation: 1, secs: 10.0, end: StopOutcome::Saved };
            state.scene.stopped(&key, &stop, true, now() + (i64::from(n.min(3)) * 100 - 1000));
        }
    }

    #[tokio::test]
    async fn what_saves_that_overlapped_have_shown_outlives_the_daemon() {
        infill_slurm::install_crypto();
        let store = infill_store::open("sqlite::memory:", || ()).await.unwrap();
        let services = Services {
            slurm: Arc::new(FakeSlurm::new(1, "infill")),
            store: store.clone(),
            identity: Arc::new(FakeIdentity { users: [("root's".to_owned(), UserId(0))].into() }),
        };
        let (context, _queues) = Context::new(services, state(), LeadStanding::Alone, now());
        note_stops(&mut context.state());
        write(&context).await;
        let mut next = state();
        let _errands = restore(&mut next, store.as_ref()).await.unwrap();
        let shared = next.scene.shared_saves_mut();
        let before = shared.contention();
        shared.learn();
        let most = |[_, most]: [infill_model::SaveContention; 2]| most.slowdown_factor(10.0);
        assert_eq!((most(before), most(shared.contention())), (1.0, 0.0), "they do not slow each other down");
    }
}
