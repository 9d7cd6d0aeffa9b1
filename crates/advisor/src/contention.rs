//! How much jobs that save at the same time slow each other down, learned from when their stops began and
//! ended.
//!
//! *Estimate.* For each c of a grid it follows from the stops that overlapped what each would have taken
//! alone: the integral of 1 / (1 + c (k − 1)) over its seconds, while k jobs saved
//! ([`infill_model::SaveContention`]). A stop is compared with those of the same program beside which fewer
//! others saved: the least c with which it would have taken no longer alone than one of these is what the
//! two say, and the median of that is what the stop says. It weighs as much as the difference in the number
//! of others, one at most: those of one crowd may all have been slow for another reason. A stop counts to
//! each class that begins below its seconds.
//!
//! *Prior.* Three more stops say 1, and of what all say with these the quantile of 0.9 is as much as is
//! believed; ten say 0, and of what all say with those the quantile of 0.1, and a step of the grid less, is
//! as little. So at first saves may share one pipe, and what was measured may be what they take alone; who
//! must not be late counts with whichever is worse. 27 stops beside others end the one, and 90 the other.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use infill_model::{
    GenerationStop, JobId, ProfileKey, SAVE_CLASSES, SaveContention, StopOutcome, UnixTime, save_class,
};

use super::stops::{MAX_STOP_SECS, cut_off_factor};

/// What c may be.
const CONTENTION_GRID: [f64; 17] =
    [0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Stops that are remembered.
const REMEMBERED: usize = 400;

/// Times that differ by no more than this share are the same.
const SAME_TIME_TOLERANCE: f64 = 1e-3;

/// Stops beyond these are forgotten before it is known whether others overlapped with them.
const MOST_REMEMBERED: usize = 1000;

/// Stops that each is compared with, the last ones.
const MOST_COMPARED: usize = 50;

/// Shorter stops tell nothing, seconds: moments are known to the second.
const LEAST_SECS: f64 = 1.0;

/// So many others more must have saved beside one stop than beside another on the average to compare them.
const LEAST_MORE: f64 = 0.5;

/// No stop weighs more than one that so many others more slowed down.
const MOST_WEIGHT: f64 = 1.0;

/// What the stops weigh that say 1 though nothing was measured, and those that say 0.
const PRIOR_WEIGHTS: (f64, f64) = (3.0, 10.0);

/// The share of what was measured that may lie beyond what is believed.
const BEYOND_SHARE: f64 = 0.1;

/// One stop of one generation of a job, from the first of its workers that began to the last that was done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SaveRecord {
    job: JobId,
    generation: u64,
    /// A digest of the program's name; 0 where it is not known.
    program: u64,
    /// Seconds since 1970.
    began: f64,
    ended: f64,
    /// Seconds of the slowest worker.
    secs: f64,
    end: StopOutcome,
}

/// The last stops on a site, and what they say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedSaves {
    last: Vec<SaveRecord>,
    /// As little, and as much, as they allow.
    believed: Option<[SaveContention; 2]>,
    /// Those that were slowed down: what they would have taken alone, s, by both answers.
    alone: FxHashMap<(JobId, u64), [f64; 2]>,
    stale: bool,
    unsaved: bool,
}

impl SharedSaves {
    /// Takes up what was remembered before, as [`SharedSaves::take_unsaved`] gave it. What cannot be read is
    /// learned again.
    pub fn load(&mut self, text: &str) {
        let read: Vec<SaveRecord> = serde_json::from_str(text).unwrap_or_default();
        self.last = read
            .into_iter()
            .filter(|s: &SaveRecord| {
                (0.0..=MAX_STOP_SECS).contains(&s.secs)
                    && (0.0..=2.0 * MAX_STOP_SECS).contains(&(s.ended - s.began))
            })
            .take(MOST_REMEMBERED)
            .collect();
        self.stale = true;
    }

    /// What is to be remembered, if that has changed since the last call.
    pub fn take_unsaved(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        serde_json::to_string(&self.last).ok()
    }

    /// Says that it could not be stored after all.
    pub fn mark_unsaved(&mut self) {
        self.unsaved = true;
    }

    /// Takes in a worker's stop that has just ended, and of which program it was, if that is known.
    pub fn record_stop(&mut self, program: Option<&ProfileKey>, stop: &GenerationStop, now: UnixTime) {
        if !(0.0..=MAX_STOP_SECS).contains(&stop.secs) {
            return;
        }
        let ended = now.0 as f64;
        let began = ended - stop.secs;
        let program = program.map_or(0, program_digest);
        let same = |s: &&mut SaveRecord| (s.job, s.generation) == (stop.job, stop.generation);
        match self.last.iter_mut().rev().find(same).filter(|s| ended - s.began <= MAX_STOP_SECS) {
            Some(known) => {
                known.began = known.began.min(began);
                known.ended = known.ended.max(ended);
                known.secs = known.secs.max(stop.secs);
                known.end = known.end.max(stop.end);
            }
            None => {
                let GenerationStop { job, generation, secs, end } = *stop;
                self.last.push(SaveRecord { job, generation, program, began, ended, secs, end });
            }
        }
        let beyond = self.last.len().saturating_sub(MOST_REMEMBERED);
        self.last.drain(..beyond);
        (self.stale, self.unsaved) = (true, true);
    }

    /// Learns from the stops that were taken in. Takes some milliseconds at most.
    pub fn learn_contention(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let course = SaveTimeline::from_saves(&self.last);
        let beside: Vec<f64> = self.last.iter().map(|s| course.others_beside(s)).collect();
        let alone: Vec<[f64; CONTENTION_GRID.len()]> =
            self.last.iter().map(|s| course.alone_secs_by_grid(s)).collect();
        let named = grid_votes(&self.last, &beside, &alone);
        let least = named.each_ref().map(|n| lowest_vote(n));
        let most = named.each_ref().map(|n| highest_vote(n));
        let believed = [least, most].map(|c| SaveContention::new(c.map(|at| CONTENTION_GRID[at])));
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

    /// How much jobs that save at once slow each other down: as little, and as much, as stops allow.
    pub fn contention_bounds(&self) -> [SaveContention; 2] {
        self.believed.unwrap_or([SaveContention::NONE, SaveContention::new([1.0; SAVE_CLASSES.len()])])
    }

    /// Whether no stop is known beside which others saved: then each was alone.
    pub fn is_empty(&self) -> bool {
        self.alone.is_empty()
    }

    /// The stop as it would have been alone, by both answers.
    pub fn alone_stops(&self, stop: &GenerationStop) -> [GenerationStop; 2] {
        let secs = self.alone.get(&(stop.job, stop.generation)).copied().unwrap_or([stop.secs; 2]);
        secs.map(|secs| GenerationStop { secs, ..*stop })
    }

    /// Forgets the oldest of those beside which others saved, or of the rest, whichever are more: each tells
    /// something only together with the others.
    fn forget_oldest(&mut self, beside: &[f64]) {
        let mut beyond = self.last.len().saturating_sub(REMEMBERED);
        let mut crowded = beside.iter().filter(|others| **others >= LEAST_MORE).count();
        let mut rest = self.last.len() - crowded;
        let mut gone: FxHashSet<usize> = FxHashSet::default();
        let mut next_crowded = 0;
        let mut next_rest = 0;
        while beyond > 0 {
            let takes_crowded = crowded > rest;
            let (next, left) =
                if takes_crowded { (&mut next_crowded, &mut crowded) } else { (&mut next_rest, &mut rest) };
            let Some(at) = (*next..beside.len()).find(|at| (beside[*at] >= LEAST_MORE) == takes_crowded)
            else {
                break;
            };
            gone.insert(at);
            (*next, *left) = (at + 1, *left - 1);
            beyond -= 1;
        }
        let mut at = 0..;
        self.last.retain(|_| at.next().is_some_and(|at| !gone.contains(&at)));
    }
}

/// Between which moments how many saved.
struct SaveTimeline {
    /// When their number changed.
    at: Vec<f64>,
    /// Seconds of others' saves until then, summed over those that saved.
    beside: Vec<f64>,
    /// What one that saved all the time would have done until then, s, by each c of the grid.
    done: Vec<[f64; CONTENTION_GRID.len()]>,
}

impl SaveTimeline {
    fn from_saves(saves: &[SaveRecord]) -> Self {
        let mut changes: Vec<(f64, i32)> = saves.iter().flat_map(|s| [(s.began, 1), (s.ended, -1)]).collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut course = SaveTimeline { at: Vec::new(), beside: Vec::new(), done: Vec::new() };
        let mut last = changes.first().map_or(0.0, |c| c.0);
        let mut saving = 0;
        let mut beside = 0.0;
        let mut done = [0.0; CONTENTION_GRID.len()];
        for (at, change) in changes {
            let secs = at - last;
            let others = f64::from((saving - 1).max(0));
            beside += secs * others;
            done.iter_mut().zip(CONTENTION_GRID).for_each(|(done, c)| *done += secs / (1.0 + c * others));
            course.at.push(at);
            course.beside.push(beside);
            course.done.push(done);
            (last, saving) = (at, saving + change);
        }
        course
    }

    /// How many others saved meanwhile on the average.
    fn others_beside(&self, saved: &SaveRecord) -> f64 {
        let (began, ended) = self.end_indices(saved);
        (self.beside[ended] - self.beside[began]) / (saved.ended - saved.began).max(f64::MIN_POSITIVE)
    }

    /// What it would have taken alone, s, by each c of the grid.
    fn alone_secs_by_grid(&self, saved: &SaveRecord) -> [f64; CONTENTION_GRID.len()] {
        let (began, ended) = self.end_indices(saved);
        let all = saved.ended - saved.began;
        let share = |at: usize| (self.done[ended][at] - self.done[began][at]) / all;
        std::array::from_fn(|at| if all > 0.0 { saved.secs * share(at).min(1.0) } else { saved.secs })
    }

    /// The places of both its moments; each is one of those at which the number changed.
    fn end_indices(&self, saved: &SaveRecord) -> (usize, usize) {
        let place = |moment: f64| self.at.partition_point(|at| *at <= moment).saturating_sub(1);
        (place(saved.began), place(saved.ended))
    }
}

/// A place in the grid that a stop names, and what that weighs.
type GridVote = (usize, f64);

/// What the stops name, by class.
fn grid_votes(
    saves: &[SaveRecord],
    beside: &[f64],
    alone: &[[f64; CONTENTION_GRID.len()]],
) -> [Vec<GridVote>; SAVE_CLASSES.len()] {
    let mut of_program: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    for (at, saved) in saves.iter().enumerate() {
        if saved.program != 0 && saved.end != StopOutcome::Failed && saved.secs >= LEAST_SECS {
            of_program.entry(saved.program).or_default().push(at);
        }
    }
    let mut programs: Vec<Vec<usize>> = of_program.into_values().collect();
    programs.sort_unstable();
    SAVE_CLASSES.map(|least| {
        let slow = |at: &&usize| saves[**at].secs >= least;
        let pair = |at: usize, members: &[usize]| {
            let fewer = |other: &&usize| {
                saves[**other].end == StopOutcome::Saved && beside[at] - beside[**other] >= LEAST_MORE
            };
            let fewer = members.iter().rev().filter(slow).filter(fewer).take(MOST_COMPARED);
            let longer = cut_off_factor(saves[at].end);
            let name = |other: &usize| {
                let (alone, other) = (&alone[at], &alone[*other]);
                let place = (0..CONTENTION_GRID.len())
                    .find(|c| longer * alone[*c] <= other[*c] * (1.0 + SAME_TIME_TOLERANCE));
                place.unwrap_or(CONTENTION_GRID.len() - 1)
            };
            let mut places: Vec<usize> = fewer.clone().map(name).collect();
            places.sort_unstable();
            let more: f64 = fewer.map(|other| beside[at] - beside[*other]).sum();
            let place = *places.get(places.len() / 2)?;
            Some((place, (more / places.len() as f64).min(MOST_WEIGHT)))
        };
        programs
            .iter()
            .flat_map(|members: &Vec<usize>| {
                members.iter().filter(slow).filter_map(|at| pair(*at, members)).collect::<Vec<GridVote>>()
            })
            .collect()
    })
}

/// The place above which nearly all lie that were named; one lower, for between two nobody looked.
fn lowest_vote(named: &[GridVote]) -> usize {
    let mut named = named.to_vec();
    named.push((0, PRIOR_WEIGHTS.1));
    named.sort_unstable_by_key(|(at, _)| *at);
    vote_quantile(named.iter()).saturating_sub(1)
}

/// The place below which nearly all lie that were named.
fn highest_vote(named: &[GridVote]) -> usize {
    let mut named = named.to_vec();
    named.push((CONTENTION_GRID.len() - 1, PRIOR_WEIGHTS.0));
    named.sort_unstable_by_key(|(at, _)| *at);
    vote_quantile(named.iter().rev())
}

/// The first place that those before it and it weigh more than the share that may lie beyond.
fn vote_quantile<'a>(mut named: impl Iterator<Item = &'a GridVote> + Clone) -> usize {
    let all: f64 = named.clone().map(|n| n.1).sum();
    let mut passed = 0.0;
    let found = named.find(|(_, weight)| {
        passed += weight;
        passed > BEYOND_SHARE * all
    });
    found.map_or(0, |n| n.0)
}

/// What a stop would have taken alone, s, of these for each c of the grid: that which is of the class whose c
/// it follows from, else the next longer one.
fn consistent_secs(alone: &[f64; CONTENTION_GRID.len()], contention: &SaveContention) -> f64 {
    let by_class = contention
        .by_class()
        .map(|c| alone[CONTENTION_GRID.partition_point(|one| *one < c).min(CONTENTION_GRID.len() - 1)]);
    let found = by_class.iter().enumerate().position(|(class, secs)| save_class(*secs) <= class);
    let class = found.unwrap_or(by_class.len() - 1);
    let is_of_it = save_class(by_class[class]) == class;
    by_class[if is_of_it { class } else { class.saturating_sub(1) }]
}

/// A number that another program's name hardly has, the same in each daemon (FNV-1a).
fn program_digest(key: &ProfileKey) -> u64 {
    let bytes = key.user.bytes().chain([0]).chain(key.name.bytes());
    let digest = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    digest.max(1)
}

#[cfg(test)]
mod tests;
