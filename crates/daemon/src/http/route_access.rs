//! Who may use a route, and who may read metrics.

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;

use infill_model::MetricsAccess;

use super::RequestDenial;
use super::connection_limit::ConnectionHandle;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// Everyone, even of a daemon that does not lead. The answers name no user.
    Open,
    /// Agents. The request carries their proof.
    Agents,
    /// Users who change something. The request carries their proof.
    Changes,
    /// Readers.
    Reads,
    /// Readers of something that is computed for each of them. They must prove their identity, even where
    /// reading is open to everyone.
    Computes,
}

/// Refuses metrics to clients that may not read them. A request that did not come through the daemon's port,
/// such as one of the site's web server, never counts as local, because it may stand for any client.
pub(crate) fn may_read_metrics(readers: MetricsAccess, request: &Request) -> Result<(), RequestDenial> {
    let connection = request.extensions().get::<ConnectInfo<ConnectionHandle>>();
    let is_local = connection.is_some_and(|ConnectInfo(handle)| handle.is_local());
    match readers {
        MetricsAccess::Open => Ok(()),
        MetricsAccess::Loopback if is_local => Ok(()),
        MetricsAccess::Loopback => {
            let what = "only programs on the daemon's host may read metrics (http.metrics)";
            Err(RequestDenial::new(StatusCode::FORBIDDEN, what))
        }
        MetricsAccess::Closed => {
            Err(RequestDenial::new(StatusCode::NOT_FOUND, "metrics are switched off (http.metrics)"))
        }
    }
}
