//! The consequences for a job whose program has lost checkpoints. The job stays as it is for longer after a
//! change, and what a change may lose adds to the cost of the change.

use infill_advisor::stops;
use infill_model::{GenerationStop, JobFacts, MalleableJob, UnixTime};

/// Seconds for which a job stays as it is after its first lost checkpoint. Each further loss doubles the stay
/// and adds this time: that is how much more certain it becomes that the next checkpoint is lost too.
const STAY_SECS: f64 = 60.0;

/// Longest such stay, seconds: after the program is fixed, the job must be able to grow again.
const MOST_STAY_SECS: f64 = 1800.0;

/// The most seconds of training that one change counts as lost. It is unknown when the program saved by
/// itself.
const MOST_LOST_SECS: f64 = 3600.0;

/// Adds to the costs of a job what its rescales are expected to lose, by the last stops of its program.
pub(super) fn add_checkpoint_risk(
    job: &mut MalleableJob,
    facts: &JobFacts,
    last: &[GenerationStop],
    now: UnixTime,
) {
    job.stay_secs = stay_secs(last);
    if job.stay_secs > 0.0 && facts.running.is_some() {
        // A loss does not start a stay otherwise. But this job would lose its next checkpoint as well.
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
        let mut stops = Vec::new();
        for (generation, end) in (1..).zip(ends) {
            stops.push(GenerationStop { job: JobId(1), generation, secs: 5.0, end: *end });
        }
        stay_secs(&stops)
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
