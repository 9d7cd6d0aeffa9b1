//! Fits the survival model: occurrences over exposure in each age bin, shrunk towards the hazard that is
//! assumed without them.
//!
//! In each bin, d gaps ended and all gaps together spent E seconds. A gap that we stopped watching adds
//! seconds but no end. A block of nodes that became free together counts once. The estimate has a Gamma prior
//! worth `w` ends: (d + w) / (E + w / prior). Cells are shrunk in three stages, so that a rare kind of gap
//! borrows from the common ones: default → whole site → block class → (block class, hour class).

use super::bins::{
    AGE_BINS, BLOCK_CLASSES, BinHazards, GapSample, HOUR_CLASSES, age_bin, block_class, default_hazards,
    hour_class, upper_edge,
};

/// Ends that the default is worth in each bin against the whole site's history. A site with a few days of
/// gaps already outweighs Summit.
pub(crate) const SITE_PRIOR_ENDS: f64 = 5.0;

/// Ends that the site's hazard is worth against one block class.
pub(crate) const BLOCK_PRIOR_ENDS: f64 = 20.0;

/// Ends that a block class's hazard is worth against one hour class in it. It is larger than the others,
/// because blocks that end together for one cause, such as a maintenance, make an ordinary hour look special.
pub(crate) const HOUR_PRIOR_ENDS: f64 = 100.0;

/// Seconds of a longer gap beyond this add nothing, so that a forgotten node does not teach that gaps never
/// end.
const LONGEST_SAMPLE_SECS: f64 = 30.0 * 86_400.0;

/// Ends and seconds of exposure by age bin.
#[derive(Clone, Copy, Default)]
struct BinCounts {
    ends: [f64; AGE_BINS],
    secs: [f64; AGE_BINS],
}

impl BinCounts {
    fn add_counts(&mut self, other: &BinCounts) {
        for bin in 0..AGE_BINS {
            self.ends[bin] += other.ends[bin];
            self.secs[bin] += other.secs[bin];
        }
    }

    /// Hazards from these counts, shrunk to a prior that is worth `weight` ends.
    fn shrunk_to(&self, prior: &BinHazards, weight: f64) -> BinHazards {
        std::array::from_fn(|bin| {
            (self.ends[bin] + weight) / (self.secs[bin] + weight / prior[bin].max(f64::MIN_POSITIVE))
        })
    }
}

/// Hazards by block class, then hour class.
pub(super) fn learned_hazards(samples: &[GapSample]) -> [[BinHazards; HOUR_CLASSES]; BLOCK_CLASSES] {
    let cells = count_cells(samples);
    let blocks = cells.map(|hours| sum_counts(&hours));
    let site = sum_counts(&blocks).shrunk_to(&default_hazards(), SITE_PRIOR_ENDS);
    std::array::from_fn(|block| {
        let by_block = blocks[block].shrunk_to(&site, BLOCK_PRIOR_ENDS);
        cells[block].map(|cell| cell.shrunk_to(&by_block, HOUR_PRIOR_ENDS))
    })
}

fn sum_counts(counts: &[BinCounts]) -> BinCounts {
    counts.iter().fold(BinCounts::default(), |mut total, c| {
        total.add_counts(c);
        total
    })
}

fn count_cells(samples: &[GapSample]) -> [[BinCounts; HOUR_CLASSES]; BLOCK_CLASSES] {
    let mut cells = [[BinCounts::default(); HOUR_CLASSES]; BLOCK_CLASSES];
    for sample in samples.iter().filter(|s| s.duration_secs > 0.0) {
        let duration = sample.duration_secs.min(LONGEST_SAMPLE_SECS);
        let hours = &mut cells[block_class(sample.block)];
        // Nodes of one block mostly end together, so that a block is one observation.
        let weight = 1.0 / f64::from(sample.block.max(1));
        let mut age = 0.0;
        for bin in 0..=age_bin(duration) {
            let end = upper_edge(bin).min(duration);
            hours[hour_class_at(sample.hour, age)].secs[bin] += (end - age) * weight;
            age = end;
        }
        if sample.taken && sample.duration_secs <= LONGEST_SAMPLE_SECS {
            hours[hour_class_at(sample.hour, duration)].ends[age_bin(duration)] += weight;
        }
    }
    cells
}

/// The hour class `age_secs` after a start at `hour`. A long gap passes through several.
fn hour_class_at(hour: u8, age_secs: f64) -> usize {
    let later = (age_secs / 3600.0) as u64 % 24;
    hour_class(hour % 24 + later as u8)
}
