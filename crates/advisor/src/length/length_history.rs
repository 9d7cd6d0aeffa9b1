//! The history of job lengths. A prediction is a mixture of the last jobs of the same user, name and size, of
//! the same user and name, and so on, newer ones with more weight; and a little of the whole site.
//!
//! Pure and incremental: a job is recorded or looked up in microseconds.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::distribution::{LengthDistribution, log_length};
use infill_model::{PastJob, Submission};

/// Atoms of a distribution.
pub(crate) const HISTORY_ATOMS: usize = 16;

/// Last lengths that are kept for each key.
const RECENT_LENGTHS: usize = 50;

/// The number of these from which a forest's features are computed.
const RECENT_FEATURES: usize = 20;

/// Weights of the kinds of similar jobs: the same user, name and size; user and name; name; user and size;
/// user.
const KIND_WEIGHTS: [f64; KIND_COUNT] = [8.0, 4.0, 1.0, 2.0, 1.0];

/// Number of kinds of similar jobs.
const KIND_COUNT: usize = 5;

/// Two ways to weight the past. Where jobs change, the last ones say most; where the same lengths recur, all
/// of them count. The way with the smaller recent errors is used.
const MEMORIES: [MemoryDecay; 2] =
    [MemoryDecay { fades: 0.8, last: 20 }, MemoryDecay { fades: 1.0, last: RECENT_LENGTHS }];

/// Factor to the weight of an error for each newer job.
const MISS_FADES: f64 = 0.998;

/// Weight of the whole site's lengths.
const SITE_WEIGHT: f64 = 0.15;

/// Last lengths of the site that are kept.
const SITE_RECENT: usize = 2000;

/// Ends after which the site's quantiles are computed again.
const SITE_EVERY: u64 = 200;

/// Expected length without any knowledge, seconds.
const UNKNOWN_SECS: f64 = 600.0;

/// Most keys that are kept. Beyond that the half with the oldest last ends is forgotten.
const MAX_KEYS: usize = 400_000;

/// Number of features for each kind of similar jobs.
const FEATURES_OF_KIND: usize = 8;

/// Number of features of the submission itself.
const FEATURES_OF_JOB: usize = 8;

/// Quantiles of the mixture that are features.
const FEATURE_QUANTILES: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// The value of a feature that is unknown.
const MISSING_FEATURE: f64 = -1.0;

/// Numbers for names.
type NameIds = FxHashMap<String, u32>;

/// The key of jobs that are similar in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HistoryKey {
    kind: u8,
    user: u32,
    name: u32,
    size: (u32, u32),
}

/// How the weight of the past decreases.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MemoryDecay {
    /// Factor to the weight for each step back.
    fades: f64,
    /// How many steps back count.
    last: usize,
}

/// The last lengths of one key.
#[derive(Clone, Debug, Default)]
struct RecentLengths {
    /// Logarithms of lengths, the oldest first.
    logs: VecDeque<f64>,
    count: u32,
    ended_at: f64,
}

/// What the history says of a submission.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LengthFeatures {
    /// The distribution by the history alone.
    pub mixture: LengthDistribution,
    /// The features for a forest.
    pub features: Vec<f64>,
}

impl LengthFeatures {
    /// By how much the logarithm of a job's length differed from the mixture's median.
    pub(super) fn log_error(&self, past: &PastJob) -> f64 {
        log_length(past.secs) - self.mixture.quantile(0.5)
    }
}

/// The lengths of jobs that have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct LengthHistory {
    users: NameIds,
    names: NameIds,
    recent: FxHashMap<HistoryKey, RecentLengths>,
    site: VecDeque<f64>,
    site_atoms: Vec<f64>,
    ended: u64,
    /// The faded sums of each of the [`MEMORIES`]' errors.
    missed: [f64; MEMORIES.len()],
}

impl LengthHistory {
    /// Takes in the end of a job at a time, with its length, seconds (or other units of work).
    pub fn record_end(&mut self, job: &Submission, ended_at: f64, length: f64) {
        let log = log_length(length);
        if !log.is_finite() {
            return;
        }
        let user = intern_id(&mut self.users, &job.user);
        let name = intern_id(&mut self.names, &job.name);
        let keys = history_keys(job, user, name);
        if let Some(recent) = keys.iter().flatten().find_map(|key| self.recent.get(key)) {
            for (missed, memory) in self.missed.iter_mut().zip(MEMORIES) {
                *missed = *missed * MISS_FADES + (log - recent.weighted_median(memory)).abs();
            }
        }
        for key in keys.into_iter().flatten() {
            let recent = self.recent.entry(key).or_default();
            if recent.logs.len() == RECENT_LENGTHS {
                recent.logs.pop_front();
            }
            recent.logs.push_back(log);
            recent.count = recent.count.saturating_add(1);
            recent.ended_at = ended_at;
        }
        self.forget_oldest();
        if self.site.len() == SITE_RECENT {
            self.site.pop_front();
        }
        self.site.push_back(log);
        self.ended += 1;
        // At first the quantiles are computed at each tenth end.
        if self.ended.is_multiple_of(SITE_EVERY) || (self.ended < SITE_EVERY && self.ended.is_multiple_of(10))
        {
            let all = self.site.iter().map(|log| (*log, 1.0)).collect();
            self.site_atoms = LengthDistribution::from_weighted(all, HISTORY_ATOMS)
                .map_or_else(Vec::new, |l| l.atoms().to_vec());
        }
    }

    fn forget_oldest(&mut self) {
        if self.recent.len() > MAX_KEYS {
            let mut times: Vec<f64> = self.recent.values().map(|r| r.ended_at).collect();
            let half = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable_by(half, f64::total_cmp);
            let median = *median;
            self.recent.retain(|_, r| r.ended_at > median);
        }
    }

    /// The way to weight the past that had the smaller recent errors.
    fn best_memory(&self) -> MemoryDecay {
        let best = self.missed.iter().zip(MEMORIES).min_by(|a, b| a.0.total_cmp(b.0));
        best.map_or(MEMORIES[0], |(_, memory)| memory)
    }

    /// The distribution of the last jobs of the whole site.
    pub fn site_lengths(&self) -> LengthDistribution {
        LengthDistribution::from_logs(self.site_atoms.clone()).unwrap_or_else(unknown_lengths)
    }

    /// Looks up a submission.
    pub fn look_up(&self, job: &Submission) -> LengthFeatures {
        let user = known_id(&self.users, &job.user);
        let name = known_id(&self.names, &job.name);
        let mut weighted: Vec<(f64, f64)> = Vec::new();
        let mut features = Vec::with_capacity(
            KIND_COUNT * FEATURES_OF_KIND
                + FEATURES_OF_JOB
                + FEATURE_QUANTILES.len()
                + job.further_facts.len(),
        );
        let mut base = None;
        let memory = self.best_memory();
        for (kind, key) in history_keys(job, user, name).into_iter().enumerate() {
            let Some(recent) = key.and_then(|key| self.recent.get(&key)) else {
                features.extend([MISSING_FEATURE; FEATURES_OF_KIND]);
                continue;
            };
            weighted
                .extend(recent.weighted_logs(memory).map(|(log, weight)| (log, KIND_WEIGHTS[kind] * weight)));
            let of_kind = recent.feature_array(job.submitted_at);
            base = base.or(Some(f64::midpoint(of_kind[0], of_kind[1])));
            features.extend(of_kind);
        }
        let site = self.site_lengths();
        let share = SITE_WEIGHT / site.atoms().len() as f64;
        weighted.extend(site.atoms().iter().map(|atom| (*atom, share)));
        let mixture = LengthDistribution::from_weighted(weighted, HISTORY_ATOMS).unwrap_or(site);
        let limit = job.limit_secs.filter(|l| *l > 0.0).map_or(MISSING_FEATURE, f64::ln);
        features.extend([id_feature(user), id_feature(name), f64::from(job.nodes), f64::from(job.gpus)]);
        features.extend([
            (job.submitted_at / 3600.0).rem_euclid(24.0).floor(),
            (job.submitted_at / 86_400.0).rem_euclid(7.0).floor(),
        ]);
        features.extend([limit, base.unwrap_or_else(|| mixture.quantile(0.5))]);
        features.extend(FEATURE_QUANTILES.map(|share| mixture.quantile(share)));
        features.extend(&job.further_facts);
        LengthFeatures { mixture: mixture.capped_at(job.limit_secs), features }
    }
}

impl RecentLengths {
    /// Logarithms and weights, the newest first.
    fn weighted_logs(&self, memory: MemoryDecay) -> impl Iterator<Item = (f64, f64)> {
        let newest_first = self.logs.iter().rev().take(memory.last).enumerate();
        newest_first.map(move |(back, log)| (*log, memory.fades.powi(back as i32)))
    }

    /// The median of the logarithms with these weights.
    fn weighted_median(&self, memory: MemoryDecay) -> f64 {
        LengthDistribution::from_weighted(self.weighted_logs(memory).collect(), 1)
            .map_or(0.0, |one| one.quantile(0.5))
    }

    /// The features of one kind: the last two lengths, median, least, most, spread, number of jobs, and time
    /// since the last.
    fn feature_array(&self, now: f64) -> [f64; FEATURES_OF_KIND] {
        let mut sorted: Vec<f64> = self.logs.iter().rev().take(RECENT_FEATURES).copied().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let last = self.logs.back().copied().unwrap_or(MISSING_FEATURE);
        let before = self.logs.iter().rev().nth(1).copied().unwrap_or(last);
        let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let spread = (sorted.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / count as f64).sqrt();
        let ago = (now - self.ended_at).max(0.0).ln_1p();
        [last, before, median, sorted[0], sorted[count - 1], spread, f64::from(self.count.min(10_000)), ago]
    }
}

/// The id of an unknown name.
const UNKNOWN_ID: u32 = u32::MAX;

fn known_id(ids: &NameIds, text: &str) -> u32 {
    ids.get(text).copied().unwrap_or(UNKNOWN_ID)
}

fn id_feature(id: u32) -> f64 {
    if id == UNKNOWN_ID { MISSING_FEATURE } else { f64::from(id) }
}
fn intern_id(ids: &mut NameIds, text: &str) -> u32 {
    let next = u32::try_from(ids.len()).unwrap_or(u32::MAX - 1);
    *ids.entry(text.to_owned()).or_insert(next)
}

/// The keys of similar jobs, in the order of [`KIND_WEIGHTS`]. A job without a name has none by name, and one
/// without a user has none by the user alone.
fn history_keys(job: &Submission, user: u32, name: u32) -> [Option<HistoryKey>; KIND_COUNT] {
    let size = (job.nodes, job.gpus);
    let has_name = !job.name.is_empty();
    let has_user = !job.user.is_empty();
    [
        has_name.then_some(HistoryKey { kind: 0, user, name, size }),
        has_name.then_some(HistoryKey { kind: 1, user, name, size: (0, 0) }),
        has_name.then_some(HistoryKey { kind: 2, user: 0, name, size: (0, 0) }),
        has_user.then_some(HistoryKey { kind: 3, user, name: 0, size }),
        has_user.then_some(HistoryKey { kind: 4, user, name: 0, size: (0, 0) }),
    ]
}

fn unknown_lengths() -> LengthDistribution {
    LengthDistribution::around_log(UNKNOWN_SECS.ln(), HISTORY_ATOMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(user: &str, name: &str, nodes: u32) -> Submission {
        Submission { user: user.to_owned(), name: name.to_owned(), nodes, ..Submission::default() }
    }

    #[test]
    fn the_most_similar_and_newest_jobs_count_most() {
        let mut history = LengthHistory::default();
        for _ in 0..300 {
            history.record_end(&job("bob", "other", 1), 0.0, 5.0);
        }
        for secs in [100.0, 1000.0, 1000.0, 1000.0] {
            history.record_end(&job("alice", "train", 4), 0.0, secs);
        }
        let median = |j: &Submission| history.look_up(j).mixture.quantile_secs(0.5);
        assert!((median(&job("alice", "train", 4)) - 1000.0).abs() < 1.0);
        assert!((median(&job("alice", "", 8)) - 1000.0).abs() < 1.0, "other jobs of the user");
        assert!((median(&job("carol", "", 1)) - 5.0).abs() < 0.1, "the site");
        assert!((median(&job("carol", "train", 1)) - 1000.0).abs() < 1.0, "others of the name");
        let limited = Submission { limit_secs: Some(60.0), ..job("alice", "train", 4) };
        assert!((median(&limited) - 60.0).abs() < 1e-6);
    }

    #[test]
    fn lengths_that_recur_count_however_old_they_are() {
        let mut changing = LengthHistory::default();
        let mut recurring = LengthHistory::default();
        let alice = job("alice", "train", 4);
        for i in 0..200 {
            // One doubles every ten jobs. The other takes 100 s, and at times more, in no order.
            changing.record_end(&alice, 0.0, 100.0 * 2f64.powi(i / 10));
            recurring.record_end(&alice, 0.0, if i * 7919 % 10 < 6 { 100.0 } else { 900.0 });
        }
        assert_eq!([changing.best_memory(), recurring.best_memory()], MEMORIES);
        let median = |history: &LengthHistory| history.look_up(&alice).mixture.quantile_secs(0.5);
        assert!((median(&recurring) - 100.0).abs() < 1.0);
        assert!(median(&changing) > 100.0 * 2f64.powi(18));
    }

    #[test]
    fn a_site_without_history_has_a_guess_and_no_panic() {
        let mut history = LengthHistory::default();
        let look = history.look_up(&job("alice", "train", 4));
        assert!((look.mixture.quantile_secs(0.5) - UNKNOWN_SECS).abs() < 60.0);
        history.record_end(&job("alice", "train", 4), f64::NAN, f64::NAN);
        history.record_end(&job("alice", "train", 4), 0.0, -3.0);
        let more = history.look_up(&job("alice", "train", 4));
        assert_eq!(more.features.len(), look.features.len());
        assert!(more.features.iter().all(|f| !f.is_nan()), "{:?}", more.features);
    }
}
