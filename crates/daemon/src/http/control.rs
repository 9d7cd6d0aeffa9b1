//! An administrator's commands: pause, resume, drain.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::context::{CONTROL_SETTING, DaemonContext};
use crate::round_trigger::RoundUrgency;
use infill_api::ControlRequest;

use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, auth};

/// `POST /v1/control`.
pub(crate) async fn handle_control(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ControlRequest>,
) -> Result<StatusCode, RequestDenial> {
    auth::require_admin(&context, uid).await?;
    let word = request.control.word();
    if let Err(e) = context.store.put_setting(CONTROL_SETTING, word).await {
        // The command is still carried out, because stopping must work when the disk is full.
        tracing::error!("the command is carried out, but a restart forgets it: {e}");
    }
    tracing::info!(%uid, order = word, "an administrator's command");
    context.lock_state().set_control(request.control);
    context.round_trigger.request_round(RoundUrgency::Urgent, None);
    Ok(StatusCode::NO_CONTENT)
}
