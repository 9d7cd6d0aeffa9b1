//! The history's record of a generation.

use serde::{Deserialize, Serialize};

use super::{JobId, NodeName, UnixTime};

/// The history's record of one generation of a malleable job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenerationRecord {
    /// The lead's job id.
    pub job: JobId,
    /// The number of the generation, from 1 for each job.
    pub generation: u64,
    /// When the daemon began the generation.
    pub started_at: UnixTime,
    /// The nodes by rank.
    pub nodes: Vec<NodeName>,
    /// The reason for the generation, in words.
    pub why: String,
}

/// Keeps the generations of the last job that had a Slurm job id. The input has the generations of all jobs
/// with that id, oldest first. The numbers of each job begin again, so a number that does not grow marks a
/// new job.
pub fn generations_of_last_job(mut generations: Vec<GenerationRecord>) -> Vec<GenerationRecord> {
    let first = generations
        .windows(2)
        .rposition(|pair| pair[1].generation <= pair[0].generation)
        .map_or(0, |before| before + 1);
    generations.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_job_with_an_id_counts() {
        for (all, last) in [
            (vec![], vec![]),
            (vec![1, 2, 3], vec![1, 2, 3]),
            // The first generations of this job were deleted.
            (vec![4, 5, 1, 2], vec![1, 2]),
            (vec![1, 1], vec![1]),
            (vec![1, 2, 1, 2, 3, 2], vec![2]),
        ] {
            let records = all.iter().map(|generation| record(*generation)).collect();
            let kept: Vec<u64> = generations_of_last_job(records).iter().map(|r| r.generation).collect();
            assert_eq!(kept, last, "{all:?}");
        }
    }

    fn record(generation: u64) -> GenerationRecord {
        GenerationRecord {
            job: JobId(7),
            generation,
            started_at: UnixTime(0),
            nodes: Vec::new(),
            why: String::new(),
        }
    }
}
