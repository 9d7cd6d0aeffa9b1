//! The loops that speak to the daemon: one asks for orders, one delivers what happened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::link::{Backoff, Link, LinkError};
use super::news::News;
use super::outbox::Outbox;
use infill_model::Directive;

/// A daemon that answers a long poll sooner, with nothing new, is asked again only after a pause.
const HASTY_ANSWER: Duration = Duration::from_secs(1);

/// Brings assignments, each time the daemon answers.
pub(crate) async fn poll(link: Arc<Link>, tell: mpsc::Sender<News>) {
    let (mut backoff, mut seen) = (Backoff::new(), (0, 0));
    let (mut directive, mut strange) = (Directive::Hold, Strange::default());
    loop {
        let asked_at = Instant::now();
        match link.poll(|epoch| if epoch == seen.0 { seen.1 } else { 0 }).await {
            Ok((epoch, heard)) => {
                let (assignment, unknown) = heard.read(&directive);
                strange
                    .say("the daemon is newer than this infill and asks for what it does not know", unknown);
                directive = assignment.directive.clone();
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
    let (mut backoff, mut strange) = (Backoff::new(), Strange::default());
    loop {
        let events = outbox.take().await;
        let count = events.len();
        match link.report(events).await {
            Ok(unknown) => {
                strange.say("the daemon is older than this infill and drops what it does not know", unknown);
                outbox.delivered();
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

/// What one side said that the other is too old for; each is told of once.
#[derive(Default)]
struct Strange(BTreeSet<String>);

/// Most names that are remembered, so that a daemon that invents them fills no memory.
const MOST_STRANGE: usize = 64;

impl Strange {
    fn say(&mut self, what: &str, names: Vec<String>) {
        for name in names {
            if self.0.len() < MOST_STRANGE && self.0.insert(name.clone()) {
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
