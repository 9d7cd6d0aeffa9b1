//! Why a file cannot be used.

use std::io;
use std::path::PathBuf;

use infill_model::MalformedLine;
use infill_model::profile::CurveError;

/// Malformed lines that a message shows.
const SHOWN: usize = 3;

/// Why a file cannot be used: which, where, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be opened, or its first bytes cannot be read.
    #[error("cannot open {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be read on: broken compression, a line or a file that is too long.
    #[error("{path}, line {line}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Its line when decompressed, from 1.
        line: usize,
        /// Why.
        source: io::Error,
    },
    /// Its header lacks a column.
    #[error("{path}, line {line}: found the columns {found:?}; expected {expected}")]
    Columns {
        /// The file.
        path: PathBuf,
        /// Line of the header, from 1; the last line where there is none.
        line: usize,
        /// The header, cut to a readable length.
        found: String,
        /// What is needed.
        expected: String,
    },
    /// A line is malformed, in a file in which none may be.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line when decompressed, from 1.
        line: usize,
        /// What was found and what was expected.
        what: String,
    },
    /// It says nothing of what was asked for.
    #[error("{path}: no row of the model {model:?}; found rows of {found}")]
    NoSuchModel {
        /// The file.
        path: PathBuf,
        /// The model that was asked for.
        model: String,
        /// The models that it has rows of.
        found: String,
    },
    /// More lines are malformed than a log of this length may have.
    #[error("{path}: too many malformed lines, {count} of {lines}: {}", list(.first))]
    TooManyMalformed {
        /// The file.
        path: PathBuf,
        /// Malformed lines.
        count: usize,
        /// Lines read, without blank ones.
        lines: usize,
        /// The first of them.
        first: Vec<MalformedLine>,
    },
    /// It has none of what it should have.
    #[error("{path}: expected at least one {expected}, found none in {lines} lines{}", after_colon(.first))]
    Empty {
        /// The file.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
        /// Lines read, without blank ones.
        lines: usize,
        /// The first malformed lines.
        first: Vec<MalformedLine>,
    },
    /// The points of a curve make no curve.
    #[error("{path}: curve {name:?} is none")]
    Curve {
        /// The file.
        path: PathBuf,
        /// The curve.
        name: String,
        /// Why.
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
