//! The rate that the owner of a job wants it to make at the least (`infill run --at-least`), and what a round
//! made of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sentence::sentence;

/// Relative difference up to which a rate counts as reached: sums in another order differ by less.
const TOLERANCE: f64 = 1e-9;

/// What a job shall make at the least, while others have more than their least.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assured {
    /// Samples a second.
    pub rate: f64,
    /// Whether that can be had.
    pub prospect: Prospect,
    /// By how much more than it makes each size counts that makes so many, samples a second.
    pub bonus: f64,
}

/// Whether a job can have what it shall make at the least.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prospect {
    /// Nobody knows yet how fast it is.
    Unmeasured,
    /// None of its sizes is so fast.
    TooSlow {
        /// The most that one of them makes, samples a second.
        most: f64,
    },
    /// There are too few nodes, if each other job that runs keeps its least.
    TooFew {
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that there are for it.
        there: u32,
    },
    /// It can.
    Open {
        /// Nodes that it needs.
        needs: u32,
    },
}

impl Assured {
    /// Whether a rate is no less.
    pub fn is_met_by(&self, rate: f64) -> bool {
        rate >= self.rate * (1.0 - TOLERANCE)
    }

    /// What a job makes of which the planner counts so much.
    pub fn known(&self, counted: f64) -> f64 {
        let known = counted - self.bonus;
        if self.is_met_by(known) { known } else { counted }
    }

    /// What became of it in a plan that gives the job so much, samples a second.
    pub fn outcome(&self, rate: f64) -> AssuredReason {
        let wanted = self.rate;
        match self.prospect {
            Prospect::Unmeasured => AssuredReason::Unmeasured { wanted },
            Prospect::TooSlow { most } => AssuredReason::TooSlow { wanted, most },
            Prospect::TooFew { needs, .. } | Prospect::Open { needs } if self.is_met_by(rate) => {
                AssuredReason::Met { wanted, needs }
            }
            Prospect::TooFew { needs, there } => AssuredReason::TooFew { wanted, needs, there },
            Prospect::Open { needs } => AssuredReason::Outweighed { wanted, needs },
        }
    }
}

/// Whether a job gets what it shall make at the least, and why not; the end of a sentence. `wanted` is that
/// in samples a second. In JSON it is the words, and is read back as [`AssuredReason::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum AssuredReason {
    /// It gets it.
    Met {
        /// What it wants.
        wanted: f64,
        /// Fewest nodes on which it makes that.
        needs: u32,
    },
    /// [`Prospect::Unmeasured`].
    Unmeasured {
        /// What it wants.
        wanted: f64,
    },
    /// [`Prospect::TooSlow`].
    TooSlow {
        /// What it wants.
        wanted: f64,
        /// The most that it can make.
        most: f64,
    },
    /// [`Prospect::TooFew`].
    TooFew {
        /// What it wants.
        wanted: f64,
        /// Nodes that it needs.
        needs: u32,
        /// Nodes that there are for it.
        there: u32,
    },
    /// There are enough nodes, but windows, the costs of changes, or others who are assured something stand
    /// against it.
    Outweighed {
        /// What it wants.
        wanted: f64,
        /// Nodes that it needs.
        needs: u32,
    },
    /// In the words of another round.
    Said(String),
}

sentence!(AssuredReason);

impl fmt::Display for AssuredReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssuredReason::Met { wanted, needs } => {
                write!(f, "it is assured {wanted:.2} samples/s, which takes {}", Count(*needs))
            }
            AssuredReason::Unmeasured { wanted } => {
                write!(f, "it is assured {wanted:.2} samples/s once it is known how fast it is")
            }
            AssuredReason::TooSlow { wanted, most } => {
                write!(f, "no size is known to make the {wanted:.2} samples/s that it wants:")?;
                write!(f, " at most {most:.2}")
            }
            AssuredReason::TooFew { wanted, needs, there } => {
                write!(f, "the {wanted:.2} samples/s that it wants take {}:", Count(*needs))?;
                write!(f, " {there} can be had while others that run keep their least")
            }
            AssuredReason::Outweighed { wanted, needs } => {
                write!(
                    f,
                    "the {wanted:.2} samples/s that it is assured take {}, but windows,",
                    Count(*needs)
                )?;
                f.write_str(" the costs of changes or what others are assured stand against that")
            }
            AssuredReason::Said(words) => f.write_str(words),
        }
    }
}

/// `1 node`, `3 nodes`.
struct Count(u32);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_it() {
        let of = |prospect| Assured { rate: 40.0, prospect, bonus: 100.0 };
        let (open, few) = (Prospect::Open { needs: 4 }, Prospect::TooFew { needs: 6, there: 1 });
        let cases = [
            (open, 41.0),
            (few, 40.0),
            (Prospect::Unmeasured, 50.0),
            (Prospect::TooSlow { most: 31.0 }, 31.0),
            (few, 10.0),
            (open, 0.0),
        ];
        let lines: Vec<String> = cases.iter().map(|(p, rate)| of(*p).outcome(*rate).to_string()).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        it is assured 40.00 samples/s, which takes 4 nodes
        it is assured 40.00 samples/s, which takes 6 nodes
        it is assured 40.00 samples/s once it is known how fast it is
        no size is known to make the 40.00 samples/s that it wants: at most 31.00
        the 40.00 samples/s that it wants take 6 nodes: 1 can be had while others that run keep their least
        the 40.00 samples/s that it is assured take 4 nodes, but windows, the costs of changes or what others are assured stand against that
        ");
        assert_eq!([39.0, 139.0, 140.0, 160.0].map(|r| of(open).known(r)), [39.0, 139.0, 40.0, 60.0]);
    }
}
