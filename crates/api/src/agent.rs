//! What agents and the daemon say to each other: hello, poll, report.

use serde::{Deserialize, Serialize};

use super::capabilities::Capabilities;
use super::document::BodyProof;
use infill_model::{AgentEvent, Directive, JobId, NodeName, RunSpec, Secret, WingOrder};

/// The version of the messages below. It grows when a side could no longer understand the other; what merely
/// came later is a [`Capability`].
pub const PROTOCOL: u32 = 2;

/// Longest time that the daemon keeps a long poll open. Below the idle time-outs of common proxies (60 s).
pub const MAX_POLL_SECS: u64 = 30;

/// Which part of a malleable job an agent serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// `infill run` on the lead's node.
    Lead,
    /// `infill worker` in a wing of this lead.
    Wing {
        /// The lead's job id.
        lead: JobId,
    },
}

/// An agent's first message: `POST /v1/agent/hello`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Proof of who speaks; its purpose is `hello`.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// Lead or wing.
    pub role: Role,
    /// Slurm's name of the agent's node.
    pub node: NodeName,
    /// A TCP port that was free on the node a moment ago, for rank 0's rendezvous.
    pub port: u16,
    /// The generation whose command runs now (an agent that outlived a daemon), if any.
    pub running: Option<u64>,
    /// From a lead only.
    pub spec: Option<RunSpec>,
    /// The agent's version.
    pub version: String,
    /// The agent's [`PROTOCOL`].
    #[serde(default = "first_protocol")]
    pub protocol: u32,
    /// What the agent can do.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// Answer to a [`Hello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Bearer token for `poll` and `report` of an agent that has no [`crate::Capability::SealedSession`];
    /// others have a session ([`crate::seal`]). Either is good until the daemon restarts: on 401, say hello
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// How long a preempted worker may take to save before it is killed, seconds.
    pub preempt_leave_secs: f64,
    /// The agent's place on its node, by which it is known from now on; `None`: it has the node for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<NodeName>,
    /// The daemon's [`PROTOCOL`].
    #[serde(default = "first_protocol")]
    pub protocol: u32,
    /// What the daemon can do.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// Of those who do not say it: they are older than the field.
fn first_protocol() -> u32 {
    1
}

/// A long poll: `POST /v1/agent/poll`. Answered when the assignment's version exceeds `seen`, or after
/// `wait_secs` with the present assignment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Poll {
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// The agent's node, or its place there.
    pub node: NodeName,
    /// Version of the last assignment that the agent has taken up; 0 at first.
    pub seen: u64,
    /// Seconds to wait, at most [`MAX_POLL_SECS`].
    pub wait_secs: u64,
}

/// What one worker shall do now. A level, not an edge: getting it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Grows with every change; unique to this worker while the daemon runs.
    pub version: u64,
    /// What to do with the command.
    pub directive: Directive,
    /// Wings that the lead shall submit and has not reported yet. Empty for a wing.
    pub wings: Vec<WingOrder>,
    /// What the job's owner should know: the lead's agent says it once, in the job's output.
    #[serde(default)]
    pub notice: Option<String>,
}

/// What happened at a worker: `POST /v1/agent/report`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentReport {
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// The agent's node, or its place there.
    pub node: NodeName,
    /// Events in order. At most [`MAX_EVENTS`].
    pub events: Vec<AgentEvent>,
}

/// Most events that one report may carry.
pub const MAX_EVENTS: usize = 256;
