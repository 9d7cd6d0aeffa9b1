//! Counts lines and malformed lines, and says when there are too many.

use std::io;
use std::path::{Path, PathBuf};

use super::error::TraceError;
use infill_model::{MalformedLine, ParsedFile};

/// Most lines of a file, blank ones not counted: the largest public job logs have a few million jobs. Keeps
/// memory bounded.
const MAX_LINES: usize = 10_000_000;

/// So many malformed lines are always allowed: a short file may have a few, such as a cut last line.
const ALLOWED: usize = 10;

/// One malformed line in so many is allowed: more than that and the log says something else than what is
/// read.
const ALLOWED_ONE_IN: usize = 100;

/// Lines of a file, counted.
pub(super) struct LineTally {
    path: PathBuf,
    lines: usize,
    count: usize,
    kept: Vec<MalformedLine>,
}

impl LineTally {
    /// Nothing counted yet.
    pub(super) fn new(path: &Path) -> LineTally {
        LineTally { path: path.to_owned(), lines: 0, count: 0, kept: Vec::new() }
    }

    /// A line was read.
    pub(super) fn count_line(&mut self, number: usize) -> Result<(), TraceError> {
        self.lines += 1;
        if self.lines <= MAX_LINES {
            return Ok(());
        }
        let what = format!("the file has more than {MAX_LINES} lines");
        let source = io::Error::new(io::ErrorKind::FileTooLarge, what);
        Err(TraceError::Read { path: self.path.clone(), line: number, source })
    }

    /// A line was malformed. Fails where that is too much for a file of any length, so that garbage is not
    /// read to its end.
    pub(super) fn record_malformed(&mut self, line: usize, what: String) -> Result<(), TraceError> {
        self.count += 1;
        // Lines found wrong late come out of order; the first ones are kept.
        let at = self.kept.partition_point(|m| m.line <= line);
        self.kept.insert(at, MalformedLine { line, what });
        self.kept.truncate(ParsedFile::<()>::MOST_KEPT);
        if self.count > MAX_LINES / ALLOWED_ONE_IN { Err(self.too_many()) } else { Ok(()) }
    }

    /// Fails if any line was malformed, and tells the first.
    pub(super) fn none_malformed(self) -> Result<LineTally, TraceError> {
        match self.kept.first().cloned() {
            None => Ok(self),
            Some(MalformedLine { line, what }) => Err(TraceError::Line { path: self.path, line, what }),
        }
    }

    /// The end of the file: what it says, if it says `some` of what is expected and not too much else.
    pub(super) fn finish<T>(
        self,
        value: T,
        some: bool,
        expected: &'static str,
    ) -> Result<ParsedFile<T>, TraceError> {
        if self.count > ALLOWED && self.count > self.lines / ALLOWED_ONE_IN {
            return Err(self.too_many());
        }
        if !some {
            return Err(TraceError::Empty { path: self.path, expected, lines: self.lines, first: self.kept });
        }
        Ok(ParsedFile { value, malformed: self.kept, malformed_count: self.count })
    }

    fn too_many(&self) -> TraceError {
        TraceError::TooManyMalformed {
            path: self.path.clone(),
            count: self.count,
            lines: self.lines,
            first: self.kept.clone(),
        }
    }
}
