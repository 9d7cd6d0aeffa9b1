//! One more look before nodes are taken.
//!
//! From the look at Slurm that a plan is made from until an order is given, some tenths of a second pass, and a
//! main job may come. Slurm gives it the nodes that were idle, and starts what we release then on others that it
//! is just having cleared for it; that job would wait until ours is gone again. So orders that take nodes are
//! put off when somebody has submitted a job since. Where that happens all the time, they cannot be put off for
//! ever: after a few looks in a row they are given all the same, and Slurm's preemption has to do.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::slurm::SlurmApi;

/// Most looks in a row after which nothing is taken.
const MOST_PUT_OFF: u32 = 3;

/// What has become of the last looks: pure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Patience {
    /// Whether the last look was overtaken.
    overtaken: bool,
    /// Looks in a row before it that were.
    in_a_row: u32,
}

impl Patience {
    fn looked(&mut self) {
        let in_a_row = if self.overtaken { self.in_a_row + 1 } else { 0 };
        *self = Patience { overtaken: false, in_a_row };
    }

    fn is_over(&self) -> bool {
        self.in_a_row >= MOST_PUT_OFF
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Recheck {
    patience: Mutex<Patience>,
}

impl Recheck {
    /// Every change is a single step: a thread that panicked leaves it whole.
    fn patience(&self) -> MutexGuard<'_, Patience> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slurm was looked at.
    pub fn looked(&self) {
        self.patience().looked();
    }

    /// Whether a job has come since, so that nothing may be taken. Where Slurm does not answer, nobody knows of
    /// any, and what is asked of it next will fail by itself.
    pub async fn is_overtaken(&self, slurm: &dyn SlurmApi) -> bool {
        if self.patience().is_over() {
            return false;
        }
        let news = slurm.has_news().await.unwrap_or_else(|e| {
            tracing::debug!("cannot tell whether a job has come: {e}");
            false
        });
        self.patience().overtaken |= news;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::fake::FakeSlurm;

    #[tokio::test]
    async fn a_stream_of_jobs_puts_off_a_few_looks_only() {
        let slurm = FakeSlurm::new(1, "infill");
        let (recheck, mut next) = (Recheck::default(), 10);
        let mut overtaken = async |come: bool| {
            slurm.snapshot().await.unwrap();
            recheck.looked();
            next += 1;
            slurm.submit_held(next, 6101, "");
            if come {
                slurm.edit(|w| w.jobs.last_mut().unwrap().partition = "main".to_owned());
            }
            // Several orders follow from one look.
            assert_eq!(recheck.is_overtaken(&slurm).await, recheck.is_overtaken(&slurm).await);
            recheck.is_overtaken(&slurm).await
        };
        assert!(!overtaken(false).await, "ours are no news");
        let said = [overtaken(true).await, overtaken(true).await, overtaken(true).await];
        assert_eq!(said, [true; 3]);
        assert!(!overtaken(true).await, "then it must go on");
        assert!(overtaken(true).await);
        assert!(!overtaken(false).await);
        let said =
            [overtaken(true).await, overtaken(true).await, overtaken(true).await, overtaken(true).await];
        assert_eq!(said, [true, true, true, false]);
    }

    #[tokio::test]
    async fn a_slurm_that_does_not_answer_tells_of_no_job() {
        let slurm = FakeSlurm::new(1, "infill");
        slurm.fail_next(crate::slurm::SlurmError::Transient { doing: "x".to_owned(), what: "y".to_owned() });
        assert!(!Recheck::default().is_overtaken(&slurm).await);
    }
}
