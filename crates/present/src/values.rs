//! Values of flags that several commands have.

use super::output::DisplayClock;
use infill_model::{MomentError, UnixTime, moment};

/// A moment as Slurm's tools take it, by the clock on the user's wall.
pub fn parse_moment(text: &str) -> Result<UnixTime, MomentError> {
    let DisplayClock { now, zone } = DisplayClock::now();
    moment::parse(text, now, zone.local_minus_utc())
}
