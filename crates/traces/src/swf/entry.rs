//! One line of a log in the standard workload format.

use std::num::NonZeroU32;

use crate::parse_field::{parse_secs, wrong_value};
use infill_model::{JobId, LoggedJob, trace::MAX_NODES_A_MACHINE};

/// Columns of the standard.
const STANDARD_COLUMNS: usize = 18;

/// Columns of the variant, and the fewest that any line has.
const SIX_COLUMNS: usize = 6;

/// A line with what matters of it, before it is known which layout the log has. -1 is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SwfEntry {
    /// Line of the file, from 1.
    pub(super) line: usize,
    columns: usize,
    job: String,
    submit: f64,
    wait: f64,
    run: f64,
    allocated: f64,
    sixth: f64,
    requested_procs: f64,
    requested_secs: f64,
    status: f64,
    user: String,
    group: String,
    partition: String,
}

impl SwfEntry {
    /// Takes a line apart.
    pub(super) fn parse(line: usize, text: &str) -> Result<SwfEntry, String> {
        let fields: Vec<&str> = text.split_ascii_whitespace().take(STANDARD_COLUMNS).collect();
        if fields.len() < SIX_COLUMNS {
            let found = fields.len();
            return Err(format!("{found} columns; expected {STANDARD_COLUMNS}, or {SIX_COLUMNS}"));
        }
        let get = |column: usize| fields.get(column - 1).copied().unwrap_or("-1");
        let name = |column: usize| Some(get(column)).filter(|n| *n != "-1").unwrap_or_default().to_owned();
        let number = |column, what| parse_secs(what, get(column));
        // Some archives have a queue for what Slurm calls a partition, and no partition.
        let partition = if get(16) == "-1" { name(15) } else { name(16) };
        Ok(SwfEntry {
            line,
            columns: fields.len(),
            job: get(1).to_owned(),
            submit: number(2, "submit time")?,
            wait: number(3, "wait time")?,
            run: number(4, "run time")?,
            allocated: number(5, "allocated processors")?,
            sixth: number(6, "column 6")?,
            requested_procs: number(8, "requested processors")?,
            requested_secs: number(9, "requested time")?,
            status: number(11, "status")?,
            user: name(12),
            group: name(13),
            partition,
        })
    }

    /// The job; `None` where it did not run or the line is a part of one. `six` says which layout the log
    /// has, `per_node` how many processors make a node.
    pub(super) fn job(self, six: bool, per_node: NonZeroU32) -> Result<Option<LoggedJob>, String> {
        if !six && self.columns < STANDARD_COLUMNS {
            return Err(format!("{} columns; expected {STANDARD_COLUMNS}", self.columns));
        }
        let is_part = (2.0..=4.0).contains(&self.status);
        if self.run <= 0.0 || self.wait < 0.0 || is_part {
            return Ok(None);
        }
        if self.submit < 0.0 {
            return Err(wrong_value("submit time", &self.submit.to_string(), "seconds from the log's start"));
        }
        let limit = if six { self.sixth } else { self.requested_secs };
        let start = self.submit + self.wait;
        let begin = start.round() as i64;
        let end = (start + self.run).round() as i64;
        let nodes = self.nodes(six, per_node)?;
        if end <= begin {
            return Ok(None);
        }
        Ok(Some(LoggedJob {
            id: JobId(0),
            name: self.job,
            user: self.user,
            account: self.group,
            partition: self.partition,
            submit: (self.submit.round() as i64).min(begin),
            start: begin,
            end,
            limit_secs: Some(limit.round() as i64).filter(|l| *l > 0),
            nodes,
            node_list: Vec::new(),
            gpus: None,
            state: state(self.status).to_owned(),
        }))
    }

    fn nodes(&self, six: bool, per_node: NonZeroU32) -> Result<u32, String> {
        let requested = if six { -1.0 } else { self.requested_procs };
        let procs = if self.allocated > 0.0 { self.allocated } else { requested };
        let nodes = (procs / f64::from(per_node.get())).ceil();
        if nodes >= 1.0 && nodes <= f64::from(MAX_NODES_A_MACHINE) {
            return Ok(nodes as u32);
        }
        let expected = format!("those of 1 to {MAX_NODES_A_MACHINE} nodes");
        let found = if procs > 0.0 { procs } else { self.allocated };
        Err(wrong_value("number of processors", &found.to_string(), &expected))
    }
}

/// Slurm's word for a status.
fn state(status: f64) -> &'static str {
    match status as i64 {
        0 => "FAILED",
        1 => "COMPLETED",
        5 => "CANCELLED",
        _ => "",
    }
}

/// Whether a log has six columns that matter (see [`super::SwfLayout::Auto`]).
pub(super) fn look_like_six(entries: &[SwfEntry]) -> bool {
    let ran = || entries.iter().filter(|e| e.run > 0.0);
    let outlasts = ran().filter(|e| e.sixth > e.run).count();
    outlasts > 0
        && 2 * outlasts >= ran().count()
        && !entries.iter().any(|e: &SwfEntry| e.requested_procs > 0.0 || e.requested_secs > 0.0)
}
