//! Sizes of malleable jobs over time, counted from the uses of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::usage_map::NodeRoster;
use super::{MapRequest, NodeUse, PlannedUse, UsageHour};
use infill_model::{JobId, UnixTime};

/// A stretch in which a job held the same number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeSpan {
    /// Begin, seconds since the begin of the request.
    pub from: u32,
    /// End, seconds since the begin of the request.
    pub to: u32,
    /// Number of nodes, at least one.
    pub nodes: u32,
}

/// The sizes of all malleable jobs in a stretch of time, the earliest first. Planned uses follow the recorded
/// ones. A node that main jobs share counts for no job.
pub(crate) fn job_spans(
    hours: &[Arc<UsageHour>],
    planned: &[PlannedUse],
    from: UnixTime,
    to: UnixTime,
) -> BTreeMap<JobId, Vec<SizeSpan>> {
    let request = MapRequest { from, to, first: 0, count: usize::MAX, rows: 1, columns: 1 };
    let roster = NodeRoster::from_hours(hours, planned);
    // For each job, by how many nodes its size changes at each second.
    let mut changes: BTreeMap<JobId, BTreeMap<u32, i64>> = BTreeMap::new();
    roster.visit_uses(&request, &(0..roster.len()), |visited| {
        if let NodeUse::Job(job) = visited.used {
            let of_job = changes.entry(job).or_default();
            *of_job.entry(visited.from).or_default() += 1;
            *of_job.entry(visited.to).or_default() -= 1;
        }
    });
    changes.into_iter().map(|(job, changes)| (job, spans_of(&changes))).collect()
}

fn spans_of(changes: &BTreeMap<u32, i64>) -> Vec<SizeSpan> {
    let mut spans: Vec<SizeSpan> = Vec::new();
    let mut nodes: i64 = 0;
    for (at, change) in changes {
        if *change == 0 {
            continue;
        }
        if let Some(last) = spans.last_mut().filter(|_| nodes > 0) {
            last.to = *at;
        }
        nodes += change;
        if nodes > 0 {
            spans.push(SizeSpan { from: *at, to: *at, nodes: nodes as u32 });
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::super::{HourRecorder, ObservedUse};
    use super::*;
    use infill_model::NodeName;

    #[test]
    fn a_job_has_a_span_for_each_size() {
        let mut recorder = HourRecorder::default();
        let mut hours = Vec::new();
        for at in (0..7200).step_by(60) {
            let of_job = NodeUse::Job(JobId(7));
            let first = if (600..5400).contains(&at) { of_job } else { NodeUse::Idle };
            let second = if (1200..1800).contains(&at) { of_job } else { NodeUse::Main };
            let uses = [("n1", first), ("n2", second)].map(|(name, used)| ObservedUse {
                node: NodeName::new(name),
                used,
                since: None,
            });
            hours.extend(recorder.record_uses(UnixTime(at), uses.into_iter()).into_iter().map(Arc::new));
        }
        hours.push(Arc::new(recorder.current_hour().clone()));
        let next = PlannedUse {
            node: NodeName::new("n2"),
            from: UnixTime(7200),
            to: Some(UnixTime(7300)),
            used: NodeUse::Job(JobId(8)),
        };
        let found = job_spans(&hours, &[next], UnixTime(100), UnixTime(8000));
        let span = |from, to, nodes| SizeSpan { from, to, nodes };
        // Three spans, although the hour ends within the last one.
        assert_eq!(found[&JobId(7)], [span(500, 1100, 1), span(1100, 1700, 2), span(1700, 5300, 1)]);
        assert_eq!(found[&JobId(8)], [span(7100, 7200, 1)]);
        assert_eq!(found.len(), 2);
    }
}
