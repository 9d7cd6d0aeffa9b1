//! What a setting must be: one line of the table beside each section.

use std::ops::RangeInclusive;

/// A day bounds every waiting time, seconds.
const LONGEST_SECS: f64 = 86_400.0;

/// A rule for one key of a section `S`.
pub(super) struct ConfigRule<S> {
    /// Dotted key.
    pub(super) key: &'static str,
    /// What is expected.
    pub(super) expected: &'static str,
    check: RuleCheck<S>,
}

enum RuleCheck<S> {
    /// A number within bounds; NaN never is.
    Within(fn(&S) -> f64, RangeInclusive<f64>),
    /// Says what is wrong, as the file has it.
    Wrong(fn(&S) -> Option<String>),
}

impl<S> ConfigRule<S> {
    /// Seconds of a wait that there must be.
    pub(super) const fn some_secs(key: &'static str, get: fn(&S) -> f64) -> ConfigRule<S> {
        ConfigRule::within_bounds(key, get, 0.05..=LONGEST_SECS, "expected seconds between 0.05 and 86400")
    }

    /// Seconds that may be none.
    pub(super) const fn any_secs(key: &'static str, get: fn(&S) -> f64) -> ConfigRule<S> {
        ConfigRule::within_bounds(key, get, 0.0..=LONGEST_SECS, "expected seconds between 0 and 86400")
    }

    /// A share.
    pub(super) const fn unit_share(key: &'static str, get: fn(&S) -> f64) -> ConfigRule<S> {
        ConfigRule::within_bounds(key, get, 0.0..=1.0, "expected a share between 0 and 1")
    }

    /// A number within bounds.
    pub(super) const fn within_bounds(
        key: &'static str,
        get: fn(&S) -> f64,
        bounds: RangeInclusive<f64>,
        expected: &'static str,
    ) -> ConfigRule<S> {
        ConfigRule { key, expected, check: RuleCheck::Within(get, bounds) }
    }

    /// Anything else: `wrong` gives the value if it breaks the rule.
    pub(super) const fn custom_check(
        key: &'static str,
        wrong: fn(&S) -> Option<String>,
        expected: &'static str,
    ) -> ConfigRule<S> {
        ConfigRule { key, expected, check: RuleCheck::Wrong(wrong) }
    }

    /// The value, if it breaks the rule.
    pub(super) fn broken_by(&self, section: &S) -> Option<String> {
        match &self.check {
            RuleCheck::Within(get, bounds) => {
                Some(get(section)).filter(|v| !bounds.contains(v)).map(|v| v.to_string())
            }
            RuleCheck::Wrong(wrong) => wrong(section),
        }
    }
}

/// The first rule of a table that a section breaks, with the value.
pub(super) fn first_broken<S>(
    rules: &'static [ConfigRule<S>],
    section: &S,
) -> Option<(&'static str, String, &'static str)> {
    rules.iter().find_map(|rule| Some((rule.key, rule.broken_by(section)?, rule.expected)))
}
