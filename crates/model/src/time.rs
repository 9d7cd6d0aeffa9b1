//! Time as Slurm reports it: whole seconds since 1970 (UTC). Durations are seconds as `f64`, and their names
//! end in `secs`.

use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// A moment in whole seconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnixTime(pub i64);

impl UnixTime {
    /// Seconds from `earlier` to `self`. Negative if `earlier` is later.
    pub fn secs_since(self, earlier: UnixTime) -> f64 {
        self.0.saturating_sub(earlier.0) as f64
    }

    /// Seconds since `earlier`. Infinite if `earlier` is in the future: then a clock was set back, and the
    /// moment counts as long past.
    pub fn age_of(self, earlier: UnixTime) -> f64 {
        let secs = self.secs_since(earlier);
        if secs < 0.0 { f64::INFINITY } else { secs }
    }

    /// This moment moved by `secs` seconds, rounded down to a whole second.
    pub fn plus_secs(self, secs: f64) -> UnixTime {
        // `as` saturates, so an infinite duration gives the end of time instead of wrapping.
        UnixTime(self.0.saturating_add(secs.floor() as i64))
    }
}

impl Add<i64> for UnixTime {
    type Output = UnixTime;
    fn add(self, secs: i64) -> UnixTime {
        UnixTime(self.0.saturating_add(secs))
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match chrono::DateTime::from_timestamp(self.0, 0) {
            Some(t) => write!(f, "{}", t.format("%Y-%m-%dT%H:%M:%SZ")),
            None => write!(f, "@{}", self.0),
        }
    }
}
