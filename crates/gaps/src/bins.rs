//! The survival model's classes of gaps: age, block size and hour of the day; and the hazards that it has
//! before any gap was seen.

use serde::{Deserialize, Serialize};

/// Shape of the default Weibull distribution. Fitted to the idle intervals of Summit in February 2021: median
/// 475 s and 90th percentile 3,269 s give shape = ln(ln 10 / ln 2) / ln(3269 / 475) = 0.622. The third figure
/// of that log, the mean of 1,192 s, then follows within 4 %.
pub(crate) const DEFAULT_SHAPE: f64 = 0.622;

/// Scale of the default Weibull distribution, seconds: 475 / (ln 2)^(1 / shape).
pub(crate) const DEFAULT_SCALE_SECS: f64 = 856.0;

/// Lower edges of the age bins, seconds. They roughly double, because the hazard falls like a power of the
/// age. The last bin is open.
pub(crate) const AGE_EDGES_SECS: [f64; 13] =
    [0.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 57_600.0];

/// Number of age bins.
pub(crate) const AGE_BINS: usize = AGE_EDGES_SECS.len();

/// Smallest block of each block class: one node, a few, a small job's worth, a large job's worth.
pub(crate) const BLOCK_EDGES: [u32; 4] = [1, 3, 16, 128];

/// Number of block classes.
pub(crate) const BLOCK_CLASSES: usize = BLOCK_EDGES.len();

/// Hours in each hour class. Four classes a day tell night from working hours in any time zone.
pub(crate) const HOURS_A_CLASS: u8 = 6;

/// Number of hour classes.
pub(crate) const HOUR_CLASSES: usize = 24 / HOURS_A_CLASS as usize;

/// One observed gap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapSample {
    /// Seconds from its first moment to its end, or to the end of our watching.
    pub duration_secs: f64,
    /// Whether a main job ended it. `false` when we stopped watching: then it lasted at least this long.
    pub taken: bool,
    /// Number of nodes that became free together, this one included.
    pub block: u32,
    /// Hour of the day (0–23, UTC) at its start.
    pub hour: u8,
}

/// Hazards a second, by age bin.
pub(super) type BinHazards = [f64; AGE_BINS];

/// The class of a block size.
pub(super) fn block_class(block: u32) -> usize {
    BLOCK_EDGES.partition_point(|edge| *edge <= block).saturating_sub(1)
}

/// The class of an hour.
pub(super) fn hour_class(hour: u8) -> usize {
    usize::from(hour % 24 / HOURS_A_CLASS)
}

/// The bin in which an age lies.
pub(super) fn age_bin(age_secs: f64) -> usize {
    AGE_EDGES_SECS.partition_point(|edge| *edge <= age_secs).saturating_sub(1)
}

/// The upper edge of a bin, seconds; infinite for the last.
pub(super) fn upper_edge(bin: usize) -> f64 {
    AGE_EDGES_SECS.get(bin + 1).copied().unwrap_or(f64::INFINITY)
}

/// Mean hazard of the default Weibull distribution in each bin: (H(b) − H(a)) / (b − a) with H(t) = (t /
/// scale)^shape. For the open bin it is the mean up to four times its lower edge.
pub(super) fn default_hazards() -> BinHazards {
    std::array::from_fn(|bin| {
        let from = AGE_EDGES_SECS[bin];
        let to = if bin + 1 < AGE_BINS { upper_edge(bin) } else { 4.0 * from };
        (default_cumulative_hazard(to) - default_cumulative_hazard(from)) / (to - from)
    })
}

/// H(t) of the default Weibull distribution.
fn default_cumulative_hazard(secs: f64) -> f64 {
    (secs / DEFAULT_SCALE_SECS).powf(DEFAULT_SHAPE)
}
