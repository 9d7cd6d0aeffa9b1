//! Logs of idle nodes: CSV with the columns `start_s`, `end_s` and `node`.

use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::node_name_table::NodeNameTable;
use super::parse_field::{parse_secs, wrong_value};
use super::table::{Table, TableDialect};
use infill_model::{IdleInterval, IdleLog, ParsedFile};

/// Reads the idle times of nodes: CSV with a header, and the columns `start_s`, `end_s` (in seconds, which
/// may have decimals) and `node` (a number or a name) in any order. Other columns are ignored.
///
/// Starts are rounded up and ends down to whole seconds, so that no node counts as idle when it was not.
/// Intervals of less than a second are then left out. Overlapping intervals of one node are merged.
///
/// # Errors
/// If the file cannot be read, lacks a column, has too many malformed lines, or has no interval.
pub fn read_idle(path: &Path) -> Result<ParsedFile<IdleLog>, TraceError> {
    parse(TraceSource::open(path)?)
}

/// The number of a node, and the start and end of an interval.
type NumberedInterval = (u32, i64, i64);

pub(super) fn parse(source: TraceSource) -> Result<ParsedFile<IdleLog>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let start = table.require_column("start_s")?;
    let end = table.require_column("end_s")?;
    let node = table.require_column("node")?;
    let mut names = NodeNameTable::default();
    let mut intervals: Vec<NumberedInterval> = Vec::new();
    let tally = table.for_each_row(|row| {
        let from = parse_secs("start_s", row.get(start))?;
        let until = parse_secs("end_s", row.get(end))?;
        if until <= from {
            return Err(wrong_value("end_s", row.get(end), &format!("more than start_s, which is {from}")));
        }
        let name = row.get(node);
        if name.is_empty() {
            return Err(wrong_value("node", name, "a node"));
        }
        // The bound on seconds keeps both within i64.
        let from = from.ceil() as i64;
        let until = until.floor() as i64;
        if from < until {
            intervals.push((names.intern_name(name), from, until));
        }
        Ok(())
    })?;
    let log = build_log(intervals, names);
    let has_intervals = !log.intervals.is_empty();
    tally.finish(log, has_intervals, "idle interval")
}

fn build_log(intervals: Vec<NumberedInterval>, names: NodeNameTable) -> IdleLog {
    let (names, ranks) = names.into_ranked();
    let mut merged = merge_intervals(intervals);
    merged.sort_unstable_by_key(|(node, start, end)| (*start, *end, ranks[*node as usize]));
    let last_end = merged.iter().map(|(_, _, end)| *end).max().unwrap_or(0);
    let intervals: Vec<IdleInterval> = merged
        .into_iter()
        .map(|(node, start, end)| {
            let rank = ranks[node as usize];
            IdleInterval { start, end, node: names[rank as usize].clone() }
        })
        .collect();
    let first_start = intervals.first().map_or(0, |interval| interval.start);
    IdleLog { start: first_start, end: last_end, intervals }
}

/// Merges overlapping intervals of a node. Those that only touch stay apart, because the node was taken in
/// between.
fn merge_intervals(mut intervals: Vec<NumberedInterval>) -> Vec<NumberedInterval> {
    intervals.sort_unstable();
    let mut merged: Vec<NumberedInterval> = Vec::with_capacity(intervals.len());
    for (node, start, end) in intervals {
        match merged.last_mut() {
            Some((last_node, _, last_end)) if *last_node == node && start < *last_end => {
                *last_end = end.max(*last_end);
            }
            _ => merged.push((node, start, end)),
        }
    }
    merged
}
