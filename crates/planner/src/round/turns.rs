//! Whose turn it is: how many times as much a sample of a job counts because the job may end soon, and
//! because its owner has had less than a fair share.

use std::collections::BTreeSet;

use super::rotation::Rotation;
use super::usage::Usage;
use infill_advisor::length::{Lengths, Outlook};
use infill_model::{JobFacts, JobId, OwnWord, Turn, UnixTime, duration};

/// Ended jobs from which a daemon learns at its start: the last so many.
pub const ENDED_TO_LEARN_FROM: u32 = 100_000;

/// Where stopping a job costs more than so many seconds, who has the best chance to end within some time
/// changes too often: the shortest remaining work counts instead, corrected once it is outlived. On public
/// logs the one is better at 30 s a stop, the other at 300 s.
const CHEAP_STOP_SECS: f64 = 100.0;

/// Exponent of the index: with 1 short jobs would have everything, even nodes on which they gain next to
/// nothing.
const KEENNESS: f64 = 0.5;

/// No job counts more than so many times as much as the one in the middle, or less.
const MOST: f64 = 32.0;

/// Steps of the logarithm to base two in which it changes, so that it does not change with each round.
const STEPS: f64 = 2.0;

/// What is known of how long jobs run, and of what their owners have had.
#[derive(Debug, Default)]
pub struct Turns {
    /// How long jobs are expected to run.
    pub outlook: Outlook,
    /// What users have had.
    pub usage: Usage,
    /// What jobs have had, and whose turn it is to hold nodes.
    pub(super) rotation: Rotation,
}

impl Turns {
    /// Takes in the jobs that are here.
    pub(super) fn look(&mut self, jobs: &[JobFacts], half_life_secs: f64, now: UnixTime) {
        self.usage.look(jobs, half_life_secs, now);
        self.rotation.look(jobs, now);
        let here: BTreeSet<JobId> = jobs.iter().map(|job| job.job).collect();
        self.outlook.retain(|job| here.contains(&job));
        jobs.iter().for_each(|job| self.outlook.meet(job.job, &job.submission()));
    }

    /// The work that a job has ahead, which makes `unit` samples a second on one node, and to which a start
    /// costs so much.
    pub fn ahead(&self, job: &JobFacts, unit: f64, stop_secs: f64) -> Ahead {
        let word = job.course.own_word(unit);
        let lengths = self.outlook.of(job.job, &word);
        Ahead { lengths, done_secs: job.course.work_secs(unit), stop_secs, word }
    }
}

impl Turns {
    /// Where a job stands among those that want nodes, by the last look; `None` where jobs shall end soon:
    /// these come by their expected ends.
    pub fn turn(&self, job: JobId) -> Option<Turn> {
        self.rotation.of(job)
    }

    /// When the next turn ends for which somebody waits.
    pub fn next_end(&self, now: UnixTime) -> Option<UnixTime> {
        self.rotation.next_end(now)
    }

    /// Why a job's turn comes when it does, in words.
    pub fn in_words(&self, job: &JobFacts, ahead: &Ahead) -> String {
        let whose = match (&ahead.word, ahead.lengths.is_narrow()) {
            (OwnWord { said_secs: Some(_), .. }, _) => "by its own word, and how true such words were",
            (OwnWord { flat_secs: Some(_), .. }, _) => "by its loss, which flattens, and by jobs like it",
            (_, true) => "as jobs like it did",
            (_, false) => "if anything, for jobs like it differ",
        };
        let (all, done) = (duration::show(ahead.lengths.secs(0.5)), duration::show(ahead.done_secs));
        format!(
            "index {:.2} (chances to end an hour of one node's work): {all} of such work, {whose}; {done} done; its \
             owner has had {:.1} node-hours lately",
            ahead.index() * 3600.0,
            self.usage.of(&job.program.user) / 3600.0
        )
    }
}

/// The work that a job has ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct Ahead {
    /// What it is expected to do in all, seconds on one node.
    pub lengths: Lengths,
    /// What it has done of that.
    pub done_secs: f64,
    /// What it costs it to be stopped and started, seconds.
    pub stop_secs: f64,
    /// What it tells of that itself.
    pub word: OwnWord,
}

impl Ahead {
    /// Whether it is known well when it ends: it has not outlived what was expected.
    pub fn is_sure(&self) -> bool {
        self.lengths.is_narrow() && self.done_secs < self.lengths.secs(0.9)
    }

    /// The work that is left.
    pub fn left(&self) -> Lengths {
        self.lengths.left(self.done_secs)
    }

    /// Work that is left, by the median, seconds on one node.
    pub fn left_secs(&self) -> f64 {
        self.lengths.corrected_left_secs(self.done_secs)
    }

    /// Its index: chance to end a second of work. What a start costs counts as work.
    fn index(&self) -> f64 {
        let index = if self.stop_secs <= CHEAP_STOP_SECS {
            self.lengths.gittins(self.done_secs)
        } else {
            self.left_secs().recip()
        };
        (index.recip() + self.stop_secs).recip()
    }
}

/// How many times as much each of these jobs counts.
pub(super) fn factors(ahead: &[Ahead]) -> Vec<f64> {
    let indices: Vec<f64> = ahead.iter().map(Ahead::index).collect();
    let mut sorted = indices.clone();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(1.0);
    let factor = |index: &f64| {
        let is_sound = |index: f64| index.is_finite() && index > 0.0;
        if !is_sound(*index) || !is_sound(middle) {
            return 1.0;
        }
        let steps = (KEENNESS * (index / middle).log2() * STEPS).round() / STEPS;
        steps.exp2().clamp(MOST.recip(), MOST)
    };
    indices.iter().map(factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(secs: f64, done_secs: f64, stop_secs: f64) -> Ahead {
        Ahead {
            lengths: Lengths::of(vec![secs.ln(); 4]).unwrap(),
            done_secs,
            stop_secs,
            word: OwnWord::default(),
        }
    }

    #[test]
    fn who_ends_soon_counts_more_and_nobody_without_bounds() {
        for stop_secs in [10.0, 200.0] {
            let of = |secs: f64, done: f64| ahead(secs, done, stop_secs);
            let found = factors(&[of(1e5, 0.0), of(1e4, 0.0), of(1e3, 0.0)]);
            assert!(found[0] < 0.4 && found[1] == 1.0 && found[2] > 2.0, "{found:?}");
            let near = factors(&[of(1e5, 9.99e4), of(1e4, 0.0), of(1e4, 1e5)]);
            assert!(near[0] > 4.0 && near[2] < 0.6, "what is outlived sinks: {near:?}");
            let far = factors(&[of(1e12, 0.0), of(1e4, 0.0), of(1.0, 0.0)]);
            assert_eq!(far[0], 1.0 / MOST);
        }
        assert!(factors(&[]).is_empty());
        assert_eq!(factors(&[ahead(1e308, 0.0, 1.0)]), [1.0]);
        assert!(factors(&vec![ahead(f64::MAX, 1e300, 1.0); 3]).iter().all(|f| f.is_finite()));
    }
}
