//! A map of nodes × time in as much detail as there is room for: each node with what it was used for, or,
//! where several share a row, what their mixture was.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{HOUR_SECS, NodeUse, UsageHour};
use infill_model::{JobId, NodeName, NodeUsageSecs, UnixTime};

/// What a mixture tells apart: main jobs, malleable ones, idle, wanted, refused, down. What is missing of the
/// whole is not known.
pub(crate) const USE_KINDS: usize = 6;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapRequest {
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// The first node, in the order of names.
    pub first: usize,
    /// How many from there on.
    pub count: usize,
    /// How many rows there is room for, at least one.
    pub rows: usize,
    /// How many columns, at least one: of mixtures only.
    pub columns: usize,
}

/// A stretch in which a node was used for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageRun {
    /// Seconds since the map's begin.
    pub from: u32,
    /// Seconds since the map's begin.
    pub to: u32,
    /// For what.
    pub used: NodeUse,
}

/// A stretch that is planned, after what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedUse {
    /// The node.
    pub node: NodeName,
    /// Begin.
    pub from: UnixTime,
    /// End; `None`: nobody knows of one.
    pub to: Option<UnixTime>,
    /// For what.
    pub used: NodeUse,
}

/// The rows of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MapRows {
    /// One a node.
    Nodes(Vec<(NodeName, Vec<UsageRun>)>),
    /// One for several nodes: for each row and column the share of each of the [`USE_KINDS`], 0 to 1.
    Mixtures {
        /// How many nodes each row stands for.
        nodes: Vec<u32>,
        /// Row by row, column by column, part by part.
        shares: Vec<f32>,
    },
}

/// A map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsageMap {
    /// How many nodes there are in all.
    pub nodes: usize,
    /// The first of those that are shown.
    pub first: usize,
    /// How many are shown.
    pub count: usize,
    /// The rows.
    pub rows: MapRows,
}

impl UsageMap {
    /// The malleable jobs that are on it.
    pub fn malleable_jobs(&self) -> BTreeSet<JobId> {
        let MapRows::Nodes(rows) = &self.rows else { return BTreeSet::new() };
        let uses = rows.iter().flat_map(|(_, runs)| runs).map(|run| run.used);
        uses.filter_map(|used| if let NodeUse::Job(job) = used { Some(job) } else { None }).collect()
    }
}

/// The map of these hours, the earliest first, and of what is planned after them. All nodes of any of them
/// have their rows in it, those that were there before or after what is asked for as well.
pub(crate) fn build_map(hours: &[Arc<UsageHour>], planned: &[PlannedUse], asked: &MapRequest) -> UsageMap {
    let roster = NodeRoster::from_hours(hours, planned);
    let nodes = roster.names.len();
    let first = asked.first.min(nodes);
    let count = asked.count.min(nodes - first);
    let rows = match count <= asked.rows.max(1) {
        true => node_rows(asked, &roster, first..first + count),
        false => mixture_rows(asked, &roster, first..first + count),
    };
    UsageMap { nodes, first, count, rows }
}

/// All nodes of some hours in the order of their names.
struct NodeRoster<'h> {
    hours: &'h [Arc<UsageHour>],
    planned: &'h [PlannedUse],
    names: Vec<&'h NodeName>,
    places: FxHashMap<&'h NodeName, usize>,
}

impl<'h> NodeRoster<'h> {
    fn from_hours(hours: &'h [Arc<UsageHour>], planned: &'h [PlannedUse]) -> NodeRoster<'h> {
        let mut places: FxHashMap<&NodeName, usize> = FxHashMap::default();
        let mut last: &[NodeName] = &[];
        // Most hours have the nodes of the one before.
        for hour in
            hours.iter().filter(|hour| std::mem::replace(&mut last, hour.names.as_slice()) != hour.names)
        {
            places.extend(hour.names.iter().map(|name| (name, 0)));
        }
        let mut names: Vec<&NodeName> = places.keys().copied().collect();
        names.sort_by(|a, b| a.cmp_natural(b));
        for (place, name) in names.iter().enumerate() {
            places.insert(name, place);
        }
        NodeRoster { hours, planned, names, places }
    }

    /// What nodes of this range were used for: place, seconds since the begin of what is asked for, use.
    fn visit_uses(
        &self,
        asked: &MapRequest,
        range: &std::ops::Range<usize>,
        mut visit: impl FnMut(usize, u32, u32, NodeUse),
    ) {
        let length = asked.to.secs_since(asked.from).max(0.0) as i64;
        let within = |at: UnixTime| (at.0 - asked.from.0).clamp(0, length) as u32;
        let mut visit = |place: usize, from: UnixTime, to: UnixTime, used: NodeUse| {
            let from = within(from);
            let to = within(to);
            if from < to && range.contains(&place) && used != NodeUse::Unknown {
                visit(place, from, to, used);
            }
        };
        let reach = |hour: &&Arc<UsageHour>| hour.from < asked.to && hour.from + HOUR_SECS > asked.from;
        let mut places = Vec::new();
        let mut last = &[] as &[NodeName];
        for hour in self.hours.iter().filter(reach) {
            // Most hours have the nodes of the one before.
            if std::mem::replace(&mut last, hour.names.as_slice()) != hour.names {
                places = hour.names.iter().map(|name| self.places[name]).collect();
            }
            for (node, from, to, used) in hour.use_spans() {
                let at = |secs: u32| hour.from + i64::from(secs);
                visit(places[node as usize], at(from), at(to), used);
            }
        }
        for PlannedUse { node, from, to, used } in self.planned {
            if let Some(place) = self.places.get(node) {
                visit(*place, *from, to.unwrap_or(asked.to), *used);
            }
        }
    }
}

fn node_rows(asked: &MapRequest, roster: &NodeRoster<'_>, range: std::ops::Range<usize>) -> MapRows {
    let mut rows: Vec<(NodeName, Vec<UsageRun>)> =
        roster.names[range.clone()].iter().map(|name| ((*name).clone(), Vec::new())).collect();
    roster.visit_uses(asked, &range, |place, from, to, used| {
        let runs = &mut rows[place - range.start].1;
        match runs.last_mut() {
            Some(last) if last.to == from && last.used == used => last.to = to,
            _ => runs.push(UsageRun { from, to, used }),
        }
    });
    MapRows::Nodes(rows)
}

/// Each stretch adds to its first and last column by itself, and to those between by the difference from one
/// column to the next, which is summed up at the end.
fn mixture_rows(asked: &MapRequest, roster: &NodeRoster<'_>, range: std::ops::Range<usize>) -> MapRows {
    let rows = asked.rows.max(1);
    let columns = asked.columns.max(1);
    let row_of = |place: usize| (place - range.start) * rows / range.len();
    let mut nodes = vec![0; rows];
    range.clone().for_each(|place| nodes[row_of(place)] += 1);
    let width = asked.to.secs_since(asked.from).max(1.0) / columns as f64;
    let mut shares = vec![0.0_f32; rows * columns * USE_KINDS];
    let mut steps = vec![0.0_f32; rows * (columns + 1) * USE_KINDS];
    roster.visit_uses(asked, &range, |place, from, to, used| {
        let row = row_of(place);
        let part = use_index(used);
        let (from, to) = (f64::from(from) / width, f64::from(to) / width);
        let begin = from as usize;
        let end = (to as usize).min(columns - 1);
        let at = |column: usize| (row * columns + column) * USE_KINDS + part;
        if begin >= end {
            shares[at(end)] += (to - from) as f32;
            return;
        }
        shares[at(begin)] += (begin as f64 + 1.0 - from) as f32;
        shares[at(end)] += (to - end as f64) as f32;
        let step = |column: usize| (row * (columns + 1) + column) * USE_KINDS + part;
        steps[step(begin + 1)] += 1.0;
        steps[step(end)] -= 1.0;
    });
    for row in 0..rows {
        let mut sums = [0.0_f32; USE_KINDS];
        for column in 0..columns {
            for (part, sum) in sums.iter_mut().enumerate() {
                *sum += steps[(row * (columns + 1) + column) * USE_KINDS + part];
                let share = &mut shares[(row * columns + column) * USE_KINDS + part];
                *share = ((*share + *sum) / nodes[row].max(1) as f32).clamp(0.0, 1.0);
            }
        }
    }
    MapRows::Mixtures { nodes, shares }
}

/// Node-seconds of an hour.
pub fn sum_hour(hour: &UsageHour) -> NodeUsageSecs {
    let mut sums = [0.0; USE_KINDS];
    for (_, from, to, used) in hour.use_spans().into_iter().filter(|(.., used)| *used != NodeUse::Unknown) {
        sums[use_index(used)] += f64::from(to - from);
    }
    NodeUsageSecs::from_array(sums)
}

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

    /// Two hours: n1 is idle and then has a job; n2 has main jobs; n10 comes in the second hour.
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
    fn where_each_node_has_a_row_its_runs_are_told_over_hours() {
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
    fn where_nodes_share_a_row_its_shares_are_told() {
        let found = build_map(&hours(), &[], &asked(0, 3600, 1, 4));
        let MapRows::Mixtures { nodes, shares } = found.rows else { panic!("{found:?}") };
        assert_eq!(nodes, [3]);
        let near = |column: usize, part: usize, share: f32| {
            let found = shares[column * USE_KINDS + part];
            assert!((found - share).abs() < 1e-4, "column {column}, part {part}: {found}, not {share}");
        };
        for column in 0..4 {
            near(column, 0, 1.0 / 3.0);
            near(column, 1, if column < 2 { 0.0 } else { 1.0 / 3.0 });
            near(column, 2, if column < 2 { 1.0 / 3.0 } else { 0.0 });
        }
        // Of one column all parts and what is unknown make the whole.
        let whole = build_map(&hours(), &[], &asked(900, 6300, 2, 1));
        let MapRows::Mixtures { nodes, shares } = whole.rows else { panic!("{whole:?}") };
        assert_eq!(nodes, [2, 1]);
        let sums: Vec<f32> = shares.chunks(USE_KINDS).map(|parts| parts.iter().sum()).collect();
        assert!((sums[0] - 1.0).abs() < 1e-4 && (sums[1] - 0.5).abs() < 1e-4, "{sums:?}");
        assert!((shares[USE_KINDS + 2] - 0.5).abs() < 1e-4, "n10 was there for half of it");
    }

    #[test]
    fn what_is_planned_goes_on_from_what_is_known() {
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
        assert_eq!(rows.len(), 3, "one that nobody has seen has no row");
        let runs: Vec<(u32, u32, NodeUse)> = rows[0].1.iter().map(|r| (r.from, r.to, r.used)).collect();
        assert_eq!(runs, [(0, 300, JOB), (300, 1000, NodeUse::Wanted)]);
        let mixed = build_map(&hours(), &ahead, &asked(7000, 8000, 1, 10)).rows;
        let MapRows::Mixtures { shares, .. } = mixed else { panic!("{mixed:?}") };
        assert!((shares[9 * USE_KINDS + use_index(NodeUse::Wanted)] - 1.0 / 3.0).abs() < 1e-4, "{shares:?}");
    }

    #[test]
    fn an_hour_is_added_up() {
        assert_eq!(sum_hour(&hours()[0]).to_array(), [3600.0, 1800.0, 1800.0, 0.0, 0.0, 0.0]);
        assert_eq!(sum_hour(&UsageHour::default()), NodeUsageSecs::default());
    }

    #[test]
    fn what_is_not_there_is_an_empty_map() {
        for (hours, first) in [(Vec::new(), 0), (hours(), 50)] {
            let found = build_map(&hours, &[], &MapRequest { first, ..asked(0, 3600, 10, 10) });
            assert_eq!((found.count, found.rows), (0, MapRows::Nodes(Vec::new())));
        }
        let backwards = build_map(&hours(), &[], &asked(3600, 0, 1, 3));
        let MapRows::Mixtures { shares, .. } = backwards.rows else { panic!("{backwards:?}") };
        assert!(shares.iter().all(|share| *share == 0.0));
    }
}
