//! How much jobs that save at the same time slow each other down, learned from when their stops began and
//! ended.
//!
//! *Estimate.* The slowdown is a factor c of [`infill_model::SaveContention`]. For each c of a grid, the
//! stops that overlapped say what each would have taken alone: the integral of 1 / (1 + c (k − 1)) over its
//! seconds, while k jobs saved. A stop is compared with those of the same program beside which fewer others
//! saved. Two stops together vote for the least c with which the first would have taken no longer alone than
//! the second. The vote of a stop is the median over its comparisons. Its weight is the difference in the
//! number of others, at most one, because the stops of one crowd may all have been slow for another reason. A
//! stop counts to each class that begins below its seconds.
//!
//! *Prior.* Upper bound: three more stops vote for 1, and the bound is the 0.9 quantile of all votes. Lower
//! bound: ten more stops vote for 0, and the bound is the 0.1 quantile of all votes, less one step of the
//! grid. At first, therefore, either all saves may share one pipe, or the measured times may be those that
//! they take alone. A job that must not be late counts with the worse bound. 27 stops beside others outweigh
//! the first prior, and 90 the second.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use infill_model::{
    GenerationStop, JobId, ProfileKey, SAVE_CLASSES, SaveContention, StopOutcome, UnixTime, save_class,
};

use super::stops::{MAX_STOP_SECS, cut_off_factor};

/// The values of c that are tried.
const CONTENTION_GRID: [f64; 17] =
    [0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Stops that are kept.
const REMEMBERED: usize = 400;

/// Times count as equal when they differ by no more than this share.
const SAME_TIME_TOLERANCE: f64 = 1e-3;

/// Most stops that are kept until it is known whether others overlapped with them.
const MAX_REMEMBERED: usize = 1000;

/// The number of last stops with which each is compared.
const MAX_COMPARED: usize = 50;

/// Shorter stops say nothing, seconds: moments are known to the second.
const MIN_SECS: f64 = 1.0;

/// Two stops are compared if the mean number of others that saved differs by at least this.
const MIN_MORE: f64 = 0.5;

/// Most weight of a stop, as a difference in the number of others.
const MAX_WEIGHT: f64 = 1.0;

/// Weights of the prior votes for 1 and for 0.
const PRIOR_WEIGHTS: (f64, f64) = (3.0, 10.0);

/// The share of the votes that may lie beyond a bound.
const BEYOND_SHARE: f64 = 0.1;

/// One stop of one generation of a job, from its first worker's begin to its last worker's end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SaveRecord {
    job: JobId,
    generation: u64,
    /// A digest of the program's name; 0 where it is unknown.
    program: u64,
    /// Seconds since 1970.
    began: f64,
    /// Seconds since 1970.
    ended: f64,
    /// Seconds of the slowest worker.
    secs: f64,
    end: StopOutcome,
}

/// The last stops on a site, and the contention that they show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContentionEstimator {
    last: Vec<SaveRecord>,
    /// Lower and upper bound of the contention.
    believed: Option<[SaveContention; 2]>,
    /// For stops that others slowed down, the seconds that each would have taken alone, by both bounds.
    alone: FxHashMap<(JobId, u64), [f64; 2]>,
    /// Whether stops were recorded after the last estimate.
    stale: bool,
    unsaved: bool,
}

impl ContentionEstimator {
    /// Loads stops that [`ContentionEstimator::take_unsaved`] returned earlier. What cannot be read is
    /// learned again.
    pub fn load(&mut self, text: &str) {
        let read: Vec<SaveRecord> = serde_json::from_str(text).unwrap_or_default();
        self.last = read
            .into_iter()
            .filter(|s| {
                (0.0..=MAX_STOP_SECS).contains(&s.secs)
                    && (0.0..=2.0 * MAX_STOP_SECS).contains(&(s.ended - s.began))
            })
            .take(MAX_REMEMBERED)
            .collect();
        self.stale = true;
    }

    /// The stops to store, if they have changed since the last call.
    pub fn take_unsaved(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        serde_json::to_string(&self.last).ok()
    }

    /// Marks the stops as changed again, because they could not be stored.
    pub fn mark_unsaved(&mut self) {
        self.unsaved = true;
    }

    /// Takes in a worker's stop that has just ended, and the profile key of its program where it is known.
    pub fn record_stop(&mut self, program: Option<&ProfileKey>, stop: &GenerationStop, now: UnixTime) {
        if !(0.0..=MAX_STOP_SECS).contains(&stop.secs) {
            return;
        }
        let ended = now.0 as f64;
        let began = ended - stop.secs;
        let program = program.map_or(0, program_digest);
        let mut recorded = self.last.iter_mut().rev();
        let same = recorded.find(|s| (s.job, s.generation) == (stop.job, stop.generation));
        match same.filter(|s| ended - s.began <= MAX_STOP_SECS) {
            Some(record) => {
                record.began = record.began.min(began);
                record.ended = record.ended.max(ended);
                record.secs = record.secs.max(stop.secs);
                record.end = record.end.max(stop.end);
            }
            None => {
                let GenerationStop { job, generation, secs, end } = *stop;
                self.last.push(SaveRecord { job, generation, program, began, ended, secs, end });
            }
        }
        let beyond = self.last.len().saturating_sub(MAX_REMEMBERED);
        self.last.drain(..beyond);
        self.stale = true;
        self.unsaved = true;
    }

    /// Estimates the contention from the recorded stops. Takes some milliseconds at most.
    pub fn learn_contention(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let timeline = SaveTimeline::from_saves(&self.last);
        let beside: Vec<f64> = self.last.iter().map(|s| timeline.others_beside(s)).collect();
        let alone: Vec<[f64; CONTENTION_GRID.len()]> =
            self.last.iter().map(|s| timeline.alone_secs_by_grid(s)).collect();
        let votes = StopComparison { saves: &self.last, beside: &beside, alone: &alone }.votes_by_class();
        let least = votes.each_ref().map(|votes| lowest_vote(votes));
        let most = votes.each_ref().map(|votes| highest_vote(votes));
        let believed = [least, most].map(|c| SaveContention::new(c.map(|index| CONTENTION_GRID[index])));
        self.alone = FxHashMap::default();
        for ((saved, beside), alone) in self.last.iter().zip(&beside).zip(&alone) {
            if *beside > 0.0 {
                let secs = believed.each_ref().map(|c| consistent_secs(alone, c));
                self.alone.insert((saved.job, saved.generation), secs);
            }
        }
        self.believed = Some(believed);
        self.forget_oldest(&beside);
    }

    /// How much jobs that save at once slow each other down: the lower and the upper bound.
    pub fn contention_bounds(&self) -> [SaveContention; 2] {
        self.believed.unwrap_or([SaveContention::NONE, SaveContention::new([1.0; SAVE_CLASSES.len()])])
    }

    /// Whether no recorded stop had others beside it. Then each was alone.
    pub fn is_empty(&self) -> bool {
        self.alone.is_empty()
    }

    /// The stop as it would have been alone, by the lower and the upper bound.
    pub fn alone_stops(&self, stop: &GenerationStop) -> [GenerationStop; 2] {
        let secs = self.alone.get(&(stop.job, stop.generation)).copied().unwrap_or([stop.secs; 2]);
        secs.map(|secs| GenerationStop { secs, ..*stop })
    }

    /// Forgets the oldest stops. It takes them from those beside which others saved or from the rest,
    /// whichever are more: each kind says something only together with the other.
    fn forget_oldest(&mut self, beside: &[f64]) {
        let mut beyond = self.last.len().saturating_sub(REMEMBERED);
        let mut crowded = beside.iter().filter(|others| **others >= MIN_MORE).count();
        let mut rest = self.last.len() - crowded;
        let mut forgotten: FxHashSet<usize> = FxHashSet::default();
        let mut next_crowded = 0;
        let mut next_rest = 0;
        while beyond > 0 {
            let takes_crowded = crowded > rest;
            let (next, left) =
                if takes_crowded { (&mut next_crowded, &mut crowded) } else { (&mut next_rest, &mut rest) };
            let mut candidates = *next..beside.len();
            let Some(oldest) = candidates.find(|i| (beside[*i] >= MIN_MORE) == takes_crowded) else {
                break;
            };
            forgotten.insert(oldest);
            *next = oldest + 1;
            *left -= 1;
            beyond -= 1;
        }
        let mut indices = 0..;
        self.last.retain(|_| indices.next().is_some_and(|i| !forgotten.contains(&i)));
    }
}

/// How many jobs saved at each moment.
struct SaveTimeline {
    /// The moments at which the number of saving jobs changed, ascending.
    moments: Vec<f64>,
    /// For each moment, the seconds of others' saves until then, summed over the jobs that saved.
    beside: Vec<f64>,
    /// For each moment, the work that a job which saved all the time would have done, s, by each c of the
    /// grid.
    done: Vec<[f64; CONTENTION_GRID.len()]>,
}

impl SaveTimeline {
    fn from_saves(saves: &[SaveRecord]) -> Self {
        let mut changes: Vec<(f64, i32)> = saves.iter().flat_map(|s| [(s.began, 1), (s.ended, -1)]).collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut timeline = SaveTimeline { moments: Vec::new(), beside: Vec::new(), done: Vec::new() };
        let mut last = changes.first().map_or(0.0, |c| c.0);
        let mut saving = 0;
        let mut beside = 0.0;
        let mut done = [0.0; CONTENTION_GRID.len()];
        for (moment, change) in changes {
            let secs = moment - last;
            let others = f64::from((saving - 1).max(0));
            beside += secs * others;
            done.iter_mut().zip(CONTENTION_GRID).for_each(|(done, c)| *done += secs / (1.0 + c * others));
            timeline.moments.push(moment);
            timeline.beside.push(beside);
            timeline.done.push(done);
            last = moment;
            saving += change;
        }
        timeline
    }

    /// The mean number of others that saved during a stop.
    fn others_beside(&self, saved: &SaveRecord) -> f64 {
        let (began, ended) = self.end_indices(saved);
        (self.beside[ended] - self.beside[began]) / (saved.ended - saved.began).max(f64::MIN_POSITIVE)
    }

    /// The seconds that a stop would have taken alone, by each c of the grid.
    fn alone_secs_by_grid(&self, saved: &SaveRecord) -> [f64; CONTENTION_GRID.len()] {
        let (began, ended) = self.end_indices(saved);
        let secs = saved.ended - saved.began;
        std::array::from_fn(|c| {
            if secs > 0.0 {
                let share = (self.done[ended][c] - self.done[began][c]) / secs;
                saved.secs * share.min(1.0)
            } else {
                saved.secs
            }
        })
    }

    /// The indices of a stop's first and last moment, which are among those at which the number changed.
    fn end_indices(&self, saved: &SaveRecord) -> (usize, usize) {
        (self.moment_index(saved.began), self.moment_index(saved.ended))
    }

    fn moment_index(&self, moment: f64) -> usize {
        self.moments.partition_point(|one| *one <= moment).saturating_sub(1)
    }
}

/// The index of a value in the grid for which a stop votes, and the weight of the vote.
type GridVote = (usize, f64);

/// The recorded stops with what the timeline says of each.
struct StopComparison<'a> {
    saves: &'a [SaveRecord],
    /// The mean number of others that saved meanwhile.
    beside: &'a [f64],
    /// Seconds that each would have taken alone, by each c of the grid.
    alone: &'a [[f64; CONTENTION_GRID.len()]],
}

impl StopComparison<'_> {
    /// The votes of the stops, by class of duration.
    fn votes_by_class(&self) -> [Vec<GridVote>; SAVE_CLASSES.len()] {
        let mut by_program: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for (i, saved) in self.saves.iter().enumerate() {
            if saved.program != 0 && saved.end != StopOutcome::Failed && saved.secs >= MIN_SECS {
                by_program.entry(saved.program).or_default().push(i);
            }
        }
        let mut programs: Vec<Vec<usize>> = by_program.into_values().collect();
        programs.sort_unstable();
        SAVE_CLASSES.map(|class_secs| {
            let mut votes = Vec::new();
            for program in &programs {
                let members: Vec<usize> =
                    program.iter().copied().filter(|i| self.saves[*i].secs >= class_secs).collect();
                votes.extend(members.iter().filter_map(|stop| self.stop_vote(*stop, &members)));
            }
            votes
        })
    }

    /// The vote of one stop, compared with those of the same program and class; `None` where none of these
    /// had fewer others beside it.
    fn stop_vote(&self, stop: usize, members: &[usize]) -> Option<GridVote> {
        let with_fewer = members.iter().copied().rev().filter(|other| {
            self.saves[*other].end == StopOutcome::Saved
                && self.beside[stop] - self.beside[*other] >= MIN_MORE
        });
        let compared: Vec<usize> = with_fewer.take(MAX_COMPARED).collect();
        let mut named: Vec<usize> = compared.iter().map(|other| self.pair_vote(stop, *other)).collect();
        named.sort_unstable();
        let more: f64 = compared.iter().map(|other| self.beside[stop] - self.beside[*other]).sum();
        let median = *named.get(named.len() / 2)?;
        Some((median, (more / named.len() as f64).min(MAX_WEIGHT)))
    }

    /// The index of the least c with which the stop would have taken no longer alone than the other.
    fn pair_vote(&self, stop: usize, other: usize) -> usize {
        let longer = cut_off_factor(self.saves[stop].end);
        let stop_alone = &self.alone[stop];
        let other_alone = &self.alone[other];
        let least = (0..CONTENTION_GRID.len())
            .find(|c| longer * stop_alone[*c] <= other_alone[*c] * (1.0 + SAME_TIME_TOLERANCE));
        least.unwrap_or(CONTENTION_GRID.len() - 1)
    }
}

/// The index below which few votes lie, less one, because values between two steps of the grid were not
/// tried.
fn lowest_vote(votes: &[GridVote]) -> usize {
    let mut votes = votes.to_vec();
    votes.push((0, PRIOR_WEIGHTS.1));
    votes.sort_unstable_by_key(|(index, _)| *index);
    vote_quantile(votes.iter()).saturating_sub(1)
}

/// The index above which few votes lie.
fn highest_vote(votes: &[GridVote]) -> usize {
    let mut votes = votes.to_vec();
    votes.push((CONTENTION_GRID.len() - 1, PRIOR_WEIGHTS.0));
    votes.sort_unstable_by_key(|(index, _)| *index);
    vote_quantile(votes.iter().rev())
}

/// The first index at which the votes up to it weigh more than the share that may lie beyond.
fn vote_quantile<'a>(mut votes: impl Iterator<Item = &'a GridVote> + Clone) -> usize {
    let total: f64 = votes.clone().map(|(_, weight)| weight).sum();
    let mut passed = 0.0;
    let found = votes.find(|(_, weight)| {
        passed += weight;
        passed > BEYOND_SHARE * total
    });
    found.map_or(0, |(index, _)| *index)
}

/// The seconds that a stop would have taken alone, from those for each c of the grid. The result is of the
/// class whose c it was computed with; if there is none, it is of the next longer class.
fn consistent_secs(alone: &[f64; CONTENTION_GRID.len()], contention: &SaveContention) -> f64 {
    let by_class = contention
        .by_class()
        .map(|c| alone[CONTENTION_GRID.partition_point(|one| *one < c).min(CONTENTION_GRID.len() - 1)]);
    let found = by_class.iter().enumerate().position(|(class, secs)| save_class(*secs) <= class);
    let class = found.unwrap_or(by_class.len() - 1);
    let is_of_class = save_class(by_class[class]) == class;
    by_class[if is_of_class { class } else { class.saturating_sub(1) }]
}

/// A number that differs between programs and is the same in each daemon (FNV-1a).
fn program_digest(key: &ProfileKey) -> u64 {
    let bytes = key.user.bytes().chain([0]).chain(key.name.bytes());
    let digest = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    digest.max(1)
}

#[cfg(test)]
mod tests;
