//! A small cluster for the tests, as the command line shows it.

use chrono::FixedOffset;
use infill_present::phrases::DisplayClock;
pub use infill_testkit::samples::*;

/// That moment, in UTC.
pub fn sample_moment() -> DisplayClock {
    DisplayClock { now: NOW, zone: FixedOffset::east_opt(0).unwrap() }
}
