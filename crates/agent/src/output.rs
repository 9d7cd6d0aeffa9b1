//! Forwards what the command prints, line by line, with the rank before each line.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use regex::bytes::Regex;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use super::progress::{ProgressMessage, ProgressTally};

/// A line longer than this is forwarded in pieces, so that output without line ends does not fill our memory.
pub(crate) const MAX_LINE_BYTES: usize = 64 * 1024;

/// The start of a line in which an agent on another node reports progress. No program prints it.
pub(crate) const REMOTE_PROGRESS_PREFIX: &[u8] = b"\x1einfill-progress ";

/// Bytes that one read takes from the command.
const READ_BYTES: usize = 16 * 1024;

type SharedWriter = Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>;

/// Writes the output of all local ranks to two streams. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct OutputForwarder {
    out: SharedWriter,
    err: SharedWriter,
    prefix: bool,
}

/// What to look for in a command's output.
#[derive(Clone, Default)]
pub(crate) struct OutputReader {
    /// Expression that finds progress in the output, if the user gave one.
    pub regex: Option<Regex>,
    /// Collects the progress that was found; `None` to look for nothing.
    pub tally: Option<ProgressTally>,
    /// Whether the output comes through an agent on another node. Its lines then carry their ranks already,
    /// and lines that begin with [`REMOTE_PROGRESS_PREFIX`] are progress messages.
    pub from_afar: bool,
}

/// One of the command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl OutputForwarder {
    /// Forwards to our own standard output and error. `prefix`: whether each line gets its rank.
    pub(crate) fn to_own_streams(prefix: bool) -> io::Result<OutputForwarder> {
        let out = duplicate_as_file(io::stdout().as_fd())?;
        let err = duplicate_as_file(io::stderr().as_fd())?;
        Ok(OutputForwarder::to_writers(out, err, prefix))
    }

    /// Forwards everything to our own standard error.
    pub(crate) fn to_own_stderr(prefix: bool) -> io::Result<OutputForwarder> {
        let out = duplicate_as_file(io::stderr().as_fd())?;
        let err = duplicate_as_file(io::stderr().as_fd())?;
        Ok(OutputForwarder::to_writers(out, err, prefix))
    }

    /// Forwards to any two writers.
    pub fn to_writers(
        out: impl AsyncWrite + Send + Unpin + 'static,
        err: impl AsyncWrite + Send + Unpin + 'static,
        prefix: bool,
    ) -> OutputForwarder {
        OutputForwarder {
            out: Arc::new(Mutex::new(Box::new(out))),
            err: Arc::new(Mutex::new(Box::new(err))),
            prefix,
        }
    }

    /// Forwards `from` until its end, and looks for progress in its lines.
    pub async fn forward_lines(
        self,
        stream: OutputStream,
        rank: u32,
        mut from: impl AsyncRead + Unpin,
        reader: OutputReader,
    ) {
        let shows_rank = self.prefix && !reader.from_afar;
        let prefix = if shows_rank { format!("[{rank}] ").into_bytes() } else { Vec::new() };
        let mut lines = LineSplitter::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // When a command has died, its broken pipe is the end of its output.
            let count = from.read(&mut buffer).await.unwrap_or(0);
            let mut ready = Vec::new();
            if count == 0 {
                lines.finish(&mut |line: &[u8]| reader.take_line(line, &prefix, &mut ready));
            } else {
                let bytes = &buffer[..count];
                lines.feed_bytes(bytes, &mut |line: &[u8]| reader.take_line(line, &prefix, &mut ready));
            }
            if !ready.is_empty() {
                self.write_to(stream, &ready).await;
            }
            if count == 0 {
                return;
            }
        }
    }

    /// Reports progress to the agent that reads our output.
    pub(crate) async fn send_progress(&self, message: &ProgressMessage) {
        let mut line = REMOTE_PROGRESS_PREFIX.to_vec();
        line.extend_from_slice(message.to_string().as_bytes());
        line.push(b'\n');
        self.write_to(OutputStream::Out, &line).await;
    }

    /// Reports to the agent that reads our output that the command ran out of memory here.
    pub(crate) async fn report_out_of_memory(&self) {
        self.write_to(OutputStream::Err, b"infill: the command ran out of memory on this node\n").await;
    }

    async fn write_to(&self, stream: OutputStream, bytes: &[u8]) {
        let sink = if stream == OutputStream::Out { &self.out } else { &self.err };
        let mut sink = sink.lock().await;
        // When no one reads our output any more, the training still goes on.
        if sink.write_all(bytes).await.is_ok() {
            sink.flush().await.ok();
        }
    }
}

impl OutputReader {
    /// Takes in one line with its end. A progress message goes to the tally; any other line goes to `ready`
    /// behind `prefix`, and is searched for progress.
    fn take_line(&self, line: &[u8], prefix: &[u8], ready: &mut Vec<u8>) {
        let message = line.strip_prefix(REMOTE_PROGRESS_PREFIX).filter(|_| self.from_afar);
        if let Some(message) = message
            && let Some(tally) = &self.tally
        {
            tally.add_datagram(message);
            return;
        }
        ready.extend_from_slice(prefix);
        ready.extend_from_slice(line);
        if let Some(tally) = &self.tally {
            tally.add_line(self.regex.as_ref(), line);
        }
    }
}

/// A file of its own for a descriptor, which the runtime can write to.
fn duplicate_as_file(descriptor: BorrowedFd<'_>) -> io::Result<File> {
    let copy = descriptor.try_clone_to_owned()?;
    Ok(File::from_std(std::fs::File::from(copy)))
}

/// Cuts bytes into lines. A carriage return ends a line too, so that progress bars show while they move.
#[derive(Default)]
struct LineSplitter {
    part: Vec<u8>,
    after_return: bool,
}

impl LineSplitter {
    /// Hands each line that is now complete, with its end, to `take`.
    fn feed_bytes(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) {
        for &byte in bytes {
            // "\r\n" is one line end.
            if std::mem::take(&mut self.after_return) && byte != b'\n' {
                self.emit_line(take);
            }
            self.part.push(byte);
            match byte {
                b'\n' => self.emit_line(take),
                b'\r' => self.after_return = true,
                _ if self.part.len() >= MAX_LINE_BYTES => {
                    self.part.push(b'\n');
                    self.emit_line(take);
                }
                _ => {}
            }
        }
        // The line is not held back until the next byte comes, because a bar may stand still for long. In
        // return, a "\r\n" that falls between two reads counts as two lines.
        if std::mem::take(&mut self.after_return) {
            self.emit_line(take);
        }
    }

    /// Hands the rest to `take`, with a line end.
    fn finish(&mut self, take: &mut impl FnMut(&[u8])) {
        if !self.part.is_empty() {
            self.part.push(b'\n');
            self.emit_line(take);
        }
    }

    fn emit_line(&mut self, take: &mut impl FnMut(&[u8])) {
        take(&self.part);
        self.part.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = LineSplitter::default();
        let mut got = Vec::new();
        for chunk in chunks {
            lines.feed_bytes(chunk, &mut |l: &[u8]| got.push(l.to_vec()));
        }
        lines.finish(&mut |l: &[u8]| got.push(l.to_vec()));
        got
    }

    #[test]
    fn lines_are_cut_at_either_line_end_and_bytes_pass_unchanged() {
        assert_eq!(lines(&[b"a\nb", b"c\n"]), [b"a\n".to_vec(), b"bc\n".to_vec()]);
        assert_eq!(
            lines(&[b"1%\r2%\r", b"3%\r\nend"]),
            [b"1%\r".to_vec(), b"2%\r".to_vec(), b"3%\r\n".to_vec(), b"end\n".to_vec()]
        );
        assert_eq!(lines(&[b"\xff\x00\n"]), [b"\xff\x00\n".to_vec()]);
    }

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let got = lines(&[&vec![b'x'; 2 * MAX_LINE_BYTES + 1]]);
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 1, 2]);
    }

    #[tokio::test]
    async fn progress_on_other_nodes_comes_through_their_output() {
        let (mut sent, from) = tokio::io::duplex(1024);
        let sender = OutputForwarder::to_writers(from, tokio::io::sink(), true);
        let tally = ProgressTally::new();
        let message =
            ProgressMessage { samples: 24.5, step: Some(7), loss: Some(0.5), ..ProgressMessage::default() };
        sender.send_progress(&message).await;
        drop(sender);
        let mut remote_output = Vec::new();
        sent.read_to_end(&mut remote_output).await.unwrap();
        remote_output.extend_from_slice(b"[2] a line\n");
        let (mut ours, theirs) = tokio::io::duplex(1024);
        let reader = OutputReader { tally: Some(tally.clone()), from_afar: true, ..OutputReader::default() };
        OutputForwarder::to_writers(theirs, tokio::io::sink(), true)
            .forward_lines(OutputStream::Out, 0, remote_output.as_slice(), reader)
            .await;
        let mut shown = String::new();
        ours.read_to_string(&mut shown).await.unwrap();
        assert_eq!(shown, "[2] a line\n");
        assert_eq!(tally.take().map(|(received, _)| received), Some(message));
    }

    #[tokio::test]
    async fn each_line_gets_its_rank() {
        let (mut ours, theirs) = tokio::io::duplex(1024);
        let output = OutputForwarder::to_writers(theirs, tokio::io::sink(), true);
        output.forward_lines(OutputStream::Out, 3, &b"one\ntwo"[..], OutputReader::default()).await;
        let mut text = String::new();
        ours.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "[3] one\n[3] two\n");
    }
}
