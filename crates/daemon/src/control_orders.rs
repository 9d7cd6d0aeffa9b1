//! The last order to pause, drain or resume. The store keeps it over restarts.

use serde::{Deserialize, Serialize};

use infill_api::ControlOrigin;
use infill_model::ControlState;
use infill_store::{Store, StoreError};

/// The store's setting that holds the last order.
const CONTROL_SETTING: &str = "control";

/// The store's setting that holds who gave the order, and when, as JSON.
const ORIGIN_SETTING: &str = "control_origin";

/// An order, of an administrator or of infill itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlOrder {
    /// What it demands.
    pub state: ControlState,
    /// Who gave it, and when; `None` if none was given, or if that is unknown.
    pub origin: Option<ControlOrigin>,
}

/// What [`ORIGIN_SETTING`] holds.
#[derive(Serialize, Deserialize)]
struct StoredOrigin {
    /// The state that the order demands. An older daemon stores only that of its own later orders, and this
    /// origin is not theirs.
    state: String,
    #[serde(flatten)]
    origin: ControlOrigin,
}

/// Stores an order and where it comes from. The origin comes first, and is dropped if its order does not
/// follow.
pub(crate) async fn store_order(store: &dyn Store, order: &ControlOrder) -> Result<(), StoreError> {
    let state = order.state.word();
    // An order without an origin replaces the origin of the last one.
    let origin = order.origin.clone().map(|origin| StoredOrigin { state: state.to_owned(), origin });
    store.put_setting(ORIGIN_SETTING, &serde_json::to_string(&origin).unwrap_or_default()).await?;
    store.put_setting(CONTROL_SETTING, state).await
}

/// The last order. An older daemon stored no origin.
pub(crate) async fn restore_order(store: &dyn Store) -> Result<ControlOrder, StoreError> {
    let state = store.get_setting(CONTROL_SETTING).await?;
    let state = state.and_then(|word| word.parse::<ControlState>().ok()).unwrap_or_default();
    let origin = store.get_setting(ORIGIN_SETTING).await?;
    let origin = origin.and_then(|text| serde_json::from_str::<StoredOrigin>(&text).ok());
    let origin = origin.filter(|stored| stored.state == state.word()).map(|stored| stored.origin);
    Ok(ControlOrder { state, origin })
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::UnixTime;

    #[tokio::test]
    async fn an_order_outlives_the_daemon_with_who_gave_it() {
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        assert_eq!(restore_order(store.as_ref()).await.unwrap(), ControlOrder::default());
        let origin = ControlOrigin { at: UnixTime(7), by: Some("alice".to_owned()), automatic: false };
        let paused = ControlOrder { state: ControlState::Paused, origin: Some(origin) };
        store_order(store.as_ref(), &paused).await.unwrap();
        assert_eq!(restore_order(store.as_ref()).await.unwrap(), paused);
        // An older daemon stores its order alone, and alice did not give that one.
        store.put_setting(CONTROL_SETTING, ControlState::Draining.word()).await.unwrap();
        let draining = ControlOrder { state: ControlState::Draining, origin: None };
        assert_eq!(restore_order(store.as_ref()).await.unwrap(), draining);
        store_order(store.as_ref(), &draining).await.unwrap();
        assert_eq!(restore_order(store.as_ref()).await.unwrap(), draining);
    }
}
