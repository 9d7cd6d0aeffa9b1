//! A generation as history keeps it.

use serde::{Deserialize, Serialize};

use super::{JobId, NodeName, UnixTime};

/// One generation, for history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationRecord {
    /// The lead's job id.
    pub job: JobId,
    /// Number of the generation.
    pub generation: u64,
    /// When its command was started on all workers.
    pub started_at: UnixTime,
    /// Nodes by rank.
    pub nodes: Vec<NodeName>,
    /// Why it was made, in words.
    pub why: String,
}

/// Of the generations of all jobs that have had a number, oldest first, those of the last one: each job's
/// begin anew.
pub fn generations_of_last_job(mut generations: Vec<GenerationRecord>) -> Vec<GenerationRecord> {
    let first = generations
        .windows(2)
        .rposition(|pair: &[GenerationRecord]| pair[1].generation <= pair[0].generation)
        .map_or(0, |before| before + 1);
    generations.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again() {
        let generation = |(at, generation): (usize, &u64)| GenerationRecord {
            job: JobId(7),
            generation: *generation,
            started_at: UnixTime(at as i64),
            nodes: Vec::new(),
            why: String::new(),
        };
        for (all, last) in [
            (vec![], vec![]),
            (vec![1, 2, 3], vec![1, 2, 3]),
            // Old ones are thrown away.
            (vec![4, 5, 1, 2], vec![1, 2]),
            (vec![1, 1], vec![1]),
            (vec![1, 2, 1, 2, 3, 2], vec![2]),
        ] {
            let told = generations_of_last_job(all.iter().enumerate().map(generation).collect());
            assert_eq!(told.iter().map(|g| g.generation).collect::<Vec<_>>(), last, "{all:?}");
        }
    }
}
