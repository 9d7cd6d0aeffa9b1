//! How many cases the random tests try.
//!
//! Each test names a number of cases. `INFILL_TEST_EFFORT` multiplies it: a number above 0, at most 100. The
//! default is 0.25, for a quick look. 1 tries all cases that a test names; more is for a night. Each test
//! keeps at least one case. Below 0.25 the totals over all cases mean too little, and tests do not check
//! them.

use std::ops::Range;

use proptest::test_runner::Config;

/// Name of the variable that sets the effort.
pub const EFFORT: &str = "INFILL_TEST_EFFORT";

const DEFAULT: f64 = 0.25;
const MOST: f64 = 100.0;

/// The factor that [`EFFORT`] sets. Panics if it is not a valid one.
fn effort() -> f64 {
    let value = std::env::var_os(EFFORT).map(|value| value.to_string_lossy().into_owned());
    parse_effort(value.as_deref()).unwrap_or_else(|e| panic!("{e}"))
}

fn parse_effort(value: Option<&str>) -> Result<f64, String> {
    let Some(text) = value else { return Ok(DEFAULT) };
    let number: Option<f64> = text.parse().ok().filter(|number| *number > 0.0 && *number <= MOST);
    number.ok_or_else(|| format!("{EFFORT}={text}: expected a number above 0, at most {MOST}"))
}

fn scale_count(full: u64, effort: f64) -> u64 {
    ((full as f64 * effort).round() as u64).max(1)
}

/// How many cases a test tries that names `full` of them.
pub fn case_count(full: u64) -> u64 {
    scale_count(full, effort())
}

/// The first seeds of a range. With an effort above 1, seeds that follow the range as well.
pub fn seed_range(full: Range<u64>) -> Range<u64> {
    full.start..full.start + case_count(full.end - full.start)
}

/// The settings of a property test that names `full` cases.
pub fn property(full: u32) -> Config {
    let cases = u32::try_from(case_count(u64::from(full))).unwrap_or(u32::MAX);
    Config { cases, ..Config::default() }
}

/// Whether there are enough cases for checking totals over all of them.
pub fn has_totals() -> bool {
    effort() >= DEFAULT
}

/// How often a test must have seen something that effort 1 must show `full` times. Scales as the number
/// of cases does, rounded down; 0 without totals.
pub fn at_least(full: u64) -> u64 {
    if has_totals() { (full as f64 * effort()) as u64 } else { 0 }
}

/// How often a test may have seen something that effort 1 may show `full` times. Rounded up.
pub fn at_most(full: u64) -> u64 {
    (full as f64 * effort()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_is_a_number_above_0_and_at_most_100() {
        for (text, effort) in [("1", 1.0), ("0.25", 0.25), ("1e-3", 0.001), ("100", 100.0)] {
            assert_eq!(parse_effort(Some(text)), Ok(effort), "{text}");
        }
        assert_eq!(parse_effort(None), Ok(DEFAULT));
        for text in ["0", "-1", "100.1", "NaN", "inf", "", "a lot", "1 ", "1/4"] {
            let refused = format!("{EFFORT}={text}: expected a number above 0, at most 100");
            assert_eq!(parse_effort(Some(text)), Err(refused));
        }
    }

    #[test]
    fn full_effort_tries_all_cases_and_each_test_keeps_one() {
        assert_eq!([0.001, 0.25, 0.5, 1.0, 100.0].map(|e| scale_count(150, e)), [1, 38, 75, 150, 15_000]);
    }
}
