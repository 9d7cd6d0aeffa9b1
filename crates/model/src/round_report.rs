//! Why a round decided what it decided. `infill explain` prints this.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    GuaranteeReason, HostShortage, JobId, JobReason, NodeName, NodeReason, RoundNote, UnixTime, UserId,
};

/// Why a job got what it got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobVerdict {
    /// The job.
    pub job: JobId,
    /// Nodes before the round.
    pub had: u32,
    /// Nodes after it.
    pub gets: u32,
    /// The reason, with its numbers.
    pub why: JobReason,
    /// What hosts lack for its next larger size, if that keeps it from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<HostShortage>,
    /// Whether it gets what its owner wants at the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assured: Option<GuaranteeReason>,
}

impl JobVerdict {
    /// All of it in one sentence.
    pub fn full_sentence(&self) -> String {
        let hosts = self.hosts.map(|hosts| format!("; {hosts}")).unwrap_or_default();
        let assured = self.assured.as_ref().map(|assured| format!("; {assured}")).unwrap_or_default();
        format!("{}{hosts}{assured}", self.why)
    }
}

/// Why an idle node got the job it got, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeVerdict {
    /// The node.
    pub node: NodeName,
    /// The job that gets it.
    pub job: Option<JobId>,
    /// The reason, with its numbers.
    pub why: NodeReason,
}

/// What a round decided and why.
#[must_use = "an unread report explains nothing"]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundReport {
    /// Moment of the round.
    pub at: UnixTime,
    /// One verdict for each malleable job, sorted by id.
    pub jobs: Vec<JobVerdict>,
    /// One verdict for each node of the partition that is a gap, or that was refused, sorted by name.
    pub nodes: Vec<NodeVerdict>,
    /// What concerns the round as a whole: doubts, truncated backfill plan, solver status, budget reached.
    pub notes: Vec<RoundNote>,
    /// Whose the malleable jobs are, for whoever decides what a reader may see of them; no reader is told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub owners: BTreeMap<JobId, UserId>,
}
