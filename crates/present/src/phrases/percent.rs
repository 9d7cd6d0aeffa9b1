//! Shares as percentages.

/// A share without decimals: `87%`.
pub fn whole_percent(share: f64) -> String {
    positive_zero(format!("{:.0}%", share * 100.0))
}

/// A share with one decimal: `87.3%`.
pub fn tenths_percent(share: f64) -> String {
    positive_zero(format!("{:.1}%", share * 100.0))
}

/// A share with one decimal and a sign: `+1.2%`.
pub fn signed_percent(share: f64) -> String {
    let text = positive_zero(format!("{:.1}%", share * 100.0));
    if text.starts_with('-') { text } else { format!("+{text}") }
}

/// A share with one decimal and a space, as in a sentence: `87.3 %`.
pub fn sentence_percent(share: f64) -> String {
    positive_zero(format!("{:.1} %", share * 100.0))
}

/// A number without the sign of a zero: a small negative share is rounded to `0.0`, not to `-0.0`.
fn positive_zero(text: String) -> String {
    let is_zero = !text.contains(|c: char| c.is_ascii_digit() && c != '0');
    match text.strip_prefix('-') {
        Some(rest) if is_zero => rest.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_zero_is_negative() {
        for share in [-0.0, -0.0004, 0.0004] {
            assert_eq!(tenths_percent(share), "0.0%");
            assert_eq!(signed_percent(share), "+0.0%");
            assert_eq!(sentence_percent(share), "0.0 %");
            assert_eq!(whole_percent(share), "0%");
        }
        assert_eq!([tenths_percent(-0.002), signed_percent(-0.02)], ["-0.2%", "-2.0%"]);
        assert_eq!([signed_percent(0.3), whole_percent(-0.1)], ["+30.0%", "-10%"]);
    }
}
