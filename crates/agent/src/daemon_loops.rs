//! The two loops that speak to the daemon: one asks for orders, the other delivers events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::daemon_link::{Backoff, DaemonLink, LinkError};
use super::outbox::EventOutbox;
use super::worker_input::WorkerInput;
use infill_model::Directive;

/// If the daemon answers a long poll sooner than this, with nothing new, the next poll comes after a pause.
const HASTY_ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Polls the daemon, and sends each assignment that it answers with to the worker.
pub(crate) async fn poll_loop(link: Arc<DaemonLink>, worker_inputs: mpsc::Sender<WorkerInput>) {
    let mut backoff = Backoff::new();
    let mut seen = (0, 0);
    let mut directive = Directive::Hold;
    let mut unknown_names = UnknownNames::default();
    loop {
        let asked_at = Instant::now();
        match link.poll_assignment(|epoch| if epoch == seen.0 { seen.1 } else { 0 }).await {
            Ok((epoch, answer)) => {
                let (assignment, unknown) = answer.decode_known(&directive);
                unknown_names.warn_once(
                    "the daemon is newer than this infill and asks for something that infill does not know",
                    unknown,
                );
                directive = assignment.directive.clone();
                let fresh = (epoch, assignment.version) != seen;
                seen = (epoch, assignment.version);
                if worker_inputs.send(WorkerInput::Assigned(assignment)).await.is_err() {
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

/// Takes events from the outbox and delivers them to the daemon.
pub(crate) async fn report_loop(link: Arc<DaemonLink>, outbox: Arc<EventOutbox>) {
    let mut backoff = Backoff::new();
    let mut unknown_names = UnknownNames::default();
    loop {
        let batch = outbox.take().await;
        let count = batch.events.len();
        match link.send_report(batch).await {
            Ok(unknown) => {
                unknown_names.warn_once(
                    "the daemon is older than this infill and drops what it does not know",
                    unknown,
                );
                outbox.mark_delivered();
                backoff.reset();
                continue;
            }
            // An older daemon refuses a whole report if it does not know one of its events.
            Err(LinkError::Refused { .. }) if count > 1 => {
                outbox.send_singly();
                continue;
            }
            Err(error @ LinkError::Refused { .. }) => {
                // The daemon would refuse the same event forever, and all later events would wait.
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

/// Names that one side sent and that the other is too old to know. Each is logged once.
#[derive(Default)]
struct UnknownNames(BTreeSet<String>);

/// Most names that are remembered, so that a daemon that invents names does not fill our memory.
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

/// Logs that the daemon refused something. When the daemon is away, the link has logged it once.
fn log_refusal(error: &LinkError, doing: &str) {
    if let LinkError::Refused { .. } = error {
        tracing::warn!(%error, doing, "the daemon refuses us");
    }
}
