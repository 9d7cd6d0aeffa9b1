//! Shares as percentages.

/// A share without decimals: `87%`.
pub fn whole_percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// A share with one decimal: `87.3%`.
pub fn tenths_percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A share with one decimal and a sign: `+1.2%`.
pub fn signed_percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// A share with one decimal and a space, as in a sentence: `87.3 %`.
pub fn sentence_percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
