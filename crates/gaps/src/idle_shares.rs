//! The resources that main jobs leave idle on nodes that they share.

use rustc_hash::FxHashMap;

use super::{NodeOccupancy, OccupancyState};
use infill_model::{LendingUnit, Node, NodeName, Resources};

/// The resources that the jobs on a node have, by their own records.
#[derive(Clone, Debug, Default, PartialEq)]
enum HeldResources {
    /// The node has no job.
    #[default]
    Nothing,
    /// All jobs together have these resources.
    Part(Resources),
    /// One of them has the whole node.
    Whole,
}

/// The idle resources of a node with a job of the main queue: whole units of what no job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleUnits {
    /// The number of units.
    pub units: u32,
    /// The resources of one unit.
    pub unit: LendingUnit,
}

impl IdleUnits {
    /// Idle GPUs; 0 where the node has none.
    pub fn gpus(&self) -> u32 {
        if self.unit.has_gpu { self.units } else { 0 }
    }

    /// Idle CPUs.
    pub fn cpus(&self) -> u32 {
        self.units.saturating_mul(self.unit.cpus)
    }

    /// Idle memory, MiB.
    pub fn memory_mib(&self) -> u64 {
        u64::from(self.units).saturating_mul(self.unit.memory_mib)
    }
}

/// The idle resources beside jobs of the main queue, by node.
pub type IdleBesideMain = FxHashMap<NodeName, IdleUnits>;

/// Finds what is idle beside main jobs on nodes of the malleable partition. Takes about 0.1 µs a job and
/// node.
///
/// It leaves out nodes that one job has whole, nodes without an idle unit, and nodes whose records contradict
/// each other: their jobs have more than there is, or other sums than the node's own.
pub fn idle_beside_main(occupancy: &NodeOccupancy<'_>) -> IdleBesideMain {
    let snapshot = occupancy.snapshot();
    let held = held_by_node(occupancy);
    let mut idle = IdleBesideMain::default();
    for (index, (node, held)) in snapshot.nodes.iter().zip(&held).enumerate() {
        let has_main_job = matches!(occupancy.state_at(index), Some(OccupancyState::Main(_)));
        if !has_main_job || !occupancy.is_in_partition(index) {
            continue;
        }
        if let Some(units) = idle_units(node, held) {
            idle.insert(node.name.clone(), units);
        }
    }
    idle
}

fn idle_units(node: &Node, held: &HeldResources) -> Option<IdleUnits> {
    let HeldResources::Part(held) = held else { return None };
    let free = node.has.checked_sub(held).filter(|_| node.state.is_sound() && node.used == *held)?;
    let unit = LendingUnit::from_node(&node.has)?;
    let units = unit.units_in(&free);
    (units > 0).then_some(IdleUnits { units, unit })
}

/// The resources that the jobs of a snapshot hold, by index of the node.
fn held_by_node(occupancy: &NodeOccupancy<'_>) -> Vec<HeldResources> {
    let snapshot = occupancy.snapshot();
    let node_index = occupancy.node_index();
    let mut held = vec![HeldResources::default(); snapshot.nodes.len()];
    for job in snapshot.jobs.iter().filter(|j| j.state.occupies_nodes()) {
        for node in &job.nodes {
            let Some(held) = node_index.index_of(node).and_then(|index| held.get_mut(index)) else {
                continue;
            };
            let allocation = job.allocations.binary_search_by(|a| a.node.cmp(node)).ok();
            held.add_job(allocation.map(|index| &job.allocations[index].holds));
        }
    }
    held
}

impl HeldResources {
    /// Adds a job that holds these resources of the node, or the whole node.
    fn add_job(&mut self, holds: Option<&Resources>) {
        match (&mut *self, holds) {
            (HeldResources::Nothing, Some(holds)) => *self = HeldResources::Part(holds.clone()),
            (HeldResources::Part(held), Some(holds)) => held.add(holds),
            (_, None) | (HeldResources::Whole, _) => *self = HeldResources::Whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{AllocatedResources, BaseState, GpuCounts, Job, JobId, NodeState, NodeType, Snapshot};

    fn gpus(cpus: u32, memory_mib: u64, gpus: u32) -> Resources {
        Resources { cpus, memory_mib, gpus: GpuCounts::from_counts([("a100".to_owned(), gpus)]) }
    }

    /// A node of 16 CPUs, 16,000 MiB and 4 GPUs with one job for each of `held`; its own sums are `used`.
    fn snapshot(held: &[Option<Resources>], used: &Resources, state: &str) -> Snapshot {
        let name = NodeName::new("n1");
        let jobs = held.iter().enumerate().map(|(n, held)| {
            let nodes = vec![name.clone()];
            let allocations = held
                .iter()
                .map(|holds| AllocatedResources { node: name.clone(), holds: holds.clone() })
                .collect();
            let partition = if n == 0 { "main" } else { "infill" };
            Job { nodes, allocations, ..Job::new(JobId(n as u32 + 1), partition, BaseState::Running) }
        });
        let node = Node {
            state: NodeState::from_words([state]),
            partitions: vec!["infill".to_owned()],
            has: gpus(16, 16_000, 4),
            used: used.clone(),
            ..Node::new(name.clone(), NodeType::new("gpu"))
        };
        Snapshot { nodes: vec![node], jobs: jobs.collect(), ..Snapshot::default() }
    }

    /// Idle GPUs, CPUs and MiB beside these jobs. The first is a main job.
    fn idle(held: &[Option<Resources>], used: &Resources, state: &str) -> Option<(u32, u32, u64)> {
        let snapshot = snapshot(held, used, state);
        let idle = idle_beside_main(&NodeOccupancy::from_snapshot(&snapshot, "infill"));
        idle.get("n1").map(|i| (i.gpus(), i.cpus(), i.memory_mib()))
    }

    #[test]
    fn whole_units_that_no_job_has_are_idle() {
        let check = |held: &[Option<Resources>], used: Resources, expected| {
            assert_eq!(idle(held, &used, "MIXED"), expected, "{held:?}");
        };
        let one = gpus(2, 1000, 1);
        let two = gpus(5, 4000, 2);
        check(&[Some(one.clone())], one.clone(), Some((3, 12, 12_000)));
        check(&[Some(one.clone()), Some(two)], gpus(7, 5000, 3), Some((1, 4, 4000)));
        check(&[Some(gpus(9, 1000, 1))], gpus(9, 1000, 1), Some((1, 4, 4000)));
        check(&[], gpus(0, 0, 0), None);
        check(&[Some(gpus(16, 1000, 1))], gpus(16, 1000, 1), None);
        check(&[Some(one.clone()), None], one.clone(), None);
        check(&[None, Some(one.clone())], one, None);
    }

    #[test]
    fn records_that_contradict_each_other_leave_nothing() {
        let one = gpus(2, 1000, 1);
        let five = gpus(2, 1000, 5);
        assert_eq!(idle(&[Some(one.clone())], &gpus(4, 1000, 1), "MIXED"), None);
        assert_eq!(idle(&[Some(one.clone())], &gpus(2, 1000, 2), "MIXED"), None);
        assert_eq!(idle(&[Some(five.clone())], &five, "MIXED"), None);
        assert_eq!(idle(&[Some(one.clone())], &one, "DRAIN"), None);
    }
}
