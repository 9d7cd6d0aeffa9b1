//! Values of flags that several commands have.

use super::output::When;
use infill_model::{MomentError, UnixTime, moment};

/// A moment as Slurm's tools take it, by the clock on the user's wall.
pub fn moment(text: &str) -> Result<UnixTime, MomentError> {
    let When { now, zone } = When::now();
    moment::parse(text, now, zone.local_minus_utc())
}
