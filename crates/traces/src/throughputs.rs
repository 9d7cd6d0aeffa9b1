//! One job's throughput at each size: CSV with the columns `nodes` and `throughput`.

use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{CurvePoint, MAX_NODES_A_JOB};

/// Most measured sizes: weighing what a size would teach takes time by the cube of their number.
pub(crate) const MAX_SIZES: usize = 256;

const NODES: &str = "nodes";
const THROUGHPUT: &str = "throughput";

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredThroughputs {
    /// The measured sizes, ascending, at least one.
    pub points: Vec<CurvePoint>,
    /// Rows whose size was not measured.
    pub unmeasured: usize,
}

/// Reads the throughputs of the sizes up to `largest`, samples a second; where it is 0 or nothing, the size
/// was not measured. Other columns are passed over.
///
/// # Errors
/// When the file cannot be read, lacks a column, or has none of these sizes; and, since one job's table is
/// short and soon mended, when any line is malformed or names a size a second time.
pub fn read_throughputs(path: &Path, largest: u32) -> Result<MeasuredThroughputs, TraceError> {
    parse(TraceSource::open(path)?, largest)
}

fn parse(source: TraceSource, largest: u32) -> Result<MeasuredThroughputs, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?.ragged();
    let columns = ThroughputColumns {
        nodes: require_unique_column(&table, NODES)?,
        throughput: require_unique_column(&table, THROUGHPUT)?,
    };
    let mut found = MeasuredThroughputs { points: Vec::new(), unmeasured: 0 };
    let tally = table.for_each_row(|row| match columns.read_rate(row)? {
        (nodes, _) if nodes > largest => Ok(()),
        (nodes, Some(rate)) => add_point(&mut found.points, CurvePoint { nodes, rate }),
        (_, None) => {
            found.unmeasured += 1;
            Ok(())
        }
    })?;
    found.points.sort_by_key(|p| p.nodes);
    let some = !found.points.is_empty();
    Ok(tally.none_malformed()?.finish(found, some, "size with a positive throughput")?.value)
}

/// A column that must be there, and only once.
fn require_unique_column(table: &Table, name: &str) -> Result<usize, TraceError> {
    let column = table.require_column(name)?;
    match table.columns().iter().filter(|c| c.eq_ignore_ascii_case(name)).count() {
        1 => Ok(column),
        _ => Err(table.missing_columns(format!("one column {name}"))),
    }
}

fn add_point(points: &mut Vec<CurvePoint>, point: CurvePoint) -> Result<(), String> {
    if points.iter().any(|p| p.nodes == point.nodes) {
        return Err(format!("{} nodes a second time; expected each size once", point.nodes));
    }
    if points.len() == MAX_SIZES {
        return Err(format!("more than {MAX_SIZES} measured sizes; leave some out, or give --max-nodes"));
    }
    points.push(point);
    Ok(())
}

/// Where the two columns are.
struct ThroughputColumns {
    nodes: usize,
    throughput: usize,
}

impl ThroughputColumns {
    /// A size and its rate, if it was measured.
    fn read_rate(&self, row: &TableRow) -> Result<(u32, Option<f64>), String> {
        let nodes = parse_count(NODES, row.get(self.nodes), MAX_NODES_A_JOB)?;
        let throughput = row.get(self.throughput);
        if throughput.is_empty() {
            return Ok((nodes, None));
        }
        let rate = throughput.parse().ok().filter(|r: &f64| r.is_finite() && *r >= 0.0);
        let expected = "samples a second, or 0 or nothing if not measured";
        let rate = rate.ok_or_else(|| wrong_value(THROUGHPUT, throughput, expected))?;
        // A subnormal rate has no usable reciprocal: nobody has measured that.
        Ok((nodes, Some(rate).filter(|r| r.is_normal())))
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
        let table = read(b"nodes,throughput\n1,1\n2,2\n9,0\n", 1).unwrap();
        assert_eq!((table.points.len(), table.unmeasured), (1, 0));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |text: &str, begins: &str, part: &str| {
            let what = read(text.as_bytes(), 100).unwrap_err();
            assert!(what.starts_with(begins) && what.contains(part), "{text:?}: {what}");
        };
        check("", "a.csv, line 1: ", "a column nodes");
        check("nodes,rate\n1,1\n", "a.csv, line 1: ", "a column throughput");
        check("nodes,nodes,throughput\n1,1,1\n", "a.csv, line 1: ", "one column nodes");
        check("nodes,throughput\n", "a.csv: ", "at least one size with a positive throughput");
        check("nodes,throughput\n1,0\n2,\n", "a.csv: ", "at least one size with a positive throughput");
        check("nodes,throughput\n1,1\n\n1,2\n", "a.csv, line 4: ", "second time");
        check("nodes,throughput\n1,1\n2,-3\n", "a.csv, line 3: ", "\"-3\"");
        check("nodes,throughput\n1,NaN\n", "a.csv, line 2: ", "\"NaN\"");
        check("nodes,throughput\n1,inf\n", "a.csv, line 2: ", "\"inf\"");
        check("nodes,throughput\n0,1\n", "a.csv, line 2: ", "\"0\"");
        check("nodes,throughput\n1.5,1\n", "a.csv, line 2: ", "\"1.5\"");
        check("nodes,throughput\n,1\n", "a.csv, line 2: ", "\"\"");
        let long: String = (1..=300).map(|n| format!("{n},1\n")).collect();
        let what = read(format!("nodes,throughput\n{long}").as_bytes(), 300).unwrap_err();
        assert!(what.starts_with("a.csv, line 258: ") && what.contains("--max-nodes"), "{what}");
        assert!(read(b"nodes,throughput\n\xff,1\n", 9).unwrap_err().starts_with("a.csv, line 2: "));
    }
}
