//! What is known of lengths from jobs that have ended: the last ones of the same user, name and size, of the
//! same user and name, and so on, the newer the more; and a little of the whole site.
//!
//! Pure and incremental: a job is taken in or looked up in microseconds.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::distribution::{Lengths, log_of};
use infill_model::{PastJob, Submission};

/// Atoms of a distribution.
pub(crate) const ATOMS: usize = 16;

/// Last lengths that are kept of each key.
const RECENT: usize = 50;

/// Of these, those that a forest is told of.
const RECENT_TOLD: usize = 20;

/// Weights of what is alike: user, name and size; user and name; name; user and size; user.
const WEIGHTS: [f64; KINDS] = [8.0, 4.0, 1.0, 2.0, 1.0];

/// In how many ways jobs are alike.
const KINDS: usize = 5;

/// How much the past counts, in two ways: where jobs change, the last ones tell most; where the same recur,
/// all of them do. Whichever was nearer to what came lately counts.
const MEMORIES: [Memory; 2] = [Memory { fades: 0.8, last: 20 }, Memory { fades: 1.0, last: RECENT }];

/// What an earlier miss counts for, after each further job.
const MISS_FADES: f64 = 0.998;

/// Weight of the whole site.
const SITE_WEIGHT: f64 = 0.15;

/// Last lengths of the site that are kept.
const SITE_RECENT: usize = 2000;

/// After so many ends the site's quantiles are computed anew.
const SITE_EVERY: u64 = 200;

/// What is expected where nothing at all is known, seconds.
const UNKNOWN_SECS: f64 = 600.0;

/// Most keys that are kept: beyond that the half of them that was not seen for longest is forgotten.
const MOST_KEYS: usize = 400_000;

/// Numbers that tell of each way of being alike.
const OF_A_KIND: usize = 8;

/// Numbers that tell of the submission itself.
const OF_THE_JOB: usize = 8;

/// Quantiles of the mixture that a forest is told.
const TOLD: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// What stands for a number that is not known.
const NOTHING: f64 = -1.0;

/// Names, as numbers.
type Ids = FxHashMap<String, u32>;

/// Jobs that are alike in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: u8,
    user: u32,
    name: u32,
    size: (u32, u32),
}

/// How much the past counts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Memory {
    /// What each further step back counts for.
    fades: f64,
    /// How many steps back count.
    last: usize,
}

/// The last of them.
#[derive(Clone, Debug, Default)]
struct Recent {
    /// Logarithms of lengths, the oldest first.
    logs: VecDeque<f64>,
    count: u32,
    ended_at: f64,
}

/// What is known of a submission.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Glance {
    /// The distribution that the history alone gives.
    pub mixture: Lengths,
    /// What a forest is told of it.
    pub features: Vec<f64>,
}

impl Glance {
    /// By how much the logarithm of what a job took differed from the median that was expected.
    pub(super) fn missed(&self, past: &PastJob) -> f64 {
        log_of(past.secs) - self.mixture.quantile(0.5)
    }
}

/// Jobs that have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    users: Ids,
    names: Ids,
    recent: FxHashMap<Key, Recent>,
    site: VecDeque<f64>,
    site_atoms: Vec<f64>,
    ended: u64,
    /// By how much each of [`MEMORIES`] missed lately.
    missed: [f64; MEMORIES.len()],
}

impl History {
    /// Takes in that a job has ended, at a time, after so many seconds (or other units of work).
    pub fn ended(&mut self, job: &Submission, ended_at: f64, length: f64) {
        let log = log_of(length);
        if !log.is_finite() {
            return;
        }
        let (user, name) = (id_of(&mut self.users, &job.user), id_of(&mut self.names, &job.name));
        let keys = keys(job, user, name);
        if let Some(recent) = keys.iter().flatten().find_map(|key| self.recent.get(key)) {
            for (missed, memory) in self.missed.iter_mut().zip(MEMORIES) {
                *missed = *missed * MISS_FADES + (log - recent.median(memory)).abs();
            }
        }
        for key in keys.into_iter().flatten() {
            let recent = self.recent.entry(key).or_default();
            if recent.logs.len() == RECENT {
                recent.logs.pop_front();
            }
            recent.logs.push_back(log);
            (recent.count, recent.ended_at) = (recent.count.saturating_add(1), ended_at);
        }
        self.forget_the_oldest();
        if self.site.len() == SITE_RECENT {
            self.site.pop_front();
        }
        self.site.push_back(log);
        self.ended += 1;
        // At first each tenth matters.
        if self.ended.is_multiple_of(SITE_EVERY) || (self.ended < SITE_EVERY && self.ended.is_multiple_of(10))
        {
            let all = self.site.iter().map(|log| (*log, 1.0)).collect();
            self.site_atoms = Lengths::of_weighted(all, ATOMS).map_or_else(Vec::new, |l| l.atoms().to_vec());
        }
    }

    fn forget_the_oldest(&mut self) {
        if self.recent.len() > MOST_KEYS {
            let mut times: Vec<f64> = self.recent.values().map(|r| r.ended_at).collect();
            let middle = times.len() / 2;
            let (_, middle, _) = times.select_nth_unstable_by(middle, f64::total_cmp);
            let middle = *middle;
            self.recent.retain(|_, r| r.ended_at > middle);
        }
    }

    /// How much the past counts here.
    fn memory(&self) -> Memory {
        let best = self.missed.iter().zip(MEMORIES).min_by(|a, b| a.0.total_cmp(b.0));
        best.map_or(MEMORIES[0], |(_, memory)| memory)
    }

    /// The distribution of all jobs of the site, lately.
    pub fn of_the_site(&self) -> Lengths {
        Lengths::of(self.site_atoms.clone()).unwrap_or_else(unknown)
    }

    /// What is known of a job that is submitted.
    pub fn look(&self, job: &Submission) -> Glance {
        // Somebody new has ended nothing.
        let id = |ids: &Ids, text: &str| ids.get(text).copied().unwrap_or(u32::MAX);
        let (user, name) = (id(&self.users, &job.user), id(&self.names, &job.name));
        let mut weighted: Vec<(f64, f64)> = Vec::new();
        let mut features = Vec::with_capacity(KINDS * OF_A_KIND + OF_THE_JOB + TOLD.len() + job.more.len());
        let mut base = None;
        let memory = self.memory();
        for (kind, key) in keys(job, user, name).into_iter().enumerate() {
            let Some(recent) = key.and_then(|key| self.recent.get(&key)) else {
                features.extend([NOTHING; OF_A_KIND]);
                continue;
            };
            weighted.extend(recent.weighted(memory).map(|(log, weight)| (log, WEIGHTS[kind] * weight)));
            let told = recent.told(job.at);
            base = base.or(Some(f64::midpoint(told[0], told[1])));
            features.extend(told);
        }
        let site = self.of_the_site();
        let share = SITE_WEIGHT / site.atoms().len() as f64;
        weighted.extend(site.atoms().iter().map(|atom| (*atom, share)));
        let mixture = Lengths::of_weighted(weighted, ATOMS).unwrap_or(site);
        let number = |id: u32| if id == u32::MAX { NOTHING } else { f64::from(id) };
        let limit = job.limit_secs.filter(|l| *l > 0.0).map_or(NOTHING, f64::ln);
        features.extend([number(user), number(name), f64::from(job.nodes), f64::from(job.gpus)]);
        features.extend([
            (job.at / 3600.0).rem_euclid(24.0).floor(),
            (job.at / 86_400.0).rem_euclid(7.0).floor(),
        ]);
        features.extend([limit, base.unwrap_or_else(|| mixture.quantile(0.5))]);
        features.extend(TOLD.map(|share| mixture.quantile(share)));
        features.extend(&job.more);
        Glance { mixture: mixture.capped(job.limit_secs), features }
    }
}

impl Recent {
    /// Logarithms and weights, the newest first.
    fn weighted(&self, memory: Memory) -> impl Iterator<Item = (f64, f64)> {
        let newest_first = self.logs.iter().rev().take(memory.last).enumerate();
        newest_first.map(move |(back, log)| (*log, memory.fades.powi(back as i32)))
    }

    /// The logarithm in the middle where the past counts so much.
    fn median(&self, memory: Memory) -> f64 {
        Lengths::of_weighted(self.weighted(memory).collect(), 1).map_or(0.0, |one| one.quantile(0.5))
    }

    /// What a forest is told: the last two, median, least, most, spread, how many there were, how long ago.
    fn told(&self, now: f64) -> [f64; OF_A_KIND] {
        let mut sorted: Vec<f64> = self.logs.iter().rev().take(RECENT_TOLD).copied().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let last = self.logs.back().copied().unwrap_or(NOTHING);
        let before = self.logs.iter().rev().nth(1).copied().unwrap_or(last);
        let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let spread = (sorted.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / count as f64).sqrt();
        let ago = (now - self.ended_at).max(0.0).ln_1p();
        [last, before, median, sorted[0], sorted[count - 1], spread, f64::from(self.count.min(10_000)), ago]
    }
}

fn id_of(ids: &mut Ids, text: &str) -> u32 {
    let next = u32::try_from(ids.len()).unwrap_or(u32::MAX - 1);
    *ids.entry(text.to_owned()).or_insert(next)
}

/// In which ways jobs are alike to this one, in the order of [`WEIGHTS`]. Where it has no name, not by that;
/// where nobody is known to have submitted it, not by that alone.
fn keys(job: &Submission, user: u32, name: u32) -> [Option<Key>; KINDS] {
    let size = (job.nodes, job.gpus);
    let (named, owned) = (!job.name.is_empty(), !job.user.is_empty());
    [
        named.then_some(Key { kind: 0, user, name, size }),
        named.then_some(Key { kind: 1, user, name, size: (0, 0) }),
        named.then_some(Key { kind: 2, user: 0, name, size: (0, 0) }),
        owned.then_some(Key { kind: 3, user, name: 0, size }),
        owned.then_some(Key { kind: 4, user, name: 0, size: (0, 0) }),
    ]
}

fn unknown() -> Lengths {
    Lengths::about(UNKNOWN_SECS.ln(), ATOMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(user: &str, name: &str, nodes: u32) -> Submission {
        Submission { user: user.to_owned(), name: name.to_owned(), nodes, ..Submission::default() }
    }

    #[test]
    fn what_is_most_alike_and_newest_counts_most() {
        let mut history = History::default();
        for _ in 0..300 {
            history.ended(&job("bob", "other", 1), 0.0, 5.0);
        }
        for secs in [100.0, 1000.0, 1000.0, 1000.0] {
            history.ended(&job("alice", "train", 4), 0.0, secs);
        }
        let median = |j: &Submission| history.look(j).mixture.secs(0.5);
        assert!((median(&job("alice", "train", 4)) - 1000.0).abs() < 1.0);
        assert!((median(&job("alice", "", 8)) - 1000.0).abs() < 1.0, "what else is known of its owner");
        assert!((median(&job("carol", "", 1)) - 5.0).abs() < 0.1, "the site");
        assert!((median(&job("carol", "train", 1)) - 1000.0).abs() < 1.0, "others of the name");
        let limited = Submission { limit_secs: Some(60.0), ..job("alice", "train", 4) };
        assert!((median(&limited) - 60.0).abs() < 1e-6);
    }

    #[test]
    fn what_recurs_without_change_counts_however_old_it_is() {
        let (mut changing, mut recurring) = (History::default(), History::default());
        let alice = job("alice", "train", 4);
        for i in 0..200 {
            // One doubles every ten jobs; the other takes 100 s, and at times more, in no order.
            changing.ended(&alice, 0.0, 100.0 * 2f64.powi(i / 10));
            recurring.ended(&alice, 0.0, if i * 7919 % 10 < 6 { 100.0 } else { 900.0 });
        }
        assert_eq!([changing.memory(), recurring.memory()], MEMORIES);
        let median = |history: &History| history.look(&alice).mixture.secs(0.5);
        assert!((median(&recurring) - 100.0).abs() < 1.0);
        assert!(median(&changing) > 100.0 * 2f64.powi(18));
    }

    #[test]
    fn a_site_without_history_has_a_guess_and_no_panic() {
        let mut history = History::default();
        let look = history.look(&job("alice", "train", 4));
        assert!((look.mixture.secs(0.5) - UNKNOWN_SECS).abs() < 60.0);
        history.ended(&job("alice", "train", 4), f64::NAN, f64::NAN);
        history.ended(&job("alice", "train", 4), 0.0, -3.0);
        let more = history.look(&job("alice", "train", 4));
        assert_eq!(more.features.len(), look.features.len());
        assert!(more.features.iter().all(|f| !f.is_nan()), "{:?}", more.features);
    }
}
