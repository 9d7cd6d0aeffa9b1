//! Profiles between memory and the store.

use super::context::DaemonContext;
use super::health::ProblemTopic;
use infill_model::{Profile, clock::now};
use infill_store::StoreError;

/// Most profiles of a user, or of a name, that are taken into memory: the last changed ones.
const MOST_PROFILES_A_LOOKUP: u32 = 1000;

/// Most users and names whose profiles are read in one round: after a start all come at once.
const MOST_LOOKUPS_A_ROUND: usize = 20;

/// Reads the stored profiles that may concern jobs which have come since the last round.
pub(crate) async fn load_missing(context: &DaemonContext) {
    let filters = {
        let state = context.lock_state();
        // Asking a store that is away takes time, and the round waits.
        if state.health.has_problem(ProblemTopic::Store) {
            return;
        }
        state.profiles_to_load(now())
    };
    for filter in filters.into_iter().take(MOST_LOOKUPS_A_ROUND) {
        match context.store.find_profiles(&filter, MOST_PROFILES_A_LOOKUP).await {
            Ok(profiles) => context.lock_state().load_profiles(filter, profiles, now()),
            // Tried again in the next round.
            Err(e) => return context.store_failed(&e),
        }
    }
}

/// Stores the profiles that have changed.
pub(crate) async fn save_unsaved(context: &DaemonContext) {
    // Whoever deletes or replaces profiles meanwhile would get the old ones back.
    let _turn = context.saving.learned.lock().await;
    let unsaved = context.lock_state().scene.job_advisor_mut().take_unsaved();
    if unsaved.is_empty() {
        return;
    }
    match context.store.put_profiles(&unsaved).await {
        Ok(()) => {}
        Err(StoreError::Corrupt { .. }) => save_each(context, &unsaved).await,
        Err(e) => {
            context.lock_state().scene.job_advisor_mut().mark_unsaved(&unsaved);
            context.store_failed(&e);
        }
    }
}

/// Stores profiles one by one: what the store will never take is given up, so that it holds up nothing else.
async fn save_each(context: &DaemonContext, profiles: &[Profile]) {
    for (i, profile) in profiles.iter().enumerate() {
        match context.store.put_profiles(std::slice::from_ref(profile)).await {
            Ok(()) => {}
            Err(e @ StoreError::Corrupt { .. }) => {
                tracing::error!(profile = ?profile.key, "a profile is given up, for the store refuses it: {e}");
                context.lock_state().scene.job_advisor_mut().drop_profile(&profile.key);
            }
            Err(e) => {
                context.lock_state().scene.job_advisor_mut().mark_unsaved(&profiles[i..]);
                return context.store_failed(&e);
            }
        }
    }
}
