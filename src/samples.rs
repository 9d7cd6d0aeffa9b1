//! A small cluster for the tests of the command line.

use chrono::FixedOffset;
use infill_present::phrases::DisplayClock;
pub use infill_testkit::samples::*;

/// The samples' present moment, in UTC.
pub fn sample_moment() -> DisplayClock {
    DisplayClock { now: NOW, zone: FixedOffset::east_opt(0).unwrap() }
}
