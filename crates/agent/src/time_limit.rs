//! The job's time limit. A lead that meets it has ended for good, so it never does: if nobody has moved the
//! limit by the time that saving needs, the command is asked to save and the job goes back to the queue.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use infill_model::JobId;

use super::slurm_programs::{SlurmPrograms, run_program};

/// For Slurm's answers, the last look and the way back to the queue, seconds. Slurm itself looks at time
/// limits twice a minute, so this is seldom all there is.
const LIMIT_SLACK: Duration = Duration::from_secs(15);

/// Without a word from the daemon for so long, somebody else may have moved the limit.
pub(crate) const DAEMON_SILENCE: Duration = Duration::from_secs(30);

/// How often that is looked at then. Thousands of agents ask one slurmctld.
const LOOK_INTERVAL: Duration = Duration::from_secs(600);

/// An answer that takes longer comes too late.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// An end of the job moves by so much because clocks are rounded.
const ROUNDING: Duration = Duration::from_secs(5);

/// How often Slurm is asked to requeue the job, until it does.
const REQUEUE_INTERVAL: Duration = Duration::from_secs(10);

/// Most of the time that a stop took before that the next one may take: saving is not always equally fast.
const STOP_SAFETY_FACTOR: f64 = 1.5;

/// Time that the job has left, as Slurm says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLeft {
    /// So much.
    Time(Duration),
    /// There is no limit.
    Unlimited,
}

/// What to do about the limit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitAction {
    /// Nothing.
    Nothing,
    /// Ask Slurm how much time is left.
    Look,
    /// It is time to save and go.
    Leave,
}

/// What is known of the limit.
#[derive(Clone, Debug)]
pub(crate) struct TimeLimit {
    /// When the job ends, if that is known and it does.
    end: Option<Instant>,
    /// What was left when this end was first known.
    whole: Duration,
    /// When Slurm was last asked.
    asked: Option<Instant>,
    /// Whether it has not answered yet.
    asking: bool,
    /// Longest stop so far.
    stop: Option<Duration>,
}

impl TimeLimit {
    /// From what the environment says of the time that was left at the start; Slurm never corrects that.
    pub fn new(left: Option<Duration>, now: Instant) -> TimeLimit {
        let whole = left.unwrap_or_default();
        TimeLimit { end: left.map(|left| now + left), whole, asked: None, asking: false, stop: None }
    }

    /// Notes that Slurm is being asked.
    pub fn record_query(&mut self, now: Instant) {
        self.asked = Some(now);
        self.asking = true;
    }

    /// Takes in what Slurm says; `None` if it gave no answer.
    pub fn record_answer(&mut self, left: Option<TimeLeft>, now: Instant) {
        self.asking = false;
        let left = match left {
            Some(TimeLeft::Time(left)) => left,
            Some(TimeLeft::Unlimited) => {
                self.end = None;
                return;
            }
            None => return,
        };
        let end = now + left;
        let moved = self.end.is_none_or(|old| {
            end.saturating_duration_since(old).max(old.saturating_duration_since(end)) > ROUNDING
        });
        if moved {
            (self.end, self.whole) = (Some(end), left);
        }
    }

    /// Notes how long the command took to save and exit.
    pub fn record_stop(&mut self, took: Duration) {
        self.stop = self.stop.max(Some(took));
    }

    /// What is left of the job.
    pub fn remaining_time(&self, now: Instant) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(now))
    }

    /// What is due now, for a command that is killed `grace` after it was asked to save. `away`: for how long
    /// the daemon has been silent.
    pub fn next_action(&self, grace: Duration, away: Duration, now: Instant) -> LimitAction {
        if self.asking {
            return LimitAction::Nothing;
        }
        // What was said before the daemon fell silent, the daemon may have changed since.
        let old = self.asked.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_INTERVAL.min(away));
        let look = if old && away >= DAEMON_SILENCE { LimitAction::Look } else { LimitAction::Nothing };
        let Some(end) = self.end else { return look };
        let margin = self.save_margin(grace);
        if end.saturating_duration_since(now) > margin {
            return look;
        }
        // Whether Slurm answered or not: later is too late.
        let asked = self.asked.is_some_and(|at| end.saturating_duration_since(at) <= margin);
        if asked { LimitAction::Leave } else { LimitAction::Look }
    }

    /// How long before the end the command is asked to save: as long as it took before, or may take. Never
    /// more than half of the time that was given: a start in a short window is renewed in the next round.
    fn save_margin(&self, grace: Duration) -> Duration {
        let save = self.stop.map_or(grace, |took| took.mul_f64(STOP_SAFETY_FACTOR).min(grace));
        (save + LIMIT_SLACK).min(self.whole / 2)
    }
}

/// Asks Slurm what is left of the job; `None` if it gives no answer.
pub(crate) async fn query_time_left(programs: SlurmPrograms, job: JobId) -> Option<TimeLeft> {
    let args = ["--noheader", "--format=%L", "--jobs", &job.to_string()];
    match run_program(&programs.squeue, &args, "", LOOK_TIMEOUT).await {
        Ok(text) => parse_time_left(text.trim()),
        Err(error) => {
            tracing::warn!(%error, "squeue does not say how much time the job has left");
            None
        }
    }
}

/// Whether Slurm takes the job's nodes back. With `PreemptParameters=send_user_signal` it tells so by the
/// signal that the user asked for with `sbatch --signal`, and by nothing else until the end of the grace
/// time.
pub(crate) async fn is_preempted(programs: SlurmPrograms, job: JobId) -> bool {
    let args = ["--noheader", "--Format=PreemptTime:40,StartTime:40", "--jobs", &job.to_string()];
    let said = run_program(&programs.squeue, &args, "", LOOK_TIMEOUT).await;
    said.is_ok_and(|text| shows_preemption(&text))
}

/// Whether squeue shows a preemption, `2026-11-24T22:03:25` or `N/A`, that is not of an earlier run, before
/// the start that stands beside it.
fn shows_preemption(text: &str) -> bool {
    let mut times = text.split_whitespace();
    let preempted = times.next().unwrap_or_default();
    let started = times.next().unwrap_or_default();
    preempted.starts_with(|c: char| c.is_ascii_digit()) && preempted >= started
}

/// Has Slurm requeue our own job, held or not, until that ends us.
pub(crate) async fn requeue_job(programs: SlurmPrograms, job: JobId, held: bool) {
    let mut told = false;
    let word = if held { "requeuehold" } else { "requeue" };
    loop {
        match run_program(&programs.scontrol, &[word, &job.to_string()], "", LOOK_TIMEOUT).await {
            Ok(_) if held => {
                tracing::info!("the job goes back to the queue, held, until the daemon starts it again");
            }
            Ok(_) => tracing::info!("the job goes back to the queue"),
            Err(error) if !told => {
                told = true;
                tracing::error!(%error, "Slurm does not requeue this job; trying again until its time is up");
            }
            Err(_) => {}
        }
        sleep(REQUEUE_INTERVAL).await;
    }
}

/// Reads `1-02:03:04`, `02:03:04`, `03:04` or `UNLIMITED`.
fn parse_time_left(text: &str) -> Option<TimeLeft> {
    if text == "UNLIMITED" {
        return Some(TimeLeft::Unlimited);
    }
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut secs = 0u64;
    for part in clock.split(':') {
        secs = secs.checked_mul(60)?.checked_add(u64::from(part.parse::<u32>().ok()?))?;
    }
    let days = u64::from(days.parse::<u32>().ok()?);
    Some(TimeLeft::Time(Duration::from_secs(secs.checked_add(days * 86_400)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preemption_of_an_earlier_run_is_none() {
        for (text, told) in [
            ("2026-11-24T22:03:25  2026-11-24T22:03:25 ", true),
            ("2026-11-24T22:03:25  2026-11-24T21:59:00", true),
            ("2026-11-24T22:03:25  2026-11-24T22:03:26", false),
            ("N/A  2026-11-24T22:03:26", false),
            ("2026-11-24T22:03:25  N/A", false),
            ("2026-11-24T22:03:25", true),
            ("", false),
        ] {
            assert_eq!(shows_preemption(text), told, "{text}");
        }
    }

    const GRACE: Duration = Duration::from_secs(60);
    const NO: Duration = Duration::ZERO;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn what_squeue_says() {
        for (text, want) in [
            ("1:59", Some(TimeLeft::Time(secs(119)))),
            ("0:00", Some(TimeLeft::Time(NO))),
            ("1:00:07", Some(TimeLeft::Time(secs(3607)))),
            ("2-01:00:07", Some(TimeLeft::Time(secs(2 * 86_400 + 3607)))),
            ("UNLIMITED", Some(TimeLeft::Unlimited)),
            ("INVALID", None),
            ("NOT_SET", None),
            ("", None),
            ("99999999999:00", None),
        ] {
            assert_eq!(parse_time_left(text), want, "{text}");
        }
    }

    #[test]
    fn it_looks_again_before_it_goes() {
        let start = Instant::now();
        let mut limit = TimeLimit::new(Some(secs(600)), start);
        let at = |s| start + secs(s);
        assert_eq!(limit.next_action(GRACE, NO, at(524)), LimitAction::Nothing);
        assert_eq!(limit.next_action(GRACE, NO, at(525)), LimitAction::Look);
        limit.record_query(at(525));
        limit.record_answer(Some(TimeLeft::Time(secs(1800))), at(526));
        assert_eq!(limit.next_action(GRACE, NO, at(700)), LimitAction::Nothing);
        assert_eq!(limit.next_action(GRACE, NO, at(526 + 1800 - 75)), LimitAction::Look);
        limit.record_query(at(526 + 1800 - 75));
        limit.record_answer(Some(TimeLeft::Time(secs(74))), at(526 + 1800 - 75));
        assert_eq!(limit.next_action(GRACE, NO, at(526 + 1800 - 74)), LimitAction::Leave);
        limit.record_answer(Some(TimeLeft::Unlimited), at(526 + 1800 - 74));
        assert_eq!(limit.next_action(GRACE, NO, at(99_999)), LimitAction::Nothing);
    }

    #[test]
    fn without_an_answer_it_goes_all_the_same() {
        let start = Instant::now();
        let mut limit = TimeLimit::new(Some(secs(600)), start);
        limit.record_query(start + secs(530));
        assert_eq!(limit.next_action(GRACE, secs(99), start + secs(531)), LimitAction::Nothing);
        limit.record_answer(None, start + secs(532));
        assert_eq!(limit.next_action(GRACE, secs(99), start + secs(532)), LimitAction::Leave);
    }

    #[test]
    fn the_margin_is_what_saving_took_and_at_most_half() {
        let start = Instant::now();
        let mut limit = TimeLimit::new(Some(secs(3600)), start);
        assert_eq!(limit.save_margin(GRACE), secs(75));
        limit.record_stop(secs(10));
        limit.record_stop(secs(4));
        assert_eq!(limit.save_margin(GRACE), secs(30));
        limit.record_stop(secs(500));
        assert_eq!(limit.save_margin(GRACE), secs(75));
        assert_eq!(TimeLimit::new(Some(secs(60)), start).save_margin(GRACE), secs(30));
    }

    #[test]
    fn while_the_daemon_is_silent_it_looks_now_and_then() {
        let start = Instant::now();
        let mut limit = TimeLimit::new(Some(secs(86_400)), start);
        assert_eq!(limit.next_action(GRACE, secs(29), start), LimitAction::Nothing);
        assert_eq!(limit.next_action(GRACE, secs(30), start), LimitAction::Look);
        limit.record_query(start);
        limit.record_answer(None, start);
        assert_eq!(limit.next_action(GRACE, secs(629), start + secs(599)), LimitAction::Nothing);
        assert_eq!(
            limit.next_action(GRACE, secs(30), start + secs(599)),
            LimitAction::Look,
            "it is silent again"
        );
        assert_eq!(limit.next_action(GRACE, secs(699), start + secs(600)), LimitAction::Look);
        // Somebody has cut it.
        limit.record_query(start + secs(600));
        limit.record_answer(Some(TimeLeft::Time(secs(70))), start + secs(600));
        assert_eq!(limit.next_action(GRACE, secs(699), start + secs(640)), LimitAction::Look);
        let unknown = TimeLimit::new(None, start);
        assert_eq!(unknown.next_action(GRACE, NO, start + secs(9)), LimitAction::Nothing);
        assert_eq!(unknown.next_action(GRACE, secs(31), start + secs(31)), LimitAction::Look);
    }
}
