//! JSON that is read while it arrives: a window of bytes moves over the answer, and values are taken out of
//! it one by one.
//!
//! serde_json reads a slice three times as fast as a stream. So a value is read from the window as a slice;
//! one that reaches beyond the window's end is read again once more of it is there.

use std::io::{ErrorKind, Read};

use serde::de::{Deserialize, DeserializeOwned};

use super::failure::{FailureKind, RequestFailure};

/// A part of an answer in memory.
pub(super) struct JsonWindow<R> {
    source: R,
    bytes: Vec<u8>,
    /// The part of `bytes` that is still to be read.
    start: usize,
    end: usize,
    /// Bytes of the answer before the first of `bytes`.
    before: u64,
    /// Whether the source has given all.
    ended: bool,
}

/// The first value in `bytes`, and the bytes that it takes.
pub(super) fn first_value<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> serde_json::Result<(T, usize)> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<T>();
    match values.next() {
        Some(value) => value.map(|value| (value, values.byte_offset())),
        // Nothing there: the same error as for a value that is cut off.
        None => serde_json::from_slice(bytes).map(|value| (value, bytes.len())),
    }
}

/// Why an answer cannot be read. One that was cut off may be whole the next time; one of another shape will
/// not.
pub(super) fn unreadable_answer(what: impl std::fmt::Display, is_cut_off: bool) -> RequestFailure {
    let kind = if is_cut_off { FailureKind::Transient } else { FailureKind::Permanent };
    RequestFailure::new(kind, format!("the answer is not what was asked for: {what}"))
}

impl<R: Read> JsonWindow<R> {
    /// A window that is `bytes` long to begin with. It grows where a single value is longer.
    pub(super) fn new(source: R, bytes: usize) -> Self {
        JsonWindow { source, bytes: vec![0; bytes.max(1)], start: 0, end: 0, before: 0, ended: false }
    }

    /// Bytes of the answer that have been read.
    fn byte_position(&self) -> u64 {
        self.before + self.start as u64
    }

    /// Moves on, until the window is full or the source has ended.
    fn fill_window(&mut self) -> Result<(), RequestFailure> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.before = self.byte_position();
        (self.start, self.end) = (0, self.end - self.start);
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

    /// Takes the next value with `take`, which is given what is there of it and what follows, and returns
    /// what it has read and how many bytes that was. It is called again with more bytes where those did not
    /// suffice.
    pub(super) fn read_with<T>(
        &mut self,
        mut take: impl for<'b> FnMut(&'b [u8]) -> serde_json::Result<(T, usize)>,
    ) -> Result<T, RequestFailure> {
        let mut broken_at = None;
        // White space first, so that an error's place is counted from the value.
        self.peek()?;
        loop {
            let bytes = &self.bytes[self.start..self.end];
            match take(bytes) {
                // A number at the very end may go on.
                Ok((value, count)) if count < bytes.len() || self.ended => {
                    self.start += count;
                    return Ok(value);
                }
                Ok(_) => {}
                // A number that is cut off is no number to serde_json. If the error is in the same place when
                // there is more, it is one.
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

    /// The next byte that is no white space, without taking it; `None` at the end of the answer.
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

    /// Takes the next byte that is no white space if it is one of `wanted`.
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

    /// Takes the white space at the end of the answer.
    pub(super) fn expect_end(&mut self) -> Result<(), RequestFailure> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => {
                Err(unreadable_answer(format!("trailing characters at byte {}", self.byte_position()), false))
            }
        }
    }
}
