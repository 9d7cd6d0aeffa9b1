//! Tables of text: one row per line, with columns that are found by their names in the header.

use std::path::PathBuf;

use super::error::TraceError;
use super::line_reader::{LineReader, TraceSource};
use super::line_tally::LineTally;
use super::parse_field::truncate_text;

/// How fields are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableDialect {
    /// Comma-separated values. A field may be in double quotes. Lines that begin with `#` are comments.
    Csv,
    /// `sacct --parsable`: divided by bars, without quotes.
    Bars,
}

/// Most bars within the texts of a line. Each bar has to be tried in each text.
const MOST_BARS: usize = 16;

/// A table with its header. The rows are still to be read.
pub(super) struct Table {
    lines: LineReader,
    splitter: FieldSplitter,
    line: usize,
    columns: Vec<String>,
    ragged: bool,
    texts: Vec<usize>,
}

/// The fields of one row, in the header's order and number.
pub(super) struct TableRow<'a> {
    text: &'a str,
    ends: &'a [usize],
}

impl TableRow<'_> {
    /// A field without blanks at its ends. Empty if there is no such column.
    pub(super) fn get(&self, column: usize) -> &str {
        self.field(column).trim()
    }

    fn field(&self, column: usize) -> &str {
        let previous = column.checked_sub(1).and_then(|previous| self.ends.get(previous));
        let start = previous.copied().unwrap_or(0);
        self.ends.get(column).and_then(|end| self.text.get(start..*end)).unwrap_or_default()
    }

    /// A field of an optional column. Empty if the table does not have the column.
    pub(super) fn get_if(&self, column: Option<usize>) -> &str {
        column.map_or("", |column| self.get(column))
    }

    /// A field of an optional column. `None` if it is empty, or the table does not have the column.
    pub(super) fn get_filled(&self, column: Option<usize>) -> Option<&str> {
        Some(self.get_if(column)).filter(|text| !text.is_empty())
    }

    /// The text and the ends of this row's fields, if each of these columns contains a number of bars.
    fn joined(&self, bars: &[(usize, usize)]) -> (String, Vec<usize>) {
        let mut text = String::new();
        let mut ends = Vec::new();
        let mut next = 0;
        while next < self.ends.len() {
            let within = bars.iter().find(|(column, _)| *column == ends.len()).map_or(0, |(_, bars)| *bars);
            let fields: Vec<&str> = (next..=next + within).map(|field| self.field(field)).collect();
            text += &fields.join("|");
            ends.push(text.len());
            next += within + 1;
        }
        (text, ends)
    }

    /// Passes the row to `read` in each way in which `bars` of its bars may be within texts, until one
    /// succeeds.
    ///
    /// # Errors
    /// The error of the first way, if none succeeds.
    fn read_joined(
        &self,
        bars: usize,
        texts: &[usize],
        read: &mut impl FnMut(&TableRow) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut first_error = None;
        for shares in list_shares(bars, texts.len()) {
            let bars: Vec<(usize, usize)> = texts.iter().copied().zip(shares).collect();
            let (text, ends) = self.joined(&bars);
            match read(&TableRow { text: &text, ends: &ends }) {
                Ok(()) => return Ok(()),
                Err(what) => first_error = first_error.or(Some(what)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

/// All ways to divide `things` among `receivers`. Those in which the first one gets the most come first.
fn list_shares(things: usize, receivers: usize) -> Vec<Vec<usize>> {
    if receivers <= 1 {
        return vec![vec![things]];
    }
    let mut all_shares = Vec::new();
    for last in 0..=things {
        for mut shares in list_shares(things - last, receivers - 1) {
            shares.push(last);
            all_shares.push(shares);
        }
    }
    all_shares
}

impl Table {
    /// Reads the header: the first line that is neither blank nor a comment.
    pub(super) fn open(source: TraceSource, dialect: TableDialect) -> Result<Table, TraceError> {
        let mut lines = LineReader::new(source);
        let mut splitter = FieldSplitter::new(dialect);
        let mut columns = Vec::new();
        while let Some((_, line)) = lines.next_line()? {
            let text = line.unwrap_or_else(|what| what.into());
            if splitter.is_comment(&text) {
                continue;
            }
            if let Ok(row) = splitter.split(&text) {
                columns = (0..row.ends.len()).map(|column| row.get(column).to_owned()).collect();
            }
            break;
        }
        let line = lines.number().max(1);
        Ok(Table { lines, splitter, line, columns, ragged: false, texts: Vec::new() })
    }

    /// Allows rows with more or fewer fields than the header. Missing fields are empty.
    pub(super) fn ragged(self) -> Table {
        Table { ragged: true, ..self }
    }

    /// Declares columns with these names, if there are any, as texts in which Slurm does not escape bars. A
    /// row with more fields than the header is read in the first way in which the rest of it is valid.
    pub(super) fn with_texts(self, names: &[&str]) -> Table {
        Table { texts: names.iter().filter_map(|name| self.find_column(name)).collect(), ..self }
    }

    /// The names in the header.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The first column with this name, in upper or lower case.
    pub(super) fn find_column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.eq_ignore_ascii_case(name))
    }

    /// A column that the table must have.
    pub(super) fn require_column(&self, name: &str) -> Result<usize, TraceError> {
        self.find_column(name).ok_or_else(|| self.missing_columns(format!("a column {name}")))
    }

    /// The first of two columns if the table has it, else the second, which it must have then.
    pub(super) fn require_either(&self, first: &str, second: &str) -> Result<usize, TraceError> {
        match self.find_column(first) {
            Some(column) => Ok(column),
            None => self.require_column(second),
        }
    }

    /// The error for a header that lacks columns.
    pub(super) fn missing_columns(&self, expected: String) -> TraceError {
        let found = truncate_text(&self.columns.join(" "), 200);
        TraceError::Columns { path: self.path(), line: self.line, found, expected }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.lines.path().to_owned()
    }

    /// Passes every row to `read`. An error describes a malformed row. Rows with more or fewer fields than
    /// the header are malformed, unless the table is [`Table::ragged`] or has texts ([`Table::with_texts`]).
    pub(super) fn for_each_row(
        self,
        mut read: impl FnMut(&TableRow) -> Result<(), String>,
    ) -> Result<LineTally, TraceError> {
        let Table { lines, mut splitter, columns, ragged, texts, .. } = self;
        lines.for_each_line(|_, text| {
            if splitter.is_comment(text) {
                return Ok(());
            }
            let row = splitter.split(text)?;
            if let Some(bars @ 1..=MOST_BARS) = row.ends.len().checked_sub(columns.len())
                && !texts.is_empty()
            {
                return row.read_joined(bars, &texts, &mut read);
            }
            if !ragged && row.ends.len() != columns.len() {
                return Err(format!("{} fields; expected {}", row.ends.len(), columns.len()));
            }
            read(&row)
        })
    }
}

/// Divides lines into fields. Each line is read independently, so that an unclosed quote costs only one line.
struct FieldSplitter {
    core: csv_core::Reader,
    dialect: TableDialect,
    fields: Vec<u8>,
    ends: Vec<usize>,
}

impl FieldSplitter {
    fn new(dialect: TableDialect) -> FieldSplitter {
        let mut builder = csv_core::ReaderBuilder::new();
        builder.terminator(csv_core::Terminator::Any(b'\n'));
        if dialect == TableDialect::Bars {
            builder.delimiter(b'|').quoting(false);
        }
        FieldSplitter { core: builder.build(), dialect, fields: Vec::new(), ends: Vec::new() }
    }

    fn is_comment(&self, text: &str) -> bool {
        self.dialect == TableDialect::Csv && text.starts_with('#')
    }

    fn split(&mut self, text: &str) -> Result<TableRow<'_>, String> {
        self.core.reset();
        // All fields together are at most as long as the line, and there are at most as many as its bytes
        // plus one. The parser needs free space after that, else it stops.
        self.fields.resize(self.fields.len().max(text.len() + 1), 0);
        self.ends.resize(self.ends.len().max(text.len() + 2), 0);
        let (_, _, length, count) = self.core.read_record(text.as_bytes(), &mut self.fields, &mut self.ends);
        let fields = &mut self.fields[length..];
        let ends = &mut self.ends[count..];
        let (result, _, more_length, more_count) = self.core.read_record(b"\n", fields, ends);
        let length = length + more_length;
        let count = count + more_count;
        if result != csv_core::ReadRecordResult::Record {
            return Err("a quote is not closed".to_owned());
        }
        let text = std::str::from_utf8(&self.fields[..length]).map_err(|_| "fields that are not text")?;
        Ok(TableRow { text, ends: &self.ends[..count] })
    }
}
