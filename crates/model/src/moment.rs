//! Moments in the forms that Slurm's tools accept: `22:10`, `2026-11-20T22:10:17`, `now-10minutes`.

use chrono::{DateTime, NaiveDate, NaiveTime};

use super::UnixTime;

/// The accepted forms, for error messages.
pub(crate) const ACCEPTED_FORMS: &str =
    "HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS]], now-10minutes, or seconds since 1970";

/// The error for a text that is not a moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {ACCEPTED_FORMS}")]
pub struct MomentError;

/// Parses a moment. Times of day are of today. No form has a time zone: times are in the zone that is always
/// `utc_offset_secs` east of UTC.
///
/// # Errors
/// If the text has another form, or names a moment that does not exist in the calendar.
pub fn parse(text: &str, now: UnixTime, utc_offset_secs: i32) -> Result<UnixTime, MomentError> {
    let text = text.trim();
    let found = match text.strip_prefix("now") {
        Some(rest) => relative_secs(rest).and_then(|secs| now.0.checked_add(secs)),
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        None => wall_clock_secs(text, now, utc_offset_secs),
    };
    found.map(UnixTime).ok_or(MomentError)
}

/// Seconds of the text after `now`: nothing, or a sign, a number and perhaps a unit.
fn relative_secs(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("-", rest) => (-1, rest),
        ("+", rest) => (1, rest),
        _ => return None,
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, unit) = rest.split_at(digits);
    let unit_secs = match unit {
        "" | "second" | "seconds" => 1,
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3600,
        "day" | "days" => 86_400,
        "week" | "weeks" => 7 * 86_400,
        _ => return None,
    };
    let secs = number.parse::<i64>().ok()?.checked_mul(unit_secs)?;
    Some(sign * secs)
}

/// Unix time of a local date, a time of day, or both.
fn wall_clock_secs(text: &str, now: UnixTime, utc_offset_secs: i32) -> Option<i64> {
    let offset = i64::from(utc_offset_secs);
    let day_and_time = match text.split_once('T') {
        Some((day, time)) => parse_date(day)?.and_time(parse_time(time)?),
        None if text.contains(':') => today(now, offset)?.and_time(parse_time(text)?),
        None => parse_date(text)?.and_time(NaiveTime::MIN),
    };
    day_and_time.and_utc().timestamp().checked_sub(offset)
}

fn parse_date(text: &str) -> Option<NaiveDate> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()
}

fn parse_time(text: &str) -> Option<NaiveTime> {
    ["%H:%M:%S", "%H:%M"].iter().find_map(|form| NaiveTime::parse_from_str(text, form).ok())
}

fn today(now: UnixTime, offset: i64) -> Option<NaiveDate> {
    DateTime::from_timestamp(now.0.checked_add(offset)?, 0).map(|t| t.date_naive())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20 22:10:17 UTC.
    const NOW: UnixTime = UnixTime(1_795_212_617);

    #[test]
    fn moments_are_read_as_slurms_tools_take_them() {
        for (text, moment) in [
            ("now", "2026-11-20T22:10:17Z"),
            ("now-90", "2026-11-20T22:08:47Z"),
            ("now-10minutes", "2026-11-20T22:00:17Z"),
            ("now-1hour", "2026-11-20T21:10:17Z"),
            ("now-2days", "2026-11-18T22:10:17Z"),
            ("now+1week", "2026-11-27T22:10:17Z"),
            ("22:00", "2026-11-20T22:00:00Z"),
            (" 9:05:59 ", "2026-11-20T09:05:59Z"),
            ("2026-11-19", "2026-11-19T00:00:00Z"),
            ("2026-11-19T22:00", "2026-11-19T22:00:00Z"),
            ("2026-11-19T22:00:01", "2026-11-19T22:00:01Z"),
            ("1795212000", "2026-11-20T22:00:00Z"),
        ] {
            assert_eq!(parse(text, NOW, 0).map(|t| t.to_string()).as_deref(), Ok(moment), "{text}");
        }
    }

    #[test]
    fn local_times_are_in_the_zone_of_the_offset() {
        for (text, moment) in [
            // In that zone it is already the 21st.
            ("00:05", "2026-11-20T22:05:00Z"),
            ("2026-11-20T22:10", "2026-11-20T20:10:00Z"),
            ("now-10seconds", "2026-11-20T22:10:07Z"),
            ("1795212617", "2026-11-20T22:10:17Z"),
        ] {
            assert_eq!(parse(text, NOW, 7200).map(|t| t.to_string()).as_deref(), Ok(moment), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_moment_is_refused() {
        for text in [
            "",
            "-5",
            "now-",
            "now10",
            "now-x",
            "now-5fortnights",
            "now--5",
            "nowadays",
            "25:00",
            "22:60",
            "2026-02-30",
            "2026-11-19T",
            "2026-11-19 22:00",
            "22:00:00:00",
            "99999999999999999999",
            "soon",
            "now-9999999999999999999days",
            "now-9223372036854775807weeks",
        ] {
            assert_eq!(parse(text, NOW, 3600), Err(MomentError), "{text}");
        }
    }
}
