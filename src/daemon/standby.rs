//! Waiting for the lead: the daemon listens, says that it stands by, and does nothing else.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::oneshot;

use super::stop_signal;
use crate::http;
use crate::store::{self, Store};

/// Opens the store and waits until this daemon leads on it; `None` if it was told to stop before. Where
/// another leads, requests are answered meanwhile: this one stands by, so that agents and command line go on
/// to the next.
///
/// # Errors
/// When the store cannot be opened.
pub async fn wait_for_lead(
    database_url: &str,
    listener: &TcpListener,
) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let (tell, told) = oneshot::channel();
    let stand_by = move || {
        tracing::info!("another daemon leads: this one stands by");
        // If nobody listens any more, the daemon ends.
        let _ = tell.send(());
    };
    tokio::select! {
        store = store::open(database_url, stand_by) => store.map(Some).context("cannot open the store"),
        failed = answer(told, listener) => match failed? {},
        () = stop_signal() => Ok(None),
    }
}

/// Answers from the moment in which the daemon begins to stand by.
async fn answer(told: oneshot::Receiver<()>, listener: &TcpListener) -> anyhow::Result<Infallible> {
    if told.await.is_err() {
        return std::future::pending().await;
    }
    let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
    axum::serve(listener, http::standby_router()).await?;
    anyhow::bail!("the HTTP server ended")
}
