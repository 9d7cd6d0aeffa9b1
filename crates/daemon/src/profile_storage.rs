//! Moves profiles between memory and the store.

use super::context::DaemonContext;
use super::health::ProblemTopic;
use infill_model::{Profile, clock::now};
use infill_store::StoreError;

/// Most profiles of a user, or of a name, that are loaded into memory. The last changed ones count.
const MAX_PROFILES_PER_LOOKUP: u32 = 1000;

/// Most look-ups in one round. After a start, all jobs need theirs at once.
const MAX_LOOKUPS_PER_ROUND: usize = 20;

/// Reads the stored profiles that may concern jobs which arrived since the last round.
pub(crate) async fn load_missing(context: &DaemonContext) {
    let filters = {
        let state = context.lock_state();
        // A store that is down takes time to fail, and the round would wait for it.
        if state.health.has_problem(ProblemTopic::Store) {
            return;
        }
        state.profiles_to_load(now())
    };
    for filter in filters.into_iter().take(MAX_LOOKUPS_PER_ROUND) {
        match context.store.find_profiles(&filter, MAX_PROFILES_PER_LOOKUP).await {
            Ok(profiles) => context.lock_state().load_profiles(filter, profiles, now()),
            // The next round tries again.
            Err(e) => return context.store_failed(&e),
        }
    }
}

/// Stores the profiles that have changed.
pub(crate) async fn save_unsaved(context: &DaemonContext) {
    // Without this lock, profiles that are deleted or replaced meanwhile would come back.
    let _lock = context.save_locks.learned.lock().await;
    let unsaved = context.lock_state().round_state.job_advisor_mut().take_unsaved();
    if unsaved.is_empty() {
        return;
    }
    match context.store.put_profiles(&unsaved).await {
        Ok(()) => {}
        Err(StoreError::Corrupt { .. }) => save_each(context, &unsaved).await,
        Err(e) => {
            context.lock_state().round_state.job_advisor_mut().mark_unsaved(&unsaved);
            context.store_failed(&e);
        }
    }
}

/// Stores profiles one by one. Drops a profile that the store will never accept, so that it does not block
/// the others.
async fn save_each(context: &DaemonContext, profiles: &[Profile]) {
    for (i, profile) in profiles.iter().enumerate() {
        match context.store.put_profiles(std::slice::from_ref(profile)).await {
            Ok(()) => {}
            Err(e @ StoreError::Corrupt { .. }) => {
                tracing::error!(profile = ?profile.key, "a profile is dropped because the store refuses it: {e}");
                context.lock_state().round_state.job_advisor_mut().drop_profile(&profile.key);
            }
            Err(e) => {
                context.lock_state().round_state.job_advisor_mut().mark_unsaved(&profiles[i..]);
                return context.store_failed(&e);
            }
        }
    }
}
