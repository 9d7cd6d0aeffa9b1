//! Parses numbers in fields, with messages for fields that are not numbers.

/// The largest absolute time in seconds: three thousand years. Sums of a few such times are exact in `f64`
/// and fit into `i64`.
const MAX_SECS: f64 = 1e11;

/// The text, cut to `most` characters.
pub(super) fn truncate_text(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The message for a field with a wrong value.
pub(super) fn wrong_value(name: &str, found: &str, expected: &str) -> String {
    format!("{name} is {:?}; expected {expected}", truncate_text(found, 40))
}

/// A finite number.
pub(super) fn parse_number(name: &str, text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n: &f64| n.is_finite());
    number.ok_or_else(|| wrong_value(name, text, "a number"))
}

/// A positive finite number.
pub(super) fn parse_positive(name: &str, text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| wrong_value(name, text, "a positive number"))
}

/// A time or a duration in seconds, which may have decimals.
pub(super) fn parse_secs(name: &str, text: &str) -> Result<f64, String> {
    let secs = parse_number(name, text)?;
    if secs.abs() <= MAX_SECS { Ok(secs) } else { Err(wrong_value(name, text, "seconds within 3000 years")) }
}

/// A whole number from 1 to `most`.
pub(super) fn parse_count(name: &str, text: &str, most: u32) -> Result<u32, String> {
    let count = text.parse().ok().filter(|n| (1..=most).contains(n));
    count.ok_or_else(|| wrong_value(name, text, &format!("a whole number from 1 to {most}")))
}
