//! The ways of effects to the executor: one for leaving, one for everything else, so that who is to leave
//! waits for nothing that is not about the same Slurm job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use infill_lifecycle::Effect;
use infill_lifecycle::fleet::Batch;
use infill_model::JobId;

/// Batches that may wait on each way. One job has at most one batch a turn, so this is more than any site's
/// malleable jobs.
const QUEUE: usize = 4096;

/// A batch on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Grows from batch to batch.
    pub number: u64,
    /// The batch, as far as it goes this way.
    pub batch: Batch,
}

/// Where the executor takes batches from.
pub struct Queues {
    /// Effects that give nodes back.
    pub leaving: mpsc::Receiver<Sent>,
    /// All others.
    pub others: mpsc::Receiver<Sent>,
}

#[derive(Debug, Default)]
struct Hands {
    /// Slurm jobs that something is being done to.
    on: BTreeSet<JobId>,
    /// Slurm jobs that are given up, and with which batch: what was asked for before is out of date.
    given_up: BTreeMap<JobId, u64>,
}

/// See the module's text.
pub struct Lanes {
    leaving: mpsc::Sender<Sent>,
    others: mpsc::Sender<Sent>,
    numbers: AtomicU64,
    hands: Mutex<Hands>,
    freed: Notify,
    sent: Notify,
}

impl Lanes {
    /// Nothing on its way.
    pub fn new() -> (Lanes, Queues) {
        let (leaving, leaving_queue) = mpsc::channel(QUEUE);
        let (others, others_queue) = mpsc::channel(QUEUE);
        let lanes = Lanes {
            leaving,
            others,
            numbers: AtomicU64::new(1),
            hands: Mutex::default(),
            freed: Notify::new(),
            sent: Notify::new(),
        };
        (lanes, Queues { leaving: leaving_queue, others: others_queue })
    }

    /// Every change of it is a single step: a thread that panicked leaves it whole.
    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a batch on its ways. Also one without effects: its job's record is to be stored.
    pub fn send(&self, batch: Batch) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let job = batch.job;
        let (leaving, others): (Vec<Effect>, Vec<Effect>) =
            batch.effects.into_iter().partition(Effect::gives_back);
        if !leaving.is_empty() {
            let ended = leaving.iter().filter(|e| e.gives_up()).map(|e| (e.job(), number));
            self.hands().given_up.extend(ended);
            post(&self.leaving, Sent { number, batch: Batch { job, effects: leaving } });
        }
        post(&self.others, Sent { number, batch: Batch { job, effects: others } });
        self.sent.notify_one();
    }

    /// Waits until something has been sent since the last call: there is something to store.
    pub async fn sent(&self) {
        self.sent.notified().await;
    }

    /// Whether this batch or a later one gives this Slurm job up.
    pub(crate) fn is_outdated(&self, number: u64, slurm_job: JobId) -> bool {
        self.hands().given_up.get(&slurm_job).is_some_and(|later| *later >= number)
    }

    /// Everything up to this number was carried out or is out of date.
    pub fn done(&self, number: u64) {
        self.hands().given_up.retain(|_, later| *later > number);
    }

    /// Waits until nothing else is being done to a Slurm job, and keeps it so.
    pub async fn take(&self, slurm_job: JobId) -> Hand<'_> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that nothing is missed between the two.
            freed.as_mut().enable();
            if self.hands().on.insert(slurm_job) {
                return Hand { lanes: self, slurm_job };
            }
            freed.await;
        }
    }
}

fn post(way: &mpsc::Sender<Sent>, sent: Sent) {
    let job = sent.batch.job;
    if way.try_send(sent).is_err() {
        // The machine asks again after a while: a full queue loses nothing.
        tracing::warn!(%job, "the action queue is full");
    }
}

/// A Slurm job that something is being done to.
pub struct Hand<'a> {
    lanes: &'a Lanes,
    slurm_job: JobId,
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        self.lanes.hands().on.remove(&self.slurm_job);
        self.lanes.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::NodeName;

    fn effects() -> Vec<Effect> {
        let (lead, wing) = (JobId(1), JobId(2));
        vec![
            Effect::SetLimit { job: lead, limit_mins: 9 },
            Effect::CancelWing { job: wing },
            Effect::Launch { job: lead, node: NodeName::new("n1"), limit_mins: 9 },
            Effect::ShrinkWing { job: wing, keep: vec![] },
            Effect::RequeueHold { job: lead },
        ]
    }

    #[test]
    fn leaving_has_a_way_of_its_own() {
        let (lanes, mut queues) = Lanes::new();
        lanes.send(Batch { job: JobId(1), effects: effects() });
        let kinds = |sent: Sent| sent.batch.effects.iter().map(|e| e.kind().word()).collect::<Vec<_>>();
        assert_eq!(kinds(queues.leaving.try_recv().unwrap()), ["cancel_wing", "shrink_wing", "requeue_hold"]);
        assert_eq!(kinds(queues.others.try_recv().unwrap()), ["set_limit", "launch"]);
        lanes.send(Batch { job: JobId(1), effects: vec![Effect::CancelWing { job: JobId(2) }] });
        assert_eq!(kinds(queues.others.try_recv().unwrap()), [""; 0], "the record is stored all the same");
    }

    #[test]
    fn what_was_asked_of_a_job_before_it_was_given_up_is_out_of_date() {
        let (lanes, _queues) = Lanes::new();
        let launch = |job| Effect::Launch { job: JobId(job), node: NodeName::new("n1"), limit_mins: 9 };
        lanes.send(Batch { job: JobId(1), effects: vec![launch(1)] });
        lanes.send(Batch { job: JobId(1), effects: vec![Effect::RequeueHold { job: JobId(1) }] });
        lanes.send(Batch { job: JobId(1), effects: vec![launch(1)] });
        assert!(lanes.is_outdated(1, JobId(1)));
        assert!(!lanes.is_outdated(1, JobId(2)) && !lanes.is_outdated(3, JobId(1)));
        lanes.done(2);
        assert!(lanes.hands().given_up.is_empty());
    }

    #[tokio::test]
    async fn nothing_is_done_twice_at_a_time_to_one_job() {
        use std::time::Duration;
        let (lanes, _queues) = Lanes::new();
        let first = lanes.take(JobId(1)).await;
        let _other = lanes.take(JobId(2)).await;
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, lanes.take(JobId(1))).await.is_err());
        let waiting = async { drop(lanes.take(JobId(1)).await) };
        let freeing = async { drop(first) };
        let both = async { tokio::join!(waiting, freeing) };
        tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
    }
}
