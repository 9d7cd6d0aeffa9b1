//! What a worker of a malleable job shall do, and how its command ended.

use serde::{Deserialize, Serialize};

use super::{NodeName, Secret};

/// What to do with the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// Stay, run nothing.
    Hold,
    /// Run the command as this member of this generation (start it if that generation does not run here yet).
    Run(GenerationMember),
    /// Take the command that runs, which stays alive over changes, along into this generation.
    Regroup(GenerationMember),
    /// Start the command as one that may become a member: it warms up and waits. Its place is the one that it
    /// would have if the present generation grew by it.
    Warm(GenerationMember),
    /// This generation is without the command that runs, which leaves it at the next step. Stay.
    Part {
        /// The generation in which it has no place.
        generation: u64,
        /// Whether a member is lost, so that there is no step to wait for.
        urgent: bool,
    },
    /// Stop the command of this generation with the rescale signal (SIGKILL past the grace time), report,
    /// stay.
    Stop {
        /// The generation to stop.
        generation: u64,
    },
    /// As `Stop`; before, the command writes the checkpoint that it can make of its memory, though it has
    /// lost its peers.
    Rescue {
        /// The generation to stop.
        generation: u64,
    },
    /// As `Stop` if anything runs; then exit with code 0. For wings.
    Leave,
    /// Exit; the lead with this code.
    Finish {
        /// Exit code of the malleable job.
        code: i32,
    },
}

/// One worker's place in a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenerationMember {
    /// Number of the generation, growing from 1.
    pub generation: u64,
    /// This worker's node rank; 0 is the lead.
    pub rank: u32,
    /// Number of workers (one per node).
    pub world: u32,
    /// Host of rank 0.
    pub master_addr: String,
    /// Rendezvous port on that host.
    pub master_port: u16,
    /// All nodes by rank, or places on nodes.
    pub nodes: Vec<NodeName>,
    /// Execution plan.
    pub exec_plan: String,
    /// How processes that stay alive over changes meet in this generation; `None`: nobody tells them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting: Option<GenerationRendezvous>,
}

impl GenerationMember {
    /// The host of each member by rank: where GPUs are lent, one may come more than once.
    pub fn hosts(&self) -> Vec<NodeName> {
        self.nodes.iter().map(NodeName::host).collect()
    }
}

/// How processes that stay alive over changes meet in a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenerationRendezvous {
    /// Whether this worker is to open the store at which they meet.
    pub host: bool,
    /// Where that is, as `host:port`, once it is known.
    pub store: Option<String>,
    /// By which members know each other there, sealed for the job's owner; `None` where an agent of theirs
    /// could not pass it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Whether a member is lost, so that there is no step boundary to wait for.
    pub urgent: bool,
    /// How often the roll was called in this generation.
    pub rolls: u32,
}

/// A wing that the lead's agent shall submit with `sbatch`. Submitting the same order twice is an error of
/// the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WingOrder {
    /// Unique over the life of the store.
    pub order: u64,
    /// Nodes to pin it to: all of them, exclusively.
    pub nodes: Vec<NodeName>,
    /// Time limit.
    pub time_limit_mins: u32,
    /// Partition.
    pub partition: String,
    /// QOS, if the site names one.
    pub qos: Option<String>,
    /// Account of the lead, so that usage is booked alike.
    pub account: Option<String>,
    /// Generic resources per node, as for `--gres`.
    pub gres: Option<String>,
    /// CPUs of each node, as for `--cpus-per-task`, where they are lent and not whole nodes or GPUs, or where
    /// the execution plan says how many it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory of each node, MiB, as for `--mem`, where parts of nodes are lent and the execution plan says
    /// how much it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Features that its nodes must have, as for `--constraint`.
    #[serde(default)]
    pub constraint: Option<String>,
    /// Nodes that it must not have, as for `--exclude`.
    #[serde(default)]
    pub exclude: Option<String>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandExit {
    /// Exit code; 128 + signal when a signal killed it, as a shell says it.
    pub code: i32,
    /// Whether the agent had asked it to stop (rescale signal, or Slurm's SIGTERM).
    pub asked: bool,
    /// Whether it had to be killed after the grace time: work since its last checkpoint is lost.
    pub killed: bool,
}
