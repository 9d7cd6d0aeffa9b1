//! A small cluster for the tests, as the command line shows it.

use chrono::FixedOffset;
use infill_present::words::When;
pub use infill_testkit::samples::*;

/// That moment, in UTC.
pub fn when() -> When {
    When { now: NOW, zone: FixedOffset::east_opt(0).unwrap() }
}
