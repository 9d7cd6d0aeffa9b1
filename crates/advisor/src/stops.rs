//! How long a program takes to save and exit, and whether it comes to that, learned from each of its stops.

use infill_model::{GenerationStop, StopOutcome};

/// Stops of a program that are remembered.
pub(crate) const STOPS_KEPT: usize = 20;

/// The share of stops, in per cent, that take no longer than what is allowed for.
pub const STOP_PERCENTILE: usize = 95;

/// A stop that was cut off would have taken longer: so many times, for all that is known.
const CUT_OFF_FACTOR: f64 = 1.5;

/// Most seconds that a stop can have taken.
pub(crate) const MAX_STOP_SECS: f64 = 86_400.0;

/// Lost checkpoints in a row beyond which further ones say nothing new.
const MAX_LOST: f64 = 16.0;

/// Takes in one worker's stop. Those of one generation are one stop.
pub(crate) fn learn_stop(stops: &mut Vec<GenerationStop>, new: &GenerationStop) {
    if !(0.0..=MAX_STOP_SECS).contains(&new.secs) {
        return;
    }
    match stops.iter_mut().find(|s: &&mut GenerationStop| (s.job, s.generation) == (new.job, new.generation))
    {
        Some(known) => {
            known.secs = known.secs.max(new.secs);
            known.end = known.end.max(new.end);
        }
        None => stops.push(*new),
    }
    let beyond = stops.len().saturating_sub(STOPS_KEPT);
    stops.drain(..beyond);
}

/// Seconds in which nearly every stop is over; `None` where none has come to its own end, be that its grace
/// time's. Few stops say little of the longest: one counts double, and each further one makes that less.
pub fn believed_stop_secs(stops: impl Iterator<Item = GenerationStop> + Clone) -> Option<f64> {
    if !stops.clone().any(|s| s.end != StopOutcome::Cut) {
        return None;
    }
    let mut secs: Vec<f64> = stops.map(|s| likely_secs(&s)).collect();
    secs.sort_by(f64::total_cmp);
    let usual = secs.get((secs.len() * STOP_PERCENTILE).div_ceil(100).checked_sub(1)?)?;
    Some(usual * (1.0 + 1.0 / secs.len() as f64))
}

/// Seconds that a stop takes at the least: the longest that was cut off.
pub fn min_stop_secs(stops: impl Iterator<Item = GenerationStop>) -> f64 {
    stops.filter(|s| s.end.is_lower_bound()).map(|s| likely_secs(&s)).fold(0.0, f64::max)
}

fn likely_secs(stop: &GenerationStop) -> f64 {
    cut_off_factor(stop.end) * stop.secs
}

/// How many times as long a stop with this end would have taken, for all that is known.
pub(crate) fn cut_off_factor(end: StopOutcome) -> f64 {
    if end.is_lower_bound() { CUT_OFF_FACTOR } else { 1.0 }
}

/// Lost checkpoints, the last ones first of all: each adds one, and each good one takes half away.
pub fn lost_checkpoints(stops: &[GenerationStop]) -> f64 {
    stops.iter().filter(|s| s.end != StopOutcome::Cut).fold(0.0, |lost: f64, stop| {
        if stop.end.lost_checkpoint() { (lost + 1.0).min(MAX_LOST) } else { lost / 2.0 }
    })
}

/// The chance that the next checkpoint is lost, too.
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
    fn the_workers_of_a_generation_make_one_stop_of_the_slowest() {
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
    fn what_was_cut_off_would_have_taken_longer() {
        use StopOutcome::{Cut, Killed, Saved};
        assert_eq!(secs(&[(10.0, Killed)]), Some(30.0));
        // That Slurm took the node says nothing of how long it takes.
        assert_eq!(secs(&[(2.0, Cut)]), None);
        assert_eq!(min_stop_secs(all(&[(2.0, Cut), (5.0, Saved)]).into_iter()), 3.0);
        assert_eq!(secs(&[(6.0, Cut), (1.0, Saved)]), Some(9.0 * 1.5));
    }

    #[test]
    fn lost_checkpoints_add_up_and_good_ones_forgive() {
        use StopOutcome::{Cut, Failed, Killed, Saved};
        assert_eq!(lost_checkpoints(&all(&[(1.0, Saved), (2.0, Cut)])), 0.0);
        assert_eq!(lost_checkpoints(&all(&[(5.0, Killed), (1.0, Failed), (5.0, Killed)])), 3.0);
        assert_eq!(lost_checkpoints(&all(&[(5.0, Killed), (5.0, Killed), (5.0, Saved)])), 1.0);
        assert_eq!(loss_risk(&all(&[(5.0, Killed)])), 0.5);
        assert_eq!(loss_risk(&[]), 0.0);
    }
}
