//! Means of what was measured of the rows of a table.

use std::collections::BTreeMap;

/// Mean and number of the measurements of each row that has any.
#[derive(Clone, Debug, Default)]
pub(super) struct Means(BTreeMap<usize, (f64, u32)>);

impl Means {
    /// Takes in a measurement of a row; how many there are of it now.
    pub(super) fn add(&mut self, row: usize, value: f64) -> u32 {
        let (mean, count) = self.0.entry(row).or_insert((0.0, 0));
        *count += 1;
        *mean += (value - *mean) / f64::from(*count);
        *count
    }

    /// The mean of a row.
    pub(super) fn of(&self, row: usize) -> Option<f64> {
        self.0.get(&row).map(|(mean, _)| *mean)
    }

    /// Each measured row with mean and number.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, f64, u32)> + '_ {
        self.0.iter().map(|(row, (mean, count))| (*row, *mean, *count))
    }
}
