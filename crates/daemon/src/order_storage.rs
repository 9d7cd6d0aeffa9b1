//! Stores the order to pause, drain or resume that is in force.

use crate::context::DaemonContext;
use crate::control_orders;
use infill_store::StoreError;

/// Stores the order in force. Writes run one at a time, so the last one to be stored is the one in force.
pub(crate) async fn store_order_in_force(context: &DaemonContext) -> Result<(), StoreError> {
    let _lock = context.save_locks.control.lock().await;
    let order = context.lock_state().control.clone();
    control_orders::store_order(context.store.as_ref(), &order).await
}
