//! Files on a disk: plain, compressed, truncated, too long, missing.

use std::io::Write;
use std::path::PathBuf;

use niffler::Level;
use niffler::compression::Format;

use super::{message, source};
use crate::line_reader::TraceSource;
use crate::{idle, read_idle};

const TEXT: &str = "start_s,end_s,node\n0,10,a\n5,20,b\n";

fn packed(text: &str, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = niffler::get_writer(Box::new(&mut bytes), format, Level::Six).expect("a writer");
    writer.write_all(text.as_bytes()).expect("it fits");
    drop(writer);
    bytes
}

const FORMATS: [(Format, &str); 5] = [
    (Format::No, "csv"),
    (Format::Gzip, "csv.gz"),
    (Format::Xz, "csv.xz"),
    (Format::Zstd, "csv.zst"),
    (Format::Bzip, "csv.bz2"),
];

fn idle_nodes(bytes: Vec<u8>) -> Result<usize, String> {
    idle::parse(source("idle", bytes)).map(|r| r.value.intervals.len()).map_err(|e| message(&e))
}

#[test]
fn compression_is_recognised_by_content() {
    let dir = tempfile::tempdir().expect("a directory");
    for (format, end) in FORMATS {
        for name in [format!("idle.{end}"), format!("{end}.txt")] {
            let path = dir.path().join(name);
            std::fs::write(&path, packed(TEXT, format)).expect("written");
            let reading = read_idle(&path).expect("readable");
            assert_eq!(reading.value.intervals.len(), 2, "{format:?}");
        }
    }
}

/// `cat a.xz b.xz` is one file to all tools. A reader that stops after the first part would silently lose
/// jobs.
#[test]
fn concatenated_files_are_read_to_their_end() {
    for (format, _) in FORMATS {
        let both = [packed(TEXT, format), packed("30,40,c\n", format)].concat();
        assert_eq!(idle_nodes(both), Ok(3), "{format:?}");
    }
}

#[test]
fn truncated_and_damaged_files_are_errors() {
    let long = (0..5000).map(|i| format!("{i},{},n{}\n", i + 7, (i * 7919) % 1000)).collect::<String>();
    for (format, end) in FORMATS.into_iter().filter(|(f, _)| *f != Format::No) {
        let whole = packed(&format!("start_s,end_s,node\n{long}"), format);
        assert_eq!(idle_nodes(whole.clone()), Ok(5000), "{end}");
        let cut = idle_nodes(whole[..whole.len() / 2].to_vec());
        assert!(cut.as_ref().is_err_and(|e| e.contains("cannot be read")), "{end}: {cut:?}");
        let mut damaged = whole;
        let middle = damaged.len() / 2;
        damaged[middle..middle + 40].fill(0x55);
        assert!(idle_nodes(damaged).is_err(), "{end}");
    }
}

/// A small file that decompresses to more than the bound is not read to its end.
#[test]
fn the_decompressed_size_is_bounded() {
    for (format, end) in FORMATS {
        let bytes = packed(&format!("{TEXT}{}", "\n".repeat(300_000)), format);
        for (most, is_short_enough) in [(400_000, true), (200_000, false)] {
            let source = TraceSource::from_bytes("idle", bytes.clone(), most).expect("it opens");
            let parsed = idle::parse(source);
            assert_eq!(parsed.is_ok(), is_short_enough, "{end}");
            if let Err(e) = parsed {
                let message = message(&e);
                assert!(message.ends_with("longer than 4294967296 bytes when decompressed"), "{message}");
            }
        }
    }
}

#[test]
fn a_line_without_end_is_an_error() {
    let text = format!("start_s,end_s,node\n1,2,a\n1,2,{}\n", "x".repeat(1 << 20));
    let error = idle_nodes(text.into_bytes()).expect_err("too long a line");
    let expected = "idle, line 3: cannot be read: the line is longer than 1048576 bytes; expected a log";
    assert_eq!(error, expected);
}

#[test]
fn short_files_are_plain() {
    for text in ["", "a", "a,b", "\n\n\n"] {
        let error = idle_nodes(text.into()).expect_err("no log");
        assert!(error.contains("expected a column start_s"), "{error}");
    }
}

#[test]
fn lines_in_old_encodings_are_kept() {
    let reading = idle::parse(source("idle", b"start_s,end_s,node\n0,1,K\xf6ln\n")).expect("a log");
    assert_eq!(reading.value.intervals[0].node.as_str(), "K\u{fffd}ln");
    assert_eq!(reading.malformed_count, 0);
}

#[test]
fn files_that_cannot_be_opened_are_errors() {
    for path in [PathBuf::from("/no/such/file.csv"), std::env::temp_dir()] {
        let e = read_idle(&path).expect_err("no file");
        assert!(e.to_string().starts_with("cannot open "), "{e}");
    }
}
