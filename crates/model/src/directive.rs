//! Directives for the workers of a malleable job.

use serde::{Deserialize, Serialize};

use super::{NodeName, Secret};

/// A directive of the daemon to an agent for its command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// Stay, and run nothing.
    Hold,
    /// Run the command as this member of this generation. Start it if that generation does not run here yet.
    Run(GenerationMember),
    /// Bring the running command, which stays alive over changes, into this generation.
    Regroup(GenerationMember),
    /// Start the command so that it may become a member: it warms up and waits. Its place is the one that it
    /// would have if the present generation grew by this worker.
    Warm(GenerationMember),
    /// The running command has no place in this generation and leaves it at the next step. The agent stays.
    Part {
        /// The generation in which the command has no place.
        generation: u64,
        /// Whether a member is lost, so that there will be no next step.
        urgent: bool,
    },
    /// Stop the command of this generation with the rescale signal (SIGKILL after the grace time), report,
    /// and stay.
    Stop {
        /// The generation to stop.
        generation: u64,
    },
    /// Stop as with `Stop`. Before that, the command writes the checkpoint that it can make from its memory,
    /// although it has lost its peers.
    Rescue {
        /// The generation to stop.
        generation: u64,
    },
    /// Stop as with `Stop` if anything runs, then exit with code 0. For wings.
    Leave,
    /// Exit. The lead exits with this code.
    Finish {
        /// The exit code of the malleable job.
        code: i32,
    },
}

/// One worker's place in a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenerationMember {
    /// The number of the generation, ascending from 1.
    pub generation: u64,
    /// This worker's node rank; 0 is the lead.
    pub rank: u32,
    /// The number of workers, one per node.
    pub world: u32,
    /// The host of rank 0.
    pub master_addr: String,
    /// The rendezvous port on that host.
    pub master_port: u16,
    /// All nodes, or places on nodes, by rank.
    pub nodes: Vec<NodeName>,
    /// The execution plan.
    pub exec_plan: String,
    /// How processes that stay alive over changes meet in this generation. `None` if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting: Option<GenerationRendezvous>,
}

impl GenerationMember {
    /// The host of each member by rank. If places are lent, a host may occur more than once.
    pub fn hosts(&self) -> Vec<NodeName> {
        self.nodes.iter().map(NodeName::host).collect()
    }
}

/// How processes that stay alive over changes meet in a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenerationRendezvous {
    /// Whether this worker shall open the store at which they meet.
    pub host: bool,
    /// The address of the store as `host:port`, once it is known.
    pub store: Option<String>,
    /// The secret that members of the generation show each other at the store, sealed for the job's owner.
    /// `None` if the agent of a member cannot pass it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Whether a member is lost, so that there is no step boundary to wait for.
    pub urgent: bool,
    /// How many times the members were called to meet in this generation.
    pub rolls: u32,
}
