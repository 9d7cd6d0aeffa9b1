//! One line of a log in the standard workload format.

use std::num::NonZeroU32;

use crate::parse_field::{parse_secs, wrong_value};
use infill_model::{JobId, LoggedJob, trace::MAX_NODES_A_MACHINE};

/// The number of columns of the standard.
const STANDARD_COLUMNS: usize = 18;

/// The number of columns of the variant, and the fewest that a line may have.
const SIX_COLUMNS: usize = 6;

/// The values of a line, before the layout of the log is known. -1 is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SwfEntry {
    /// The line in the file, from 1.
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
    /// Splits a line into its values.
    pub(super) fn parse(line: usize, text: &str) -> Result<SwfEntry, String> {
        let fields: Vec<&str> = text.split_ascii_whitespace().take(STANDARD_COLUMNS).collect();
        if fields.len() < SIX_COLUMNS {
            return Err(format!("{} columns; expected {STANDARD_COLUMNS}, or {SIX_COLUMNS}", fields.len()));
        }
        let fields = SwfFields(fields);
        // Some archives have a queue in place of Slurm's partition.
        let partition = if fields.get(16) == "-1" { fields.name(15) } else { fields.name(16) };
        Ok(SwfEntry {
            line,
            columns: fields.0.len(),
            job: fields.get(1).to_owned(),
            submit: fields.secs(2, "submit time")?,
            wait: fields.secs(3, "wait time")?,
            run: fields.secs(4, "run time")?,
            allocated: fields.secs(5, "allocated processors")?,
            sixth: fields.secs(6, "column 6")?,
            requested_procs: fields.secs(8, "requested processors")?,
            requested_secs: fields.secs(9, "requested time")?,
            status: fields.secs(11, "status")?,
            user: fields.name(12),
            group: fields.name(13),
            partition,
        })
    }

    /// The job. `None` if it did not run, or the line is a part of a job. `is_six` says whether the log has
    /// the layout with six columns, and `per_node` is the number of processors of a node.
    pub(super) fn job(self, is_six: bool, per_node: NonZeroU32) -> Result<Option<LoggedJob>, String> {
        if !is_six && self.columns < STANDARD_COLUMNS {
            return Err(format!("{} columns; expected {STANDARD_COLUMNS}", self.columns));
        }
        let is_part = (2.0..=4.0).contains(&self.status);
        if self.run <= 0.0 || self.wait < 0.0 || is_part {
            return Ok(None);
        }
        if self.submit < 0.0 {
            return Err(wrong_value("submit time", &self.submit.to_string(), "seconds from the log's start"));
        }
        let limit = if is_six { self.sixth } else { self.requested_secs };
        let start = self.submit + self.wait;
        let begin = start.round() as i64;
        let end = (start + self.run).round() as i64;
        let nodes = self.nodes(is_six, per_node)?;
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
            limit_secs: Some(limit.round() as i64).filter(|secs| *secs > 0),
            nodes,
            node_list: Vec::new(),
            gpus: None,
            state: slurm_state(self.status).to_owned(),
        }))
    }

    fn nodes(&self, is_six: bool, per_node: NonZeroU32) -> Result<u32, String> {
        let requested = if is_six { -1.0 } else { self.requested_procs };
        let procs = if self.allocated > 0.0 { self.allocated } else { requested };
        let nodes = (procs / f64::from(per_node.get())).ceil();
        if nodes >= 1.0 && nodes <= f64::from(MAX_NODES_A_MACHINE) {
            return Ok(nodes as u32);
        }
        let expected = format!("the processors of 1 to {MAX_NODES_A_MACHINE} nodes");
        let found = if procs > 0.0 { procs } else { self.allocated };
        Err(wrong_value("number of processors", &found.to_string(), &expected))
    }
}

/// The fields of a line. Column numbers count from 1, as in the standard.
struct SwfFields<'a>(Vec<&'a str>);

impl SwfFields<'_> {
    /// A field; `-1` if the line is shorter.
    fn get(&self, column: usize) -> &str {
        self.0.get(column - 1).copied().unwrap_or("-1")
    }

    /// A field with a name; empty if unknown.
    fn name(&self, column: usize) -> String {
        let text = self.get(column);
        if text == "-1" { String::new() } else { text.to_owned() }
    }

    /// A field with a number, within the bounds of seconds.
    fn secs(&self, column: usize, name: &str) -> Result<f64, String> {
        parse_secs(name, self.get(column))
    }
}

/// Slurm's word for a status; empty if there is none.
fn slurm_state(status: f64) -> &'static str {
    match status as i64 {
        0 => "FAILED",
        1 => "COMPLETED",
        5 => "CANCELLED",
        _ => "",
    }
}

/// Whether only the first six columns of a log matter (see [`super::SwfLayout::Auto`]).
pub(super) fn look_like_six(entries: &[SwfEntry]) -> bool {
    let ran: Vec<&SwfEntry> = entries.iter().filter(|entry| entry.run > 0.0).collect();
    let outlasting = ran.iter().filter(|entry| entry.sixth > entry.run).count();
    let has_requests = entries.iter().any(|entry| entry.requested_procs > 0.0 || entry.requested_secs > 0.0);
    outlasting > 0 && 2 * outlasting >= ran.len() && !has_requests
}
