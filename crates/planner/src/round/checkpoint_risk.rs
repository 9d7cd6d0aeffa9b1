//! What it means for a job that its program has lost checkpoints: it is left alone for longer, and what a
//! change may lose is part of what the change costs.

use infill_advisor::stops;
use infill_model::{GenerationStop, JobFacts, MalleableJob, UnixTime};

/// Seconds for which a job stays as it is after its first lost checkpoint; doubled, and as many again, with
/// each further one, as that is how much surer it is that the next is lost too.
const STAY_SECS: f64 = 60.0;

/// Longest such stay: who has mended the program shall see it grow again.
const MOST_STAY_SECS: f64 = 1800.0;

/// Most seconds of training that one change can lose: nobody knows when the program saved by itself.
const MOST_LOST_SECS: f64 = 3600.0;

/// Adds to the costs of a job what its rescales have lost so far, by the last stops of its program.
pub(super) fn add_checkpoint_risk(
    job: &mut MalleableJob,
    facts: &JobFacts,
    last: &[GenerationStop],
    now: UnixTime,
) {
    job.stay_secs = stay_secs(last);
    if job.stay_secs > 0.0 && facts.running.is_some() {
        // A loss starts no stay otherwise. But this job would lose the next checkpoint as well.
        job.last_change = job.last_change.max(Some(facts.since));
    }
    if facts.running.is_none() {
        return;
    }
    let trained_secs = now.secs_since(facts.since).clamp(0.0, MOST_LOST_SECS);
    let lost_secs = stops::loss_risk(last) * trained_secs;
    job.costs.up_secs += lost_secs;
    job.costs.down_secs += lost_secs;
    job.swap_secs.iter_mut().for_each(|secs| *secs += lost_secs);
}

fn stay_secs(last: &[GenerationStop]) -> f64 {
    let lost = stops::lost_checkpoints(last);
    (STAY_SECS * (lost.exp2() - 1.0)).min(MOST_STAY_SECS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{JobId, StopOutcome};

    fn after(ends: &[StopOutcome]) -> f64 {
        let stop = |(generation, end): (u64, &StopOutcome)| GenerationStop {
            job: JobId(1),
            generation,
            secs: 5.0,
            end: *end,
        };
        stay_secs(&(1..).zip(ends).map(stop).collect::<Vec<_>>())
    }

    #[test]
    fn the_stay_grows_with_lost_checkpoints_and_shrinks_with_good_ones() {
        use StopOutcome::{Cut, Failed, Killed, Saved};
        assert_eq!(after(&[Saved, Saved, Cut]), 0.0);
        assert_eq!(after(&[Killed]), 60.0);
        assert_eq!(after(&[Killed, Failed]), 180.0);
        assert_eq!(after(&[Killed; 4]), 900.0);
        assert_eq!(after(&[Killed; 9]), 1800.0);
        assert_eq!(after(&[Killed, Killed, Saved]), 60.0);
        assert!(after(&[Killed, Saved, Saved, Saved]) < 7.0);
    }
}
