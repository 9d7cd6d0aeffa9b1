//! Times of a week at which no node is used.

use std::fmt;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeZone, Weekday};
use serde::{Deserialize, Serialize};

use super::UnixTime;

/// How many days ahead blackouts are looked for: each is found at least once in a week.
const DAYS_AHEAD: u64 = 8;

/// A time of the week in which no node is used. In a file it is `"Mon-Fri 08:00-18:00"`, `"Sat 00:00-24:00"`
/// or `"Sun-Thu 22:00-06:00"`: the days on which it begins, and from when to when in local time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WeeklyBlackout {
    /// Whether it begins on each day, from Monday.
    days: [bool; 7],
    /// When it begins, minutes after midnight.
    from: u32,
    /// When it ends, minutes after that midnight. It is above `from`, and may be on the next day.
    to: u32,
    /// As in the file.
    text: String,
}

/// One blackout with its dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackoutSpan {
    /// When it begins. It may have begun already.
    pub from: UnixTime,
    /// When it ends.
    pub to: UnixTime,
}

/// Why a text is not a [`WeeklyBlackout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected days and times such as \"Mon-Fri 08:00-18:00\"")]
pub struct BlackoutError;

impl WeeklyBlackout {
    /// The dates of this blackout that end after `now`, from yesterday's on.
    fn spans<Z: TimeZone>(&self, now: UnixTime, zone: &Z) -> impl Iterator<Item = BlackoutSpan> {
        let today = DateTime::from_timestamp(now.0, 0).map(|at| at.with_timezone(zone).date_naive());
        let first = today.and_then(|today| today.checked_sub_days(Days::new(1)));
        let dates = first.into_iter().flat_map(|first| {
            (0..=DAYS_AHEAD).filter_map(move |days| first.checked_add_days(Days::new(days)))
        });
        dates.filter(|date| self.begins_on(*date)).filter_map(move |date| {
            let from = local_moment(date, self.from, zone)?;
            let to = local_moment(date, self.to, zone)?;
            (to > now && to > from).then_some(BlackoutSpan { from, to })
        })
    }

    fn begins_on(&self, date: NaiveDate) -> bool {
        let day = chrono::Datelike::weekday(&date).num_days_from_monday() as usize;
        self.days.get(day).copied().unwrap_or(false)
    }
}

/// The blackout that is on, or else the next one within a week. Blackouts that touch or overlap are one.
pub fn next_blackout<Z: TimeZone>(
    blackouts: &[WeeklyBlackout],
    now: UnixTime,
    zone: &Z,
) -> Option<BlackoutSpan> {
    let mut spans: Vec<BlackoutSpan> =
        blackouts.iter().flat_map(|blackout| blackout.spans(now, zone)).collect();
    spans.sort_unstable_by_key(|span| (span.from, span.to));
    let mut spans = spans.into_iter();
    let mut next = spans.next()?;
    for span in spans {
        if span.from <= next.to {
            next.to = next.to.max(span.to);
        }
    }
    Some(next)
}

/// The moment at which a local clock shows this many minutes after the midnight of a date. Where a clock is
/// set forward over that time, an hour later.
fn local_moment<Z: TimeZone>(date: NaiveDate, minutes: u32, zone: &Z) -> Option<UnixTime> {
    let date = date.checked_add_days(Days::new(u64::from(minutes / (24 * 60))))?;
    let time = NaiveTime::from_num_seconds_from_midnight_opt(minutes % (24 * 60) * 60, 0)?;
    let local = date.and_time(time);
    let found = zone.from_local_datetime(&local).earliest();
    let at = found.or_else(|| zone.from_local_datetime(&(local + chrono::TimeDelta::hours(1))).earliest())?;
    Some(UnixTime(at.timestamp()))
}

impl TryFrom<String> for WeeklyBlackout {
    type Error = BlackoutError;

    fn try_from(text: String) -> Result<Self, BlackoutError> {
        let mut words = text.split_whitespace();
        let (Some(days), Some(times), None) = (words.next(), words.next(), words.next()) else {
            return Err(BlackoutError);
        };
        let days = parse_days(days).ok_or(BlackoutError)?;
        let (from, to) = times.split_once('-').ok_or(BlackoutError)?;
        let from = parse_minutes(from).filter(|from| *from < 24 * 60).ok_or(BlackoutError)?;
        let to = parse_minutes(to).ok_or(BlackoutError)?;
        let to = if to > from { to } else { to + 24 * 60 };
        Ok(WeeklyBlackout { days, from, to, text })
    }
}

impl From<WeeklyBlackout> for String {
    fn from(blackout: WeeklyBlackout) -> String {
        blackout.text
    }
}

impl fmt::Display for WeeklyBlackout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `Mon`, `Mon-Fri`, `Sat,Sun` or `Fri-Mon`.
fn parse_days(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let mut day: Weekday = first.parse().ok()?;
        let last: Weekday = last.parse().ok()?;
        loop {
            days[day.num_days_from_monday() as usize] = true;
            if day == last {
                break;
            }
            day = day.succ();
        }
    }
    Some(days)
}

/// Minutes after midnight of `HH:MM`, `00:00` to `24:00`.
fn parse_minutes(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let is_number = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    let hours: u32 = hours.parse().ok()?;
    let minutes: u32 = minutes.parse().ok()?;
    let all = hours * 60 + minutes;
    (minutes < 60 && all <= 24 * 60).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    /// Monday, 5 January 2026, 00:00 UTC.
    const MONDAY: i64 = 1_767_571_200;
    const HOUR: i64 = 3600;

    fn blackout(text: &str) -> WeeklyBlackout {
        text.to_owned().try_into().unwrap()
    }

    fn hours_of(blackouts: &[&str], now_hours: i64, zone_hours: i32) -> Option<(i64, i64)> {
        let blackouts: Vec<WeeklyBlackout> = blackouts.iter().map(|text| blackout(text)).collect();
        let zone = FixedOffset::east_opt(zone_hours * 3600).unwrap();
        let span = next_blackout(&blackouts, UnixTime(MONDAY + now_hours * HOUR), &zone)?;
        Some(((span.from.0 - MONDAY) / HOUR, (span.to.0 - MONDAY) / HOUR))
    }

    #[test]
    fn the_next_blackout_is_found_by_local_time() {
        let office = ["Mon-Fri 08:00-18:00"];
        for (now, expected) in
            [(0, (8, 18)), (9, (8, 18)), (18, (32, 42)), (4 * 24 + 18, (7 * 24 + 8, 7 * 24 + 18))]
        {
            assert_eq!(hours_of(&office, now, 0), Some(expected), "at {now} h");
        }
        assert_eq!(hours_of(&office, 0, 2), Some((6, 16)), "two hours east");
        assert_eq!(hours_of(&[], 0, 0), None);
    }

    #[test]
    fn a_blackout_may_last_over_midnight_and_touch_another_one() {
        assert_eq!(hours_of(&["Sun 22:00-06:00"], 3, 0), Some((-2, 6)), "it began on Sunday");
        assert_eq!(hours_of(&["Mon 08:00-12:00", "Mon 12:00-24:00"], 0, 0), Some((8, 24)));
        assert_eq!(hours_of(&["Fri-Mon 00:00-24:00"], 30, 0), Some((4 * 24, 8 * 24)), "Friday to Monday");
    }

    #[test]
    fn what_is_no_blackout_is_refused() {
        for text in [
            "",
            "Mon",
            "Mon 8:00-18:00",
            "Mon 08:00",
            "Mon 08:00-25:00",
            "Xyz 08:00-18:00",
            "Mon 24:00-25:00",
            "Mon 08:60-09:00",
            "Mon 08:00-18:00 x",
            "Mon +8:00-18:00",
        ] {
            assert_eq!(WeeklyBlackout::try_from(text.to_owned()), Err(BlackoutError), "{text}");
        }
        assert_eq!(String::from(blackout("Sat,Sun 00:00-24:00")), "Sat,Sun 00:00-24:00");
    }
}
