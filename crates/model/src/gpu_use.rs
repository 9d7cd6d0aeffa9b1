//! How many of the GPUs that a job holds its command uses.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::MOST_GPUS_A_NODE;

/// GPUs that a job holds, and how many of them its command uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuUse {
    /// GPUs that Slurm has given to the job.
    pub held: u32,
    /// GPUs of these that a process of the command uses.
    pub used: u32,
}

impl GpuUse {
    /// Whether one node can report this.
    pub fn is_credible(self) -> bool {
        self.held <= MOST_GPUS_A_NODE && self.used <= self.held
    }

    /// The sum over several nodes; `None` if none of them has a GPU.
    pub fn total(nodes: impl IntoIterator<Item = GpuUse>) -> Option<GpuUse> {
        let sum = nodes.into_iter().fold(GpuUse::default(), |sum, node| GpuUse {
            held: sum.held.saturating_add(node.held),
            used: sum.used.saturating_add(node.used),
        });
        (sum.held > 0).then_some(sum)
    }
}

/// `3/4`.
impl fmt::Display for GpuUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.used, self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_added_up_and_nonsense_is_recognised() {
        let node = |held, used| GpuUse { held, used };
        assert_eq!(GpuUse::total([node(4, 4), node(4, 1)]), Some(node(8, 5)));
        assert_eq!(GpuUse::total([node(0, 0)]), None);
        assert!(node(4, 4).is_credible() && node(0, 0).is_credible());
        assert!(!node(1, 2).is_credible() && !node(u32::MAX, 0).is_credible());
        assert_eq!(format!("{:>5}", node(4, 3)), "  3/4");
    }
}
