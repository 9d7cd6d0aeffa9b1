//! How long a gap lasts when nothing is planned: a piecewise-constant hazard by age, block size and hour of
//! the day.
//!
//! The hazard is the rate at which gaps of a given age end. Gaps are heavy-tailed: the longer one has lasted,
//! the longer it will. With no history the hazard is that of a Weibull distribution; [`Survival::fit`] moves
//! it towards what the site has seen.

use serde::{Deserialize, Serialize};

use crate::model::UnixTime;

/// Shape of the default Weibull distribution. Fitted to the idle intervals of Summit in February 2021: median
/// 475 s and 90th percentile 3,269 s give shape = ln(ln 10 / ln 2) / ln(3269 / 475) = 0.622. The third figure
/// of that log, the mean of 1,192 s, then follows within 4 %.
pub const DEFAULT_SHAPE: f64 = 0.622;

/// Scale of the default Weibull distribution, seconds: 475 / (ln 2)^(1 / shape).
pub const DEFAULT_SCALE_SECS: f64 = 856.0;

/// Lower edges of the age bins, seconds. Roughly doubling, because the hazard falls like a power of the age;
/// the last bin is open.
pub const AGE_EDGES_SECS: [f64; 13] =
    [0.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 57_600.0];

/// Number of age bins.
pub const AGE_BINS: usize = AGE_EDGES_SECS.len();

/// Smallest block of each block class: one node, a few, a small job's worth, a large job's worth.
pub const BLOCK_EDGES: [u32; 4] = [1, 3, 16, 128];

/// Number of block classes.
pub const BLOCK_CLASSES: usize = BLOCK_EDGES.len();

/// Hours in each hour class: four classes a day tell night from working hours in any time zone.
pub const HOURS_A_CLASS: u8 = 6;

/// Number of hour classes.
pub const HOUR_CLASSES: usize = 24 / HOURS_A_CLASS as usize;

/// Longest time that a quantile answers with, seconds: a week is "for ever" to a planner with a horizon of
/// hours.
pub const LONGEST_SECS: f64 = 604_800.0;

/// One observed gap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapSample {
    /// Seconds from its first moment to its end, or to the end of our watching.
    pub duration_secs: f64,
    /// Whether a main job ended it; `false` when we stopped watching, which says only that it lasted at least
    /// so long.
    pub taken: bool,
    /// Nodes that became free with it.
    pub block: u32,
    /// Hour of the day (0–23, UTC) at its start.
    pub hour: u8,
}

/// Hazards a second, by age bin.
pub(super) type Hazards = [f64; AGE_BINS];

/// The survival model. `Survival::default()` knows no site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Survival {
    /// Hazards by block class, then hour class.
    hazards: [[Hazards; HOUR_CLASSES]; BLOCK_CLASSES],
    /// Number of gaps that it was fitted to.
    pub samples: usize,
}

impl Default for Survival {
    fn default() -> Self {
        Survival { hazards: [[default_hazards(); HOUR_CLASSES]; BLOCK_CLASSES], samples: 0 }
    }
}

impl Survival {
    /// Learns from a site's ended gaps. Few samples move it little: see the module `fit`.
    pub fn fit(samples: &[GapSample]) -> Survival {
        Survival { hazards: super::fit::hazards(samples), samples: samples.len() }
    }

    /// The chance that a gap of this age is still free `ahead_secs` from now. `block` is the number of nodes
    /// that became free together, `hour` the hour of the day now (0–23, UTC). 1 at 0, never rising.
    pub fn chance_free(&self, age_secs: f64, block: u32, hour: u8, ahead_secs: f64) -> f64 {
        let (age, ahead) = (not_negative(age_secs), not_negative(ahead_secs));
        let hazards = self.class(block, hour);
        (-(cumulative(hazards, age + ahead) - cumulative(hazards, age))).exp().clamp(0.0, 1.0)
    }

    /// Seconds for which the gap stays free with a chance of at least `confidence`, at most [`LONGEST_SECS`].
    pub fn quantile(&self, age_secs: f64, block: u32, hour: u8, confidence: f64) -> f64 {
        let mut age = not_negative(age_secs);
        let start = age;
        let hazards = self.class(block, hour);
        let mut left = -confidence.clamp(1e-9, 1.0).ln();
        for (bin, hazard) in hazards.iter().enumerate().skip(bin_of(age)) {
            let end = upper_edge(bin);
            let spent = hazard * (end - age);
            if spent >= left && *hazard > 0.0 {
                return (age + left / hazard - start).min(LONGEST_SECS);
            }
            left -= spent;
            age = end;
        }
        LONGEST_SECS
    }

    /// Expected seconds for which the gap stays free, at most [`LONGEST_SECS`].
    pub fn expected(&self, age_secs: f64, block: u32, hour: u8) -> f64 {
        let mut age = not_negative(age_secs);
        let (mut chance, mut secs) = (1.0, 0.0);
        for (bin, hazard) in self.class(block, hour).iter().enumerate().skip(bin_of(age)) {
            // A bin without hazard, or one that is left at once, adds chance × length; otherwise the integral
            // of chance × exp(-hazard t) over the bin.
            let length = (upper_edge(bin) - age).min(LONGEST_SECS);
            let kept = (-hazard * length).exp();
            secs += if *hazard > 0.0 { chance * (1.0 - kept) / hazard } else { chance * length };
            chance *= kept;
            age = upper_edge(bin);
        }
        secs.min(LONGEST_SECS)
    }

    fn class(&self, block: u32, hour: u8) -> &Hazards {
        &self.hazards[block_class(block)][hour_class(hour)]
    }
}

/// The hour of the day, 0–23 in UTC.
pub fn hour_of(at: UnixTime) -> u8 {
    (at.0.div_euclid(3600).rem_euclid(24)) as u8
}

/// The class of a block size.
pub(super) fn block_class(block: u32) -> usize {
    BLOCK_EDGES.partition_point(|edge| *edge <= block).saturating_sub(1)
}

/// The class of an hour.
pub(super) fn hour_class(hour: u8) -> usize {
    usize::from(hour % 24 / HOURS_A_CLASS)
}

/// The bin in which an age lies.
pub(super) fn bin_of(age_secs: f64) -> usize {
    AGE_EDGES_SECS.partition_point(|edge| *edge <= age_secs).saturating_sub(1)
}

/// The upper edge of a bin, seconds; infinite for the last.
pub(super) fn upper_edge(bin: usize) -> f64 {
    AGE_EDGES_SECS.get(bin + 1).copied().unwrap_or(f64::INFINITY)
}

/// Mean hazard of the default Weibull distribution in each bin: (H(b) − H(a)) / (b − a) with
/// H(t) = (t / scale)^shape. The open bin takes the mean up to four times its lower edge.
pub(super) fn default_hazards() -> Hazards {
    let cumulative = |t: f64| (t / DEFAULT_SCALE_SECS).powf(DEFAULT_SHAPE);
    std::array::from_fn(|bin| {
        let from = AGE_EDGES_SECS[bin];
        let to = if bin + 1 < AGE_BINS { upper_edge(bin) } else { 4.0 * from };
        (cumulative(to) - cumulative(from)) / (to - from)
    })
}

/// Integral of the hazard from age 0.
fn cumulative(hazards: &Hazards, age_secs: f64) -> f64 {
    let mut sum = 0.0;
    for (bin, hazard) in hazards.iter().enumerate().take(bin_of(age_secs) + 1) {
        sum += hazard * (upper_edge(bin).min(age_secs) - AGE_EDGES_SECS[bin]);
    }
    sum
}

/// NaN and negative durations count as 0.
fn not_negative(secs: f64) -> f64 {
    if secs > 0.0 { secs } else { 0.0 }
}
