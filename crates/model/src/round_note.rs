//! Notes on a round as a whole. The values become sentences only when someone reads them.

use std::fmt;

use super::sentence::sentence;

/// A note on a round as a whole. In JSON it is a sentence, which is read back as [`RoundNote::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum RoundNote {
    /// The solver reached its time limit.
    OutOfTime {
        /// Relative distance to the bound; `None` if there is no bound.
        gap: Option<f64>,
    },
    /// The solver was not used.
    SolverNotUsed {
        /// Relative distance to the bound; `None` if there is no bound.
        gap: Option<f64>,
    },
    /// The solver gave no plan, for this reason.
    NoSolver(String),
    /// Nothing was planned, for this reason.
    NotPlanned(String),
    /// All jobs are parked.
    Draining,
    /// Nothing starts or grows.
    Paused,
    /// The round has no changes left.
    BudgetUsed {
        /// Most changes in a round.
        most: u32,
    },
    /// A note from outside the planner, or one read back from JSON.
    Said(String),
}

impl fmt::Display for RoundNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoundNote::OutOfTime { gap } => {
                write!(f, "the solver reached its time limit; {}", plan_quality(*gap))
            }
            RoundNote::SolverNotUsed { gap } => write!(f, "the solver was not used; {}", plan_quality(*gap)),
            RoundNote::NoSolver(why) => write!(f, "planned without the solver: {why}"),
            RoundNote::NotPlanned(why) => {
                write!(
                    f,
                    "nothing is planned: {why}; jobs keep their nodes except those that they must leave"
                )
            }
            RoundNote::Draining => f.write_str("draining: all jobs are parked"),
            RoundNote::Paused => f.write_str("paused: nothing starts or grows"),
            RoundNote::BudgetUsed { most } => {
                write!(
                    f,
                    "all {most} changes of this round are used; further changes wait for the next round"
                )
            }
            RoundNote::Said(sentence) => f.write_str(sentence),
        }
    }
}

/// Describes the proved quality of a plan, as the end of a sentence.
fn plan_quality(gap: Option<f64>) -> String {
    match gap {
        Some(gap) => format!("the plan is within {:.2} % of the best possible", gap * 100.0),
        None => "the quality of the plan is not known".to_owned(),
    }
}

sentence!(RoundNote: "A note on a round as a whole, as a sentence.");
