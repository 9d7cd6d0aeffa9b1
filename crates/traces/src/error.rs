//! The reasons why a file cannot be used.

use std::io;
use std::path::PathBuf;

use infill_model::MalformedLine;
use infill_model::profile::CurveError;

/// Most malformed lines that a message shows.
const SHOWN: usize = 3;

/// The reason why a file cannot be used: which file and line, what it has, and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened, or its first bytes cannot be read.
    #[error("cannot open {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file cannot be read further: its compression is broken, or a line or the file is too long.
    #[error("{path}, line {line}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The line in the decompressed file, from 1.
        line: usize,
        /// The error of the reader.
        source: io::Error,
    },
    /// The header lacks a column.
    #[error("{path}, line {line}: found the columns {found:?}; expected {expected}")]
    Columns {
        /// The file.
        path: PathBuf,
        /// The line of the header, from 1. The last line if there is no header.
        line: usize,
        /// The header, cut to a readable length.
        found: String,
        /// The missing column or columns.
        expected: String,
    },
    /// A line is malformed, in a file that must not have malformed lines.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line in the decompressed file, from 1.
        line: usize,
        /// What the line has, and what was expected.
        what: String,
    },
    /// The file has no row of the requested model.
    #[error("{path}: no row of the model {model:?}; found rows of {found}")]
    NoSuchModel {
        /// The file.
        path: PathBuf,
        /// The requested model.
        model: String,
        /// The models that the file has.
        found: String,
    },
    /// The file has more malformed lines than a log of its length may have.
    #[error("{path}: too many malformed lines, {count} of {lines}: {}", list(.first))]
    TooManyMalformed {
        /// The file.
        path: PathBuf,
        /// The number of malformed lines.
        count: usize,
        /// The number of lines without blank ones.
        lines: usize,
        /// The first malformed lines.
        first: Vec<MalformedLine>,
    },
    /// The file has no row of the expected kind.
    #[error("{path}: expected at least one {expected}, found none in {lines} lines{}", after_colon(.first))]
    Empty {
        /// The file.
        path: PathBuf,
        /// The expected kind of row.
        expected: &'static str,
        /// The number of lines without blank ones.
        lines: usize,
        /// The first malformed lines.
        first: Vec<MalformedLine>,
    },
    /// The points of a curve are not a valid curve.
    #[error("{path}: curve {name:?} is not valid")]
    Curve {
        /// The file.
        path: PathBuf,
        /// The name of the curve.
        name: String,
        /// The problem with its points.
        source: CurveError,
    },
}

fn list(malformed: &[MalformedLine]) -> String {
    let shown: Vec<String> = malformed.iter().take(SHOWN).map(MalformedLine::to_string).collect();
    let more = if malformed.len() > SHOWN { "; …" } else { "" };
    shown.join("; ") + more
}

fn after_colon(malformed: &[MalformedLine]) -> String {
    if malformed.is_empty() { String::new() } else { format!(": {}", list(malformed)) }
}
