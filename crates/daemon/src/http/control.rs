//! An administrator's commands: pause, resume, drain.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::context::DaemonContext;
use crate::control_orders::{self, ControlOrder};
use crate::round_trigger::RoundUrgency;
use infill_api::{ControlOrigin, ControlRequest};
use infill_model::clock::now;
use infill_slurm::identity::name_of;

use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, auth};

/// `POST /v1/control`.
pub(crate) async fn handle_control(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ControlRequest>,
) -> Result<StatusCode, RequestDenial> {
    auth::require_admin(&context, uid).await?;
    let word = request.control.word();
    let by = name_of(uid).await.unwrap_or_else(|| uid.to_string());
    let origin = ControlOrigin { at: now(), by: Some(by), automatic: false };
    let order = ControlOrder { state: request.control, origin: Some(origin) };
    if let Err(e) = control_orders::store_order(context.store.as_ref(), &order).await {
        // The command is still carried out, because stopping must work when the disk is full.
        tracing::error!("the command is carried out, but a restart forgets it: {e}");
    }
    tracing::info!(%uid, order = word, "an administrator's command");
    context.lock_state().set_control(order);
    context.round_trigger.request_round(RoundUrgency::Urgent, None);
    Ok(StatusCode::NO_CONTENT)
}
