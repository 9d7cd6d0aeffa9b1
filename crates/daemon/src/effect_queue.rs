//! The queues of effects to the executor: one for effects that give nodes back, one for all others. A job
//! that must leave waits only for what is being done to the same Slurm job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use infill_lifecycle::Effect;
use infill_lifecycle::fleet::EffectBatch;
use infill_model::JobId;

/// Batches that may wait in each queue. Each change of a job adds one, and a site has far fewer malleable
/// jobs than this.
const QUEUE_CAPACITY: usize = 4096;

/// A batch in one of the queues.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedBatch {
    /// Grows from batch to batch.
    pub number: u64,
    /// Those effects of the batch that belong into this queue.
    pub batch: EffectBatch,
}

/// The executor's ends of the queues.
pub struct EffectReceivers {
    /// Effects that give nodes back.
    pub leaving: mpsc::Receiver<QueuedBatch>,
    /// All other effects.
    pub others: mpsc::Receiver<QueuedBatch>,
}

#[derive(Debug, Default)]
struct LockedJobs {
    /// Slurm jobs on which an effect is being carried out.
    locked: BTreeSet<JobId>,
    /// Slurm jobs that infill gives up, with the number of that batch. Earlier effects are outdated.
    given_up: BTreeMap<JobId, u64>,
}

/// The senders' ends of the queues, and the locks of the Slurm jobs.
pub struct EffectQueues {
    leaving: mpsc::Sender<QueuedBatch>,
    others: mpsc::Sender<QueuedBatch>,
    next_number: AtomicU64,
    jobs: Mutex<LockedJobs>,
    unlocked: Notify,
    sent: Notify,
}

impl EffectQueues {
    /// Two empty queues.
    pub fn new() -> (EffectQueues, EffectReceivers) {
        let (leaving, leaving_queue) = mpsc::channel(QUEUE_CAPACITY);
        let (others, others_queue) = mpsc::channel(QUEUE_CAPACITY);
        let queues = EffectQueues {
            leaving,
            others,
            next_number: AtomicU64::new(1),
            jobs: Mutex::default(),
            unlocked: Notify::new(),
            sent: Notify::new(),
        };
        (queues, EffectReceivers { leaving: leaving_queue, others: others_queue })
    }

    /// Every change is a single step, so a thread that panicked leaves the value consistent.
    fn lock_jobs(&self) -> MutexGuard<'_, LockedJobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Splits a batch over both queues. A batch without effects is sent too, so that the record of its job is
    /// stored.
    pub fn send_batch(&self, batch: EffectBatch) {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let job = batch.job;
        let mut leaving = batch.effects;
        let others: Vec<Effect> = leaving.extract_if(.., |effect| !effect.returns_nodes()).collect();
        if !leaving.is_empty() {
            let given_up = leaving.iter().filter(|effect| effect.abandons_job());
            self.lock_jobs().given_up.extend(given_up.map(|effect| (effect.job(), number)));
            enqueue_batch(
                &self.leaving,
                QueuedBatch { number, batch: EffectBatch { job, effects: leaving } },
            );
        }
        enqueue_batch(&self.others, QueuedBatch { number, batch: EffectBatch { job, effects: others } });
        self.sent.notify_one();
    }

    /// Waits until a batch has been sent since the last call. Its job's record must be stored then.
    pub async fn wait_for_batch(&self) {
        self.sent.notified().await;
    }

    /// Whether this batch or a later one gives this Slurm job up.
    pub(crate) fn is_outdated(&self, number: u64, slurm_job: JobId) -> bool {
        self.lock_jobs().given_up.get(&slurm_job).is_some_and(|given_up_by| *given_up_by >= number)
    }

    /// Notes that all batches up to this number were carried out or are outdated.
    pub fn mark_done(&self, number: u64) {
        self.lock_jobs().given_up.retain(|_, given_up_by| *given_up_by > number);
    }

    /// Waits until no effect is being carried out on a Slurm job, and locks it.
    pub async fn lock_job(&self, slurm_job: JobId) -> JobLock<'_> {
        loop {
            let unlocked = self.unlocked.notified();
            tokio::pin!(unlocked);
            // Register before the check, so that no notification is missed between the two.
            unlocked.as_mut().enable();
            if self.lock_jobs().locked.insert(slurm_job) {
                return JobLock { queues: self, slurm_job };
            }
            unlocked.await;
        }
    }
}

fn enqueue_batch(queue: &mpsc::Sender<QueuedBatch>, batch: QueuedBatch) {
    let job = batch.batch.job;
    if queue.try_send(batch).is_err() {
        // A full queue loses nothing: the job's lifecycle requests the effect again after a while.
        tracing::warn!(%job, "the queue of effects is full");
    }
}

/// The lock of a Slurm job. It is released when dropped.
pub struct JobLock<'a> {
    queues: &'a EffectQueues,
    slurm_job: JobId,
}

impl Drop for JobLock<'_> {
    fn drop(&mut self) {
        self.queues.lock_jobs().locked.remove(&self.slurm_job);
        self.queues.unlocked.notify_waiters();
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

    fn kinds(batch: &QueuedBatch) -> Vec<&'static str> {
        batch.batch.effects.iter().map(|effect| effect.kind().word()).collect()
    }

    #[test]
    fn leaving_has_a_queue_of_its_own() {
        let (queues, mut receivers) = EffectQueues::new();
        queues.send_batch(EffectBatch { job: JobId(1), effects: effects() });
        let leaving = receivers.leaving.try_recv().unwrap();
        assert_eq!(kinds(&leaving), ["cancel_wing", "shrink_wing", "requeue_hold"]);
        assert_eq!(kinds(&receivers.others.try_recv().unwrap()), ["set_limit", "launch"]);
        queues.send_batch(EffectBatch { job: JobId(1), effects: vec![Effect::CancelWing { job: JobId(2) }] });
        assert_eq!(kinds(&receivers.others.try_recv().unwrap()), [""; 0], "the record is still stored");
    }

    #[test]
    fn effects_on_a_job_are_outdated_once_it_is_given_up() {
        let (queues, _receivers) = EffectQueues::new();
        let launch = Effect::Launch { job: JobId(1), node: NodeName::new("n1"), limit_mins: 9 };
        for effect in [launch.clone(), Effect::RequeueHold { job: JobId(1) }, launch] {
            queues.send_batch(EffectBatch { job: JobId(1), effects: vec![effect] });
        }
        assert!(queues.is_outdated(1, JobId(1)));
        assert!(!queues.is_outdated(1, JobId(2)) && !queues.is_outdated(3, JobId(1)));
        queues.mark_done(2);
        assert!(queues.lock_jobs().given_up.is_empty());
    }

    #[tokio::test]
    async fn a_slurm_job_is_locked_once_at_a_time() {
        use std::time::Duration;
        let (queues, _receivers) = EffectQueues::new();
        let first = queues.lock_job(JobId(1)).await;
        let _other = queues.lock_job(JobId(2)).await;
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, queues.lock_job(JobId(1))).await.is_err());
        let waiting = async { drop(queues.lock_job(JobId(1)).await) };
        let unlocking = async { drop(first) };
        let both = async { tokio::join!(waiting, unlocking) };
        tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
    }
}
