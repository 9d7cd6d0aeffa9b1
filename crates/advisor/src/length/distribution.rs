//! A distribution of lengths, as atoms of equal weight.

use std::f64::consts::LN_2;

/// No length is shorter, seconds: logarithms are taken of them.
pub(crate) const SHORTEST_SECS: f64 = 1.0;

/// The logarithm of a length, seconds (or other units of work).
pub(super) fn log_length(secs: f64) -> f64 {
    secs.max(SHORTEST_SECS).ln()
}

/// How far from the middle a tail of a tenth begins, as a share of the jobs.
const TAIL_SHARE: f64 = 0.4;

/// What is outlived altogether is expected to last half as long again as it has, and no less than this,
/// seconds.
const LEAST_MORE_SECS: f64 = 30.0;

/// The interval that is to hold four of five jobs.
pub(super) const INTERVAL_SHARES: (f64, f64) = (0.1, 0.9);

/// The end of an interval may be met exactly, by a limit.
const END_TOLERANCE: f64 = 1.000_001;

/// A distribution of a job's length: natural logarithms of seconds (or of other units of work), ascending,
/// each as likely as the others. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthDistribution(Vec<f64>);

impl LengthDistribution {
    /// Of these logarithms; those that are no numbers are left out. `None` where nothing is left.
    pub fn from_logs(mut atoms: Vec<f64>) -> Option<LengthDistribution> {
        atoms.retain(|a| a.is_finite());
        atoms.sort_by(f64::total_cmp);
        (!atoms.is_empty()).then_some(LengthDistribution(atoms))
    }

    /// Of logarithms with weights, as so many atoms: its quantiles in the middle of equal shares. `None`
    /// where nothing has weight.
    pub fn from_weighted(mut all: Vec<(f64, f64)>, count: usize) -> Option<LengthDistribution> {
        all.retain(|(at, weight)| at.is_finite() && *weight > 0.0);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let sum: f64 = all.iter().map(|(_, weight)| weight).sum();
        let mut from = all.iter();
        let (mut now, mut below) = from.next().map(|(at, weight)| (*at, *weight))?;
        let middle = |i: usize| (i as f64 + 0.5) / count as f64 * sum;
        let atoms = (0..count).map(|i| {
            while below < middle(i) {
                let Some((at, weight)) = from.next() else { break };
                (now, below) = (*at, below + weight);
            }
            now
        });
        LengthDistribution::from_logs(atoms.collect())
    }

    /// So many atoms, at least one, evenly within two units of this logarithm: next to nothing is known.
    pub fn around_log(middle: f64, count: usize) -> LengthDistribution {
        let count = count.max(1);
        LengthDistribution(
            (0..count).map(|i| middle + 4.0 * ((i as f64 + 0.5) / count as f64 - 0.5)).collect(),
        )
    }

    /// Both, each with half of the weight if they have as many atoms.
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

    /// The logarithm that a share of the jobs stay below, 0 to 1, linear between the atoms, which stand in
    /// the middle of their shares.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        let at = (share * self.0.len() as f64 - 0.5).clamp(0.0, last as f64);
        let below = self.0[at.floor() as usize];
        let above = self.0[at.ceil() as usize];
        below + (above - below) * (at - at.floor())
    }

    /// The same in seconds.
    pub fn quantile_secs(&self, share: f64) -> f64 {
        self.quantile(share).exp()
    }

    /// Stretched about its median, downwards and upwards: wholly in its tails of a tenth, less towards its
    /// middle, so that its median stays. The tails count as `least` away from that at least.
    pub fn stretch_tails(&self, down: f64, up: f64, least: f64) -> LengthDistribution {
        let middle = self.quantile(0.5);
        let count = self.0.len() as f64;
        let stretch = |(i, atom): (usize, &f64)| {
            let place = (i as f64 + 0.5) / count - 0.5;
            let towards_tail = (place.abs() / TAIL_SHARE).min(1.0);
            let away = (atom - middle).abs().max(least * towards_tail);
            let times = |stretch: f64| 1.0 + (stretch - 1.0) * towards_tail;
            if place < 0.0 { middle - times(down) * away } else { middle + times(up) * away }
        };
        LengthDistribution(self.0.iter().enumerate().map(stretch).collect())
    }

    /// No longer than the time limit, seconds.
    pub fn capped_at(&self, limit_secs: Option<f64>) -> LengthDistribution {
        let most = limit_secs.filter(|l| *l > 0.0).map_or(f64::INFINITY, |l| l.max(SHORTEST_SECS).ln());
        LengthDistribution(self.0.iter().map(|a| a.min(most)).collect())
    }

    /// The length that is the likeliest to be right within a factor of two, seconds: where lengths have
    /// several modes the median may lie between them. The middle of the atoms within a factor of four that
    /// are most; of several as many, those nearest to the median.
    pub(crate) fn likeliest_secs(&self) -> f64 {
        let atoms = &self.0;
        let median = self.quantile(0.5);
        let middle_of = |from: usize| {
            let count = atoms[from..].partition_point(|a| *a <= atoms[from] + 2.0 * LN_2);
            (count, f64::midpoint(atoms[from], atoms[from + count - 1]))
        };
        let nearer = |a: f64, b: f64| (b - median).abs().total_cmp(&(a - median).abs());
        let best = (0..atoms.len()).map(middle_of).max_by(|a, b| a.0.cmp(&b.0).then(nearer(a.1, b.1)));
        best.map_or(median, |(_, middle)| middle).exp()
    }

    /// Whether its likeliest length is within a factor of two of a job that took so long.
    pub fn is_within_2x(&self, secs: f64) -> bool {
        (0.5..=2.0).contains(&(self.likeliest_secs() / secs.max(SHORTEST_SECS)))
    }

    /// Whether its interval from 10 to 90 % holds a job that took so long.
    pub fn interval_contains(&self, secs: f64) -> bool {
        let low = self.quantile_secs(INTERVAL_SHARES.0);
        let high = self.quantile_secs(INTERVAL_SHARES.1);
        (low / END_TOLERANCE..=high * END_TOLERANCE).contains(&secs.max(SHORTEST_SECS))
    }

    /// Whether it is narrow: the middle half lies within a factor of two.
    pub fn is_narrow(&self) -> bool {
        self.quantile(0.75) - self.quantile(0.25) < LN_2
    }

    /// Seconds that are left of a job that has run for so long, each as likely: the atoms that it has not
    /// outlived. Where it has outlived all, half of what it has done.
    fn remaining_secs(&self, done_secs: f64) -> Vec<f64> {
        let left = self.0.iter().map(|a| a.exp() - done_secs).filter(|left| *left > 0.0);
        let left: Vec<f64> = left.collect();
        if left.is_empty() { vec![(done_secs / 2.0).max(LEAST_MORE_SECS)] } else { left }
    }

    /// What is left of a job that has run for so long: the atoms that it has not outlived; where it has
    /// outlived all, half of what it has done.
    pub fn remaining_lengths(&self, done_secs: f64) -> LengthDistribution {
        let left = self.remaining_secs(done_secs).into_iter().map(log_length);
        LengthDistribution(left.collect())
    }

    /// What is left by the median, doubled until it is above what was done: whoever outlives a prediction
    /// sinks in steps. Seconds, at least one.
    pub fn corrected_remaining_secs(&self, done_secs: f64) -> f64 {
        let median = self.quantile_secs(0.5).max(SHORTEST_SECS);
        let doublings = ((done_secs + 1.0) / median).max(1.0).log2().ceil();
        (median * doublings.exp2() - done_secs).max(1.0)
    }

    /// The Gittins index of a job that has run for so long: the best ratio, over all times to go on for, of
    /// the chance that it ends by then to the seconds that this takes. A scan over the atoms that it has not
    /// outlived.
    pub fn gittins_index(&self, done_secs: f64) -> f64 {
        let left = self.remaining_secs(done_secs);
        let mut ended = 0.0;
        let mut best = 0.0_f64;
        for (i, secs) in left.iter().enumerate() {
            ended += secs;
            let go_on = (left.len() - 1 - i) as f64;
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
    fn what_is_left_is_what_was_not_outlived() {
        let lengths = of_secs(&[100.0, 200.0, 1000.0]);
        let left = |done| lengths.remaining_secs(done).into_iter().map(f64::round).collect::<Vec<f64>>();
        assert_eq!(left(0.0), [100.0, 200.0, 1000.0]);
        assert_eq!(left(150.0), [50.0, 850.0]);
        assert_eq!(left(5000.0), [2500.0]);
        let corrected = [0.0, 150.0, 250.0, 900.0].map(|done| lengths.corrected_remaining_secs(done).round());
        assert_eq!(corrected, [200.0, 50.0, 150.0, 700.0], "200 s, doubled as often as it takes");
    }

    /// At any age the best time to go on for is one of the atoms.
    #[test]
    fn the_gittins_index_is_the_best_chance_a_second() {
        let lengths = of_secs(&[100.0, 200.0, 1000.0]);
        // Until 100 s: one of three ends, in 100 s each; until 200 s two in 500 s; until 1,000 s three in
        // 1,300.
        assert!((lengths.gittins_index(0.0) - 2.0 / 500.0).abs() < 1e-9);
        assert!((lengths.gittins_index(200.0) - 1.0 / 800.0).abs() < 1e-9);
        assert!(lengths.gittins_index(999.0) > 0.9);
    }
}
