//! Messages between agents and the daemon: hello, poll, report.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::capabilities::CapabilitySet;
use super::document::BodyProof;
use infill_model::{AgentEvent, Directive, GpuUse, JobId, NodeName, RunSpec, Secret, WingOrder};

/// The version of the messages below. It grows when the two sides could no longer understand each other. A
/// mere addition is a [`Capability`] instead.
///
/// [`Capability`]: crate::Capability
pub const PROTOCOL: u32 = 2;

/// The protocol of a side that does not name one: it is older than the field.
pub const FIRST_PROTOCOL: u32 = 1;

/// Longest time for which the daemon keeps a long poll open, seconds. It is below the idle timeouts of common
/// proxies (60 s).
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
    /// Proof of the sender's identity; its purpose is `hello`.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// Whether the agent serves the lead or a wing.
    pub role: AgentRole,
    /// Slurm's name of the agent's node.
    pub node: NodeName,
    /// A TCP port that was free on the node a moment ago, for rank 0's rendezvous.
    pub port: u16,
    /// The generation whose command runs now, if any: set by an agent that outlived a daemon.
    pub running: Option<u64>,
    /// What the job's owner declared; only a lead sends it.
    pub spec: Option<RunSpec>,
    /// The agent's version.
    pub version: String,
    /// The agent's [`PROTOCOL`].
    #[serde(default = "first_protocol")]
    pub protocol: u32,
    /// What the agent can do beyond the first protocol.
    #[serde(default)]
    pub capabilities: CapabilitySet,
}

/// Answer to an [`AgentHello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct AgentWelcome {
    /// Bearer token for `poll` and `report` of an agent without [`crate::Capability::SealedSession`]. Other
    /// agents have a session ([`crate::seal`]). Both are valid until the daemon restarts: on 401, the agent
    /// says hello again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// How long a preempted worker may take to save before the agent kills it, seconds.
    pub preempt_leave_secs: f64,
    /// The agent's place on its node, which names the agent from now on; `None` if it has the whole node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<NodeName>,
    /// Host name or IP address at which other nodes reach the agent's node. `None` from older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The daemon's [`PROTOCOL`].
    #[serde(default = "first_protocol")]
    pub protocol: u32,
    /// What the daemon can do beyond the first protocol.
    #[serde(default)]
    pub capabilities: CapabilitySet,
}

fn first_protocol() -> u32 {
    FIRST_PROTOCOL
}

/// A long poll: `POST /v1/agent/poll`. The daemon answers when the assignment's version exceeds `seen`, or
/// after `wait_secs` with the present assignment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct AgentPoll {
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// The agent's node, or its place there.
    pub node: NodeName,
    /// Version of the last assignment that the agent has applied; 0 before the first.
    pub seen: u64,
    /// Seconds to wait, at most [`MAX_POLL_SECS`].
    pub wait_secs: u64,
}

/// What one worker shall do now. It is a level, not an edge: receiving it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct AgentAssignment {
    /// Grows with each change. Each value occurs once per worker while the daemon runs.
    pub version: u64,
    /// What to do with the command.
    pub directive: Directive,
    /// Wings that the lead shall submit and has not reported yet. Empty for a wing.
    pub wings: Vec<WingOrder>,
    /// What the job's owner should know: the lead's agent writes it once to the job's output.
    #[serde(default)]
    pub notice: Option<String>,
}

/// An [`AgentAssignment`] as received by an agent that may be older than the daemon.
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
    /// The assignment as far as this version can read it, and the names of the parts that it cannot read. If
    /// it cannot read the directive, `before` stays in force: the agent goes on as it does.
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
    /// Events in the order in which they happened, at most [`MAX_EVENTS`].
    pub events: Vec<AgentEvent>,
    /// The GPUs that the job holds on the node, if any. Each report repeats it. `None` from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuUse>,
    /// The same number as in the last report if its progress is repeated, because the answer was lost. `None`
    /// from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// Largest number of events in one report.
pub const MAX_EVENTS: usize = 256;

/// An [`AgentReport`] as received by a daemon that may be older than the agent.
#[derive(Debug, Deserialize)]
pub struct RawReport {
    job: JobId,
    node: NodeName,
    events: Vec<Box<RawValue>>,
    #[serde(default)]
    gpus: Option<GpuUse>,
    #[serde(default)]
    number: Option<u64>,
}

impl RawReport {
    /// Number of events in the report, understood or not.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The report with the events that this version can read, in their order, and the names of the others.
    pub fn decode_known(self) -> (AgentReport, Vec<String>) {
        let mut unknown = Vec::new();
        let events = self.events.iter().filter_map(|event| decode_or_note(event, &mut unknown)).collect();
        let gpus = self.gpus.filter(|gpus| gpus.is_credible());
        (AgentReport { job: self.job, node: self.node, events, gpus, number: self.number }, unknown)
    }
}

/// Answer to a report that was not understood in full. A report that was has no answer body (204).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ReportReceipt {
    /// Names of the events that the daemon does not know and has dropped, each name once.
    #[serde(default)]
    pub not_understood: Vec<String>,
}

/// Longest reported name of a part that was not understood, characters.
const MAX_NAME_CHARS: usize = 60;

/// Decodes one value; on failure adds its name to `unknown`.
fn decode_or_note<'a, T: Deserialize<'a>>(value: &'a RawValue, unknown: &mut Vec<String>) -> Option<T> {
    let decoded = serde_json::from_str(value.get());
    if decoded.is_err() {
        let name = value_name(value);
        if !unknown.contains(&name) {
            unknown.push(name);
        }
    }
    decoded.ok()
}

/// The name of an enum value: `"hold"`, or the only key of `{"run": …}`. A value without a name is named by
/// its beginning.
fn value_name(value: &RawValue) -> String {
    let name = match serde_json::from_str(value.get()) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(serde_json::Value::Object(fields)) if fields.len() == 1 => {
            fields.into_iter().map(|(key, _)| key).collect()
        }
        _ => value.get().to_owned(),
    };
    name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests;
