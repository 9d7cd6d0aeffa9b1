//! The closed machine: pools of nodes with GPUs of one type each, and the GPUs of jobs.

use std::fmt;
use std::str::FromStr;

use infill_model::NodeType;

/// Most GPUs of a machine.
const MAX_GPUS: u32 = 65_536;

/// The type of GPUs without a name.
const ANY_GPU_TYPE: &str = "any";

/// Nodes of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuPool {
    /// Type of the GPUs.
    pub node_type: NodeType,
    /// GPUs of each node.
    pub per_node: u32,
    /// Free GPUs by node.
    free: Vec<u32>,
}

/// All pools of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedMachine {
    /// The pools, in the order in which they were given. Each has another type.
    pub pools: Vec<GpuPool>,
}

/// The GPUs of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuAllocation {
    /// Index of the pool.
    pub pool: usize,
    /// GPUs by node, by the node's number in the pool.
    pub nodes: Vec<(usize, u32)>,
}

/// A text that does not describe a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected NODESxGPUS[:TYPE][,…], such as 8x8:a800 or 29x4:a100,58x2:a40, with {MAX_GPUS} GPUs at most; found {0:?}"
)]
pub struct InvalidMachine(String);

impl GpuPool {
    /// Number of GPUs of all nodes.
    pub fn gpu_count(&self) -> u32 {
        self.per_node * self.free.len() as u32
    }

    /// Number of free GPUs of all nodes.
    pub fn free_gpus(&self) -> u32 {
        self.free.iter().sum()
    }

    /// Free GPUs of each node.
    pub(crate) fn free_by_node(&self) -> &[u32] {
        &self.free
    }

    /// Finds GPUs for a job on as few nodes as possible. It takes the fullest node with enough free GPUs. If
    /// no node has enough, it takes the emptiest, and looks for the rest in the same way. `None` if there are
    /// too few.
    fn find_gpus(&self, gpus: u32) -> Option<Vec<(usize, u32)>> {
        let mut rest = gpus;
        let mut found: Vec<(usize, u32)> = Vec::new();
        while rest > 0 {
            let others = self.free.iter().copied().enumerate();
            let others = others.filter(|(n, free)| *free > 0 && found.iter().all(|(f, _)| f != n));
            let tightest =
                others.clone().filter(|(_, free)| *free >= rest).min_by_key(|(n, free)| (*free, *n));
            let emptiest = others.max_by_key(|(n, free)| (*free, std::cmp::Reverse(*n)));
            let (node, free) = tightest.or(emptiest)?;
            let taken = free.min(rest);
            found.push((node, taken));
            rest -= taken;
        }
        Some(found)
    }
}

impl ClosedMachine {
    /// Number of GPUs of all pools.
    pub fn gpu_count(&self) -> u32 {
        self.pools.iter().map(GpuPool::gpu_count).sum()
    }

    /// The GPUs that a job would get for this number in a pool; `None` if there are too few.
    pub fn find_allocation(&self, pool: usize, gpus: u32) -> Option<GpuAllocation> {
        let nodes = self.pools.get(pool)?.find_gpus(gpus)?;
        Some(GpuAllocation { pool, nodes })
    }

    /// Marks GPUs as used.
    pub fn take_gpus(&mut self, seat: &GpuAllocation) {
        self.update_free(seat, |free, gpus, _| free.saturating_sub(gpus));
    }

    /// Marks GPUs as free.
    pub fn release_gpus(&mut self, seat: &GpuAllocation) {
        self.update_free(seat, |free, gpus, per_node| (free + gpus).min(per_node));
    }

    /// Whether all these GPUs are free.
    pub fn is_free(&self, seat: &GpuAllocation) -> bool {
        let Some(pool) = self.pools.get(seat.pool) else { return seat.nodes.is_empty() };
        seat.nodes.iter().all(|(node, gpus)| pool.free.get(*node).is_some_and(|free| free >= gpus))
    }

    fn update_free(&mut self, seat: &GpuAllocation, change: impl Fn(u32, u32, u32) -> u32) {
        let Some(pool) = self.pools.get_mut(seat.pool) else { return };
        for (node, gpus) in &seat.nodes {
            if let Some(free) = pool.free.get_mut(*node) {
                *free = change(*free, *gpus, pool.per_node);
            }
        }
    }
}

impl GpuAllocation {
    /// GPUs on each node, ascending.
    pub fn by_node(&self) -> Vec<u32> {
        let mut gpus: Vec<u32> = self.nodes.iter().map(|(_, gpus)| *gpus).collect();
        gpus.sort_unstable();
        gpus
    }
}

impl FromStr for ClosedMachine {
    type Err = InvalidMachine;

    /// Parses `8x8:a800`, or several such pools of different types, separated by commas.
    fn from_str(text: &str) -> Result<ClosedMachine, InvalidMachine> {
        parse_machine(text).ok_or_else(|| InvalidMachine(text.to_owned()))
    }
}

fn parse_machine(text: &str) -> Option<ClosedMachine> {
    let pools: Vec<GpuPool> = text.split(',').map(parse_pool).collect::<Option<_>>()?;
    let mut types: Vec<&NodeType> = pools.iter().map(|p| &p.node_type).collect();
    types.sort();
    types.dedup();
    let gpus = pools.iter().map(|p| u64::from(p.per_node) * p.free.len() as u64).sum::<u64>();
    let is_valid = types.len() == pools.len() && gpus <= u64::from(MAX_GPUS);
    is_valid.then_some(ClosedMachine { pools })
}

fn parse_pool(text: &str) -> Option<GpuPool> {
    // A machine with one kind of GPU needs no type.
    let (shape, node_type) = text.trim().split_once(':').unwrap_or((text.trim(), ANY_GPU_TYPE));
    let (nodes, gpus) = shape.split_once('x')?;
    let nodes = parse_count(nodes)?;
    let per_node = parse_count(gpus)?;
    if node_type.is_empty() {
        return None;
    }
    Some(GpuPool { node_type: NodeType::new(node_type), per_node, free: vec![per_node; nodes as usize] })
}

fn parse_count(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().filter(|count| (1..=MAX_GPUS).contains(count))
}

impl fmt::Display for ClosedMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pool) in self.pools.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}x{}", pool.free.len(), pool.per_node)?;
            if pool.node_type.as_str() != ANY_GPU_TYPE {
                write!(f, ":{}", pool.node_type)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(machine: &mut ClosedMachine, gpus: &[u32]) -> String {
        let mut take = |gpus: &u32| {
            let seat = machine.find_allocation(0, *gpus)?;
            machine.take_gpus(&seat);
            Some(seat.nodes.iter().map(|(n, g)| format!("{n}:{g}")).collect::<Vec<_>>().join("+"))
        };
        gpus.iter().map(|g| take(g).unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn jobs_get_gpus_on_as_few_nodes_as_possible() {
        let mut machine: ClosedMachine = "3x4:a".parse().unwrap();
        assert_eq!(seats(&mut machine, &[2, 4, 1, 1, 3, 2]), "0:2 1:4 0:1 0:1 2:3 -");
        let seat = GpuAllocation { pool: 0, nodes: vec![(0, 2)] };
        machine.release_gpus(&seat);
        assert!(machine.is_free(&seat));
        assert_eq!(seats(&mut machine, &[3]), "0:2+2:1");
    }

    #[test]
    fn machines_are_read_and_shown() {
        let plain = "468x1".parse::<ClosedMachine>().map(|m| (m.to_string(), m.gpu_count()));
        assert_eq!(plain, Ok(("468x1".to_owned(), 468)));
        let text = "29x4:a100,7x16:v100";
        let machine: ClosedMachine = text.parse().unwrap();
        assert_eq!((machine.to_string().as_str(), machine.gpu_count()), (text, 228));
        for wrong in ["", "8", "8:a", "0x8:a", "8x0:a", "8x8:", "1x1:a,2x2:a", "65536x2:a", "99999x99999:a"] {
            assert!(
                wrong.parse::<ClosedMachine>().unwrap_err().to_string().contains("NODESxGPUS[:TYPE]"),
                "{wrong}"
            );
        }
    }
}
