//! The job's time limit. A lead that reaches it would end for good, so the agent prevents that. If the limit
//! has not moved by the time that saving needs, the command saves and the job goes back to the queue.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use infill_model::JobId;

use super::slurm_programs::{SlurmPrograms, run_program};

/// Time for Slurm's answers, the last query and the way back to the queue. Slurm itself checks time limits
/// only twice a minute, so usually there is more time than this.
const LIMIT_SLACK: Duration = Duration::from_secs(15);

/// After the daemon has been silent for this long, someone else may have moved the limit.
pub(crate) const DAEMON_SILENCE: Duration = Duration::from_secs(30);

/// How often the agent then asks Slurm. It is rare because thousands of agents ask one slurmctld.
const LOOK_INTERVAL: Duration = Duration::from_secs(600);

/// How long Slurm has to answer. Later answers come too late.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The end of the job may seem to move by this much, because clocks are rounded.
const ROUNDING: Duration = Duration::from_secs(5);

/// How often Slurm is asked to requeue the job, until it does.
const REQUEUE_INTERVAL: Duration = Duration::from_secs(10);

/// The next stop may take this many times as long as the longest so far: saving is not always equally fast.
const STOP_SAFETY_FACTOR: f64 = 1.5;

/// Time that the job has left, according to Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLeft {
    /// This much is left.
    Time(Duration),
    /// The job has no time limit.
    Unlimited,
}

/// What to do about the limit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitAction {
    /// There is nothing to do.
    Nothing,
    /// Ask Slurm how much time is left.
    Look,
    /// Save now, and send the job back to the queue.
    Leave,
}

/// The time limit as the agent knows it.
#[derive(Clone, Debug)]
pub(crate) struct TimeLimit {
    /// When the job ends; `None` if it has no limit or the limit is unknown.
    end: Option<Instant>,
    /// Time that was left when this end became known.
    left_at_first: Duration,
    /// When Slurm was last asked.
    asked_at: Option<Instant>,
    /// Whether Slurm has not answered yet.
    awaits_answer: bool,
    /// Longest stop so far.
    longest_stop: Option<Duration>,
}

impl TimeLimit {
    /// Starts from the time that was left at the start according to the environment. Slurm never corrects
    /// that value.
    pub fn new(left: Option<Duration>, now: Instant) -> TimeLimit {
        TimeLimit {
            end: left.map(|left| now + left),
            left_at_first: left.unwrap_or_default(),
            asked_at: None,
            awaits_answer: false,
            longest_stop: None,
        }
    }

    /// Notes that Slurm is being asked.
    pub fn record_query(&mut self, now: Instant) {
        self.asked_at = Some(now);
        self.awaits_answer = true;
    }

    /// Takes in Slurm's answer; `None` if it gave none.
    pub fn record_answer(&mut self, left: Option<TimeLeft>, now: Instant) {
        self.awaits_answer = false;
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
            self.end = Some(end);
            self.left_at_first = left;
        }
    }

    /// Notes how long the command took to save and exit.
    pub fn record_stop(&mut self, took: Duration) {
        self.longest_stop = self.longest_stop.max(Some(took));
    }

    /// Time that the job has left; `None` if it has no limit or the limit is unknown.
    pub fn remaining_time(&self, now: Instant) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(now))
    }

    /// The action that is due now, for a command that is killed `grace` after it was asked to save.
    /// `silence`: for how long the daemon has been silent.
    pub fn next_action(&self, grace: Duration, silence: Duration, now: Instant) -> LimitAction {
        if self.awaits_answer {
            return LimitAction::Nothing;
        }
        // The daemon may have changed the limit after Slurm's last answer, before it fell silent.
        let max_age = LOOK_INTERVAL.min(silence);
        let is_old = self.asked_at.is_none_or(|at| now.saturating_duration_since(at) >= max_age);
        let routine =
            if is_old && silence >= DAEMON_SILENCE { LimitAction::Look } else { LimitAction::Nothing };
        let Some(end) = self.end else { return routine };
        let margin = self.save_margin(grace);
        if end.saturating_duration_since(now) > margin {
            return routine;
        }
        // The job leaves even if Slurm has not answered: later would be too late.
        let was_asked = self.asked_at.is_some_and(|at| end.saturating_duration_since(at) <= margin);
        if was_asked { LimitAction::Leave } else { LimitAction::Look }
    }

    /// How long before the end the command is asked to save: as long as saving took before, or may take. It
    /// is at most half of the time that was given, because the next round renews a start in a short window.
    fn save_margin(&self, grace: Duration) -> Duration {
        let save = self.longest_stop.map_or(grace, |took| took.mul_f64(STOP_SAFETY_FACTOR).min(grace));
        (save + LIMIT_SLACK).min(self.left_at_first / 2)
    }
}

/// Asks Slurm how much time the job has left; `None` if it gives no answer.
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

/// Whether Slurm takes the job's nodes back. With `PreemptParameters=send_user_signal`, Slurm only sends the
/// signal that the user asked for with `sbatch --signal`. Until the end of the grace time, nothing else
/// announces the preemption.
pub(crate) async fn is_preempted(programs: SlurmPrograms, job: JobId) -> bool {
    let args = ["--noheader", "--Format=PreemptTime:40,StartTime:40", "--jobs", &job.to_string()];
    let answer = run_program(&programs.squeue, &args, "", LOOK_TIMEOUT).await;
    answer.is_ok_and(|text| shows_preemption(&text))
}

/// Whether squeue shows a preemption of this run. The first word is the preemption's time
/// (`2026-11-24T22:03:25`) or `N/A`, the second the job's start. A preemption before the start belongs to an
/// earlier run.
fn shows_preemption(text: &str) -> bool {
    let mut times = text.split_whitespace();
    let preempted = times.next().unwrap_or_default();
    let started = times.next().unwrap_or_default();
    preempted.starts_with(|c: char| c.is_ascii_digit()) && preempted >= started
}

/// Asks Slurm again and again to requeue our own job, held or not, until the requeue ends this process.
pub(crate) async fn requeue_job(programs: SlurmPrograms, job: JobId, held: bool) {
    let mut is_logged = false;
    let word = if held { "requeuehold" } else { "requeue" };
    loop {
        match run_program(&programs.scontrol, &[word, &job.to_string()], "", LOOK_TIMEOUT).await {
            Ok(_) if held => {
                tracing::info!("the job goes back to the queue, held, until the daemon starts it again");
            }
            Ok(_) => tracing::info!("the job goes back to the queue"),
            Err(error) if !is_logged => {
                is_logged = true;
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
    fn a_preemption_of_an_earlier_run_does_not_count() {
        for (text, is_preempted) in [
            ("2026-11-24T22:03:25  2026-11-24T22:03:25 ", true),
            ("2026-11-24T22:03:25  2026-11-24T21:59:00", true),
            ("2026-11-24T22:03:25  2026-11-24T22:03:26", false),
            ("N/A  2026-11-24T22:03:26", false),
            ("2026-11-24T22:03:25  N/A", false),
            ("2026-11-24T22:03:25", true),
            ("", false),
        ] {
            assert_eq!(shows_preemption(text), is_preempted, "{text}");
        }
    }

    const GRACE: Duration = Duration::from_secs(60);
    const NO: Duration = Duration::ZERO;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn squeues_forms_of_the_time_left_are_read() {
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
    fn it_asks_slurm_again_before_it_leaves() {
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
    fn it_leaves_even_without_an_answer() {
        let start = Instant::now();
        let mut limit = TimeLimit::new(Some(secs(600)), start);
        limit.record_query(start + secs(530));
        assert_eq!(limit.next_action(GRACE, secs(99), start + secs(531)), LimitAction::Nothing);
        limit.record_answer(None, start + secs(532));
        assert_eq!(limit.next_action(GRACE, secs(99), start + secs(532)), LimitAction::Leave);
    }

    #[test]
    fn the_margin_follows_the_longest_stop_and_is_at_most_half_of_the_time() {
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
    fn while_the_daemon_is_silent_it_asks_slurm_now_and_then() {
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
        // Someone has shortened the limit.
        limit.record_query(start + secs(600));
        limit.record_answer(Some(TimeLeft::Time(secs(70))), start + secs(600));
        assert_eq!(limit.next_action(GRACE, secs(699), start + secs(640)), LimitAction::Look);
        let unknown = TimeLimit::new(None, start);
        assert_eq!(unknown.next_action(GRACE, NO, start + secs(9)), LimitAction::Nothing);
        assert_eq!(unknown.next_action(GRACE, secs(31), start + secs(31)), LimitAction::Look);
    }
}
