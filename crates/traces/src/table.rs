//! Tables of text: one row a line, columns found by the names in the header.

use std::path::PathBuf;

use super::error::TraceError;
use super::line_reader::{LineReader, TraceSource};
use super::line_tally::LineTally;
use super::parse_field::truncate_text;

/// How fields are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableDialect {
    /// Comma-separated values; a field may be in double quotes. Lines that begin with `#` are comments.
    Csv,
    /// `sacct --parsable`: a bar, and no quotes.
    Bars,
}

/// Most bars of one line that stand in texts: each has to be tried in each text.
const MOST_BARS: usize = 16;

/// A table whose header is read.
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
    /// A field without blanks at its ends; empty where there is no such column.
    pub(super) fn get(&self, column: usize) -> &str {
        self.field(column).trim()
    }

    fn field(&self, column: usize) -> &str {
        let start = column.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(column).and_then(|end| self.text.get(start..*end)).unwrap_or_default()
    }

    /// A field that not every table has.
    pub(super) fn get_if(&self, column: Option<usize>) -> &str {
        column.map_or("", |c| self.get(c))
    }

    /// Text and ends of the same row, where each of these columns has so many bars in it.
    fn joined(&self, bars: &[(usize, usize)]) -> (String, Vec<usize>) {
        let mut text = String::new();
        let mut ends = Vec::new();
        let mut next = 0;
        while next < self.ends.len() {
            let within = bars.iter().find(|(column, _)| *column == ends.len()).map_or(0, |(_, bars)| *bars);
            let fields: Vec<&str> = (next..=next + within).map(|i| self.field(i)).collect();
            text += &fields.join("|");
            ends.push(text.len());
            next += within + 1;
        }
        (text, ends)
    }

    /// Shows the row once it is read in a way that it can be, where so many of its bars stand in texts.
    fn show_joined(
        &self,
        bars: usize,
        texts: &[usize],
        show: &mut impl FnMut(&TableRow) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut first = None;
        for shares in list_shares(bars, texts.len()) {
            let bars: Vec<(usize, usize)> = texts.iter().copied().zip(shares).collect();
            let (text, ends) = self.joined(&bars);
            match show(&TableRow { text: &text, ends: &ends }) {
                Ok(()) => return Ok(()),
                Err(what) => first = first.or(Some(what)),
            }
        }
        first.map_or(Ok(()), Err)
    }
}

/// All ways to share so many things out, those first in which the first one gets the most.
fn list_shares(things: usize, among: usize) -> Vec<Vec<usize>> {
    if among <= 1 {
        return vec![vec![things]];
    }
    (0..=things)
        .flat_map(|last: usize| {
            let others = list_shares(things - last, among - 1).into_iter();
            others.map(move |others| others.into_iter().chain([last]).collect())
        })
        .collect()
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
                columns = (0..row.ends.len()).map(|i| row.get(i).to_owned()).collect();
            }
            break;
        }
        let line = lines.number().max(1);
        Ok(Table { lines, splitter, line, columns, ragged: false, texts: Vec::new() })
    }

    /// The same, but rows may have more or fewer fields than the header: what is not there is empty.
    pub(super) fn ragged(self) -> Table {
        Table { ragged: true, ..self }
    }

    /// The same, but the columns of these names, as far as there are any, are texts of which nobody takes the
    /// bars out: a row with more fields than the header is read in the first way in which the rest of it is
    /// what it should be.
    pub(super) fn with_texts(self, names: &[&str]) -> Table {
        Table { texts: names.iter().filter_map(|name| self.find_column(name)).collect(), ..self }
    }

    /// The names in the header.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The first column of this name, in capitals or not.
    pub(super) fn find_column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.eq_ignore_ascii_case(name))
    }

    /// A column that must be.
    pub(super) fn require_column(&self, name: &str) -> Result<usize, TraceError> {
        self.find_column(name).ok_or_else(|| self.missing_columns(format!("a column {name}")))
    }

    /// The error for a header that lacks something.
    pub(super) fn missing_columns(&self, expected: String) -> TraceError {
        let found = truncate_text(&self.columns.join(" "), 200);
        TraceError::Columns { path: self.path(), line: self.line, found, expected }
    }

    /// The file.
    pub(super) fn path(&self) -> PathBuf {
        self.lines.path().to_owned()
    }

    /// Shows every row; an error is what is malformed about it. Rows with more or fewer fields than the
    /// header are malformed, unless the table is [`Table::ragged`] or has texts ([`Table::with_texts`]).
    pub(super) fn for_each_row(
        self,
        mut show: impl FnMut(&TableRow) -> Result<(), String>,
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
                return row.show_joined(bars, &texts, &mut show);
            }
            if !ragged && row.ends.len() != columns.len() {
                return Err(format!("{} fields; expected {}", row.ends.len(), columns.len()));
            }
            show(&row)
        })
    }
}

/// Divides lines into fields. Each line stands for itself, so that a quote that is not closed costs one line
/// only.
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
        // Fields are never longer than the line, nor more than its bytes and one; the core stops where no
        // room is left over.
        self.fields.resize(self.fields.len().max(text.len() + 1), 0);
        self.ends.resize(self.ends.len().max(text.len() + 2), 0);
        let (_, _, mut length, mut count) =
            self.core.read_record(text.as_bytes(), &mut self.fields, &mut self.ends);
        let fields = &mut self.fields[length..];
        let ends = &mut self.ends[count..];
        let (result, _, more, last) = self.core.read_record(b"\n", fields, ends);
        (length, count) = (length + more, count + last);
        if result != csv_core::ReadRecordResult::Record {
            return Err("a quote that is not closed".to_owned());
        }
        let text = std::str::from_utf8(&self.fields[..length]).map_err(|_| "fields that are not text")?;
        Ok(TableRow { text, ends: &self.ends[..count] })
    }
}
