//! How flags name values of the model, which itself knows nothing of command lines.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::output::When;
use crate::model::{BatchMode, MomentError, UnixTime, moment};

/// A moment as Slurm's tools take it, by the clock on the user's wall.
pub fn moment(text: &str) -> Result<UnixTime, MomentError> {
    let When { now, zone } = When::now();
    moment::parse(text, now, zone.local_minus_utc())
}

impl ValueEnum for BatchMode {
    fn value_variants<'a>() -> &'a [Self] {
        BatchMode::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            BatchMode::Auto => "Not said: recognised from samples and steps, if it can be",
            BatchMode::PerNode => {
                "Each node works on a batch of its own: a step has more samples on more nodes (weak scaling)"
            }
            BatchMode::Global => {
                "The nodes share one batch: a step has the same samples on any number of nodes (strong scaling)"
            }
        };
        Some(PossibleValue::new(self.word()).help(help))
    }
}
