//! The duration of collective operations on the nodes of a job: CSV, as `infill collectives measure` writes
//! it.

use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, parse_positive, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{CollectiveOp, CollectiveRow, MAX_COLLECTIVE_RANKS, MAX_COLLECTIVE_ROWS, MAX_NODES_A_JOB};

/// Reads a table of collectives with the columns `op`, `bytes`, `world`, `nodes` and `seconds_median`.
///
/// # Errors
/// If the file cannot be read, lacks a column, has no row, or a row is malformed.
pub fn read_collectives(path: &Path) -> Result<Vec<CollectiveRow>, TraceError> {
    parse(TraceSource::open(path)?)
}

fn parse(source: TraceSource) -> Result<Vec<CollectiveRow>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let columns = CollectiveColumns {
        op: table.require_column("op")?,
        bytes: table.require_column("bytes")?,
        world: table.require_column("world")?,
        nodes: table.require_column("nodes")?,
        secs: table.require_column("seconds_median")?,
    };
    let mut rows = Vec::new();
    let tally = table.for_each_row(|row| {
        if rows.len() == MAX_COLLECTIVE_ROWS {
            return Err(format!("more than {MAX_COLLECTIVE_ROWS} rows"));
        }
        rows.push(columns.read_row(row)?);
        Ok(())
    })?;
    let has_rows = !rows.is_empty();
    Ok(tally.none_malformed()?.finish(rows, has_rows, "row")?.value)
}

/// The columns of the table.
struct CollectiveColumns {
    op: usize,
    bytes: usize,
    world: usize,
    nodes: usize,
    secs: usize,
}

impl CollectiveColumns {
    fn read_row(&self, row: &TableRow) -> Result<CollectiveRow, String> {
        let word = row.get(self.op);
        let op = word.parse().map_err(|_| wrong_value("op", word, CollectiveOp::WORDS))?;
        let text = row.get(self.bytes);
        let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
        let ranks = parse_count("world", row.get(self.world), MAX_COLLECTIVE_RANKS)?;
        let nodes = parse_count("nodes", row.get(self.nodes), MAX_NODES_A_JOB)?;
        if ranks < 2 || nodes > ranks {
            return Err(format!(
                "{ranks} ranks on {nodes} nodes; expected at least two ranks, and at least one on each node"
            ));
        }
        Ok(CollectiveRow {
            op,
            bytes: bytes.ok_or_else(|| wrong_value("bytes", text, "a positive whole number"))?,
            ranks,
            nodes,
            secs: parse_positive("seconds_median", row.get(self.secs))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &str) -> Result<Vec<CollectiveRow>, String> {
        let text = format!("op,bytes,world,nodes,seconds_median\n{rows}");
        parse(TraceSource::from_bytes("table.csv", text.into_bytes(), 1 << 20).unwrap())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn measurements_are_read() {
        let rows = read("all_reduce,1024,4,2,0.000125\npoint_to_point,64,2,1,0.00001\n").unwrap();
        let first =
            CollectiveRow { op: CollectiveOp::AllReduce, bytes: 1024, ranks: 4, nodes: 2, secs: 0.000_125 };
        assert_eq!((rows[0], rows.len()), (first, 2));
    }

    #[test]
    fn malformed_rows_are_refused_with_their_line() {
        for (row, problem) in [
            ("reduce,1024,4,2,0.1", "op is \"reduce\"; expected all_reduce, all_gather"),
            ("all_reduce,-1,4,2,0.1", "bytes is \"-1\""),
            ("all_reduce,1024,1,1,0.1", "1 ranks on 1 nodes"),
            ("all_reduce,1024,2,4,0.1", "2 ranks on 4 nodes"),
            ("all_reduce,1024,2,1,nan", "seconds_median is \"nan\""),
            ("all_reduce,1024,2,1,0", "seconds_median is \"0\""),
        ] {
            let error = read(&format!("{row}\n")).unwrap_err();
            assert!(error.contains(problem) && error.contains("line 2"), "{row}: {error}");
        }
        assert!(read("").is_err(), "no row");
        let incomplete =
            TraceSource::from_bytes("t.csv", b"op,bytes\nall_reduce,1\n".to_vec(), 1 << 20).unwrap();
        assert!(parse(incomplete).unwrap_err().to_string().contains("world"));
    }
}
