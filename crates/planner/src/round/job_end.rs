//! A job that ends soon gains by a change only until then, and counts for a little more.

use std::collections::BTreeMap;

use super::priorities::RemainingWork;
use infill_model::MalleableJob;

/// To grow costs a job that is about to end so many times as much at most.
const MAX_GROWTH_FACTOR: f64 = 30.0;

/// A job with a tenth of the work ahead counts for ten to the power of this as much, 26 % more. More than
/// that makes jobs replace one another: on Rubick's machine, speeds known, an exponent of 0.1 costs 4 % of
/// the mean time to the end and one of 0.25 costs 13 %; on Crius' 40 and 42 jobs end with them, 38 without.
const URGENCY: f64 = 0.1;

/// Most by which a job counts for more, or less, than the middle ones.
const MOST_URGENT: f64 = 1.5;

/// Weights change in steps of this factor, not with each round.
const URGENCY_STEP: f64 = 1.02;

/// How many times as much each job counts among its user's, by the work that it has ahead: the logarithms of
/// each user's have the mean 0, so that users' shares are as they were. A job of which that is not well known
/// counts once.
pub(super) fn urgency_factors(jobs: &[(&str, Option<f64>)]) -> Vec<f64> {
    let mut of_user: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (user, secs) in jobs.iter().filter_map(|(user, secs)| Some((user, (*secs)?))) {
        let (sum, count) = of_user.entry(user).or_default();
        (*sum, *count) = (*sum + secs.max(1.0).ln(), *count + 1.0);
    }
    let mean = |user: &str| of_user.get(user).map(|(sum, count)| sum / count);
    let tilt = |(user, secs): &(&str, Option<f64>)| {
        let behind = mean(user).zip(*secs).map_or(0.0, |(mean, secs)| mean - secs.max(1.0).ln());
        let steps = (URGENCY * behind / URGENCY_STEP.ln()).round();
        URGENCY_STEP.powf(steps).clamp(1.0 / MOST_URGENT, MOST_URGENT)
    };
    jobs.iter().map(tilt).collect()
}

/// Where it is known how long the job goes on, and that is less than the horizon over which its gains count,
/// to grow costs in proportion more: what a larger size saves then is never worth a second start, and a job
/// that has not made its first step yet is stopped no more lightly for that. `running`: its nodes, if it
/// trains.
pub(super) fn raise_growth_cost(
    job: &mut MalleableJob,
    ahead: &RemainingWork,
    running: Option<u32>,
    unit: f64,
    horizon_secs: f64,
) {
    let held = job.held.len() as u32;
    let nodes = running.unwrap_or(held);
    if nodes == 0 || unit <= 0.0 || !ahead.is_well_known() {
        return;
    }
    let Some(rate) = job
        .rates
        .iter()
        .find(|r: &&infill_model::malleable::RateCurve| r.exec_plan == job.exec_plan)
        .map(|r| r.curve.rate(nodes))
    else {
        return;
    };
    let left_secs = ahead.remaining_secs() * unit / rate.max(f64::MIN_POSITIVE);
    let times = (horizon_secs / left_secs.max(1.0)).clamp(1.0, MAX_GROWTH_FACTOR);
    // To shrink may be for others, or all that is left to it.
    job.costs.up_secs *= times;
    job.swap_secs.iter_mut().for_each(|secs| *secs *= times);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_soon_counts_for_a_little_more_among_its_user_s_jobs() {
        let shown = |jobs: &[(&str, Option<f64>)]| {
            urgency_factors(jobs).iter().map(|tilt| format!("{tilt:.2}")).collect::<Vec<_>>().join(" ")
        };
        let a = |secs| ("a", Some(secs));
        let b = |secs| ("b", Some(secs));
        assert_eq!(shown(&[a(100.0), a(1_000.0), a(10_000.0)]), "1.27 1.00 0.79");
        assert_eq!(shown(&[a(100.0), b(1e6), a(100.0), b(1e6)]), "1.00 1.00 1.00 1.00", "each has its share");
        assert_eq!(
            shown(&[a(1.0), a(1e9), ("a", None)]),
            "1.50 0.67 1.00",
            "within bounds; and nobody knows"
        );
        assert_eq!(shown(&[a(500.0), a(505.0)]), "1.00 1.00", "in steps");
        assert_eq!(shown(&[("a", None), ("b", None)]), "1.00 1.00");
        assert_eq!(shown(&[]), "");
    }
}
