//! An administrator's commands: pause, resume, drain.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::context::DaemonContext;
use crate::control_orders::ControlOrder;
use crate::order_storage;
use crate::round_trigger::RoundUrgency;
use infill_api::{ControlOrigin, ControlRequest};
use infill_model::{ControlState, UserId, clock::now};
use infill_slurm::identity::name_of;

use super::signed_requests::VerifiedRequest;
use super::{RequestDenial, auth};

/// `POST /v1/control`.
pub(crate) async fn handle_control(
    State(context): State<Arc<DaemonContext>>,
    VerifiedRequest { uid, request, .. }: VerifiedRequest<ControlRequest>,
) -> Result<StatusCode, RequestDenial> {
    auth::require_admin(&context, uid).await?;
    carry_out(&context, uid, request.control, name_of).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Carries the command out at once. Stopping must work when the name service hangs or the disk is full, so
/// storing and naming come afterwards.
async fn carry_out(
    context: &DaemonContext,
    uid: UserId,
    state: ControlState,
    lookup: impl AsyncFn(UserId) -> Option<String>,
) {
    let origin = ControlOrigin { at: now(), by: Some(uid.to_string()), automatic: false };
    let order = ControlOrder { state, origin: Some(origin) };
    tracing::info!(%uid, order = state.word(), "an administrator's command");
    context.lock_state().set_control(order.clone());
    context.round_trigger.request_round(RoundUrgency::Urgent, None);
    store(context).await;
    let Some(name) = lookup(uid).await else { return };
    if name_giver(context, &order, name) {
        store(context).await;
    }
}

async fn store(context: &DaemonContext) {
    if let Err(e) = order_storage::store_order_in_force(context).await {
        tracing::error!("the command is carried out, but a restart forgets it: {e}");
    }
}

/// Names the giver instead of the uid. `false` if another order has followed meanwhile.
fn name_giver(context: &DaemonContext, order: &ControlOrder, name: String) -> bool {
    let mut state = context.lock_state();
    if state.control != *order {
        return false;
    }
    if let Some(origin) = &mut state.control.origin {
        origin.by = Some(name);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::administered::daemon;
    use super::*;
    use crate::control_orders::restore_order;

    #[tokio::test]
    async fn a_pause_does_not_wait_for_the_name_service() {
        let daemon = daemon().await;
        let silent = async |_| std::future::pending().await;
        let order = carry_out(&daemon, UserId(7), ControlState::Paused, silent);
        tokio::time::timeout(Duration::from_millis(500), order).await.unwrap_err();
        assert_eq!(daemon.lock_state().control.state, ControlState::Paused);
        let stored = restore_order(daemon.store.as_ref()).await.unwrap();
        assert_eq!((stored.state, stored.origin.unwrap().by), (ControlState::Paused, Some("7".to_owned())));
    }

    #[tokio::test]
    async fn an_order_gets_the_name_of_its_giver_unless_another_has_followed() {
        let daemon = daemon().await;
        carry_out(&daemon, UserId(7), ControlState::Paused, async |_| Some("ann".to_owned())).await;
        let stored = restore_order(daemon.store.as_ref()).await.unwrap();
        assert_eq!(stored, daemon.lock_state().control);
        assert_eq!(stored.origin.unwrap().by.as_deref(), Some("ann"));
        let resumed = ControlOrder { state: ControlState::Normal, origin: None };
        let overtaken = async |_| {
            daemon.lock_state().set_control(resumed.clone());
            Some("ann".to_owned())
        };
        carry_out(&daemon, UserId(7), ControlState::Draining, overtaken).await;
        assert_eq!(daemon.lock_state().control, resumed);
    }
}
