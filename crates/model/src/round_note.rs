//! What concerns a round as a whole: values that become a sentence only when somebody reads it.

use std::fmt;

use super::sentence::sentence;

/// What concerns a round as a whole. In JSON it is the sentence, and is read back as [`RoundNote::Said`].
#[derive(Clone, Debug, PartialEq)]
pub enum RoundNote {
    /// The solver's time was up.
    OutOfTime {
        /// Relative distance to the bound, where one is known.
        gap: Option<f64>,
    },
    /// The solver was not asked.
    Unasked {
        /// Relative distance to the bound, where one is known.
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
    /// All changes of the round are used.
    BudgetUsed {
        /// Changes of a round.
        most: u32,
    },
    /// What others than the planner say.
    Said(String),
}

impl fmt::Display for RoundNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoundNote::OutOfTime { gap } => write!(f, "the solver's time was up; {}", plan_quality(*gap)),
            RoundNote::Unasked { gap } => write!(f, "the solver was not asked; {}", plan_quality(*gap)),
            RoundNote::NoSolver(why) => write!(f, "planned without the solver: {why}"),
            RoundNote::NotPlanned(why) => {
                write!(f, "nothing is planned: {why}; jobs keep what they have, less what they must leave")
            }
            RoundNote::Draining => f.write_str("draining: all jobs are parked"),
            RoundNote::Paused => f.write_str("paused: nothing starts or grows"),
            RoundNote::BudgetUsed { most } => {
                write!(f, "all {most} changes of this round are used; what is left waits for the next")
            }
            RoundNote::Said(what) => f.write_str(what),
        }
    }
}

fn plan_quality(gap: Option<f64>) -> String {
    match gap {
        Some(gap) => format!("the plan is within {:.2} % of the best possible", gap * 100.0),
        None => "how good the plan is is not known".to_owned(),
    }
}

sentence!(RoundNote);
