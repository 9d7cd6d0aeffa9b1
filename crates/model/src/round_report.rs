//! The reasons for a round's decisions. `infill explain` prints them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    GuaranteeReason, HostShortage, JobId, JobReason, NodeName, NodeReason, RoundNote, UnixTime, UserId,
};

/// Why a job got its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobVerdict {
    /// The job.
    pub job: JobId,
    /// Nodes before the round.
    pub had: u32,
    /// Nodes after it.
    pub gets: u32,
    /// The reason, with its numbers.
    pub why: JobReason,
    /// The CPUs or memory that hosts lack for its next larger size, if that keeps it from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<HostShortage>,
    /// Whether the job gets its minimum rate; `None` if its owner asked for none.
    #[serde(default, rename = "assured", skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<GuaranteeReason>,
}

impl JobVerdict {
    /// The reason, the shortage of hosts and the outcome of the guarantee in one sentence.
    pub fn full_sentence(&self) -> String {
        let mut sentence = self.why.to_string();
        if let Some(shortage) = &self.hosts {
            sentence += &format!("; {shortage}");
        }
        if let Some(guarantee) = &self.guarantee {
            sentence += &format!("; {guarantee}");
        }
        sentence
    }
}

/// Why a node was given to a job, or to none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeVerdict {
    /// The node.
    pub node: NodeName,
    /// The job that gets it, if any.
    pub job: Option<JobId>,
    /// The reason, with its numbers.
    pub why: NodeReason,
}

/// The decisions of a round, with reasons.
#[must_use = "an unread report explains nothing"]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoundReport {
    /// The moment of the round.
    pub at: UnixTime,
    /// One verdict for each malleable job, sorted by id.
    pub jobs: Vec<JobVerdict>,
    /// One verdict for each node of the partition that is a gap or was refused, sorted by name.
    pub nodes: Vec<NodeVerdict>,
    /// Notes on the round as a whole: doubts, truncated backfill plan, solver status, changes used up.
    pub notes: Vec<RoundNote>,
    /// The owners of the malleable jobs, to decide what a reader may see. They are never shown to readers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub owners: BTreeMap<JobId, UserId>,
}
