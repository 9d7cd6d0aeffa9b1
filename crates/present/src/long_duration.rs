//! Long durations, such as that of a log, in days or hours.

/// A simulated duration, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct LongDuration(pub f64);

impl LongDuration {
    /// The unit's name and its length in seconds: days from two days on, hours below.
    pub fn unit_with_secs(self) -> (&'static str, f64) {
        if self.0 >= 2.0 * 86_400.0 { ("day", 86_400.0) } else { ("hour", 3600.0) }
    }

    /// `7 days`, `4.8 hours`.
    pub fn to_text(self) -> String {
        let (word, secs) = self.unit_with_secs();
        let count = short_number(self.0 / secs);
        let plural = if count == "1" { "" } else { "s" };
        format!("{count} {word}{plural}")
    }

    /// Where the share `share` of the duration ends: `day 3.2 of 7`.
    pub fn position_text(self, share: f64) -> String {
        let (word, secs) = self.unit_with_secs();
        format!("{word} {:.1} of {}", share * self.0 / secs, short_number(self.0 / secs))
    }
}

/// A number with one decimal, or without decimals if that one is 0.
fn short_number(x: f64) -> String {
    let text = format!("{x:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}
