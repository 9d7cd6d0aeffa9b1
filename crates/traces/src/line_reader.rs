//! Opens a file, plain or compressed, and reads it line by line within bounds.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use niffler::send::compression::Format;

use super::error::TraceError;
use super::line_tally::LineTally;

/// Most bytes of a file when decompressed: ten times the largest public job log; a small file must not unpack
/// for ever.
const MAX_BYTES: u64 = 4 << 30;

/// Most bytes of a line. The longest that Slurm writes, a list of thousands of nodes, is far below.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Most memory for unpacking xz. The largest preset takes 65 MiB.
const MAX_XZ_MEMORY_BYTES: u64 = 512 << 20;

/// Compression is told by so many bytes; a shorter file is plain.
const MAGIC_BYTES: u64 = 5;

/// What spreadsheets put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file that is open, and unpacked as it is read.
pub(super) struct TraceSource {
    pub(super) path: PathBuf,
    reader: BoundedReader,
}

impl TraceSource {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<TraceSource, TraceError> {
        let raw = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        TraceSource::from_reader(path, raw)
    }

    /// What comes from elsewhere, such as standard input, under a name.
    pub(super) fn from_reader(
        name: &Path,
        raw: impl Read + Send + 'static,
    ) -> Result<TraceSource, TraceError> {
        let inner = unpack(raw).map_err(|source| TraceError::Open { path: name.to_owned(), source })?;
        Ok(TraceSource { path: name.to_owned(), reader: BoundedReader { inner, left: MAX_BYTES } })
    }

    /// Bytes in place of a file, with another bound on their number when unpacked.
    #[cfg(test)]
    pub(super) fn from_bytes(name: &str, bytes: Vec<u8>, most: u64) -> Result<TraceSource, TraceError> {
        let path = PathBuf::from(name);
        let unpacked = unpack(Cursor::new(bytes));
        let inner = unpacked.map_err(|source| TraceError::Open { path: path.clone(), source })?;
        Ok(TraceSource { path, reader: BoundedReader { inner, left: most } })
    }

    /// Its name without folder, compression and format: `vgg16` for `scaling/vgg16.csv.xz`.
    pub(super) fn file_stem(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let packed = [".gz", ".xz", ".zst", ".bz2"].iter().find_map(|end| name.strip_suffix(end));
        let name = packed.unwrap_or(&name);
        name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
    }
}

/// Tells the compression by the first bytes.
fn unpack(mut raw: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut head = Vec::new();
    raw.by_ref().take(MAGIC_BYTES).read_to_end(&mut head)?;
    let short = (head.len() as u64) < MAGIC_BYTES;
    let whole = Box::new(Cursor::new(head).chain(BufReader::new(raw)));
    if short {
        return Ok(whole);
    }
    let (whole, format) = niffler::send::sniff(whole).map_err(unpack_error)?;
    if format == Format::Xz {
        // niffler stops after the first stream of an xz file; files that were put together have several.
        let stream = Stream::new_stream_decoder(MAX_XZ_MEMORY_BYTES, CONCATENATED)?;
        return Ok(Box::new(XzDecoder::new_stream(whole, stream)));
    }
    Ok(niffler::send::get_reader(whole).map_err(unpack_error)?.0)
}

fn unpack_error(error: niffler::Error) -> io::Error {
    match error {
        niffler::Error::IOError(e) => e,
        other => io::Error::other(other),
    }
}

/// Fails once more bytes come than may be.
struct BoundedReader {
    inner: Box<dyn Read + Send>,
    left: u64,
}

impl Read for BoundedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => {
                let what = format!("the file is longer than {MAX_BYTES} bytes when decompressed");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
            }
        }
        Ok(count)
    }
}

/// The lines of a file that are not blank.
pub(super) struct LineReader {
    path: PathBuf,
    reader: BufReader<BoundedReader>,
    bytes: Vec<u8>,
    number: usize,
}

/// A line: its number, from 1, and its text without line end, or what keeps it from being text.
pub(super) type NumberedLine<'a> = (usize, Result<Cow<'a, str>, String>);

impl LineReader {
    /// The lines of this file.
    pub(super) fn new(source: TraceSource) -> LineReader {
        let reader = BufReader::with_capacity(1 << 16, source.reader);
        LineReader { path: source.path, reader, bytes: Vec::new(), number: 0 }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many lines were read, blank ones included.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The next line that is not blank.
    pub(super) fn next_line(&mut self) -> Result<Option<NumberedLine<'_>>, TraceError> {
        while self.fill()? {
            if !self.bytes.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some((self.number, decode_text(&self.bytes))));
            }
        }
        Ok(None)
    }

    /// Shows every line that is left with its number; an error is what is malformed about it.
    pub(super) fn for_each_line(
        mut self,
        mut show: impl FnMut(usize, &str) -> Result<(), String>,
    ) -> Result<LineTally, TraceError> {
        let mut tally = LineTally::new(&self.path);
        while let Some((number, line)) = self.next_line()? {
            tally.count_line(number)?;
            if let Err(what) = line.and_then(|text| show(number, &text)) {
                tally.record_malformed(number, what)?;
            }
        }
        Ok(tally)
    }

    /// Reads one line; `false` at the end of the file.
    fn fill(&mut self) -> Result<bool, TraceError> {
        self.bytes.clear();
        let most = MAX_LINE_BYTES as u64 + 1;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut self.bytes);
        let read = read.and_then(|count| if count > MAX_LINE_BYTES { Err(long_line()) } else { Ok(count) });
        let line = self.number + 1;
        let count = read.map_err(|source| TraceError::Read { path: self.path.clone(), line, source })?;
        if count > 0 {
            self.number = line;
        }
        Ok(count > 0)
    }
}

fn long_line() -> io::Error {
    let what = format!("the line is longer than {MAX_LINE_BYTES} bytes; expected a log");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Bytes that are no UTF-8 are replaced: a name in an old encoding must not cost the line. A NUL means binary
/// data.
fn decode_text(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    if bytes.contains(&0) {
        return Err("a NUL byte; expected text".to_owned());
    }
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let end = bytes.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |at| at + 1);
    Ok(String::from_utf8_lossy(&bytes[..end]))
}
