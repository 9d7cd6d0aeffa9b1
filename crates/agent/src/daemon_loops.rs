//! The loops that speak to the daemon: one asks for orders, one delivers what happened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::daemon_link::{Backoff, DaemonLink, LinkError};
use super::outbox::EventOutbox;
use super::worker_event::WorkerEvent;
use infill_model::Directive;

/// A daemon that answers a long poll sooner, with nothing new, is asked again only after a pause.
const HASTY_ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Brings assignments, each time the daemon answers.
pub(crate) async fn poll_loop(link: Arc<DaemonLink>, tell: mpsc::Sender<WorkerEvent>) {
    let mut backoff = Backoff::new();
    let mut seen = (0, 0);
    let mut directive = Directive::Hold;
    let mut strange = UnknownNames::default();
    loop {
        let asked_at = Instant::now();
        match link.poll_assignment(|epoch| if epoch == seen.0 { seen.1 } else { 0 }).await {
            Ok((epoch, heard)) => {
                let (assignment, unknown) = heard.decode_known(&directive);
                strange.warn_once(
                    "the daemon is newer than this infill and asks for what it does not know",
                    unknown,
                );
                directive = assignment.directive.clone();
                let fresh = (epoch, assignment.version) != seen;
                seen = (epoch, assignment.version);
                if tell.send(WorkerEvent::Assigned(assignment)).await.is_err() {
                    return;
                }
                if fresh || asked_at.elapsed() > HASTY_ANSWER_LIMIT {
                    backoff.reset();
                    continue;
                }
            }
            Err(error) => log_refusal(&error, "asking for orders"),
        }
        sleep(backoff.next_pause()).await;
    }
}

/// Delivers events.
pub(crate) async fn report_loop(link: Arc<DaemonLink>, outbox: Arc<EventOutbox>) {
    let mut backoff = Backoff::new();
    let mut strange = UnknownNames::default();
    loop {
        let events = outbox.take().await;
        let count = events.len();
        match link.send_report(events).await {
            Ok(unknown) => {
                strange.warn_once(
                    "the daemon is older than this infill and drops what it does not know",
                    unknown,
                );
                outbox.mark_delivered();
                backoff.reset();
                continue;
            }
            // An older daemon refuses all of a report for one event that it does not know.
            Err(LinkError::Refused { .. }) if count > 1 => {
                outbox.send_singly();
                continue;
            }
            Err(error @ LinkError::Refused { .. }) => {
                // The same event would be refused for ever, and keep back all that follow.
                log_refusal(&error, "reporting; this event is lost");
                outbox.mark_delivered();
            }
            Err(_) => outbox.requeue_in_flight(),
        }
        tokio::select! {
            () = sleep(backoff.next_pause()) => {}
            () = outbox.wait_for_urgent() => {}
        }
    }
}

/// What one side said that the other is too old for; each is told of once.
#[derive(Default)]
struct UnknownNames(BTreeSet<String>);

/// Most names that are remembered, so that a daemon that invents them fills no memory.
const MAX_UNKNOWN_NAMES: usize = 64;

impl UnknownNames {
    fn warn_once(&mut self, what: &str, names: Vec<String>) {
        for name in names {
            if self.0.len() < MAX_UNKNOWN_NAMES && self.0.insert(name.clone()) {
                tracing::warn!(name, "{what}; going on without");
            }
        }
    }
}

/// That the daemon is away was logged by the link, once.
fn log_refusal(error: &LinkError, doing: &str) {
    if let LinkError::Refused { .. } = error {
        tracing::warn!(%error, doing, "the daemon refuses us");
    }
}
