//! The numbers of a figure as a table that the reader can open.

use crate::charts::markup::escape_html;

/// A table of raw texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberTable {
    /// The headers of the columns.
    pub heads: Vec<String>,
    /// Rows with a cell for each header. The first cell names the row.
    pub rows: Vec<Vec<String>>,
}

impl NumberTable {
    /// The table as HTML, closed at first.
    pub fn to_html(&self) -> String {
        let head = row_html(&self.heads, "th");
        let rows: String = self.rows.iter().map(|cells| row_html(cells, "td")).collect();
        format!(
            "<details>\n<summary>Numbers</summary>\n<div class=\"wide\"><table>\n{head}{rows}</table></div>\n</details>\n"
        )
    }
}

fn row_html(cells: &[String], tag: &str) -> String {
    let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape_html(cell))).collect();
    format!("<tr>{cells}</tr>\n")
}

/// A number of a table: all digits before the point from a thousand on, else four significant digits.
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
