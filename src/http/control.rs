//! Orders of an administrator: pause, resume, drain.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::api::{Control, ControlRequest, hello_payload};
use crate::daemon::{CONTROL_SETTING, Context};
use crate::model::UserId;

use super::{Body, Refusal};

/// `POST /v1/control`.
pub async fn control(
    State(context): State<Arc<Context>>,
    Body(request): Body<ControlRequest>,
) -> Result<StatusCode, Refusal> {
    let payload = hello_payload("control", None, &request.nonce);
    let uid = context.identity.verify(&request.credential, &payload).await.map_err(|e| {
        tracing::warn!("an order was refused: {e}");
        Refusal::unproved()
    })?;
    if !is_admin(&context, uid).await {
        tracing::warn!(%uid, "an order was refused: no administrator");
        return Err(Refusal::new(StatusCode::FORBIDDEN, "only administrators may do that"));
    }
    let word = match request.control {
        Control::Normal => "normal",
        Control::Paused => "paused",
        Control::Draining => "draining",
    };
    if let Err(e) = context.store.put_setting(CONTROL_SETTING, word).await {
        // The order is obeyed all the same: stopping must work when the disk is full.
        tracing::error!("the order is obeyed, but a restart forgets it: {e}");
    }
    tracing::info!(%uid, order = word, "an administrator's order");
    context.world.lock().control = request.control;
    context.wake.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

/// Root, the daemon's own user, and those whom the configuration names.
async fn is_admin(context: &Context, uid: UserId) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if uid.0 == 0 || uid.0 == unsafe { libc::geteuid() } {
        return true;
    }
    for name in &context.config.daemon.admins {
        if crate::slurm::munge::uid_of(name).await == Some(uid) {
            return true;
        }
    }
    false
}
