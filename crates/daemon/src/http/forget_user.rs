//! Deletes everything that names a user, on the user's request or when the account is gone.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::context::DaemonContext;
use crate::history_writer::write_history;
use crate::order_storage;
use crate::timeline::hour_of;
use infill_advisor::length::LengthPredictor;
use infill_api::{ForgetUserRequest, ForgottenUser, SCHEMA_VERSION};
use infill_model::{EndedJob, MAX_NAME_CHARS, MalleableState, ProfileFilter, clock::now};
use infill_planner::round::MAX_LEARNED_JOBS;
use infill_slurm::identity::look_up_uid;
use infill_store::{StoreError, UserToForget};

use super::browser_sessions::end_sessions_of;
use super::concurrency::run_blocking;
use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, auth};

/// `POST /v1/history/forget`.
pub(crate) async fn forget_user(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ForgetUserRequest>,
) -> Result<Json<ForgottenUser>, RequestDenial> {
    auth::require_admin(&context, uid).await?;
    let name = request.user;
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS {
        let what = format!("expected a login name of 1 to {MAX_NAME_CHARS} characters");
        return Err(RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, what));
    }
    refuse_active_user(&context, &name)?;
    // Without an answer, rows that only a uid names would stay.
    let uid_to_forget = look_up_uid(&name).await.map_err(|e| auth::name_service_silent(&e))?;
    // Rows that wait would be written after the deletion.
    write_history(&context).await?;
    let _lock = context.save_locks.learned.lock().await;
    let user = UserToForget { uid: uid_to_forget, before: hour_of(now()), name };
    let rows = context.store.forget_user(&user).await?;
    forget_in_memory(&context, &user).await?;
    forget_order_giver(&context, &user).await?;
    end_sessions_of(&context, user.uid, Some(&user.name)).await?;
    tracing::info!(%uid, ?rows, "everything that names a user was deleted");
    Ok(Json(ForgottenUser {
        schema: SCHEMA_VERSION,
        profiles: rows.profiles,
        ended_jobs: rows.ended_jobs,
        node_time: rows.node_time,
        leads: rows.leads,
        kept_node_time: rows.kept_node_time,
        has_account: user.uid.is_some(),
    }))
}

/// Forgets that the user gave the order in force.
async fn forget_order_giver(context: &DaemonContext, user: &UserToForget) -> Result<(), StoreError> {
    let uid = user.uid.map(|uid| uid.to_string());
    {
        let mut state = context.lock_state();
        let Some(origin) = &mut state.control.origin else { return Ok(()) };
        if origin.by.as_ref() != Some(&user.name) && (uid.is_none() || origin.by != uid) {
            return Ok(());
        }
        origin.by = None;
    }
    order_storage::store_order_in_force(context).await
}

/// Refuses while the user has malleable jobs: whatever is deleted of a job that runs would come back.
fn refuse_active_user(context: &DaemonContext, name: &str) -> Result<(), RequestDenial> {
    let state = context.lock_state();
    let of_user = state.fleet.job_lifecycles().filter(|lifecycle| {
        let is_active = lifecycle.malleable_state() != MalleableState::Ended;
        let is_over = !is_active && state.write_queue.is_stored(lifecycle.job);
        !is_over && state.fleet.job_details(lifecycle.job).is_some_and(|details| details.user == name)
    });
    match of_user.count() {
        0 => Ok(()),
        count => {
            let what = format!("the user has malleable jobs ({count}): they must end first");
            Err(RequestDenial::new(StatusCode::CONFLICT, what))
        }
    }
}

/// Forgets the user's profiles, usage and ended jobs in memory. The predictor of lengths learns again from
/// the jobs that are left. The forest is grown without the user within a day.
async fn forget_in_memory(context: &DaemonContext, user: &UserToForget) -> Result<(), RequestDenial> {
    let ended = context.store.recent_ended_jobs(MAX_LEARNED_JOBS).await?;
    let learned = run_blocking(move || {
        let past: Vec<_> = ended.iter().map(EndedJob::to_past_job).collect();
        let mut predictor = LengthPredictor::default();
        predictor.learn_history(&past);
        predictor
    });
    let predictor = learned.await?;
    let usage = {
        let mut state = context.lock_state();
        state.forget_profiles(&ProfileFilter { user: Some(user.name.clone()), ..ProfileFilter::default() });
        state.round_state.priorities_mut().length_predictor = predictor;
        state.round_state.priorities_mut().usage.forget_user(&user.name)
    };
    store_usage(context, usage).await?;
    Ok(())
}

/// Stores the usage of all other users at once: it is stored again only while somebody has some.
async fn store_usage(context: &DaemonContext, usage: Option<String>) -> Result<(), StoreError> {
    match usage {
        Some(text) => context.store.put_setting(crate::history_writer::USAGE_SETTING, &text).await,
        None => Ok(()),
    }
}
