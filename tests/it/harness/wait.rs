//! Waits for conditions. Neither this module nor the tests sleep for a fixed time to let something happen.

use std::time::{Duration, Instant};

/// Pause between two checks. Each check is often a whole `squeue`.
const PAUSE: Duration = Duration::from_millis(150);

/// When clusters share two cores, everything takes longer than on an idle machine, up to this many times.
pub const PATIENCE: f64 = 2.0;

/// Checks until there is something, for at most `secs`.
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
