//! For whom a route is, and who may read metrics.

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;

use infill_model::MetricsAccess;

use super::RequestDenial;
use super::connection_limit::ConnectionHandle;

/// For whom a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// Everybody, also of a daemon that does not lead. Such a route names nobody.
    Open,
    /// Agents: they prove it in what they send.
    Agents,
    /// Those who change something: they prove it in what they send.
    Changes,
    /// Readers.
    Reads,
    /// Readers of what is computed for each of them: they prove who they are wherever anybody may read.
    Computes,
}

/// Refuses metrics to whom they are not for. A request that came by no port of ours, such as the site's web
/// server's, is nobody's on this machine: it speaks for all.
pub(crate) fn may_read_metrics(readers: MetricsAccess, request: &Request) -> Result<(), RequestDenial> {
    let seat = request.extensions().get::<ConnectInfo<ConnectionHandle>>();
    let is_here = seat.is_some_and(|ConnectInfo(seat)| seat.is_local());
    match readers {
        MetricsAccess::Open => Ok(()),
        MetricsAccess::Loopback if is_here => Ok(()),
        MetricsAccess::Loopback => {
            let what = "metrics are for programs on this machine alone (http.metrics)";
            Err(RequestDenial::new(StatusCode::FORBIDDEN, what))
        }
        MetricsAccess::Closed => {
            Err(RequestDenial::new(StatusCode::NOT_FOUND, "there are no metrics here (http.metrics)"))
        }
    }
}
