//! Events that wait for the daemon. Until the worker ends, no event that matters is dropped, however long the
//! daemon is away.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::time::Instant;

use infill_api::{AgentReport, MAX_EVENTS};
use infill_model::{AgentEvent, GpuUse, JobId, NodeName};

/// Time for the last reports of a worker whose node is wanted. It is short because a main job waits for us.
const LEAVE_FLUSH: Duration = Duration::from_millis(200);

/// Time for the last reports of such a worker if the daemon hardly answers.
const SHORT_FLUSH: Duration = Duration::from_millis(50);

/// Time for the last reports of a worker that is not in a hurry.
const FINISH_FLUSH: Duration = Duration::from_secs(5);

/// Events in order, the oldest first.
#[derive(Default)]
pub(crate) struct EventOutbox {
    state: Mutex<OutboxState>,
    /// Woken by every event.
    filled: Notify,
    /// Woken by events that must not wait for the end of a back-off.
    urgent: Notify,
    /// Woken when the last event was delivered.
    empty: Notify,
}

/// Events that are sent together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EventBatch {
    /// Distinguishes the batch from the one before it. Progress that is sent again keeps its number, so that
    /// the daemon does not count it twice.
    pub number: u64,
    /// The events, the oldest first.
    pub events: Vec<AgentEvent>,
}

#[derive(Default)]
struct OutboxState {
    waiting: VecDeque<AgentEvent>,
    in_flight: EventBatch,
    /// Whether the batch must be sent again as it is. The daemon may have counted its progress.
    repeats: bool,
    /// How many of the first waiting events shall be sent one at a time.
    single: usize,
    /// When the daemon last accepted a report.
    delivered_at: Option<Instant>,
}

impl EventOutbox {
    fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. Progress of a generation is added to the progress that waits already, and an event that
    /// waits already is not added again. So the queue stays as short as the history of this worker.
    pub fn push(&self, event: AgentEvent) {
        let urgent = !matches!(event, AgentEvent::Progress { .. });
        {
            let mut state = self.state();
            if !state.holds(&event) && !state.waiting.iter_mut().any(|e| merge_progress(e, &event)) {
                state.waiting.push_back(event);
            }
        }
        self.filled.notify_one();
        if urgent {
            self.urgent.notify_one();
        }
    }

    /// Waits for events and takes them, at most as many as one report may carry. They are in flight until
    /// [`EventOutbox::mark_delivered`] or [`EventOutbox::requeue_in_flight`].
    pub async fn take(&self) -> EventBatch {
        loop {
            {
                let mut state = self.state();
                if state.repeats {
                    state.complete_repeated();
                    return state.in_flight.clone();
                }
                if !state.waiting.is_empty() {
                    let max_count = if state.single > 0 { 1 } else { MAX_EVENTS };
                    let count = state.waiting.len().min(max_count);
                    let events = state.waiting.drain(..count).collect();
                    state.in_flight = state.in_flight.next(events);
                    return state.in_flight.clone();
                }
            }
            self.filled.notified().await;
        }
    }

    /// Notes that the events in flight were refused together. They are sent once more, one at a time, before
    /// all others.
    pub fn send_singly(&self) {
        let mut state = self.state();
        state.single = state.in_flight.events.len();
        state.put_back();
    }

    /// Notes that the events in flight have arrived, or never can.
    pub(crate) fn mark_delivered(&self) {
        let mut state = self.state();
        state.single = state.single.saturating_sub(state.in_flight.events.len());
        state.in_flight.events.clear();
        state.repeats = false;
        state.delivered_at = Some(Instant::now());
        if state.waiting.is_empty() {
            self.empty.notify_waiters();
        }
    }

    /// How long a worker that ends waits until its last events have arrived. `leaving_since`: when it was
    /// asked to leave, if it was. A main job then waits for us, and a daemon that has accepted nothing since
    /// had time while the command saved.
    pub fn flush_patience(&self, leaving_since: Option<Instant>, is_away: bool, now: Instant) -> Duration {
        let Some(since) = leaving_since else {
            return if is_away { LEAVE_FLUSH } else { FINISH_FLUSH };
        };
        if self.state().delivered_at.is_some_and(|at| at >= since) {
            LEAVE_FLUSH
        } else if is_away {
            SHORT_FLUSH.saturating_sub(now - since)
        } else {
            // The daemon may be back since the last report failed.
            LEAVE_FLUSH.saturating_sub(now - since).max(SHORT_FLUSH)
        }
    }

    /// Notes that there was no answer: the events in flight are sent again before all others.
    pub fn requeue_in_flight(&self) {
        let mut state = self.state();
        if state.in_flight.events.iter().any(is_progress) {
            state.repeats = true;
        } else {
            state.put_back();
        }
    }

    /// Waits for an event that must not wait for the end of a back-off.
    pub async fn wait_for_urgent(&self) {
        self.urgent.notified().await;
    }

    /// Waits until everything was delivered.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            let empty = self.empty.notified();
            tokio::pin!(empty);
            empty.as_mut().enable();
            {
                let state = self.state();
                if state.waiting.is_empty() && state.in_flight.events.is_empty() {
                    return;
                }
            }
            empty.await;
        }
    }
}

impl EventBatch {
    /// The first batch of a process. Its number is the time in microseconds, so that two processes on a node
    /// have no numbers in common.
    pub(crate) fn first(events: Vec<AgentEvent>) -> EventBatch {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        EventBatch { number: u64::try_from(since_epoch.as_micros()).unwrap_or(1), events }
    }

    /// The report that carries the batch.
    pub(crate) fn into_report(self, job: JobId, node: NodeName, gpus: Option<GpuUse>) -> AgentReport {
        AgentReport { job, node, events: self.events, gpus, number: Some(self.number) }
    }

    /// The batch after this one.
    fn next(&self, events: Vec<AgentEvent>) -> EventBatch {
        match self.number {
            0 => EventBatch::first(events),
            last => EventBatch { number: last.saturating_add(1), events },
        }
    }
}

impl OutboxState {
    /// Whether this event waits already, or will be sent again. Equal progress is not the same progress.
    fn holds(&self, event: &AgentEvent) -> bool {
        let repeated = self.repeats && self.in_flight.events.contains(event);
        !is_progress(event) && (repeated || self.waiting.contains(event))
    }

    /// Puts the events in flight back in front of those that wait.
    fn put_back(&mut self) {
        self.repeats = false;
        for event in std::mem::take(&mut self.in_flight.events).into_iter().rev() {
            self.waiting.push_front(event);
        }
    }

    /// Adds what need not wait for another report, up to the next progress.
    fn complete_repeated(&mut self) {
        let room = MAX_EVENTS.saturating_sub(self.in_flight.events.len());
        let count = self.waiting.iter().take(room).take_while(|event| !is_progress(event)).count();
        self.in_flight.events.extend(self.waiting.drain(..count));
    }
}

fn is_progress(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Progress { .. })
}

/// Adds `new` to `old` if both are progress of the same generation.
fn merge_progress(old: &mut AgentEvent, new: &AgentEvent) -> bool {
    let AgentEvent::Progress { generation, samples, secs, step, loss, total, weight, startup } = old else {
        return false;
    };
    let AgentEvent::Progress {
        generation: g,
        samples: n,
        secs: s,
        step: k,
        loss: x,
        total: t,
        weight: w,
        startup: o,
    } = new
    else {
        return false;
    };
    // The time of a first report has another meaning than that of the others.
    if generation != g || startup.is_some() || o.is_some() {
        return false;
    }
    *samples += n;
    *secs += s;
    *step = k.or(*step);
    *loss = x.or(*loss);
    *total = t.or(*total);
    *weight = w.or(*weight);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(generation: u64, samples: f64, step: u64) -> AgentEvent {
        AgentEvent::Progress {
            generation,
            samples,
            secs: 1.0,
            step: Some(step),
            loss: None,
            total: None,
            weight: None,
            startup: None,
        }
    }

    #[tokio::test]
    async fn progress_is_added_up_and_the_rest_kept_in_order() {
        let outbox = EventOutbox::default();
        outbox.push(AgentEvent::Started { generation: 1 });
        outbox.push(progress(1, 2.0, 5));
        outbox.push(AgentEvent::Leaving);
        outbox.push(progress(1, 3.0, 6));
        outbox.push(AgentEvent::Leaving);
        let step = Some(6);
        let loss = None;
        let startup = None;
        let total = None;
        let weight = None;
        let sum = AgentEvent::Progress {
            generation: 1,
            samples: 5.0,
            secs: 2.0,
            step,
            loss,
            total,
            weight,
            startup,
        };
        let events = outbox.take().await.events;
        assert_eq!(events, [AgentEvent::Started { generation: 1 }, sum, AgentEvent::Leaving]);
    }

    #[tokio::test]
    async fn progress_without_an_answer_is_sent_again_as_it_was() {
        let outbox = EventOutbox::default();
        outbox.push(progress(1, 2.0, 5));
        let first = outbox.take().await;
        outbox.requeue_in_flight();
        outbox.push(AgentEvent::Leaving);
        outbox.push(progress(1, 3.0, 6));
        let again = outbox.take().await;
        assert_eq!(
            (again.number, &again.events[..]),
            (first.number, &[progress(1, 2.0, 5), AgentEvent::Leaving][..])
        );
        outbox.mark_delivered();
        let next = outbox.take().await;
        assert_eq!((next.number, &next.events[..]), (first.number + 1, &[progress(1, 3.0, 6)][..]));
        // Without progress, everything that waits goes into one new batch.
        outbox.mark_delivered();
        outbox.push(AgentEvent::Leaving);
        outbox.take().await;
        outbox.requeue_in_flight();
        outbox.push(progress(1, 4.0, 7));
        assert_eq!(outbox.take().await.events, [AgentEvent::Leaving, progress(1, 4.0, 7)]);
    }

    #[tokio::test]
    async fn a_worker_does_not_wait_for_a_daemon_that_accepts_nothing() {
        let outbox = EventOutbox::default();
        let deliver = async || {
            outbox.push(AgentEvent::Leaving);
            outbox.take().await;
            outbox.mark_delivered();
        };
        deliver().await;
        let asked_at = Instant::now() + Duration::from_millis(1);
        let waits = |is_leaving: bool, ms| {
            let now = Instant::now() + Duration::from_secs(1) + Duration::from_millis(ms);
            let since = is_leaving.then(|| now - Duration::from_millis(ms));
            [false, true].map(|is_away| outbox.flush_patience(since, is_away, now))
        };
        let ms = Duration::from_millis;
        assert_eq!(waits(false, 0), [FINISH_FLUSH, LEAVE_FLUSH]);
        assert_eq!(waits(true, 0), [LEAVE_FLUSH, SHORT_FLUSH]);
        assert_eq!(waits(true, 120), [ms(80), ms(0)], "it may be slow");
        assert_eq!(waits(true, 300), [SHORT_FLUSH, ms(0)]);
        while Instant::now() < asked_at {
            tokio::time::sleep(ms(1)).await;
        }
        deliver().await;
        let late = asked_at + ms(900);
        assert_eq!(
            [false, true].map(|is_away| outbox.flush_patience(Some(asked_at), is_away, late)),
            [LEAVE_FLUSH; 2],
            "it answers"
        );
    }

    #[tokio::test]
    async fn a_report_that_failed_is_sent_again_first() {
        let outbox = EventOutbox::default();
        outbox.push(AgentEvent::Started { generation: 1 });
        let first = outbox.take().await;
        outbox.push(AgentEvent::Leaving);
        outbox.requeue_in_flight();
        assert_eq!(outbox.take().await.events, [first.events[0].clone(), AgentEvent::Leaving]);
        outbox.mark_delivered();
        outbox.wait_until_empty().await;
    }
}
