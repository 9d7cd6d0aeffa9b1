//! A distribution of lengths, as atoms of equal weight.

use std::f64::consts::LN_2;

/// Shortest length, seconds, because the logarithms of lengths are taken.
pub(crate) const SHORTEST_SECS: f64 = 1.0;

/// The logarithm of a length, seconds (or other units of work).
pub(super) fn log_length(secs: f64) -> f64 {
    secs.max(SHORTEST_SECS).ln()
}

/// How far from the middle a tail of a tenth begins, as a share of the jobs.
const TAIL_SHARE: f64 = 0.4;

/// A job that has outlived its whole distribution is expected to run half as long again as it has, and at
/// least this long, seconds.
const LEAST_MORE_SECS: f64 = 30.0;

/// The shares between which the interval for four of five jobs lies.
pub(super) const INTERVAL_SHARES: (f64, f64) = (0.1, 0.9);

/// Tolerance of an interval's ends, because a job may meet one exactly at its limit.
const END_TOLERANCE: f64 = 1.000_001;

/// A distribution of a job's length: natural logarithms of seconds (or of other units of work), ascending,
/// each as likely as the others. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthDistribution(Vec<f64>);

impl LengthDistribution {
    /// A distribution with these atoms. Values that are not finite are left out. `None` where nothing is
    /// left.
    pub fn from_logs(mut atoms: Vec<f64>) -> Option<LengthDistribution> {
        atoms.retain(|a| a.is_finite());
        atoms.sort_by(f64::total_cmp);
        (!atoms.is_empty()).then_some(LengthDistribution(atoms))
    }

    /// A distribution of `count` atoms from logarithms with weights. The atoms are the quantiles in the
    /// middle of equal shares. `None` where nothing has weight.
    pub fn from_weighted(mut all: Vec<(f64, f64)>, count: usize) -> Option<LengthDistribution> {
        all.retain(|(log, weight)| log.is_finite() && *weight > 0.0);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let sum: f64 = all.iter().map(|(_, weight)| weight).sum();
        let mut rest = all.iter();
        let (mut current, mut passed) = rest.next().copied()?;
        let atoms = (0..count).map(|i| {
            let middle_of_share = (i as f64 + 0.5) / count as f64 * sum;
            while passed < middle_of_share {
                let Some((log, weight)) = rest.next() else { break };
                current = *log;
                passed += weight;
            }
            current
        });
        LengthDistribution::from_logs(atoms.collect())
    }

    /// A wide distribution of `count` atoms, at least one, evenly within two units of this logarithm. It
    /// stands for a job about which next to nothing is known.
    pub fn around_log(middle: f64, count: usize) -> LengthDistribution {
        let count = count.max(1);
        LengthDistribution(
            (0..count).map(|i| middle + 4.0 * ((i as f64 + 0.5) / count as f64 - 0.5)).collect(),
        )
    }

    /// The mixture of two distributions. Both weigh the same if they have the same number of atoms.
    pub(crate) fn pool_with(&self, other: &LengthDistribution) -> LengthDistribution {
        let mut atoms = self.0.clone();
        atoms.extend_from_slice(&other.0);
        atoms.sort_by(f64::total_cmp);
        LengthDistribution(atoms)
    }

    /// The atoms, ascending.
    pub(crate) fn atoms(&self) -> &[f64] {
        &self.0
    }

    /// The logarithm below which a share of the jobs stays, 0 to 1. It is linear between the atoms, which
    /// stand in the middle of their shares.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        let position = (share * self.0.len() as f64 - 0.5).clamp(0.0, last as f64);
        let below = self.0[position.floor() as usize];
        let above = self.0[position.ceil() as usize];
        below + (above - below) * (position - position.floor())
    }

    /// The quantile in seconds.
    pub fn quantile_secs(&self, share: f64) -> f64 {
        self.quantile(share).exp()
    }

    /// Stretches the distribution about its median by the factors `down` and `up`. The factors apply fully in
    /// the tails of a tenth and less towards the middle, so that the median stays. The tails count as at
    /// least `least` away from the median.
    pub fn stretch_tails(&self, down: f64, up: f64, least: f64) -> LengthDistribution {
        let median = self.quantile(0.5);
        let count = self.0.len() as f64;
        let mut atoms = Vec::with_capacity(self.0.len());
        for (i, atom) in self.0.iter().enumerate() {
            let place = (i as f64 + 0.5) / count - 0.5;
            let towards_tail = (place.abs() / TAIL_SHARE).min(1.0);
            let away = (atom - median).abs().max(least * towards_tail);
            let stretch = if place < 0.0 { down } else { up };
            let distance = (1.0 + (stretch - 1.0) * towards_tail) * away;
            atoms.push(if place < 0.0 { median - distance } else { median + distance });
        }
        LengthDistribution(atoms)
    }

    /// The distribution with all lengths cut at the time limit, seconds.
    pub fn capped_at(&self, limit_secs: Option<f64>) -> LengthDistribution {
        let most = limit_secs.filter(|l| *l > 0.0).map_or(f64::INFINITY, |l| l.max(SHORTEST_SECS).ln());
        LengthDistribution(self.0.iter().map(|a| a.min(most)).collect())
    }

    /// The length, seconds, that is most likely right within a factor of two. Where lengths have several
    /// modes, the median may lie between them. It is the middle of the largest group of atoms within a factor
    /// of four. Of groups with the same number of atoms, it takes the one nearest to the median.
    pub(crate) fn likeliest_secs(&self) -> f64 {
        let atoms = &self.0;
        let median = self.quantile(0.5);
        let groups = (0..atoms.len()).map(|from| {
            let count = atoms[from..].partition_point(|a| *a <= atoms[from] + 2.0 * LN_2);
            (count, f64::midpoint(atoms[from], atoms[from + count - 1]))
        });
        let best = groups.max_by(|(count, middle), (other_count, other_middle)| {
            let nearer = (other_middle - median).abs().total_cmp(&(middle - median).abs());
            count.cmp(other_count).then(nearer)
        });
        best.map_or(median, |(_, middle)| middle).exp()
    }

    /// Whether the likeliest length is within a factor of two of a job's length.
    pub fn is_within_2x(&self, secs: f64) -> bool {
        (0.5..=2.0).contains(&(self.likeliest_secs() / secs.max(SHORTEST_SECS)))
    }

    /// Whether the interval from 10 to 90 % holds a job's length.
    pub fn interval_contains(&self, secs: f64) -> bool {
        let low = self.quantile_secs(INTERVAL_SHARES.0);
        let high = self.quantile_secs(INTERVAL_SHARES.1);
        (low / END_TOLERANCE..=high * END_TOLERANCE).contains(&secs.max(SHORTEST_SECS))
    }

    /// Whether the distribution is narrow: its middle half lies within a factor of two.
    pub fn is_narrow(&self) -> bool {
        self.quantile(0.75) - self.quantile(0.25) < LN_2
    }

    /// The remaining seconds of a job that has run for `done_secs`, as equally likely values: those of the
    /// atoms that it has not outlived. Where it has outlived all, half of the time that it has run.
    fn remaining_secs(&self, done_secs: f64) -> Vec<f64> {
        let remaining = self.0.iter().map(|a| a.exp() - done_secs).filter(|secs| *secs > 0.0);
        let remaining: Vec<f64> = remaining.collect();
        if remaining.is_empty() { vec![(done_secs / 2.0).max(LEAST_MORE_SECS)] } else { remaining }
    }

    /// The distribution of the remaining length of a job that has run for `done_secs`: the atoms that it has
    /// not outlived. Where it has outlived all, half of the time that it has run.
    pub fn remaining_lengths(&self, done_secs: f64) -> LengthDistribution {
        let remaining = self.remaining_secs(done_secs).into_iter().map(log_length);
        LengthDistribution(remaining.collect())
    }

    /// The remaining seconds by the median, at least one. The median is doubled until it is above
    /// `done_secs`, so that a job that outlives its prediction loses priority in steps.
    pub fn corrected_remaining_secs(&self, done_secs: f64) -> f64 {
        let median = self.quantile_secs(0.5).max(SHORTEST_SECS);
        let doublings = ((done_secs + 1.0) / median).max(1.0).log2().ceil();
        (median * doublings.exp2() - done_secs).max(1.0)
    }

    /// The Gittins index of a job that has run for `done_secs`: the best ratio, over all further run times,
    /// of the probability that it ends by then to the expected seconds until then. It is a scan over the
    /// atoms that the job has not outlived.
    pub fn gittins_index(&self, done_secs: f64) -> f64 {
        let remaining = self.remaining_secs(done_secs);
        let mut ended = 0.0;
        let mut best = 0.0_f64;
        for (i, secs) in remaining.iter().enumerate() {
            ended += secs;
            let go_on = (remaining.len() - 1 - i) as f64;
            best = best.max((i + 1) as f64 / (ended + go_on * secs).max(1e-9));
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_secs(secs: &[f64]) -> LengthDistribution {
        LengthDistribution::from_logs(secs.iter().map(|s| s.ln()).collect()).unwrap()
    }

    #[test]
    fn quantiles_stand_in_the_middle_of_their_shares() {
        let four = of_secs(&[800.0, 100.0, 200.0, 400.0]);
        assert!(
            (four.quantile_secs(0.125) - 100.0).abs() < 1e-9
                && (four.quantile_secs(0.0) - 100.0).abs() < 1e-9
        );
        assert!((four.quantile_secs(0.5) - 200.0 * 2.0_f64.sqrt()).abs() < 1e-9, "between, by the logarithm");
        assert!(!four.is_narrow() && of_secs(&[100.0, 150.0]).is_narrow());
        assert!((four.capped_at(Some(250.0)).quantile_secs(1.0) - 250.0).abs() < 1e-9);
        assert_eq!(LengthDistribution::from_logs(vec![f64::NAN]), None);
        let wide = four.stretch_tails(1.0, 2.0, 0.0);
        assert!(
            (wide.quantile(0.5) - four.quantile(0.5)).abs() < 0.1 && wide.quantile_secs(1.0) > 1500.0,
            "{wide:?}"
        );
    }

    #[test]
    fn weights_are_shares_of_the_atoms() {
        let ln = |s: f64| s.ln();
        let lengths =
            LengthDistribution::from_weighted(vec![(ln(10.0), 3.0), (ln(90.0), 1.0), (ln(5.0), 0.0)], 8)
                .unwrap();
        let tens = lengths.atoms().iter().filter(|a| (**a - ln(10.0)).abs() < 1e-9).count();
        assert_eq!((tens, lengths.atoms().len()), (6, 8));
        assert_eq!(LengthDistribution::from_weighted(Vec::new(), 8), None);
    }

    #[test]
    fn the_remaining_length_is_that_of_atoms_not_outlived() {
        let lengths = of_secs(&[100.0, 200.0, 1000.0]);
        let left = |done| lengths.remaining_secs(done).into_iter().map(f64::round).collect::<Vec<f64>>();
        assert_eq!(left(0.0), [100.0, 200.0, 1000.0]);
        assert_eq!(left(150.0), [50.0, 850.0]);
        assert_eq!(left(5000.0), [2500.0]);
        let corrected = [0.0, 150.0, 250.0, 900.0].map(|done| lengths.corrected_remaining_secs(done).round());
        assert_eq!(corrected, [200.0, 50.0, 150.0, 700.0], "200 s, doubled as often as it takes");
    }

    /// At any age the best further run time is one of the atoms.
    #[test]
    fn the_gittins_index_is_the_best_probability_a_second() {
        let lengths = of_secs(&[100.0, 200.0, 1000.0]);
        // Until 100 s one of three ends, after 100 s each; until 200 s two end, in 500 s; until 1,000 s
        // three, in 1,300.
        assert!((lengths.gittins_index(0.0) - 2.0 / 500.0).abs() < 1e-9);
        assert!((lengths.gittins_index(200.0) - 1.0 / 800.0).abs() < 1e-9);
        assert!(lengths.gittins_index(999.0) > 0.9);
    }
}
