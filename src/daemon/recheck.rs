//! One more look before nodes are taken.
//!
//! From the look at Slurm that a plan is made from until an order is given, some tenths of a second pass, and a
//! main job may be submitted. Slurm gives it the nodes that were idle, and starts what we release then on others
//! that it is just having cleared for it; that job would wait until ours is gone again. So orders that take nodes
//! are put off when somebody has submitted a job since. (A job whose dependency was met, or whose hold ended, is
//! seen at the next look only.) Where somebody does so all the time, they cannot be put off for ever: soon they
//! are given all the same, and Slurm's preemption has to do.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::slurm::SlurmApi;

/// Most looks in a row after which nothing is taken.
const MOST_PUT_OFF: u32 = 3;

/// Orders are not put off for longer, counted from the first look that was overtaken.
const LONGEST_PUT_OFF: Duration = Duration::from_secs(5);

/// What has become of the last looks at which orders were to follow: pure.
#[derive(Clone, Copy, Debug, Default)]
struct Patience {
    /// Whether the last look was overtaken.
    overtaken: bool,
    /// Whether orders that take nodes follow from it whatever has come since.
    is_over: bool,
    /// Looks in a row before it that were overtaken.
    in_a_row: u32,
    /// Since when.
    since: Option<Instant>,
}

impl Patience {
    /// A look that no order was to follow from counts neither way.
    fn looked(&mut self) {
        if self.is_over {
            *self = Patience::default();
        } else if self.overtaken {
            (self.overtaken, self.in_a_row) = (false, self.in_a_row + 1);
        }
    }

    /// An order that takes nodes is to be given. Whether it is put off, if that is known without asking Slurm.
    fn asked(&mut self, now: Instant) -> Option<bool> {
        if self.overtaken {
            return Some(true);
        }
        let is_long = self.since.is_some_and(|at| now.saturating_duration_since(at) >= LONGEST_PUT_OFF);
        self.is_over |= self.in_a_row >= MOST_PUT_OFF || is_long;
        self.is_over.then_some(false)
    }

    /// What Slurm says.
    fn heard(&mut self, news: bool, now: Instant) {
        match news {
            true => (self.overtaken, self.since) = (true, self.since.or(Some(now))),
            false => (self.in_a_row, self.since) = (0, None),
        }
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

    /// Slurm was looked at, and what it said can be trusted.
    pub fn looked(&self) {
        self.patience().looked();
    }

    /// Whether a job has come since, so that nothing may be taken. Where Slurm does not answer, one may have.
    pub async fn is_overtaken(&self, slurm: &dyn SlurmApi) -> bool {
        if let Some(known) = self.patience().asked(Instant::now()) {
            return known;
        }
        let news = slurm.has_news().await.unwrap_or_else(|e| {
            tracing::debug!("cannot tell whether a job has come: {e}");
            true
        });
        self.patience().heard(news, Instant::now());
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::SlurmError;
    use crate::slurm::fake::FakeSlurm;

    /// The `secs` at which looks were overtaken or not; whether what follows from each is put off. `None`: nothing
    /// is to follow from it.
    fn put_off(looks: &[(u64, Option<bool>)]) -> Vec<bool> {
        let (start, mut patience, mut said) = (Instant::now(), Patience::default(), Vec::new());
        for (secs, come) in looks {
            let now = start + Duration::from_secs(*secs);
            patience.looked();
            let Some(news) = *come else { continue };
            let answer = patience.asked(now).unwrap_or_else(|| {
                patience.heard(news, now);
                news
            });
            // Several orders may follow from one look.
            assert!(!answer || patience.asked(now) == Some(true));
            said.push(answer);
        }
        said
    }

    #[test]
    fn a_stream_of_jobs_puts_off_a_few_looks_only() {
        let (come, none) = (Some(true), Some(false));
        let stream = [(0, come), (1, come), (2, come), (3, come), (4, come), (5, none), (6, come)];
        assert_eq!(put_off(&stream), [true, true, true, false, true, false, true]);
        let with_pauses =
            [(0, come), (1, None), (2, come), (2, None), (2, None), (3, come), (3, None), (4, come)];
        assert_eq!(
            put_off(&with_pauses),
            [true, true, true, false],
            "what nobody asked at counts neither way"
        );
        assert_eq!(
            put_off(&[(0, come), (5, come), (6, come)]),
            [true, false, true],
            "nor are they put off for long"
        );
        assert_eq!(put_off(&[(0, come), (3, none), (6, come), (8, come)]), [true, false, true, true]);
    }

    #[tokio::test]
    async fn slurm_is_asked_and_where_it_does_not_answer_a_job_may_have_come() {
        let slurm = FakeSlurm::new(1, "infill");
        slurm.snapshot().await.unwrap();
        let recheck = Recheck::default();
        slurm.submit_held(1, 6101, "");
        assert!(!recheck.is_overtaken(&slurm).await, "ours are no news");
        slurm.fail_next(SlurmError::Transient { doing: "x".to_owned(), what: "y".to_owned() });
        assert!(recheck.is_overtaken(&slurm).await);
        recheck.looked();
        assert!(!recheck.is_overtaken(&slurm).await);
        slurm.edit(|w| w.jobs[0].partition = "main".to_owned());
        assert!(recheck.is_overtaken(&slurm).await);
    }
}
