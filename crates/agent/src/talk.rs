//! The loops that speak to the daemon: one asks for orders, one delivers what happened.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::link::{Backoff, Link, LinkError};
use super::news::News;
use super::outbox::Outbox;

/// A daemon that answers a long poll sooner, with nothing new, is asked again only after a pause.
const HASTY_ANSWER: Duration = Duration::from_secs(1);

/// Brings assignments, each time the daemon answers.
pub(crate) async fn poll(link: Arc<Link>, tell: mpsc::Sender<News>) {
    let (mut backoff, mut seen) = (Backoff::new(), (0, 0));
    loop {
        let asked_at = Instant::now();
        match link.poll(|epoch| if epoch == seen.0 { seen.1 } else { 0 }).await {
            Ok((epoch, assignment)) => {
                let fresh = (epoch, assignment.version) != seen;
                seen = (epoch, assignment.version);
                if tell.send(News::Assigned(assignment)).await.is_err() {
                    return;
                }
                if fresh || asked_at.elapsed() > HASTY_ANSWER {
                    backoff.reset();
                    continue;
                }
            }
            Err(error) => log_refusal(&error, "asking for orders"),
        }
        sleep(backoff.next()).await;
    }
}

/// Delivers events.
pub(crate) async fn report(link: Arc<Link>, outbox: Arc<Outbox>) {
    let mut backoff = Backoff::new();
    loop {
        let events = outbox.take().await;
        match link.report(events).await {
            Ok(()) => {
                outbox.delivered();
                backoff.reset();
                continue;
            }
            Err(error @ LinkError::Refused { .. }) => {
                // The same events would be refused for ever, and keep back all that follow.
                log_refusal(&error, "reporting; these events are lost");
                outbox.delivered();
            }
            Err(_) => outbox.failed(),
        }
        tokio::select! {
            () = sleep(backoff.next()) => {}
            () = outbox.urgent() => {}
        }
    }
}

/// That the daemon is away was logged by the link, once.
fn log_refusal(error: &LinkError, doing: &str) {
    if let LinkError::Refused { .. } = error {
        tracing::warn!(%error, doing, "the daemon refuses us");
    }
}
