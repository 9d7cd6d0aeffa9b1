//! Waiting on conditions. Nothing here or in the tests sleeps for a fixed time to let something happen.

use std::time::{Duration, Instant};

/// Pause between two looks: what is looked at often is a whole `squeue`.
const PAUSE: Duration = Duration::from_millis(150);

/// Where clusters share two cores, all takes longer than on a machine of one's own: up to so many times.
pub const PATIENCE: f64 = 2.0;

/// Looks until there is something, for at most `secs`.
pub fn look<T>(secs: f64, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + Duration::from_secs_f64(secs);
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
