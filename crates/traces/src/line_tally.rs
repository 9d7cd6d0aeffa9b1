//! Counts lines and malformed lines, and fails if there are too many.

use std::io;
use std::path::{Path, PathBuf};

use super::error::TraceError;
use infill_model::{MalformedLine, ParsedFile};

/// Most lines of a file without blank ones. The largest public job logs have a few million jobs. The bound
/// limits memory.
const MAX_LINES: usize = 10_000_000;

/// This number of malformed lines is always allowed: even a short file may have a few, such as a cut last
/// line.
const ALLOWED: usize = 10;

/// One malformed line in this number of lines is allowed. With more, the log has another format than
/// expected.
const ALLOWED_ONE_IN: usize = 100;

/// The number of lines and of malformed lines in a file.
pub(super) struct LineTally {
    path: PathBuf,
    lines: usize,
    malformed_count: usize,
    malformed: Vec<MalformedLine>,
}

impl LineTally {
    /// A tally without lines.
    pub(super) fn new(path: &Path) -> LineTally {
        LineTally { path: path.to_owned(), lines: 0, malformed_count: 0, malformed: Vec::new() }
    }

    /// Counts a line. Fails if the file has too many.
    pub(super) fn count_line(&mut self, number: usize) -> Result<(), TraceError> {
        self.lines += 1;
        if self.lines <= MAX_LINES {
            return Ok(());
        }
        let what = format!("the file has more than {MAX_LINES} lines");
        let source = io::Error::new(io::ErrorKind::FileTooLarge, what);
        Err(TraceError::Read { path: self.path.clone(), line: number, source })
    }

    /// Records a malformed line. Fails if there are too many for a file of any length, so that garbage is not
    /// read to its end.
    pub(super) fn record_malformed(&mut self, line: usize, what: String) -> Result<(), TraceError> {
        self.malformed_count += 1;
        // Some errors are found only after later lines. The first lines are kept.
        let index = self.malformed.partition_point(|other| other.line <= line);
        self.malformed.insert(index, MalformedLine { line, what });
        self.malformed.truncate(ParsedFile::<()>::MOST_KEPT);
        if self.malformed_count > MAX_LINES / ALLOWED_ONE_IN { Err(self.too_many()) } else { Ok(()) }
    }

    /// Fails with the first malformed line if there is one.
    pub(super) fn none_malformed(self) -> Result<LineTally, TraceError> {
        match self.malformed.first().cloned() {
            None => Ok(self),
            Some(MalformedLine { line, what }) => Err(TraceError::Line { path: self.path, line, what }),
        }
    }

    /// Ends the file. Fails if `has_value` is false, or there are too many malformed lines.
    pub(super) fn finish<T>(
        self,
        value: T,
        has_value: bool,
        expected: &'static str,
    ) -> Result<ParsedFile<T>, TraceError> {
        let allowed = ALLOWED.max(self.lines / ALLOWED_ONE_IN);
        if self.malformed_count > allowed {
            return Err(self.too_many());
        }
        if !has_value {
            let LineTally { path, lines, malformed: first, .. } = self;
            return Err(TraceError::Empty { path, expected, lines, first });
        }
        Ok(ParsedFile { value, malformed: self.malformed, malformed_count: self.malformed_count })
    }

    fn too_many(&self) -> TraceError {
        TraceError::TooManyMalformed {
            path: self.path.clone(),
            count: self.malformed_count,
            lines: self.lines,
            first: self.malformed.clone(),
        }
    }
}
