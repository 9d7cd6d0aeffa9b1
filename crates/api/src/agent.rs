//! What agents and the daemon say to each other: hello, poll, report.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::capabilities::CapabilitySet;
use super::document::BodyProof;
use infill_model::{AgentEvent, Directive, JobId, NodeName, RunSpec, Secret, WingOrder};

/// The version of the messages below. It grows when a side could no longer understand the other; what merely
/// came later is a [`Capability`].
pub const PROTOCOL: u32 = 2;

/// The protocol of those that name none: they are older than the field.
pub const FIRST_PROTOCOL: u32 = 1;

/// Longest time that the daemon keeps a long poll open. Below the idle time-outs of common proxies (60 s).
pub const MAX_POLL_SECS: u64 = 30;

/// Which part of a malleable job an agent serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentRole {
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
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct AgentHello {
    /// Proof of who speaks; its purpose is `hello`.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// Lead or wing.
    pub role: AgentRole,
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
    pub capabilities: CapabilitySet,
}

/// Answer to a [`AgentHello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct AgentWelcome {
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
    pub capabilities: CapabilitySet,
}

fn first_protocol() -> u32 {
    FIRST_PROTOCOL
}

/// A long poll: `POST /v1/agent/poll`. Answered when the assignment's version exceeds `seen`, or after
/// `wait_secs` with the present assignment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct AgentPoll {
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
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct AgentAssignment {
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

/// An [`AgentAssignment`] as an agent reads it that may be older than the daemon.
#[derive(Debug, Deserialize)]
pub struct RawAssignment {
    /// See [`AgentAssignment::version`].
    pub version: u64,
    directive: Box<RawValue>,
    wings: Vec<Box<RawValue>>,
    #[serde(default)]
    notice: Option<String>,
}

impl RawAssignment {
    /// The assignment, as far as this version can read it, and the names of what it cannot. Where that is the
    /// directive, `before` holds on: the agent keeps on doing what it does.
    pub fn decode_known(self, before: &Directive) -> (AgentAssignment, Vec<String>) {
        let mut unknown = Vec::new();
        let directive = decode_or_note(&self.directive, &mut unknown).unwrap_or_else(|| before.clone());
        let wings = self.wings.iter().filter_map(|wing| decode_or_note(wing, &mut unknown)).collect();
        (AgentAssignment { version: self.version, directive, wings, notice: self.notice }, unknown)
    }
}

/// What happened at a worker: `POST /v1/agent/report`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
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

/// An [`AgentReport`] as a daemon reads it that may be older than the agent.
#[derive(Debug, Deserialize)]
pub struct RawReport {
    job: JobId,
    node: NodeName,
    events: Vec<Box<RawValue>>,
}

impl RawReport {
    /// How many events it carries, understood or not.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The events that this version can read, in their order, and the names of the others.
    pub fn decode_known(self) -> (AgentReport, Vec<String>) {
        let mut unknown = Vec::new();
        let events = self.events.iter().filter_map(|event| decode_or_note(event, &mut unknown)).collect();
        (AgentReport { job: self.job, node: self.node, events }, unknown)
    }
}

/// Answer to a report, if not all of it was understood; else there is none (204).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ReportReceipt {
    /// Names of the events that the daemon does not know, and has dropped. Each name once.
    #[serde(default)]
    pub not_understood: Vec<String>,
}

/// Longest name that is told of what was not understood, characters.
const MAX_NAME_CHARS: usize = 60;

/// Reads one value; if that fails, adds its name to `unknown`.
fn decode_or_note<'a, T: Deserialize<'a>>(value: &'a RawValue, unknown: &mut Vec<String>) -> Option<T> {
    let read = serde_json::from_str(value.get());
    if read.is_err() {
        let name = value_name(value);
        if !unknown.contains(&name) {
            unknown.push(name);
        }
    }
    read.ok()
}

/// The name of a value of an enum: `"hold"`, or the only key of `{"run": …}`; of what has none its
/// beginning.
fn value_name(value: &RawValue) -> String {
    let name = match serde_json::from_str(value.get()) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(serde_json::Value::Object(fields)) if fields.len() == 1 => {
            fields.into_iter().map(|(k, _)| k).collect()
        }
        _ => value.get().to_owned(),
    };
    name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests;
