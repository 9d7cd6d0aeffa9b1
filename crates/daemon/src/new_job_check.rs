//! One more look before nodes are taken.
//!
//! From the look at Slurm that a plan is made from until an order is given, some tenths of a second pass, and
//! a main job may be submitted. Slurm gives it the nodes that were idle, and starts what we release then on
//! others that it is just having cleared for it; that job would wait until ours is gone again. So orders that
//! take nodes are put off when somebody has submitted a job since. (A job whose dependency was met, or whose
//! hold ended, is seen at the next look only.) Where somebody does so all the time, they cannot be put off
//! for ever: soon they are given all the same, and Slurm's preemption has to do.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use infill_slurm::SlurmApi;

/// Most looks in a row after which nothing is taken.
const MAX_DEFERRALS: u32 = 3;

/// Nor from a look that comes so long after the first of them.
const MAX_DEFERRAL: Duration = Duration::from_secs(5);

/// After so many looks in a row from which no order was to follow, those before are forgotten.
const MAX_UNASKED: u32 = 3;

/// What has become of the last looks: pure.
#[derive(Clone, Copy, Debug, Default)]
struct DeferralState {
    /// Grows from look to look.
    look: u64,
    /// Whether orders that take nodes were to follow from the last one.
    asked: bool,
    /// Whether it was overtaken.
    overtaken: bool,
    /// Whether they do follow from it, whatever has come since.
    is_over: bool,
    /// Looks before it that were overtaken, with none between them that was not.
    in_a_row: u32,
    /// Looks in a row before it that nothing was to follow from.
    unasked: u32,
    /// When the first of those in a row was overtaken.
    since: Option<Instant>,
}

impl DeferralState {
    fn begin_snapshot(&mut self) {
        let look = self.look + 1;
        let unasked = if self.asked { 0 } else { self.unasked + 1 };
        if self.is_over || unasked >= MAX_UNASKED {
            *self = DeferralState { look, ..DeferralState::default() };
            return;
        }
        self.in_a_row += u32::from(self.overtaken);
        *self = DeferralState { look, asked: false, overtaken: false, unasked, ..*self };
    }

    /// An order that takes nodes is to be given. Whether it is put off, if that is known without asking
    /// Slurm.
    fn decide_deferral(&mut self, now: Instant) -> Option<bool> {
        self.asked = true;
        if self.overtaken {
            return Some(true);
        }
        let is_long = self.since.is_some_and(|at| now.saturating_duration_since(at) >= MAX_DEFERRAL);
        self.is_over |= self.in_a_row >= MAX_DEFERRALS || is_long;
        self.is_over.then_some(false)
    }

    /// What Slurm says to who asked after this look.
    fn record_answer(&mut self, look: u64, news: bool, now: Instant) {
        if look != self.look || self.overtaken {
            return;
        }
        match news {
            true => (self.overtaken, self.since) = (true, self.since.or(Some(now))),
            false => (self.in_a_row, self.since) = (0, None),
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct NewJobCheck {
    patience: Mutex<DeferralState>,
}

impl NewJobCheck {
    /// Every change is a single step: a thread that panicked leaves it whole.
    fn deferral_state(&self) -> MutexGuard<'_, DeferralState> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slurm was looked at, and what it said can be trusted.
    pub fn note_snapshot(&self) {
        self.deferral_state().begin_snapshot();
    }

    /// Whether a job has come since, so that nothing may be taken. Where Slurm does not answer, one may have.
    pub(crate) async fn has_new_jobs(&self, slurm: &dyn SlurmApi) -> bool {
        let look = {
            let mut patience = self.deferral_state();
            if let Some(known) = patience.decide_deferral(Instant::now()) {
                return known;
            }
            patience.look
        };
        let news = slurm.has_news().await.unwrap_or_else(|e| {
            tracing::debug!("cannot tell whether a job has come: {e}");
            true
        });
        self.deferral_state().record_answer(look, news, Instant::now());
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_slurm::{SlurmError, fake::FakeSlurm};

    /// The `secs` at which looks were overtaken or not; whether what follows from each is put off. `None`:
    /// nothing is to follow from it.
    fn put_off(looks: &[(u64, Option<bool>)]) -> Vec<bool> {
        let start = Instant::now();
        let mut patience = DeferralState::default();
        let mut said = Vec::new();
        for (secs, come) in looks {
            let now = start + Duration::from_secs(*secs);
            patience.begin_snapshot();
            let Some(news) = *come else { continue };
            let answer = patience.decide_deferral(now).unwrap_or_else(|| {
                patience.record_answer(patience.look, news, now);
                news
            });
            // Several orders may follow from one look.
            assert!(!answer || patience.decide_deferral(now) == Some(true));
            said.push(answer);
        }
        said
    }

    #[test]
    fn a_stream_of_jobs_puts_off_a_few_looks_only() {
        let come = Some(true);
        let none = Some(false);
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
        let long_ago = [(0, come), (1, None), (2, None), (3, None), (600, come), (601, come)];
        assert_eq!(put_off(&long_ago), [true, true, true], "what was long ago is forgotten");
    }

    #[test]
    fn an_answer_belongs_to_its_look() {
        let now = Instant::now();
        let mut patience = DeferralState::default();
        patience.decide_deferral(now);
        let look = patience.look;
        patience.begin_snapshot();
        patience.record_answer(look, true, now);
        assert_eq!(patience.decide_deferral(now), None, "the new look knows of it");
        patience.record_answer(patience.look, true, now);
        patience.record_answer(patience.look, false, now);
        assert_eq!(patience.decide_deferral(now), Some(true), "who asked before it came knows less");
    }

    #[tokio::test]
    async fn slurm_is_asked_and_where_it_does_not_answer_a_job_may_have_come() {
        let slurm = FakeSlurm::new(1, "infill");
        slurm.read_snapshot().await.unwrap();
        let recheck = NewJobCheck::default();
        slurm.submit_held(1, 6101, "");
        assert!(!recheck.has_new_jobs(&slurm).await, "ours are no news");
        slurm.fail_next(SlurmError::Transient { doing: "x".to_owned(), what: "y".to_owned() });
        assert!(recheck.has_new_jobs(&slurm).await);
        recheck.note_snapshot();
        assert!(!recheck.has_new_jobs(&slurm).await);
        slurm.edit_snapshot(|w| w.jobs[0].partition = "main".to_owned());
        assert!(recheck.has_new_jobs(&slurm).await);
    }
}
