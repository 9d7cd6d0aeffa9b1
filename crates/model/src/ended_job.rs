//! The history's record of an ended malleable job.

use serde::{Deserialize, Serialize};

use super::{JobId, PastJob, Submission, UnixTime, UserEstimate};

/// The history's record of an ended job: its identity, its work, and why it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndedJob {
    /// The lead's job id.
    pub job: JobId,
    /// Slurm's submission time. Together with the id it identifies a job for good, because ids wrap around.
    pub submitted_at: UnixTime,
    /// When it ended.
    pub ended_at: UnixTime,
    /// The owner's login name.
    pub user: String,
    /// Slurm's account; empty if unknown.
    pub account: String,
    /// The name of its profile, else its Slurm name without digits.
    pub name: String,
    /// Hash of its command; empty if unknown.
    pub command_hash: String,
    /// The fewest nodes that it could have.
    pub min_nodes: u32,
    /// The most nodes that it could have.
    pub max_nodes: u32,
    /// GPUs of each node; 0 if unknown.
    pub gpus_per_node: u32,
    /// Its time limit in seconds; `None` if it had none.
    pub limit_secs: Option<f64>,
    /// The work that it has done, as the seconds that it would have taken on one node at its own rate there.
    /// For a job of unknown progress, node-seconds: the seconds for which it held nodes, times their number.
    pub work_secs: f64,
    /// Its first estimate of its total work, in the same seconds; `None` if it made none.
    pub said_secs: Option<f64>,
    /// The first estimate of the total work at which its loss is flat, in the same seconds. `None` if it
    /// reported no losses.
    #[serde(default)]
    pub flat_secs: Option<f64>,
    /// The samples that it has made; 0 if it reported none.
    pub samples: f64,
    /// Seconds from its first start to its end.
    pub secs: f64,
    /// The exit code of its command. `None` if Slurm ended the job, or no agent saw the exit.
    pub exit_code: Option<i32>,
    /// Why it ended: a Slurm state, in a word or two.
    pub why: String,
}

impl EndedJob {
    /// Converts it to a record from which the lengths of jobs are learned. Its work is its length.
    pub fn to_past_job(&self) -> PastJob {
        let job = Submission {
            submitted_at: self.submitted_at.0 as f64,
            user: self.user.clone(),
            name: self.name.clone(),
            nodes: self.max_nodes,
            gpus: 0,
            // The limit counts wall-clock seconds, not work.
            limit_secs: None,
            further_facts: vec![f64::from(self.min_nodes)],
        };
        let estimate = UserEstimate { declared_secs: self.said_secs, flat_loss_secs: self.flat_secs };
        PastJob { job, ended_at: self.ended_at.0 as f64, secs: self.work_secs, estimate }
    }
}

/// The name of a job without its digits, which differ between the jobs of a series.
pub fn strip_digits(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_series_have_one_name() {
        assert_eq!(strip_digits("train_007-lr0.1"), strip_digits("train_12-lr0.05"));
        assert_eq!(strip_digits("42"), "");
    }
}
