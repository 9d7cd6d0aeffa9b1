//! The throughput of one job at each size: CSV with the columns `nodes` and `throughput`.

use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{CurvePoint, MAX_NODES_A_JOB};

/// Most measured sizes. The time to estimate what a size would teach grows with the cube of their number.
pub(crate) const MAX_SIZES: usize = 256;

const NODES: &str = "nodes";
const THROUGHPUT: &str = "throughput";

/// The throughputs in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredThroughputs {
    /// The measured sizes, ascending, at least one.
    pub points: Vec<CurvePoint>,
    /// The number of rows without a measurement.
    pub unmeasured: usize,
}

/// Reads the throughputs of sizes up to `largest`, in samples a second. With 0 or an empty field, the size
/// was not measured. Other columns are ignored.
///
/// # Errors
/// If the file cannot be read, lacks a column, or has none of these sizes. Also if any line is malformed or
/// repeats a size: the table of one job is short, so its user can fix it.
pub fn read_throughputs(path: &Path, largest: u32) -> Result<MeasuredThroughputs, TraceError> {
    parse(TraceSource::open(path)?, largest)
}

fn parse(source: TraceSource, largest: u32) -> Result<MeasuredThroughputs, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?.ragged();
    let columns = ThroughputColumns {
        nodes: require_unique_column(&table, NODES)?,
        throughput: require_unique_column(&table, THROUGHPUT)?,
    };
    let mut throughputs = MeasuredThroughputs { points: Vec::new(), unmeasured: 0 };
    let tally = table.for_each_row(|row| match columns.read_rate(row)? {
        (nodes, _) if nodes > largest => Ok(()),
        (nodes, Some(rate)) => add_point(&mut throughputs.points, CurvePoint { nodes, rate }),
        (_, None) => {
            throughputs.unmeasured += 1;
            Ok(())
        }
    })?;
    throughputs.points.sort_by_key(|point| point.nodes);
    let has_points = !throughputs.points.is_empty();
    Ok(tally.none_malformed()?.finish(throughputs, has_points, "size with a positive throughput")?.value)
}

/// A column that the table must have exactly once.
fn require_unique_column(table: &Table, name: &str) -> Result<usize, TraceError> {
    let column = table.require_column(name)?;
    let columns = table.columns().iter().filter(|column| column.eq_ignore_ascii_case(name));
    if columns.count() == 1 { Ok(column) } else { Err(table.missing_columns(format!("one column {name}"))) }
}

fn add_point(points: &mut Vec<CurvePoint>, point: CurvePoint) -> Result<(), String> {
    if points.iter().any(|other| other.nodes == point.nodes) {
        return Err(format!("{} nodes a second time; expected each size once", point.nodes));
    }
    if points.len() == MAX_SIZES {
        return Err(format!("more than {MAX_SIZES} measured sizes; leave some out, or give --max-nodes"));
    }
    points.push(point);
    Ok(())
}

/// The columns of the table.
struct ThroughputColumns {
    nodes: usize,
    throughput: usize,
}

impl ThroughputColumns {
    /// Reads a size and its rate, if it was measured.
    fn read_rate(&self, row: &TableRow) -> Result<(u32, Option<f64>), String> {
        let nodes = parse_count(NODES, row.get(self.nodes), MAX_NODES_A_JOB)?;
        let throughput = row.get(self.throughput);
        if throughput.is_empty() {
            return Ok((nodes, None));
        }
        let rate = throughput.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
        let expected = "samples a second, or 0 or nothing if not measured";
        let rate = rate.ok_or_else(|| wrong_value(THROUGHPUT, throughput, expected))?;
        // A subnormal rate has no usable reciprocal, so it cannot be a measurement.
        Ok((nodes, Some(rate).filter(|rate| rate.is_normal())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], largest: u32) -> Result<MeasuredThroughputs, String> {
        let source = TraceSource::from_bytes("a.csv", text.to_vec(), 1 << 20).unwrap();
        parse(source, largest).map_err(|e| e.to_string())
    }

    fn sizes(text: &str) -> (Vec<(u32, f64)>, usize) {
        let table = read(text.as_bytes(), 1000).unwrap();
        (table.points.iter().map(|point| (point.nodes, point.rate)).collect(), table.unmeasured)
    }

    #[test]
    fn columns_are_found_by_name_and_unmeasured_sizes_are_counted() {
        let text =
            "\u{feff}model, Throughput ,NODES\r\nvgg, 20 ,2\r\nvgg,10.5,1\r\nvgg,0,4\r\nvgg,,8\r\n\r\n";
        assert_eq!(sizes(text), (vec![(1, 10.5), (2, 20.0)], 2));
        assert_eq!(sizes("nodes,throughput\n4,1e3\n8\n"), (vec![(4, 1000.0)], 1));
    }

    #[test]
    fn larger_sizes_are_left_out() {
        let table = read(b"nodes,throughput\n1,1\n2,2\n9,0\n", 1).unwrap();
        assert_eq!((table.points.len(), table.unmeasured), (1, 0));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, start, part) in [
            ("", "a.csv, line 1: ", "a column nodes"),
            ("nodes,rate\n1,1\n", "a.csv, line 1: ", "a column throughput"),
            ("nodes,nodes,throughput\n1,1,1\n", "a.csv, line 1: ", "one column nodes"),
            ("nodes,throughput\n", "a.csv: ", "at least one size with a positive throughput"),
            ("nodes,throughput\n1,0\n2,\n", "a.csv: ", "at least one size with a positive throughput"),
            ("nodes,throughput\n1,1\n\n1,2\n", "a.csv, line 4: ", "second time"),
            ("nodes,throughput\n1,1\n2,-3\n", "a.csv, line 3: ", "\"-3\""),
            ("nodes,throughput\n1,NaN\n", "a.csv, line 2: ", "\"NaN\""),
            ("nodes,throughput\n1,inf\n", "a.csv, line 2: ", "\"inf\""),
            ("nodes,throughput\n0,1\n", "a.csv, line 2: ", "\"0\""),
            ("nodes,throughput\n1.5,1\n", "a.csv, line 2: ", "\"1.5\""),
            ("nodes,throughput\n,1\n", "a.csv, line 2: ", "\"\""),
        ] {
            let error = read(text.as_bytes(), 100).unwrap_err();
            assert!(error.starts_with(start) && error.contains(part), "{text:?}: {error}");
        }
        let long: String = (1..=300).map(|n| format!("{n},1\n")).collect();
        let error = read(format!("nodes,throughput\n{long}").as_bytes(), 300).unwrap_err();
        assert!(error.starts_with("a.csv, line 258: ") && error.contains("--max-nodes"), "{error}");
        assert!(read(b"nodes,throughput\n\xff,1\n", 9).unwrap_err().starts_with("a.csv, line 2: "));
    }
}
