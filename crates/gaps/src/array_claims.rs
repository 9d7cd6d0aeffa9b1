//! Planned starts of the further tasks of a main job array.
//!
//! Backfill plans each pending task, but Slurm shows only the first one's nodes in the record that they
//! share. The others usually start at the same moment, on nodes that are free by then.

use infill_model::{ArrayPart, Constraint, Job, Node, NodeName, UnixTime, hostlist};
use rustc_hash::FxHashSet;

use super::{NodeOccupancy, OccupancyState};

/// Most tasks of an array that backfill plans (`bf_max_job_array_resv`, by default).
const MAX_PLANNED_TASKS: usize = 20;

/// How many further tasks this record stands for, of those that backfill plans.
fn further_tasks(job: &Job, occupancy: &NodeOccupancy<'_>) -> usize {
    let Some(unsplit) = job.unsplit_tasks() else { return 0 };
    let count = if unsplit.has_more { MAX_PLANNED_TASKS } else { unsplit.tasks.len() };
    let room = unsplit.limit.map_or(usize::MAX, |limit| {
        let active = occupancy.snapshot().jobs.iter().filter(|other| {
            other.state.occupies_nodes() && other.array.as_ref().map(ArrayPart::array) == Some(unsplit.array)
        });
        (limit as usize).saturating_sub(active.count())
    });
    count.min(room).min(MAX_PLANNED_TASKS).saturating_sub(1)
}

/// The indices of the nodes on which the further tasks of this job may start at `start`, as many as fit.
/// `claimed_at` tells when another job or a reservation wants a node.
pub(super) fn nodes_of_further_tasks(
    job: &Job,
    start: UnixTime,
    occupancy: &NodeOccupancy<'_>,
    claimed_at: impl Fn(usize) -> Option<UnixTime>,
) -> Vec<usize> {
    // Places of nodes are not whole nodes, and Slurm may put several tasks on one.
    if job.scheduled_nodes.is_empty() || job.scheduled_nodes.iter().any(NodeName::is_place) {
        return Vec::new();
    }
    let tasks = further_tasks(job, occupancy);
    if tasks == 0 {
        return Vec::new();
    }
    let nodes_a_task = job.node_count.max(1) as usize;
    let end = job.time_limit_mins.map(|mins| start.plus_secs(mins as f64 * 60.0));
    let request = NodeRequest::from_job(job);
    let nodes = occupancy.snapshot().nodes.iter().enumerate();
    let free = nodes.filter(|(index, node)| {
        let ends_before_claim = match (claimed_at(*index), end) {
            (None, _) => true,
            (Some(claim), Some(end)) => end <= claim,
            (Some(_), None) => false,
        };
        ends_before_claim && is_free_at(occupancy, *index, start) && request.admits_node(node)
    });
    let mut indices: Vec<usize> =
        free.map(|(index, _)| index).take(tasks.saturating_mul(nodes_a_task)).collect();
    indices.truncate(indices.len() / nodes_a_task * nodes_a_task);
    indices
}

/// Whether no main job has the node at `start`, as far as time limits tell.
fn is_free_at(occupancy: &NodeOccupancy<'_>, index: usize, start: UnixTime) -> bool {
    match occupancy.state_at(index) {
        Some(OccupancyState::Main(job)) => job.end_time.is_some_and(|end| end <= start),
        Some(state) => state.is_gap(),
        None => false,
    }
}

/// What a main job asks of each of its nodes.
struct NodeRequest<'a> {
    job: &'a Job,
    /// `None` if the job has no constraint, or one that cannot be read.
    constraint: Option<Constraint>,
    excluded: FxHashSet<NodeName>,
}

impl<'a> NodeRequest<'a> {
    fn from_job(job: &'a Job) -> Self {
        let constraint = Constraint::parse(&job.asks.constraint).ok().flatten();
        let excluded = hostlist::expand_hostlist(&job.asks.exclude).unwrap_or_default();
        let own = job.scheduled_nodes.iter().cloned();
        NodeRequest { job, constraint, excluded: excluded.into_iter().chain(own).collect() }
    }

    fn admits_node(&self, node: &Node) -> bool {
        let mut partitions = self.job.partition.split(',').map(str::trim);
        let is_in_partition = partitions.any(|name| node.partitions.iter().any(|p| p == name));
        let has_features = self.constraint.as_ref().is_none_or(|constraint| {
            (0..constraint.alternatives()).any(|choice| constraint.admits_node(choice, &node.features))
        });
        let has_gpus = self.job.gres.is_empty() || node.node_type.has_gpus();
        is_in_partition && has_features && has_gpus && !self.excluded.contains(&node.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, JobId, NodeType, Snapshot};

    const START: UnixTime = UnixTime(2000);

    fn array(text: &str, limit: u32, nodes: u32) -> Job {
        Job {
            array: ArrayPart::from_record(7, None, text, limit),
            node_count: nodes,
            time_limit_mins: Some(10),
            start_time: Some(START),
            scheduled_nodes: vec![NodeName::new("n1")],
            ..Job::new(JobId(7), "main", BaseState::Pending)
        }
    }

    fn on_node(id: u32, node: &str, ends_at: i64) -> Job {
        let end_time = Some(UnixTime(ends_at));
        let nodes = vec![NodeName::new(node)];
        Job { nodes, end_time, ..Job::new(JobId(id), "main", BaseState::Running) }
    }

    /// The names of the nodes for the further tasks, on six nodes with these jobs.
    fn planned(job: Job, others: Vec<Job>, claimed: Option<(usize, i64)>) -> Vec<String> {
        let nodes = (1..=6).map(|n| Node {
            partitions: vec!["main".to_owned(), "infill".to_owned()],
            features: if n > 4 { vec!["big".to_owned()] } else { Vec::new() },
            ..Node::new(NodeName::new(format!("n{n}")), NodeType::new("cpu2"))
        });
        let jobs = others.into_iter().chain([job.clone()]).collect();
        let snapshot =
            Snapshot { taken_at: UnixTime(1000), nodes: nodes.collect(), jobs, ..Snapshot::default() };
        let occupancy = NodeOccupancy::from_snapshot(&snapshot, "infill");
        let claimed_at =
            |index: usize| claimed.filter(|(node, _)| *node == index).map(|(_, at)| UnixTime(at));
        let indices = nodes_of_further_tasks(&job, START, &occupancy, claimed_at);
        indices.into_iter().map(|index| snapshot.nodes[index].name.to_string()).collect()
    }

    #[test]
    fn each_further_task_has_nodes_of_its_own() {
        assert_eq!(planned(array("0-3", 0, 1), vec![], None), ["n2", "n3", "n4"]);
        assert_eq!(planned(array("0-99", 0, 1), vec![], None).len(), 5, "as many as there are");
        assert_eq!(planned(array("0-3", 0, 2), vec![], None), ["n2", "n3", "n4", "n5"], "whole tasks");
        assert_eq!(planned(array("0,...", 0, 1), vec![], None).len(), 5, "the list is cut");
        assert_eq!(planned(array("4", 0, 1), vec![], None), [""; 0], "one task");
        assert_eq!(planned(Job { array: None, ..array("", 0, 1) }, vec![], None), [""; 0]);
    }

    #[test]
    fn the_limit_of_the_array_counts_running_tasks() {
        let running = Job { array: ArrayPart::from_record(7, Some(0), "", 3), ..on_node(8, "n6", 9000) };
        assert_eq!(planned(array("1-9", 3, 1), vec![running], None), ["n2"]);
    }

    #[test]
    fn nodes_that_others_have_or_want_are_left_out() {
        let jobs = vec![on_node(8, "n2", 1900), on_node(9, "n3", 2100)];
        assert_eq!(planned(array("0-2", 0, 1), jobs, None), ["n2", "n4"]);
        assert_eq!(planned(array("0-2", 0, 1), vec![], Some((1, 2599))), ["n3", "n4"]);
        assert_eq!(planned(array("0-2", 0, 1), vec![], Some((1, 2600))), ["n2", "n3"], "it ends before");
        let endless = Job { time_limit_mins: None, ..array("0-2", 0, 1) };
        assert_eq!(planned(endless, vec![], Some((1, 9000))), ["n3", "n4"]);
    }

    #[test]
    fn nodes_that_do_not_suit_are_left_out() {
        let mut job = array("0-3", 0, 1);
        job.asks.constraint = "big".to_owned();
        assert_eq!(planned(job, vec![], None), ["n5", "n6"]);
        let mut job = array("0-2", 0, 1);
        job.asks.exclude = "n[2-4]".to_owned();
        assert_eq!(planned(job, vec![], None), ["n5", "n6"]);
        assert_eq!(
            planned(Job { partition: "debug".to_owned(), ..array("0-2", 0, 1) }, vec![], None),
            [""; 0]
        );
        assert_eq!(planned(Job { gres: "gpu:1".to_owned(), ..array("0-2", 0, 1) }, vec![], None), [""; 0]);
    }
}
