//! How long a program takes to save and exit, and whether it succeeds, learned from each of its stops.

use infill_model::{GenerationStop, StopOutcome};

/// Stops of a program that are remembered.
pub(crate) const STOPS_KEPT: usize = 20;

/// The percentage of stops that take no longer than the believed time.
pub const STOP_PERCENTILE: usize = 95;

/// A stop that was cut off would have taken longer. This multiple of its time is an assumption.
const CUT_OFF_FACTOR: f64 = 1.5;

/// Most seconds that a stop can have taken.
pub(crate) const MAX_STOP_SECS: f64 = 86_400.0;

/// Lost checkpoints in a row after which further ones say nothing new.
const MAX_LOST: f64 = 16.0;

/// Takes in one worker's stop. The stops of one generation's workers count as one stop.
pub(crate) fn learn_stop(stops: &mut Vec<GenerationStop>, new: &GenerationStop) {
    if !(0.0..=MAX_STOP_SECS).contains(&new.secs) {
        return;
    }
    match stops.iter_mut().find(|s| (s.job, s.generation) == (new.job, new.generation)) {
        Some(recorded) => {
            recorded.secs = recorded.secs.max(new.secs);
            recorded.end = recorded.end.max(new.end);
        }
        None => stops.push(*new),
    }
    let beyond = stops.len().saturating_sub(STOPS_KEPT);
    stops.drain(..beyond);
}

/// Seconds in which nearly every stop is over; `None` where none has ended by itself or by the end of its
/// grace time. Few stops say little about the longest: one counts double, and each further one reduces the
/// margin.
pub fn believed_stop_secs(stops: impl Iterator<Item = GenerationStop> + Clone) -> Option<f64> {
    if !stops.clone().any(|s| s.end != StopOutcome::Cut) {
        return None;
    }
    let mut secs: Vec<f64> = stops.map(|s| likely_secs(&s)).collect();
    secs.sort_by(f64::total_cmp);
    let usual = secs.get((secs.len() * STOP_PERCENTILE).div_ceil(100).checked_sub(1)?)?;
    Some(usual * (1.0 + 1.0 / secs.len() as f64))
}

/// Seconds that a stop takes at least: the longest that was cut off, times an assumed factor.
pub fn min_stop_secs(stops: impl Iterator<Item = GenerationStop>) -> f64 {
    stops.filter(|s| s.end.is_lower_bound()).map(|s| likely_secs(&s)).fold(0.0, f64::max)
}

fn likely_secs(stop: &GenerationStop) -> f64 {
    cut_off_factor(stop.end) * stop.secs
}

/// How many times as long a stop with this end would have taken.
pub(crate) fn cut_off_factor(end: StopOutcome) -> f64 {
    if end.is_lower_bound() { CUT_OFF_FACTOR } else { 1.0 }
}

/// A score of lost checkpoints, the stops in order of time: each lost one adds one, and each good one halves
/// the score.
pub fn lost_checkpoints(stops: &[GenerationStop]) -> f64 {
    stops.iter().filter(|s| s.end != StopOutcome::Cut).fold(0.0, |lost: f64, stop| {
        if stop.end.lost_checkpoint() { (lost + 1.0).min(MAX_LOST) } else { lost / 2.0 }
    })
}

/// The probability that the next checkpoint is lost, too.
pub fn loss_risk(stops: &[GenerationStop]) -> f64 {
    1.0 - 0.5f64.powf(lost_checkpoints(stops))
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    fn all(stops: &[(f64, StopOutcome)]) -> Vec<GenerationStop> {
        let mut known = Vec::new();
        for (generation, (secs, end)) in (1..).zip(stops) {
            learn_stop(&mut known, &GenerationStop { job: JobId(1), generation, secs: *secs, end: *end });
        }
        known
    }

    fn secs(stops: &[(f64, StopOutcome)]) -> Option<f64> {
        believed_stop_secs(all(stops).into_iter())
    }

    #[test]
    fn few_stops_say_less_than_many_and_the_old_are_forgotten() {
        use StopOutcome::Saved;
        assert_eq!(secs(&[]), None);
        assert_eq!(secs(&[(10.0, Saved)]), Some(20.0));
        assert_eq!(secs(&[(10.0, Saved); 5]), Some(12.0));
        // One in twenty may be an outlier.
        let mut stops = vec![(10.0, Saved); 19];
        stops.push((300.0, Saved));
        assert_eq!(secs(&stops), Some(10.5));
        stops.extend([(2.0, Saved); 20]);
        assert_eq!(secs(&stops), Some(2.1));
        assert_eq!(secs(&[(f64::NAN, Saved), (-1.0, Saved)]), None);
    }

    #[test]
    fn the_workers_of_a_generation_make_one_stop_with_the_slowest_time() {
        let mut known = Vec::new();
        for (secs, end) in [(3.0, StopOutcome::Saved), (5.0, StopOutcome::Killed), (1.0, StopOutcome::Saved)]
        {
            learn_stop(&mut known, &GenerationStop { job: JobId(1), generation: 4, secs, end });
        }
        assert_eq!(
            known,
            [GenerationStop { job: JobId(1), generation: 4, secs: 5.0, end: StopOutcome::Killed }]
        );
    }

    #[test]
    fn a_stop_that_was_cut_off_would_have_taken_longer() {
        use StopOutcome::{Cut, Killed, Saved};
        assert_eq!(secs(&[(10.0, Killed)]), Some(30.0));
        // A stop that Slurm cut off says nothing about how long stops take.
        assert_eq!(secs(&[(2.0, Cut)]), None);
        assert_eq!(min_stop_secs(all(&[(2.0, Cut), (5.0, Saved)]).into_iter()), 3.0);
        assert_eq!(secs(&[(6.0, Cut), (1.0, Saved)]), Some(9.0 * 1.5));
    }

    #[test]
    fn lost_checkpoints_add_up_and_good_ones_halve_the_score() {
        use StopOutcome::{Cut, Failed, Killed, Saved};
        assert_eq!(lost_checkpoints(&all(&[(1.0, Saved), (2.0, Cut)])), 0.0);
        assert_eq!(lost_checkpoints(&all(&[(5.0, Killed), (1.0, Failed), (5.0, Killed)])), 3.0);
        assert_eq!(lost_checkpoints(&all(&[(5.0, Killed), (5.0, Killed), (5.0, Saved)])), 1.0);
        assert_eq!(loss_risk(&all(&[(5.0, Killed)])), 0.5);
        assert_eq!(loss_risk(&[]), 0.0);
    }
}
