//! Opens a plain or compressed file and reads it line by line, within bounds.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use niffler::send::compression::Format;

use super::error::TraceError;
use super::line_tally::LineTally;

/// Most bytes of a decompressed file: ten times the largest public job log. The bound stops small files that
/// would decompress without end.
const MAX_BYTES: u64 = 4 << 30;

/// Most bytes of a line. The longest line that Slurm writes, a list of thousands of nodes, is far shorter.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Most memory for decompressing xz. The largest preset takes 65 MiB.
const MAX_XZ_MEMORY_BYTES: u64 = 512 << 20;

/// The number of first bytes that identify the compression. A shorter file is plain.
const MAGIC_BYTES: u64 = 5;

/// The bytes that spreadsheets write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An open file, which is decompressed while it is read.
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

    /// Reads from a stream, such as standard input. `name` stands for the file in messages.
    pub(super) fn from_reader(
        name: &Path,
        raw: impl Read + Send + 'static,
    ) -> Result<TraceSource, TraceError> {
        let inner = unpack(raw).map_err(|source| TraceError::Open { path: name.to_owned(), source })?;
        Ok(TraceSource { path: name.to_owned(), reader: BoundedReader { inner, left: MAX_BYTES } })
    }

    /// Reads bytes instead of a file, with another bound on the decompressed size.
    #[cfg(test)]
    pub(super) fn from_bytes(name: &str, bytes: Vec<u8>, most: u64) -> Result<TraceSource, TraceError> {
        let path = PathBuf::from(name);
        let unpacked = unpack(Cursor::new(bytes));
        let inner = unpacked.map_err(|source| TraceError::Open { path: path.clone(), source })?;
        Ok(TraceSource { path, reader: BoundedReader { inner, left: most } })
    }

    /// The file's name without folder, compression and format: `vgg16` for `scaling/vgg16.csv.xz`.
    pub(super) fn file_stem(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let uncompressed = [".gz", ".xz", ".zst", ".bz2"].iter().find_map(|end| name.strip_suffix(end));
        let name = uncompressed.unwrap_or(&name);
        name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
    }
}

/// Recognises the compression by the first bytes, and decompresses.
fn unpack(mut raw: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut head = Vec::new();
    raw.by_ref().take(MAGIC_BYTES).read_to_end(&mut head)?;
    let is_short = (head.len() as u64) < MAGIC_BYTES;
    let whole = Box::new(Cursor::new(head).chain(BufReader::new(raw)));
    if is_short {
        return Ok(whole);
    }
    let (whole, format) = niffler::send::sniff(whole).map_err(unpack_error)?;
    if format == Format::Xz {
        // niffler stops after the first stream of an xz file, but concatenated files have several.
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

/// A reader that fails after a number of bytes.
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

/// The lines of a file, without blank ones.
pub(super) struct LineReader {
    path: PathBuf,
    reader: BufReader<BoundedReader>,
    bytes: Vec<u8>,
    number: usize,
}

/// A line: its number, from 1, and its text without line end, or the reason why it is not text.
pub(super) type NumberedLine<'a> = (usize, Result<Cow<'a, str>, String>);

impl LineReader {
    /// Reads the lines of a file.
    pub(super) fn new(source: TraceSource) -> LineReader {
        let reader = BufReader::with_capacity(1 << 16, source.reader);
        LineReader { path: source.path, reader, bytes: Vec::new(), number: 0 }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of lines that were read, with blank ones.
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

    /// Passes each remaining line to `read`, with its number. An error describes a malformed line.
    pub(super) fn for_each_line(
        mut self,
        mut read: impl FnMut(usize, &str) -> Result<(), String>,
    ) -> Result<LineTally, TraceError> {
        let mut tally = LineTally::new(&self.path);
        while let Some((number, line)) = self.next_line()? {
            tally.count_line(number)?;
            if let Err(what) = line.and_then(|text| read(number, &text)) {
                tally.record_malformed(number, what)?;
            }
        }
        Ok(tally)
    }

    /// Reads one line. Returns `false` at the end of the file.
    fn fill(&mut self) -> Result<bool, TraceError> {
        self.bytes.clear();
        let line = self.number + 1;
        let most = MAX_LINE_BYTES as u64 + 1;
        let count = self.reader.by_ref().take(most).read_until(b'\n', &mut self.bytes);
        let count = count.and_then(|count| if count > MAX_LINE_BYTES { Err(long_line()) } else { Ok(count) });
        let count = count.map_err(|source| TraceError::Read { path: self.path.clone(), line, source })?;
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

/// Decodes a line. Bytes that are not UTF-8 are replaced, so that a name in an old encoding does not cost the
/// line. A NUL means binary data.
fn decode_text(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    if bytes.contains(&0) {
        return Err("a NUL byte; expected text".to_owned());
    }
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let end = bytes.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Ok(String::from_utf8_lossy(&bytes[..end]))
}
