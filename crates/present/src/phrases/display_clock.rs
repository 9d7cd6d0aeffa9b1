//! Times as Slurm writes them.

use chrono::{FixedOffset, TimeZone};

use infill_model::clock;
use infill_model::{UnixTime, duration};

/// The present moment, and the time zone in which times are shown.
#[derive(Clone, Copy, Debug)]
pub struct DisplayClock {
    /// Durations count from this moment.
    pub now: UnixTime,
    /// The offset of the user's zone from UTC.
    pub zone: FixedOffset,
}

impl DisplayClock {
    /// The present moment in this machine's time zone, or in UTC if that is unknown.
    pub fn now() -> DisplayClock {
        let now = clock::now();
        let local = chrono::Local.timestamp_opt(now.0, 0).single();
        let utc = FixedOffset::east_opt(0).expect("0 is a valid offset");
        DisplayClock { now, zone: local.map_or(utc, |t| *t.offset()) }
    }

    /// `2026-11-20T22:10:16`, as squeue writes it.
    pub fn format_moment(&self, t: UnixTime) -> String {
        match self.zone.timestamp_opt(t.0, 0).single() {
            Some(t) => t.format("%Y-%m-%dT%H:%M:%S").to_string(),
            None => t.to_string(),
        }
    }

    /// `22:10:16`, with the date in front of a time on another day.
    pub fn format_clock(&self, t: UnixTime) -> String {
        let moment = self.format_moment(t);
        let today = self.format_moment(self.now);
        match (moment.split_once('T'), today.split_once('T')) {
            (Some((day, time)), Some((this_day, _))) if day == this_day => time.to_owned(),
            _ => moment,
        }
    }

    /// The time from now to `t`; `0:00` if `t` has passed.
    pub fn time_until(&self, t: UnixTime) -> String {
        duration::format_duration(t.secs_since(self.now))
    }

    /// The time from `t` to now.
    pub fn time_since(&self, t: UnixTime) -> String {
        duration::format_duration(self.now.secs_since(t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_another_day_carries_its_date() {
        let clock = DisplayClock { now: UnixTime(1_795_212_617), zone: FixedOffset::east_opt(3600).unwrap() };
        assert_eq!(clock.format_clock(UnixTime(1_795_212_617)), "23:10:17");
        assert_eq!(clock.format_clock(UnixTime(1_795_212_617 + 3600)), "2026-11-21T00:10:17");
    }
}
