//! The ways of effects to the executor: one for leaving, one for everything else, so that who is to leave
//! waits for nothing that is not about the same Slurm job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use infill_lifecycle::Effect;
use infill_lifecycle::fleet::EffectBatch;
use infill_model::JobId;

/// Batches that may wait on each way. One job has at most one batch a turn, so this is more than any site's
/// malleable jobs.
const QUEUE_CAPACITY: usize = 4096;

/// A batch on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedBatch {
    /// Grows from batch to batch.
    pub number: u64,
    /// The batch, as far as it goes this way.
    pub batch: EffectBatch,
}

/// Where the executor takes batches from.
pub struct EffectReceivers {
    /// Effects that give nodes back.
    pub leaving: mpsc::Receiver<QueuedBatch>,
    /// All others.
    pub others: mpsc::Receiver<QueuedBatch>,
}

#[derive(Debug, Default)]
struct LockedJobs {
    /// Slurm jobs that something is being done to.
    on: BTreeSet<JobId>,
    /// Slurm jobs that are given up, and with which batch: what was asked for before is out of date.
    given_up: BTreeMap<JobId, u64>,
}

/// See the module's text.
pub struct EffectQueues {
    leaving: mpsc::Sender<QueuedBatch>,
    others: mpsc::Sender<QueuedBatch>,
    numbers: AtomicU64,
    hands: Mutex<LockedJobs>,
    freed: Notify,
    sent: Notify,
}

impl EffectQueues {
    /// Nothing on its way.
    pub fn new() -> (EffectQueues, EffectReceivers) {
        let (leaving, leaving_queue) = mpsc::channel(QUEUE_CAPACITY);
        let (others, others_queue) = mpsc::channel(QUEUE_CAPACITY);
        let lanes = EffectQueues {
            leaving,
            others,
            numbers: AtomicU64::new(1),
            hands: Mutex::default(),
            freed: Notify::new(),
            sent: Notify::new(),
        };
        (lanes, EffectReceivers { leaving: leaving_queue, others: others_queue })
    }

    /// Every change of it is a single step: a thread that panicked leaves it whole.
    fn lock_jobs(&self) -> MutexGuard<'_, LockedJobs> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a batch on its ways. Also one without effects: its job's record is to be stored.
    pub fn send_batch(&self, batch: EffectBatch) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let job = batch.job;
        let (leaving, others): (Vec<Effect>, Vec<Effect>) =
            batch.effects.into_iter().partition(Effect::returns_nodes);
        if !leaving.is_empty() {
            let ended = leaving.iter().filter(|e| e.abandons_job()).map(|e| (e.job(), number));
            self.lock_jobs().given_up.extend(ended);
            post_batch(&self.leaving, QueuedBatch { number, batch: EffectBatch { job, effects: leaving } });
        }
        post_batch(&self.others, QueuedBatch { number, batch: EffectBatch { job, effects: others } });
        self.sent.notify_one();
    }

    /// Waits until something has been sent since the last call: there is something to store.
    pub async fn wait_for_batch(&self) {
        self.sent.notified().await;
    }

    /// Whether this batch or a later one gives this Slurm job up.
    pub(crate) fn is_outdated(&self, number: u64, slurm_job: JobId) -> bool {
        self.lock_jobs().given_up.get(&slurm_job).is_some_and(|later| *later >= number)
    }

    /// Everything up to this number was carried out or is out of date.
    pub fn mark_done(&self, number: u64) {
        self.lock_jobs().given_up.retain(|_, later| *later > number);
    }

    /// Waits until nothing else is being done to a Slurm job, and keeps it so.
    pub async fn lock_job(&self, slurm_job: JobId) -> JobLock<'_> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that nothing is missed between the two.
            freed.as_mut().enable();
            if self.lock_jobs().on.insert(slurm_job) {
                return JobLock { lanes: self, slurm_job };
            }
            freed.await;
        }
    }
}

fn post_batch(way: &mpsc::Sender<QueuedBatch>, sent: QueuedBatch) {
    let job = sent.batch.job;
    if way.try_send(sent).is_err() {
        // The machine asks again after a while: a full queue loses nothing.
        tracing::warn!(%job, "the action queue is full");
    }
}

/// A Slurm job that something is being done to.
pub struct JobLock<'a> {
    lanes: &'a EffectQueues,
    slurm_job: JobId,
}

impl Drop for JobLock<'_> {
    fn drop(&mut self) {
        self.lanes.lock_jobs().on.remove(&self.slurm_job);
        self.lanes.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::NodeName;

    fn effects() -> Vec<Effect> {
        let lead = JobId(1);
        let wing = JobId(2);
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
        let (lanes, mut queues) = EffectQueues::new();
        lanes.send_batch(EffectBatch { job: JobId(1), effects: effects() });
        let kinds =
            |sent: QueuedBatch| sent.batch.effects.iter().map(|e| e.kind().word()).collect::<Vec<_>>();
        assert_eq!(kinds(queues.leaving.try_recv().unwrap()), ["cancel_wing", "shrink_wing", "requeue_hold"]);
        assert_eq!(kinds(queues.others.try_recv().unwrap()), ["set_limit", "launch"]);
        lanes.send_batch(EffectBatch { job: JobId(1), effects: vec![Effect::CancelWing { job: JobId(2) }] });
        assert_eq!(kinds(queues.others.try_recv().unwrap()), [""; 0], "the record is stored all the same");
    }

    #[test]
    fn what_was_asked_of_a_job_before_it_was_given_up_is_out_of_date() {
        let (lanes, _queues) = EffectQueues::new();
        let launch = |job| Effect::Launch { job: JobId(job), node: NodeName::new("n1"), limit_mins: 9 };
        lanes.send_batch(EffectBatch { job: JobId(1), effects: vec![launch(1)] });
        lanes.send_batch(EffectBatch { job: JobId(1), effects: vec![Effect::RequeueHold { job: JobId(1) }] });
        lanes.send_batch(EffectBatch { job: JobId(1), effects: vec![launch(1)] });
        assert!(lanes.is_outdated(1, JobId(1)));
        assert!(!lanes.is_outdated(1, JobId(2)) && !lanes.is_outdated(3, JobId(1)));
        lanes.mark_done(2);
        assert!(lanes.lock_jobs().given_up.is_empty());
    }

    #[tokio::test]
    async fn nothing_is_done_twice_at_a_time_to_one_job() {
        use std::time::Duration;
        let (lanes, _queues) = EffectQueues::new();
        let first = lanes.lock_job(JobId(1)).await;
        let _other = lanes.lock_job(JobId(2)).await;
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, lanes.lock_job(JobId(1))).await.is_err());
        let waiting = async { drop(lanes.lock_job(JobId(1)).await) };
        let freeing = async { drop(first) };
        let both = async { tokio::join!(waiting, freeing) };
        tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
    }
}
