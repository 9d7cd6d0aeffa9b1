//! A map of nodes × time. Where there is room, each node has a row with its uses. Otherwise several nodes
//! share a row, which shows the mixture of their uses.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{HOUR_SECS, NodeUse, UsageHour};
use infill_api::NodeCounts;
use infill_model::{JobId, NodeName, NodeUsageSecs, UnixTime};

/// Number of parts of a mixture: main jobs, malleable jobs, idle, wanted, refused, down. The rest to 1 is
/// unknown.
pub(crate) const USE_KINDS: usize = 6;

/// The requested part of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapRequest {
    /// Begin of the stretch of time.
    pub from: UnixTime,
    /// End of the stretch of time.
    pub to: UnixTime,
    /// Index of the first node, in natural order of the names.
    pub first: usize,
    /// Number of nodes from there on.
    pub count: usize,
    /// Most rows, at least one.
    pub rows: usize,
    /// Number of columns of mixtures, at least one.
    pub columns: usize,
}

/// A stretch in which a node had one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageRun {
    /// Begin, seconds since the map's begin.
    pub from: u32,
    /// End, seconds since the map's begin.
    pub to: u32,
    /// What the node was used for.
    pub used: NodeUse,
}

/// A planned use of a node, which follows the recorded ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedUse {
    /// The node, never a place.
    pub node: NodeName,
    /// Begin of the use.
    pub from: UnixTime,
    /// End of the use; `None` where it has no known end.
    pub to: Option<UnixTime>,
    /// What the node is planned for.
    pub used: NodeUse,
}

/// The rows of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MapRows {
    /// One row for each node.
    Nodes(Vec<(NodeName, Vec<UsageRun>)>),
    /// One row for several nodes. Each row and column has the share of each of the [`USE_KINDS`], 0 to 1.
    Mixtures {
        /// How many nodes each row stands for.
        nodes: Vec<u32>,
        /// Shares by row, column and part.
        shares: Vec<f32>,
    },
}

/// A map of nodes and their uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsageMap {
    /// Number of all nodes.
    pub nodes: usize,
    /// Index of the first shown node.
    pub first: usize,
    /// Number of shown nodes.
    pub count: usize,
    /// The rows with the shown nodes.
    pub rows: MapRows,
}

impl UsageMap {
    /// The malleable jobs on the map.
    pub fn malleable_jobs(&self) -> BTreeSet<JobId> {
        let MapRows::Nodes(rows) = &self.rows else { return BTreeSet::new() };
        let uses = rows.iter().flat_map(|(_, runs)| runs).map(|run| run.used);
        uses.filter_map(|used| if let NodeUse::Job(job) = used { Some(job) } else { None }).collect()
    }
}

/// Builds the map of these hours, the earliest first, and of the planned uses after them. Each node of any of
/// these hours is on the map, even if it existed only before or after the requested stretch.
pub(crate) fn build_map(hours: &[Arc<UsageHour>], planned: &[PlannedUse], request: &MapRequest) -> UsageMap {
    let roster = NodeRoster::from_hours(hours, planned);
    let nodes = roster.names.len();
    let first = request.first.min(nodes);
    let count = request.count.min(nodes - first);
    let rows = if count <= request.rows.max(1) {
        node_rows(request, &roster, first..first + count)
    } else {
        mixture_rows(request, &roster, first..first + count)
    };
    UsageMap { nodes, first, count, rows }
}

impl MapRequest {
    /// Seconds from the begin of the request to a time, within the request.
    fn secs_until(&self, at: UnixTime) -> u32 {
        let length = self.to.secs_since(self.from).max(0.0) as i64;
        (at.0 - self.from.0).clamp(0, length) as u32
    }
}

/// All nodes of some hours, in natural order of their names.
pub(super) struct NodeRoster<'h> {
    hours: &'h [Arc<UsageHour>],
    planned: &'h [PlannedUse],
    names: Vec<&'h NodeName>,
    indices: FxHashMap<&'h NodeName, usize>,
}

/// A use of a node on the map.
pub(super) struct VisitedUse {
    /// Index of the node in the roster.
    node: usize,
    /// Begin, seconds since the begin of the request.
    pub from: u32,
    /// End, seconds since the begin of the request.
    pub to: u32,
    /// What the node was used for.
    pub used: NodeUse,
}

impl<'h> NodeRoster<'h> {
    pub(super) fn from_hours(hours: &'h [Arc<UsageHour>], planned: &'h [PlannedUse]) -> NodeRoster<'h> {
        let mut indices: FxHashMap<&NodeName, usize> = FxHashMap::default();
        let mut last: &[NodeName] = &[];
        for hour in hours {
            // Most hours have the same nodes as the hour before.
            if last != hour.names {
                indices.extend(hour.names.iter().map(|name| (name, 0)));
            }
            last = &hour.names;
        }
        let mut names: Vec<&NodeName> = indices.keys().copied().collect();
        names.sort_by(|a, b| a.cmp_natural(b));
        for (index, name) in names.iter().enumerate() {
            indices.insert(name, index);
        }
        NodeRoster { hours, planned, names, indices }
    }

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Visits all known uses of the nodes in this range that reach into the request.
    pub(super) fn visit_uses(
        &self,
        request: &MapRequest,
        range: &std::ops::Range<usize>,
        mut visit: impl FnMut(VisitedUse),
    ) {
        let mut visit_visible = |node: usize, from: UnixTime, to: UnixTime, used: NodeUse| {
            let from = request.secs_until(from);
            let to = request.secs_until(to);
            if from < to && range.contains(&node) && used != NodeUse::Unknown {
                visit(VisitedUse { node, from, to, used });
            }
        };
        let mut indices = Vec::new();
        let mut last: &[NodeName] = &[];
        for hour in self.hours {
            if hour.from >= request.to || hour.from + HOUR_SECS <= request.from {
                continue;
            }
            // Most hours have the same nodes as the hour before.
            if last != hour.names {
                indices = hour.names.iter().map(|name| self.indices[name]).collect();
            }
            last = &hour.names;
            for (node, from, to, used) in hour.use_spans() {
                let begin = hour.from + i64::from(from);
                let end = hour.from + i64::from(to);
                visit_visible(indices[node as usize], begin, end, used);
            }
        }
        for PlannedUse { node, from, to, used } in self.planned {
            if let Some(index) = self.indices.get(node) {
                visit_visible(*index, *from, to.unwrap_or(request.to), *used);
            }
        }
    }
}

fn node_rows(request: &MapRequest, roster: &NodeRoster<'_>, range: std::ops::Range<usize>) -> MapRows {
    let mut rows: Vec<(NodeName, Vec<UsageRun>)> =
        roster.names[range.clone()].iter().map(|name| ((*name).clone(), Vec::new())).collect();
    roster.visit_uses(request, &range, |VisitedUse { node, from, to, used }| {
        let runs = &mut rows[node - range.start].1;
        match runs.last_mut() {
            Some(last) if last.to == from && last.used == used => last.to = to,
            _ => runs.push(UsageRun { from, to, used }),
        }
    });
    MapRows::Nodes(rows)
}

fn mixture_rows(request: &MapRequest, roster: &NodeRoster<'_>, range: std::ops::Range<usize>) -> MapRows {
    let rows = request.rows.max(1);
    let width_secs = request.to.secs_since(request.from).max(1.0) / request.columns.max(1) as f64;
    let mut sums = MixtureSums::new(rows, request.columns.max(1));
    let mut nodes = vec![0; rows];
    for node in range.clone() {
        nodes[(node - range.start) * rows / range.len()] += 1;
    }
    roster.visit_uses(request, &range, |VisitedUse { node, from, to, used }| {
        let row = (node - range.start) * rows / range.len();
        sums.add_span(row, f64::from(from) / width_secs, f64::from(to) / width_secs, use_index(used));
    });
    let shares = sums.into_shares(&nodes);
    MapRows::Mixtures { nodes, shares }
}

/// Sums of the nodes' uses for each row, column and part.
///
/// A span adds to its first and last column directly. For the columns between, only the differences from one
/// column to the next are stored, and summed up at the end.
struct MixtureSums {
    rows: usize,
    columns: usize,
    /// Direct sums by row, column and part.
    sums: Vec<f32>,
    /// Differences by row, column and part. Each row has one more column.
    differences: Vec<f32>,
}

impl MixtureSums {
    fn new(rows: usize, columns: usize) -> MixtureSums {
        let sums = vec![0.0; rows * columns * USE_KINDS];
        let differences = vec![0.0; rows * (columns + 1) * USE_KINDS];
        MixtureSums { rows, columns, sums, differences }
    }

    fn sum_mut(&mut self, row: usize, column: usize, part: usize) -> &mut f32 {
        &mut self.sums[(row * self.columns + column) * USE_KINDS + part]
    }

    fn difference_mut(&mut self, row: usize, column: usize, part: usize) -> &mut f32 {
        &mut self.differences[(row * (self.columns + 1) + column) * USE_KINDS + part]
    }

    /// Adds a span of one node. `from` and `to` are in units of columns.
    fn add_span(&mut self, row: usize, from: f64, to: f64, part: usize) {
        let first = from as usize;
        let last = (to as usize).min(self.columns - 1);
        if first >= last {
            *self.sum_mut(row, last, part) += (to - from) as f32;
            return;
        }
        *self.sum_mut(row, first, part) += (first as f64 + 1.0 - from) as f32;
        *self.sum_mut(row, last, part) += (to - last as f64) as f32;
        *self.difference_mut(row, first + 1, part) += 1.0;
        *self.difference_mut(row, last, part) -= 1.0;
    }

    /// The shares, 0 to 1, by row, column and part. `nodes`: the number of nodes of each row.
    fn into_shares(mut self, nodes: &[u32]) -> Vec<f32> {
        for (row, count) in nodes.iter().enumerate().take(self.rows) {
            let mut between = [0.0_f32; USE_KINDS];
            for column in 0..self.columns {
                for (part, between) in between.iter_mut().enumerate() {
                    *between += *self.difference_mut(row, column, part);
                    let share = self.sum_mut(row, column, part);
                    *share = ((*share + *between) / (*count).max(1) as f32).clamp(0.0, 1.0);
                }
            }
        }
        self.sums
    }
}

/// The index of a node in the order of names; `None` for a node that these hours do not have.
pub(crate) fn node_index(hours: &[Arc<UsageHour>], planned: &[PlannedUse], name: &str) -> Option<usize> {
    NodeRoster::from_hours(hours, planned).names.iter().position(|node| node.as_str() == name)
}

/// The numbers of nodes by use at the end of an hour. Unknown uses do not count.
pub(crate) fn count_nodes(hour: &UsageHour) -> NodeCounts {
    let mut counts = [0; USE_KINDS];
    let last = hour.last_uses().into_iter().filter(|used| *used != NodeUse::Unknown);
    last.for_each(|used| counts[use_index(used)] += 1);
    let [main, malleable, idle, wanted, refused, down] = counts;
    NodeCounts { main, malleable, idle, wanted, refused, down }
}

/// The node-seconds of an hour by use. Unknown uses do not count.
pub fn sum_hour(hour: &UsageHour) -> NodeUsageSecs {
    let mut sums = [0.0; USE_KINDS];
    for (_, from, to, used) in hour.use_spans().into_iter().filter(|(.., used)| *used != NodeUse::Unknown) {
        sums[use_index(used)] += f64::from(to - from);
    }
    NodeUsageSecs::from_array(sums)
}

/// The index of a use among the parts of a mixture.
fn use_index(used: NodeUse) -> usize {
    match used {
        NodeUse::Main => 0,
        NodeUse::Job(_) => 1,
        NodeUse::Idle => 2,
        NodeUse::Wanted => 3,
        NodeUse::Refused => 4,
        NodeUse::Down | NodeUse::Unknown => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HourRecorder, ObservedUse};
    use super::*;

    const JOB: NodeUse = NodeUse::Job(JobId(7));

    /// Two hours. n1 is idle and then has a malleable job. n2 has main jobs. n10 appears in the second hour.
    fn hours() -> Vec<Arc<UsageHour>> {
        let mut recorder = HourRecorder::default();
        let mut hours = Vec::new();
        for at in (0..=7200 - 60).step_by(60) {
            let first = if at < 1800 { NodeUse::Idle } else { JOB };
            let mut uses = vec![("n1", first), ("n2", NodeUse::Main)];
            uses.extend((at >= 3600).then_some(("n10", NodeUse::Idle)));
            let uses = uses.into_iter().map(|(name, used)| ObservedUse {
                node: NodeName::new(name),
                used,
                since: None,
            });
            hours.extend(recorder.record_uses(UnixTime(at), uses).into_iter().map(Arc::new));
        }
        hours.push(Arc::new(recorder.current_hour().clone()));
        hours
    }

    fn asked(from: i64, to: i64, rows: usize, columns: usize) -> MapRequest {
        MapRequest { from: UnixTime(from), to: UnixTime(to), first: 0, count: 100, rows, columns }
    }

    #[test]
    fn a_row_of_one_node_has_its_runs_across_hours() {
        let found = build_map(&hours(), &[], &asked(600, 7000, 10, 10));
        assert_eq!((found.nodes, found.first, found.count), (3, 0, 3));
        let MapRows::Nodes(rows) = found.rows else { panic!("{found:?}") };
        let said: Vec<String> = rows
            .iter()
            .map(|(name, runs)| {
                let runs = runs.iter().map(|run| format!(" {}-{} {:?}", run.from, run.to, run.used));
                format!("{name}{}", runs.collect::<String>())
            })
            .collect();
        let expected = ["n1 0-1200 Idle 1200-6400 Job(JobId(7))", "n2 0-6400 Main", "n10 3000-6400 Idle"];
        assert_eq!(said, expected);
        let second = MapRequest { first: 1, count: 1, ..asked(600, 7000, 10, 10) };
        let MapRows::Nodes(rows) = build_map(&hours(), &[], &second).rows else { panic!("a row a node") };
        assert_eq!(rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["n2"]);
    }

    #[test]
    fn a_row_of_several_nodes_has_shares() {
        let found = build_map(&hours(), &[], &asked(0, 3600, 1, 4));
        let MapRows::Mixtures { nodes, shares } = found.rows else { panic!("{found:?}") };
        assert_eq!(nodes, [3]);
        for column in 0..4 {
            let job = if column < 2 { 0.0 } else { 1.0 / 3.0 };
            for (part, share) in [1.0 / 3.0, job, 1.0 / 3.0 - job].into_iter().enumerate() {
                let found = shares[column * USE_KINDS + part];
                assert!((found - share).abs() < 1e-4, "column {column}, part {part}: {found}, not {share}");
            }
        }
        // The parts of a column and the unknown rest sum up to 1.
        let whole = build_map(&hours(), &[], &asked(900, 6300, 2, 1));
        let MapRows::Mixtures { nodes, shares } = whole.rows else { panic!("{whole:?}") };
        assert_eq!(nodes, [2, 1]);
        let sums: Vec<f32> = shares.chunks(USE_KINDS).map(|parts| parts.iter().sum()).collect();
        assert!((sums[0] - 1.0).abs() < 1e-4 && (sums[1] - 0.5).abs() < 1e-4, "{sums:?}");
        assert!((shares[USE_KINDS + 2] - 0.5).abs() < 1e-4, "n10 was there for half of it");
    }

    #[test]
    fn planned_uses_follow_the_recorded_ones() {
        let planned =
            |node: &str, to, used| PlannedUse { node: NodeName::new(node), from: UnixTime(7140), to, used };
        let ahead = [
            planned("n1", Some(UnixTime(7300)), JOB),
            PlannedUse { from: UnixTime(7300), ..planned("n1", None, NodeUse::Wanted) },
            planned("n9", None, NodeUse::Idle),
        ];
        let MapRows::Nodes(rows) = build_map(&hours(), &ahead, &asked(7000, 8000, 10, 10)).rows else {
            panic!("rows")
        };
        assert_eq!(rows.len(), 3, "a node without a recorded use has no row");
        let runs: Vec<(u32, u32, NodeUse)> = rows[0].1.iter().map(|r| (r.from, r.to, r.used)).collect();
        assert_eq!(runs, [(0, 300, JOB), (300, 1000, NodeUse::Wanted)]);
        let mixed = build_map(&hours(), &ahead, &asked(7000, 8000, 1, 10)).rows;
        let MapRows::Mixtures { shares, .. } = mixed else { panic!("{mixed:?}") };
        assert!((shares[9 * USE_KINDS + use_index(NodeUse::Wanted)] - 1.0 / 3.0).abs() < 1e-4, "{shares:?}");
    }

    #[test]
    fn the_node_seconds_of_an_hour_are_summed_up() {
        assert_eq!(sum_hour(&hours()[0]).to_array(), [3600.0, 1800.0, 1800.0, 0.0, 0.0, 0.0]);
        assert_eq!(sum_hour(&UsageHour::default()), NodeUsageSecs::default());
    }

    #[test]
    fn a_map_without_nodes_or_time_is_empty() {
        for (hours, first) in [(Vec::new(), 0), (hours(), 50)] {
            let found = build_map(&hours, &[], &MapRequest { first, ..asked(0, 3600, 10, 10) });
            assert_eq!((found.count, found.rows), (0, MapRows::Nodes(Vec::new())));
        }
        let backwards = build_map(&hours(), &[], &asked(3600, 0, 1, 3));
        let MapRows::Mixtures { shares, .. } = backwards.rows else { panic!("{backwards:?}") };
        assert!(shares.iter().all(|share| *share == 0.0));
    }
}
