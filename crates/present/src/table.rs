//! Tables with squeue's format strings: `%[[.]width]letter` for each field, and any text between the fields.

use std::fmt;
use std::str::FromStr;

/// A column that a table offers, with the letter that selects it in a format string.
pub struct TableColumn<R> {
    /// The letter after `%`.
    pub letter: char,
    /// The column's header.
    pub header: &'static str,
    /// Describes the column in `--help`.
    pub help: &'static str,
    /// Makes a row's cell.
    pub cell: fn(&R) -> String,
}

/// A piece of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FormatPiece {
    Text(String),
    Field { letter: char, width: Option<usize>, right: bool },
}

/// A parsed format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFormat(Vec<FormatPiece>);

/// The widest field that a format may ask for. A typo must not fill the memory with blanks.
const MAX_WIDTH: usize = 1000;

/// Why a format string cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// `%` at the end, or a width without a letter.
    #[error("a field ends without its letter (write %[[.]width]letter)")]
    Unfinished,
    /// A width that is not a number or is too large.
    #[error("width {0} is not a number up to {MAX_WIDTH}")]
    Width(String),
    /// A letter that this table does not have.
    #[error("unknown field %{letter} (this table has {known})")]
    Unknown {
        /// The letter.
        letter: char,
        /// All letters of the table.
        known: String,
    },
}

impl FromStr for TableFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let mut pieces = Vec::new();
        let mut parts = text.split('%');
        pieces.extend(parts.next().filter(|t| !t.is_empty()).map(|t| FormatPiece::Text(t.to_owned())));
        for part in parts {
            let right = part.starts_with('.');
            let part = part.strip_prefix('.').unwrap_or(part);
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (width, rest) = part.split_at(digits);
            let mut rest = rest.chars();
            let letter = rest.next().filter(|c| !c.is_whitespace()).ok_or(FormatError::Unfinished)?;
            let width = (!width.is_empty()).then(|| parse_width(width)).transpose()?;
            pieces.push(FormatPiece::Field { letter, width, right });
            let text: String = rest.collect();
            pieces.extend((!text.is_empty()).then_some(FormatPiece::Text(text)));
        }
        Ok(TableFormat(pieces))
    }
}

fn parse_width(digits: &str) -> Result<usize, FormatError> {
    digits.parse().ok().filter(|w| *w <= MAX_WIDTH).ok_or_else(|| FormatError::Width(digits.to_owned()))
}

/// How a table is printed.
#[derive(Clone, Copy, Debug)]
pub struct TableLayout {
    /// Whether a header comes first.
    pub header: bool,
    /// The terminal's width in columns, to which long lines and fields are cut. `None` cuts nothing.
    pub terminal: Option<usize>,
}

impl TableFormat {
    /// The table with a line for each of `rows`.
    ///
    /// # Errors
    /// When the format has a letter that no column has.
    pub fn render_rows<R>(
        &self,
        columns: &[TableColumn<R>],
        rows: &[R],
        layout: TableLayout,
    ) -> Result<String, FormatError> {
        let fields = self.resolve(columns)?;
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(rows.len() + 1);
        if layout.header {
            lines.push(fields.iter().map(|c| c.header.to_owned()).collect());
        }
        lines.extend(rows.iter().map(|row| fields.iter().map(|c| one_line((c.cell)(row))).collect()));
        let widths: Vec<usize> =
            (0..fields.len()).map(|i| lines.iter().map(|l| char_count(&l[i])).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for cells in &lines {
            text.push_str(&truncate_text(
                self.render_line(cells, &widths, layout.terminal.is_some()),
                layout.terminal,
            ));
            text.push('\n');
        }
        Ok(text)
    }

    /// Checks that there is a column for each field.
    ///
    /// # Errors
    /// When the format has a letter that no column has.
    pub fn check_fields<R>(&self, columns: &[TableColumn<R>]) -> Result<(), FormatError> {
        self.resolve(columns).map(drop)
    }

    /// The columns that the fields name, in the fields' order.
    fn resolve<'a, R>(&self, columns: &'a [TableColumn<R>]) -> Result<Vec<&'a TableColumn<R>>, FormatError> {
        self.0
            .iter()
            .filter_map(|piece| match piece {
                FormatPiece::Field { letter, .. } => Some(find_column(columns, *letter)),
                FormatPiece::Text(_) => None,
            })
            .collect()
    }

    /// A line of the table. `natural_widths` are the widths of the fields that have none in the format.
    fn render_line(&self, cells: &[String], natural_widths: &[usize], cut_fields: bool) -> String {
        let mut line = String::new();
        let mut cells = cells.iter().zip(natural_widths);
        for piece in &self.0 {
            match piece {
                FormatPiece::Text(text) => line.push_str(text),
                FormatPiece::Field { width, right, .. } => {
                    let Some((cell, natural_width)) = cells.next() else { continue };
                    let width = width.unwrap_or(*natural_width);
                    let cell =
                        if cut_fields { truncate_text(cell.clone(), Some(width)) } else { cell.clone() };
                    let padding = " ".repeat(width.saturating_sub(char_count(&cell)));
                    if *right {
                        line.extend([padding, cell]);
                    } else {
                        line.extend([cell, padding]);
                    }
                }
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

fn find_column<R>(columns: &[TableColumn<R>], letter: char) -> Result<&TableColumn<R>, FormatError> {
    columns.iter().find(|column| column.letter == letter).ok_or_else(|| {
        let letters: Vec<String> = columns.iter().map(|column| format!("%{}", column.letter)).collect();
        FormatError::Unknown { letter, known: letters.join(" ") }
    })
}

fn char_count(text: &str) -> usize {
    text.chars().count()
}

/// Replaces control characters: those in a job's name must reach neither the terminal nor the rows below.
fn one_line(cell: String) -> String {
    if cell.chars().any(char::is_control) { cell.replace(char::is_control, "?") } else { cell }
}

fn truncate_text(text: String, width: Option<usize>) -> String {
    match width {
        Some(width) if char_count(&text) > width => {
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            if width == 0 { kept } else { kept + "…" }
        }
        _ => text,
    }
}

/// The width of help that is laid out here and not by clap: it fits on a terminal of 80 columns.
pub const HELP_WIDTH: usize = 79;

/// Text in lines of at most [`HELP_WIDTH`] columns. The lines after the first are indented by `indent`.
pub fn wrap_help(text: &str, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for (number, word) in text.split(' ').enumerate() {
        let width = char_count(word);
        if number > 0 && column + 1 + width > HELP_WIDTH {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped
}

/// The columns of a table and its default format, for `--help`.
pub struct FieldHelp<'a, R>(pub &'a [TableColumn<R>], pub &'a str);

/// The column in which the help of a field begins.
const FIELD_INDENT: usize = 18;

impl<R> fmt::Display for FieldHelp<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Fields of --format, each as %[[.]width]letter (a dot aligns right):")?;
        for column in self.0 {
            let line = format!("  %{}  {:<11} {}", column.letter, column.header, column.help);
            writeln!(f, "{}", wrap_help(&line, FIELD_INDENT))?;
        }
        write!(f, "Default: \"{}\"", self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[TableColumn<(u32, &str)>] = &[
        TableColumn { letter: 'i', header: "JOBID", help: "id", cell: |r| r.0.to_string() },
        TableColumn { letter: 'j', header: "NAME", help: "name", cell: |r| r.1.to_owned() },
    ];
    const ROWS: &[(u32, &str)] = &[(7, "bert-large"), (123_456, "x\n\u{1b}[31m")];

    fn render(format: &str, header: bool, terminal: Option<usize>) -> String {
        let format: TableFormat = format.parse().unwrap();
        format.render_rows(COLUMNS, ROWS, TableLayout { header, terminal }).unwrap()
    }

    #[test]
    fn columns_fit_their_content() {
        insta::assert_snapshot!(render("%i %j", true, None), @r"
        JOBID  NAME
        7      bert-large
        123456 x??[31m
        ");
    }

    #[test]
    fn widths_and_alignment_are_squeues() {
        insta::assert_snapshot!(render("[%.8i|%4j]", false, None), @r"
        [       7|bert-large]
        [  123456|x??[31m]
        ");
        insta::assert_snapshot!(render("[%.8i|%4j]", false, Some(80)), @r"
        [       7|ber…]
        [  123456|x??…]
        ");
    }

    #[test]
    fn a_terminal_cuts_the_line() {
        insta::assert_snapshot!(render("%i %j", true, Some(9)), @r"
        JOBID  N…
        7      b…
        123456 x…
        ");
    }

    #[test]
    fn wrong_formats_are_refused() {
        for text in ["%", "%8", "%.", "% i", "%99999999999999999999i", "%1001i"] {
            assert!(text.parse::<TableFormat>().is_err(), "{text}");
        }
        let unknown = "%q".parse::<TableFormat>().unwrap();
        let error =
            unknown.render_rows(COLUMNS, ROWS, TableLayout { header: true, terminal: None }).unwrap_err();
        assert_eq!(error.to_string(), "unknown field %q (this table has %i %j)");
    }
}
