//! The system's clock. Only the edges look at it; everything else is told what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::UnixTime;

/// The present moment, in Slurm's whole seconds.
pub fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
