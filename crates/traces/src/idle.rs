//! Logs of idle nodes: CSV with the columns `start_s`, `end_s` and `node`.

use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::node_name_table::NodeNameTable;
use super::parse_field::{parse_secs, wrong_value};
use super::table::{Table, TableDialect};
use infill_model::{IdleInterval, IdleLog, NodeName, ParsedFile};

/// Reads when nodes were idle: CSV with a header; columns `start_s`, `end_s` (s, perhaps with decimals) and
/// `node` (a number or a name) in any order, others ignored.
///
/// Starts are rounded up and ends down to whole seconds, so that no node is taken for idle when it was not;
/// what is left without a second then is left out. Intervals of one node that overlap are merged.
///
/// # Errors
/// When the file cannot be read, lacks a column, has too many malformed lines, or no interval.
pub fn read_idle(path: &Path) -> Result<ParsedFile<IdleLog>, TraceError> {
    parse(TraceSource::open(path)?)
}

/// A node by number, from when, till when.
type NumberedInterval = (u32, i64, i64);

pub(super) fn parse(source: TraceSource) -> Result<ParsedFile<IdleLog>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let start = table.require_column("start_s")?;
    let end = table.require_column("end_s")?;
    let node = table.require_column("node")?;
    let mut names = NodeNameTable::default();
    let mut found: Vec<NumberedInterval> = Vec::new();
    let tally = table.for_each_row(|row| {
        let from = parse_secs("start_s", row.get(start))?;
        let till = parse_secs("end_s", row.get(end))?;
        if till <= from {
            return Err(wrong_value("end_s", row.get(end), &format!("more than start_s, which is {from}")));
        }
        let name = row.get(node);
        if name.is_empty() {
            return Err(wrong_value("node", name, "a node"));
        }
        // The bound on seconds keeps both within i64.
        let from = from.ceil() as i64;
        let till = till.floor() as i64;
        if from < till {
            found.push((names.intern_name(name), from, till));
        }
        Ok(())
    })?;
    let log = log_of(found, names);
    let some = !log.intervals.is_empty();
    tally.finish(log, some, "idle interval")
}

fn log_of(found: Vec<NumberedInterval>, names: NodeNameTable) -> IdleLog {
    let (names, ranks) = names.into_ranked();
    let mut merged = merge_intervals(found);
    merged.sort_unstable_by_key(|(node, from, till)| (*from, *till, ranks[*node as usize]));
    let name = |node: u32| -> NodeName { names[ranks[node as usize] as usize].clone() };
    let end = merged.iter().map(|(_, _, till)| *till).max().unwrap_or(0);
    let intervals: Vec<IdleInterval> =
        merged.into_iter().map(|(node, start, end)| IdleInterval { start, end, node: name(node) }).collect();
    IdleLog { start: intervals.first().map_or(0, |i| i.start), end, intervals }
}

/// Makes one of intervals of a node that overlap. Those that only touch stay apart: the node was taken in
/// between.
fn merge_intervals(mut found: Vec<NumberedInterval>) -> Vec<NumberedInterval> {
    found.sort_unstable();
    let mut merged: Vec<NumberedInterval> = Vec::with_capacity(found.len());
    for (node, from, till) in found {
        match merged.last_mut() {
            Some((last, _, end)) if *last == node && from < *end => *end = till.max(*end),
            _ => merged.push((node, from, till)),
        }
    }
    merged
}
