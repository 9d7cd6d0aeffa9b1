//! The numbers of a figure as a table, which the reader opens.

use crate::charts::markup::escape_html;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberTable {
    /// Over the columns.
    pub heads: Vec<String>,
    /// Each with as many cells as there are heads, the first of which names it.
    pub rows: Vec<Vec<String>>,
}

impl NumberTable {
    /// As HTML; closed at first.
    pub fn to_html(&self) -> String {
        let row = |cells: &[String], tag: &str| -> String {
            let cells: String =
                cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape_html(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(|cells| row(cells, "td")).collect();
        format!(
            "<details>\n<summary>Numbers</summary>\n<div class=\"wide\"><table>\n{}{rows}</table></div>\n</details>\n",
            row(&self.heads, "th")
        )
    }
}

/// A number of a table: of a thousand or more all digits before the point, else four digits.
pub(crate) fn exact_number(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return "0".to_owned();
    }
    if x.abs() < 999.95 {
        let unit = 10f64.powi(3 - x.abs().log10().floor() as i32);
        return ((x * unit).round() / unit).to_string();
    }
    let whole = format!("{:.0}", x.abs());
    let mut text = String::from(if x < 0.0 { "-" } else { "" });
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
