//! A last check for new main jobs before effects take nodes.
//!
//! Some tenths of a second pass between the snapshot of a plan and its effects. A main job may be submitted
//! in that time. Slurm then gives it the idle nodes, and starts the job that infill releases on other nodes,
//! which Slurm is just clearing for the main job. The main job would wait until infill's job is gone again.
//!
//! So effects that take nodes are deferred when someone has submitted a job since the snapshot. A job whose
//! dependency was met, or whose hold ended, is seen only in the next snapshot. Where users submit jobs all
//! the time, effects cannot be deferred without limit. After a few deferrals they are carried out anyway, and
//! Slurm's preemption serves the main jobs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use infill_slurm::SlurmApi;

/// Most snapshots in a row whose effects are deferred.
const MAX_DEFERRALS: u32 = 3;

/// Effects are deferred for at most this time after the first deferral.
const MAX_DEFERRAL: Duration = Duration::from_secs(5);

/// After this many snapshots in a row without effects that take nodes, earlier deferrals are forgotten.
const MAX_UNASKED: u32 = 3;

/// The deferrals of the last snapshots. Pure: it does not ask Slurm.
#[derive(Clone, Copy, Debug, Default)]
struct DeferralState {
    /// Number of the present snapshot.
    snapshot: u64,
    /// Whether effects that take nodes followed from the present snapshot.
    asked: bool,
    /// Whether a job was submitted since the present snapshot.
    overtaken: bool,
    /// Whether effects of the present snapshot are carried out even if a job has been submitted.
    is_over: bool,
    /// Earlier snapshots in a row that were overtaken.
    in_a_row: u32,
    /// Earlier snapshots in a row without effects that take nodes.
    unasked: u32,
    /// When the first snapshot of `in_a_row` was overtaken.
    since: Option<Instant>,
}

impl DeferralState {
    fn begin_snapshot(&mut self) {
        let snapshot = self.snapshot + 1;
        let unasked = if self.asked { 0 } else { self.unasked + 1 };
        if self.is_over || unasked >= MAX_UNASKED {
            *self = DeferralState { snapshot, ..DeferralState::default() };
            return;
        }
        self.in_a_row += u32::from(self.overtaken);
        *self = DeferralState { snapshot, asked: false, overtaken: false, unasked, ..*self };
    }

    /// Notes an effect that takes nodes. Returns whether it is deferred, or `None` if only Slurm can tell.
    fn decide_deferral(&mut self, now: Instant) -> Option<bool> {
        self.asked = true;
        if self.overtaken {
            return Some(true);
        }
        let is_long = self.since.is_some_and(|at| now.saturating_duration_since(at) >= MAX_DEFERRAL);
        self.is_over |= self.in_a_row >= MAX_DEFERRALS || is_long;
        self.is_over.then_some(false)
    }

    /// Records Slurm's answer to a question that was asked after `snapshot`: whether there are new jobs.
    fn record_answer(&mut self, snapshot: u64, has_new_jobs: bool, now: Instant) {
        if snapshot != self.snapshot || self.overtaken {
            return;
        }
        if has_new_jobs {
            self.overtaken = true;
            self.since = self.since.or(Some(now));
        } else {
            self.in_a_row = 0;
            self.since = None;
        }
    }
}

/// Asks Slurm for new jobs and remembers the deferrals.
#[derive(Debug, Default)]
pub struct NewJobCheck {
    deferrals: Mutex<DeferralState>,
}

impl NewJobCheck {
    /// Every change is a single step, so a thread that panicked leaves the state consistent.
    fn deferral_state(&self) -> MutexGuard<'_, DeferralState> {
        self.deferrals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a trusted snapshot was read.
    pub fn note_snapshot(&self) {
        self.deferral_state().begin_snapshot();
    }

    /// Whether effects that take nodes must wait, because a main job has been submitted since the snapshot.
    /// True where Slurm does not answer. False after deferrals for [`MAX_DEFERRALS`] snapshots in a row, and
    /// [`MAX_DEFERRAL`] after the first of them, even if there are new jobs.
    pub(crate) async fn must_defer_growth(&self, slurm: &dyn SlurmApi) -> bool {
        let snapshot = {
            let mut deferrals = self.deferral_state();
            if let Some(is_deferred) = deferrals.decide_deferral(Instant::now()) {
                return is_deferred;
            }
            deferrals.snapshot
        };
        let has_new_jobs = slurm.has_new_main_jobs().await.unwrap_or_else(|e| {
            tracing::debug!("Slurm does not say whether a job has been submitted: {e}");
            true
        });
        self.deferral_state().record_answer(snapshot, has_new_jobs, Instant::now());
        has_new_jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_slurm::{SlurmError, fake::FakeSlurm};

    /// For each snapshot the second at which it was read, and whether a job was submitted after it. `None`:
    /// the snapshot has no effects that take nodes. Returns which of the others are deferred.
    fn deferred(snapshots: &[(u64, Option<bool>)]) -> Vec<bool> {
        let start = Instant::now();
        let mut state = DeferralState::default();
        let mut answers = Vec::new();
        for (secs, submitted) in snapshots {
            let now = start + Duration::from_secs(*secs);
            state.begin_snapshot();
            let Some(has_new_jobs) = *submitted else { continue };
            let answer = state.decide_deferral(now).unwrap_or_else(|| {
                state.record_answer(state.snapshot, has_new_jobs, now);
                has_new_jobs
            });
            // Several effects may follow from one snapshot.
            assert!(!answer || state.decide_deferral(now) == Some(true));
            answers.push(answer);
        }
        answers
    }

    #[test]
    fn a_stream_of_jobs_defers_only_a_few_snapshots() {
        let new = Some(true);
        let none = Some(false);
        let stream = [(0, new), (1, new), (2, new), (3, new), (4, new), (5, none), (6, new)];
        assert_eq!(deferred(&stream), [true, true, true, false, true, false, true]);
        let with_pauses =
            [(0, new), (1, None), (2, new), (2, None), (2, None), (3, new), (3, None), (4, new)];
        assert_eq!(
            deferred(&with_pauses),
            [true, true, true, false],
            "snapshots without effects do not count"
        );
        assert_eq!(deferred(&[(0, new), (5, new), (6, new)]), [true, false, true], "5 seconds are the limit");
        assert_eq!(deferred(&[(0, new), (3, none), (6, new), (8, new)]), [true, false, true, true]);
        let long_ago = [(0, new), (1, None), (2, None), (3, None), (600, new), (601, new)];
        assert_eq!(deferred(&long_ago), [true, true, true], "old deferrals are forgotten");
    }

    #[test]
    fn an_answer_belongs_to_its_snapshot() {
        let now = Instant::now();
        let mut state = DeferralState::default();
        state.decide_deferral(now);
        let old = state.snapshot;
        state.begin_snapshot();
        state.record_answer(old, true, now);
        assert_eq!(state.decide_deferral(now), None, "the new snapshot contains that job");
        state.record_answer(state.snapshot, true, now);
        state.record_answer(state.snapshot, false, now);
        assert_eq!(state.decide_deferral(now), Some(true), "an earlier question gets a later answer");
    }

    #[tokio::test]
    async fn slurm_is_asked_and_without_an_answer_there_may_be_a_new_job() {
        let slurm = FakeSlurm::new(1, "infill");
        slurm.read_snapshot().await.unwrap();
        let check = NewJobCheck::default();
        slurm.submit_held(1, 6101, "");
        assert!(!check.must_defer_growth(&slurm).await, "malleable jobs do not count");
        slurm.fail_next(SlurmError::Transient { doing: "x".to_owned(), what: "y".to_owned() });
        assert!(check.must_defer_growth(&slurm).await);
        check.note_snapshot();
        assert!(!check.must_defer_growth(&slurm).await);
        slurm.edit_snapshot(|snapshot| snapshot.jobs[0].partition = "main".to_owned());
        assert!(check.must_defer_growth(&slurm).await);
    }
}
