//! A job that ends soon gains by a change only until then.

use super::turns::Ahead;
use infill_model::MalleableJob;

/// To grow costs a job that is about to end so many times as much at most.
const MOST: f64 = 30.0;

/// Where it is known how long the job goes on, and that is less than the horizon over which its gains count,
/// to grow costs in proportion more. `running`: its nodes, if it trains.
pub(super) fn add(job: &mut MalleableJob, ahead: &Ahead, running: Option<u32>, unit: f64, horizon_secs: f64) {
    let Some(nodes) = running.filter(|_| unit > 0.0 && ahead.is_sure()) else { return };
    let plan = |r: &&infill_model::malleable::RateCurve| r.exec_plan == job.exec_plan;
    let Some(rate) = job.rates.iter().find(plan).map(|r| r.curve.rate(nodes)) else { return };
    let left_secs = ahead.left_secs() * unit / rate.max(f64::MIN_POSITIVE);
    let times = (horizon_secs / left_secs.max(1.0)).clamp(1.0, MOST);
    // To shrink may be for others, or all that is left to it.
    job.costs.up_secs *= times;
    job.swap_secs.iter_mut().for_each(|secs| *secs *= times);
}
