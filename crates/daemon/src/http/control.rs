//! Orders of an administrator: pause, resume, drain.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::context::{CONTROL_SETTING, Context};
use crate::waking::Call;
use infill_api::ControlRequest;

use super::orders::Order;
use super::{Denial, auth};

/// `POST /v1/control`.
pub(crate) async fn control(
    State(context): State<Arc<Context>>,
    Order { uid, order: request, .. }: Order<ControlRequest>,
) -> Result<StatusCode, Denial> {
    auth::administers(&context, uid).await?;
    let word = request.control.word();
    if let Err(e) = context.store.put_setting(CONTROL_SETTING, word).await {
        // The order is obeyed all the same: stopping must work when the disk is full.
        tracing::error!("the order is obeyed, but a restart forgets it: {e}");
    }
    tracing::info!(%uid, order = word, "an administrator's order");
    context.state().control = request.control;
    context.wake.call(Call::Urgent, None);
    Ok(StatusCode::NO_CONTENT)
}
