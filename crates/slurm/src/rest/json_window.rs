//! Reads JSON while it arrives: a window of bytes moves over the answer, and values are taken from it one by
//! one.
//!
//! serde_json reads a slice three times as fast as a stream. So a value is read from the window as a slice. A
//! value that reaches beyond the window's end is read again when more of it has arrived.

use std::io::{ErrorKind, Read};

use serde::de::{Deserialize, DeserializeOwned};

use super::failure::{FailureKind, RequestFailure};

/// The part of an answer that is in memory.
pub(super) struct JsonWindow<R> {
    source: R,
    bytes: Vec<u8>,
    /// Start of the unread part of `bytes`.
    start: usize,
    /// End of the unread part of `bytes`.
    end: usize,
    /// Bytes of the answer before the first of `bytes`.
    before: u64,
    /// Whether the source has ended.
    ended: bool,
}

/// The first value in `bytes`, and its length in bytes.
pub(super) fn first_value<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> serde_json::Result<(T, usize)> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<T>();
    match values.next() {
        Some(value) => value.map(|value| (value, values.byte_offset())),
        // No value: the same error as for a value that is cut off.
        None => serde_json::from_slice(bytes).map(|value| (value, bytes.len())),
    }
}

/// The failure for an answer that cannot be read. It is transient if the answer was cut off: the next one may
/// be complete. An answer of another shape will not change.
pub(super) fn unreadable_answer(what: impl std::fmt::Display, is_cut_off: bool) -> RequestFailure {
    let kind = if is_cut_off { FailureKind::Transient } else { FailureKind::Permanent };
    RequestFailure::new(kind, format!("the answer is not what was asked for: {what}"))
}

impl<R: Read> JsonWindow<R> {
    /// A window of `bytes` bytes. It grows if a single value is longer.
    pub(super) fn new(source: R, bytes: usize) -> Self {
        JsonWindow { source, bytes: vec![0; bytes.max(1)], start: 0, end: 0, before: 0, ended: false }
    }

    /// Bytes of the answer that have been read.
    fn byte_position(&self) -> u64 {
        self.before + self.start as u64
    }

    /// Moves the window forward and reads until it is full or the source has ended.
    fn fill_window(&mut self) -> Result<(), RequestFailure> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.before = self.byte_position();
        self.end -= self.start;
        self.start = 0;
        if self.end == self.bytes.len() {
            self.bytes.resize(2 * self.end, 0);
        }
        while self.end < self.bytes.len() && !self.ended {
            match self.source.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    return Err(RequestFailure::new(
                        FailureKind::Transient,
                        format!("reading the answer: {e}"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Takes the next value with `take`. `take` gets the bytes in the window from the value on, and returns
    /// the value and its length in bytes. If the bytes did not suffice, it is called again with more.
    pub(super) fn read_with<T>(
        &mut self,
        mut take: impl for<'b> FnMut(&'b [u8]) -> serde_json::Result<(T, usize)>,
    ) -> Result<T, RequestFailure> {
        let mut broken_at = None;
        // Skip white space first, so that an error's position counts from the value.
        self.peek()?;
        loop {
            let bytes = &self.bytes[self.start..self.end];
            match take(bytes) {
                // A number at the end of the window may have more digits.
                Ok((value, count)) if count < bytes.len() || self.ended => {
                    self.start += count;
                    return Ok(value);
                }
                Ok(_) => {}
                // serde_json reports a number that is cut off as a syntax error. The error is real if it is
                // at the same position when more bytes are there.
                Err(e) if self.ended || (!e.is_eof() && broken_at == Some((e.line(), e.column()))) => {
                    let what = format!("{e} of what begins at byte {}", self.byte_position());
                    return Err(unreadable_answer(what, e.is_eof()));
                }
                Err(e) => broken_at = Some((e.line(), e.column())),
            }
            self.fill_window()?;
        }
    }

    /// Takes the next value.
    pub(super) fn read_value<T: DeserializeOwned>(&mut self) -> Result<T, RequestFailure> {
        self.read_with(|bytes| first_value(bytes))
    }

    /// The next byte that is not white space, without taking it; `None` at the end of the answer.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, RequestFailure> {
        loop {
            let left = &self.bytes[self.start..self.end];
            match left.iter().position(|b| !matches!(b, b' ' | b'\n' | b'\r' | b'\t')) {
                Some(at) => {
                    self.start += at;
                    return Ok(self.bytes.get(self.start).copied());
                }
                None if self.ended => return Ok(None),
                None => {
                    self.start = self.end;
                    self.fill_window()?;
                }
            }
        }
    }

    /// Takes the next byte that is not white space if it is in `wanted`.
    pub(super) fn expect_byte(&mut self, wanted: &[u8]) -> Result<u8, RequestFailure> {
        match self.peek()? {
            Some(byte) if wanted.contains(&byte) => {
                self.start += 1;
                Ok(byte)
            }
            found => {
                let wanted: Vec<String> = wanted.iter().map(|b| format!("`{}`", char::from(*b))).collect();
                let what = format!("expected {} at byte {}", wanted.join(" or "), self.byte_position());
                Err(unreadable_answer(what, found.is_none()))
            }
        }
    }

    /// Takes white space up to the end of the answer.
    pub(super) fn expect_end(&mut self) -> Result<(), RequestFailure> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => {
                Err(unreadable_answer(format!("trailing characters at byte {}", self.byte_position()), false))
            }
        }
    }
}
