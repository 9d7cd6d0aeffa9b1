//! Rules for settings. Beside each section is a table with one rule per line.

use std::ops::RangeInclusive;

/// The bound of every waiting time: one day, in seconds.
const LONGEST_SECS: f64 = 86_400.0;

/// A rule for one key of a section `S`.
pub(super) struct ConfigRule<S> {
    /// The dotted key, such as `gaps.confidence`.
    pub(super) key: &'static str,
    /// The expected value, for messages.
    pub(super) expected: &'static str,
    check: RuleCheck<S>,
}

enum RuleCheck<S> {
    /// The number must be within bounds; NaN never is.
    Within(fn(&S) -> f64, RangeInclusive<f64>),
    /// Returns the value as the file has it if it is wrong.
    Wrong(fn(&S) -> Option<String>),
}

impl<S> ConfigRule<S> {
    /// Seconds of a wait, at least 0.05.
    pub(super) const fn some_secs(key: &'static str, get: fn(&S) -> f64) -> ConfigRule<S> {
        ConfigRule::within_bounds(key, get, 0.05..=LONGEST_SECS, "expected seconds between 0.05 and 86400")
    }

    /// Seconds of a wait, which may be zero.
    pub(super) const fn any_secs(key: &'static str, get: fn(&S) -> f64) -> ConfigRule<S> {
        ConfigRule::within_bounds(key, get, 0.0..=LONGEST_SECS, "expected seconds between 0 and 86400")
    }

    /// A share between 0 and 1.
    pub(super) const fn unit_share(key: &'static str, get: fn(&S) -> f64) -> ConfigRule<S> {
        ConfigRule::within_bounds(key, get, 0.0..=1.0, "expected a share between 0 and 1")
    }

    /// A number within bounds, both included.
    pub(super) const fn within_bounds(
        key: &'static str,
        get: fn(&S) -> f64,
        bounds: RangeInclusive<f64>,
        expected: &'static str,
    ) -> ConfigRule<S> {
        ConfigRule { key, expected, check: RuleCheck::Within(get, bounds) }
    }

    /// Any other rule. `wrong` returns the value if it breaks the rule.
    pub(super) const fn custom_check(
        key: &'static str,
        wrong: fn(&S) -> Option<String>,
        expected: &'static str,
    ) -> ConfigRule<S> {
        ConfigRule { key, expected, check: RuleCheck::Wrong(wrong) }
    }

    /// The value, if it breaks this rule.
    pub(super) fn broken_by(&self, section: &S) -> Option<String> {
        match &self.check {
            RuleCheck::Within(get, bounds) => {
                Some(get(section)).filter(|value| !bounds.contains(value)).map(|value| value.to_string())
            }
            RuleCheck::Wrong(wrong) => wrong(section),
        }
    }
}

/// The first rule of a table that a section breaks: its key, the value, and the expected value.
pub(super) fn first_broken<S>(
    rules: &'static [ConfigRule<S>],
    section: &S,
) -> Option<(&'static str, String, &'static str)> {
    rules.iter().find_map(|rule| Some((rule.key, rule.broken_by(section)?, rule.expected)))
}
