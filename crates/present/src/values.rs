//! Parsers for the values of flags that several commands share.

use super::output::DisplayClock;
use infill_model::{MomentError, UnixTime, moment};

/// Parses a moment in the notation of Slurm's tools, in the user's local time.
///
/// # Errors
/// When the text is not a moment.
pub fn parse_moment(text: &str) -> Result<UnixTime, MomentError> {
    let DisplayClock { now, zone } = DisplayClock::now();
    moment::parse(text, now, zone.local_minus_utc())
}
