//! A file of measured throughputs: CSV with the columns `nodes` and `throughput`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::model::{CurvePoint, MAX_NODES_A_JOB};

/// Largest file that is read: a line takes some 20 bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Most measured sizes: weighing what a size would teach takes time by the cube of their number.
pub const MAX_SIZES: usize = 256;

const NODES: &str = "nodes";
const THROUGHPUT: &str = "throughput";

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The measured sizes, ascending, at least one.
    pub points: Vec<CurvePoint>,
    /// Rows whose size was not measured.
    pub unmeasured: usize,
}

/// Why a file is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It cannot be opened or read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// What was found and what was expected.
        what: String,
    },
    /// It is not what it should be as a whole.
    #[error("{path}: {what}")]
    Whole {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        what: String,
    },
}

/// Reads the sizes up to `largest` of a file.
pub fn read(path: &Path, largest: u32) -> Result<Table, TableError> {
    let unreadable = |source| TableError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let what = format!("longer than {MAX_BYTES} bytes: expected a table of throughputs");
        return Err(TableError::Whole { path: path.to_owned(), what });
    }
    parse(&bytes, largest).map_err(|(line, what)| match line {
        Some(line) => TableError::Line { path: path.to_owned(), line, what },
        None => TableError::Whole { path: path.to_owned(), what },
    })
}

/// What is wrong, and in which line.
type Wrong = (Option<u64>, String);

fn parse(bytes: &[u8], largest: u32) -> Result<Table, Wrong> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).flexible(true).from_reader(bytes);
    let wrong = |e: csv::Error| {
        (
            e.position().map(|p| line_at(bytes, p.byte())),
            "expected comma-separated values in UTF-8".to_owned(),
        )
    };
    let columns = Columns::find(reader.headers().map_err(wrong)?)?;
    let mut table = Table { points: Vec::new(), unmeasured: 0 };
    for record in reader.records() {
        let record = record.map_err(wrong)?;
        let line = record.position().map(|p| line_at(bytes, p.byte()));
        let row = columns.row(&record).map_err(|what| (line, what))?;
        match row {
            (nodes, _) if nodes > largest => {}
            (_, None) => table.unmeasured += 1,
            (nodes, Some(rate)) => {
                add(&mut table.points, CurvePoint { nodes, rate }).map_err(|what| (line, what))?;
            }
        }
    }
    if table.points.is_empty() {
        let what =
            format!("no measured size up to {largest} nodes: expected rows with a positive {THROUGHPUT}");
        return Err((None, what));
    }
    table.points.sort_by_key(|p| p.nodes);
    Ok(table)
}

/// The line of the record that begins here, after blank lines: those the reader does not count as the
/// record's.
fn line_at(bytes: &[u8], byte: u64) -> u64 {
    let from = usize::try_from(byte).unwrap_or(usize::MAX).min(bytes.len());
    let blank = bytes[from..].iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    1 + bytes[..from + blank].iter().filter(|b| **b == b'\n').count() as u64
}

fn add(points: &mut Vec<CurvePoint>, point: CurvePoint) -> Result<(), String> {
    if points.iter().any(|p| p.nodes == point.nodes) {
        return Err(format!("{} nodes a second time: expected each size once", point.nodes));
    }
    if points.len() == MAX_SIZES {
        return Err(format!("more than {MAX_SIZES} measured sizes: leave some out, or give --max-nodes"));
    }
    points.push(point);
    Ok(())
}

/// Where the two columns are.
struct Columns {
    nodes: usize,
    throughput: usize,
}

impl Columns {
    fn find(header: &StringRecord) -> Result<Self, Wrong> {
        let find = |name: &str| {
            let mut found = header.iter().enumerate().filter(|(_, h)| h.eq_ignore_ascii_case(name));
            match (found.next(), found.next()) {
                (Some((at, _)), None) => Ok(at),
                (None, _) => Err(format!("no column {name:?}: expected a header with {NODES},{THROUGHPUT}")),
                (Some(_), Some(_)) => Err(format!("column {name:?} is there twice")),
            }
        };
        let all = || Ok::<_, String>(Columns { nodes: find(NODES)?, throughput: find(THROUGHPUT)? });
        all().map_err(|what| (Some(1), what))
    }

    /// A size and its rate, if it was measured.
    fn row(&self, record: &StringRecord) -> Result<(u32, Option<f64>), String> {
        let field = |at: usize| record.get(at).unwrap_or_default();
        let (nodes, throughput) = (field(self.nodes), field(self.throughput));
        let size = nodes.parse().ok().filter(|n| (1..=MAX_NODES_A_JOB).contains(n)).ok_or_else(|| {
            format!("{NODES} is {nodes:?}: expected a whole number from 1 to {MAX_NODES_A_JOB}")
        })?;
        if throughput.is_empty() {
            return Ok((size, None));
        }
        let rate: Option<f64> = throughput.parse().ok().filter(|r: &f64| r.is_finite() && *r >= 0.0);
        let rate = rate.ok_or_else(|| {
            format!(
                "{THROUGHPUT} is {throughput:?}: expected samples a second, or 0 or nothing if not measured"
            )
        })?;
        // A subnormal rate has no usable reciprocal: nobody has measured that.
        Ok((size, Some(rate).filter(|r| r.is_normal())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> (Vec<(u32, f64)>, usize) {
        let table = parse(text.as_bytes(), 1000).unwrap();
        (table.points.iter().map(|p| (p.nodes, p.rate)).collect(), table.unmeasured)
    }

    #[test]
    fn columns_are_found_by_name_and_what_was_not_measured_is_counted() {
        let text =
            "\u{feff}model, Throughput ,NODES\r\nvgg, 20 ,2\r\nvgg,10.5,1\r\nvgg,0,4\r\nvgg,,8\r\n\r\n";
        assert_eq!(sizes(text), (vec![(1, 10.5), (2, 20.0)], 2));
        assert_eq!(sizes("nodes,throughput\n4,1e3\n8\n"), (vec![(4, 1000.0)], 1));
    }

    #[test]
    fn larger_sizes_are_left_out() {
        let table = parse(b"nodes,throughput\n1,1\n2,2\n9,0\n", 1).unwrap();
        assert_eq!((table.points.len(), table.unmeasured), (1, 0));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |text: &str, line: Option<u64>, part: &str| {
            let (at, what) = parse(text.as_bytes(), 100).unwrap_err();
            assert!(at == line && what.contains(part), "{text:?}: {at:?} {what}");
        };
        check("", Some(1), "no column \"nodes\"");
        check("nodes,rate\n1,1\n", Some(1), "no column \"throughput\"");
        check("nodes,nodes,throughput\n1,1,1\n", Some(1), "twice");
        check("nodes,throughput\n", None, "no measured size");
        check("nodes,throughput\n1,0\n2,\n", None, "no measured size");
        check("nodes,throughput\n1,1\n\n1,2\n", Some(4), "second time");
        check("nodes,throughput\n1,1\n2,-3\n", Some(3), "\"-3\"");
        check("nodes,throughput\n1,NaN\n", Some(2), "\"NaN\"");
        check("nodes,throughput\n1,inf\n", Some(2), "\"inf\"");
        check("nodes,throughput\n0,1\n", Some(2), "\"0\"");
        check("nodes,throughput\n1.5,1\n", Some(2), "\"1.5\"");
        check("nodes,throughput\n,1\n", Some(2), "\"\"");
        let long: String = (1..=300).map(|n| format!("{n},1\n")).collect();
        let (at, what) = parse(format!("nodes,throughput\n{long}").as_bytes(), 300).unwrap_err();
        assert!(at == Some(258) && what.contains("--max-nodes"), "{at:?} {what}");
        assert_eq!(parse(b"nodes,throughput\n\xff,1\n", 9).unwrap_err().0, Some(2));
    }

    #[test]
    fn an_absent_file_is_named() {
        let error = read(Path::new("/nonexistent/curve.csv"), 9).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nonexistent/curve.csv");
    }
}
