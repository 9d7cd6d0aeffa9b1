//! What a node was used for.

use infill_model::JobId;

/// Codes below this are no jobs.
const FIRST_JOB_CODE: u64 = 6;

/// What a node was used for. Where main jobs and parts of malleable ones share a node, it is the main jobs'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeUse {
    /// Nobody looked, or Slurm did not answer.
    #[default]
    Unknown,
    /// A main job runs on it.
    Main,
    /// Nobody uses it.
    Idle,
    /// Nobody uses it, and the main queue wants it before it would be worth anything.
    Wanted,
    /// Nobody uses it, and something forbids that infill does.
    Refused,
    /// Nobody can use it: down, drained, switched off.
    Down,
    /// A malleable job has it.
    Job(JobId),
}

impl NodeUse {
    /// Whether somebody has it, or may have: it is not known to be nobody's.
    pub(super) fn may_be_taken(self) -> bool {
        matches!(self, NodeUse::Unknown | NodeUse::Main | NodeUse::Job(_))
    }

    /// As a number, small where it is frequent.
    pub fn to_code(self) -> u64 {
        match self {
            NodeUse::Unknown => 0,
            NodeUse::Main => 1,
            NodeUse::Idle => 2,
            NodeUse::Wanted => 3,
            NodeUse::Refused => 4,
            NodeUse::Down => 5,
            NodeUse::Job(job) => FIRST_JOB_CODE + u64::from(job.0),
        }
    }

    /// What a number stands for; `None` where it is none of ours.
    pub(super) fn from_code(code: u64) -> Option<NodeUse> {
        Some(match code {
            0 => NodeUse::Unknown,
            1 => NodeUse::Main,
            2 => NodeUse::Idle,
            3 => NodeUse::Wanted,
            4 => NodeUse::Refused,
            5 => NodeUse::Down,
            _ => NodeUse::Job(JobId((code - FIRST_JOB_CODE).try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_has_a_number_of_its_own() {
        let uses = (0..FIRST_JOB_CODE).map(|code| NodeUse::from_code(code).unwrap());
        let jobs = [0, 1, u32::MAX].map(|id| NodeUse::Job(JobId(id)));
        for each in uses.chain(jobs) {
            assert_eq!(NodeUse::from_code(each.to_code()), Some(each));
        }
        assert_eq!(NodeUse::from_code(u64::MAX), None);
    }
}
