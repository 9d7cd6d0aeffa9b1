//! Jobs that end soon: they gain by a change only until then, and they count for a little more.

use std::collections::BTreeMap;

use super::priorities::RemainingWork;
use infill_model::MalleableJob;

/// The largest factor on the cost of growing for a job that ends soon.
const MAX_GROWTH_FACTOR: f64 = 30.0;

/// A job with a tenth of the remaining work counts for ten to the power of this as much: 26 % more. A larger
/// exponent makes jobs replace one another. On Rubick's machine, with known speeds, an exponent of 0.1 costs
/// 4 % of the mean time to the end. One of 0.25 costs 13 %. On Crius' machine 40 and 42 jobs end with them,
/// 38 without.
const URGENCY: f64 = 0.1;

/// The largest factor on the weight of a job, up or down, compared with the middle ones.
const MOST_URGENT: f64 = 1.5;

/// Weights change in steps of this factor, so that they do not change in every round.
const URGENCY_STEP: f64 = 1.02;

/// How many times as much each job counts among its user's jobs, by its remaining seconds of work. For each
/// user the logarithms of the factors have the mean 0 before rounding, so users' shares stay as they were. A
/// job whose remaining work is `None` (not well known) counts once.
pub(super) fn urgency_factors(jobs: &[(&str, Option<f64>)]) -> Vec<f64> {
    let mut of_user: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (user, secs) in jobs.iter().filter_map(|(user, secs)| Some((user, (*secs)?))) {
        let (sum, count) = of_user.entry(user).or_default();
        *sum += secs.max(1.0).ln();
        *count += 1.0;
    }
    let mut factors = Vec::with_capacity(jobs.len());
    for (user, secs) in jobs {
        let mean = of_user.get(user).map(|(sum, count)| sum / count);
        let below_mean = mean.zip(*secs).map_or(0.0, |(mean, secs)| mean - secs.max(1.0).ln());
        let steps = (URGENCY * below_mean / URGENCY_STEP.ln()).round();
        factors.push(URGENCY_STEP.powf(steps).clamp(1.0 / MOST_URGENT, MOST_URGENT));
    }
    factors
}

/// Raises the cost of growing for a job whose remaining time is well known and less than the horizon over
/// which its gains count. What a larger size saves then is never worth a second start. A job that has not
/// made its first step yet is not stopped more readily for that. `running` is its number of nodes if it
/// trains, `unit` its samples a second on one node.
pub(super) fn raise_growth_cost(
    job: &mut MalleableJob,
    remaining: &RemainingWork,
    running: Option<u32>,
    unit: f64,
    horizon_secs: f64,
) {
    let held = job.held.len() as u32;
    let nodes = running.unwrap_or(held);
    if nodes == 0 || unit <= 0.0 || !remaining.is_well_known() {
        return;
    }
    let Some(rate) = job.rates.iter().find(|r| r.exec_plan == job.exec_plan).map(|r| r.curve.rate(nodes))
    else {
        return;
    };
    let left_secs = remaining.remaining_secs() * unit / rate.max(f64::MIN_POSITIVE);
    let times = (horizon_secs / left_secs.max(1.0)).clamp(1.0, MAX_GROWTH_FACTOR);
    // Shrinking keeps its cost: it may serve other jobs, or be the only change left to the job.
    job.costs.up_secs *= times;
    job.swap_secs.iter_mut().for_each(|secs| *secs *= times);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(jobs: &[(&str, Option<f64>)]) -> String {
        urgency_factors(jobs).iter().map(|factor| format!("{factor:.2}")).collect::<Vec<_>>().join(" ")
    }

    fn a(secs: f64) -> (&'static str, Option<f64>) {
        ("a", Some(secs))
    }

    fn b(secs: f64) -> (&'static str, Option<f64>) {
        ("b", Some(secs))
    }

    #[test]
    fn a_job_that_ends_soon_counts_for_a_little_more_among_its_users_jobs() {
        assert_eq!(shown(&[a(100.0), a(1_000.0), a(10_000.0)]), "1.27 1.00 0.79");
        assert_eq!(shown(&[a(100.0), b(1e6), a(100.0), b(1e6)]), "1.00 1.00 1.00 1.00", "each has its share");
        assert_eq!(
            shown(&[a(1.0), a(1e9), ("a", None)]),
            "1.50 0.67 1.00",
            "within bounds, and 1 if unknown"
        );
        assert_eq!(shown(&[a(500.0), a(505.0)]), "1.00 1.00", "in steps");
        assert_eq!(shown(&[("a", None), ("b", None)]), "1.00 1.00");
        assert_eq!(shown(&[]), "");
    }
}
