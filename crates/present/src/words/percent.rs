//! Shares as percentages.

/// `87%`.
pub fn whole(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// With one decimal: `87.3%`.
pub fn tenths(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// With one decimal and a sign: `+1.2%`.
pub fn signed(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// With one decimal, in a sentence: `87.3 %`.
pub fn in_text(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
