//! How true what was expected of jobs came out, of the last ones that ended: for administrators to see
//! whether an expected end is worth reading.

use std::collections::VecDeque;

use super::distribution::Lengths;

/// Jobs that count.
const RECENT: usize = 2000;

/// How it came out for one job.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    is_near: bool,
    is_held: bool,
    was_narrow: bool,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Trueness(VecDeque<Outcome>);

/// Of how many of the last jobs that ended what was true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All that count.
    pub jobs: usize,
    /// The likeliest length was within a factor of two.
    pub within_2x: usize,
    /// The interval from 10 to 90 % held them: four of five, if it is what it says.
    pub in_interval: usize,
    /// They counted as predictable.
    pub predictable: usize,
}

impl Trueness {
    /// Takes in how long a job was of which this was expected when it came.
    pub fn ended(&mut self, expected: &Lengths, secs: f64) {
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back(Outcome {
            is_near: expected.is_near(secs),
            is_held: expected.holds(secs),
            was_narrow: expected.is_narrow(),
        });
    }

    /// How many were what.
    pub fn tally(&self) -> Tally {
        let count = |is: fn(&Outcome) -> bool| self.0.iter().filter(|o| is(o)).count();
        Tally {
            jobs: self.0.len(),
            within_2x: count(|o| o.is_near),
            in_interval: count(|o| o.is_held),
            predictable: count(|o| o.was_narrow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_counted_by_how_they_came_out() {
        let narrow = Lengths::of((0..20).map(|i| 100.0_f64.ln() + 0.01 * f64::from(i)).collect()).unwrap();
        let mut trueness = Trueness::default();
        [110.0, 150.0, 1000.0].iter().for_each(|secs| trueness.ended(&narrow, *secs));
        let tally = Tally { jobs: 3, within_2x: 2, in_interval: 1, predictable: 3 };
        assert_eq!(trueness.tally(), tally);
        let wide = Lengths::of((0..20).map(|i| 100.0_f64.ln() + 0.2 * f64::from(i)).collect()).unwrap();
        (0..RECENT).for_each(|_| trueness.ended(&wide, 1000.0));
        let tally = Tally { jobs: RECENT, within_2x: RECENT, in_interval: RECENT, predictable: 0 };
        assert_eq!(trueness.tally(), tally, "those before are forgotten");
    }
}
