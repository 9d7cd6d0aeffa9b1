//! A round with the completion objective: the lengths of similar ended jobs are learned, and a forest has
//! grown from them.

use infill_advisor::length::LengthPredictor;
use infill_model::{PastJob, Submission, UserEstimate};

/// Number of malleable jobs.
pub const JOBS: u32 = 200;

/// Number of jobs that have ended.
const ENDED: u32 = 20_000;

/// An ended job. Its user determines its length, up to a factor between 0.5 and 2.
fn past(number: u32, now: i64) -> PastJob {
    let user = number % JOBS;
    let usual = 60.0 * 2f64.powf(f64::from(user % 80) / 10.0);
    let secs = usual * 2f64.powf(f64::from(number * 7919 % 201) / 100.0 - 1.0);
    let ended_at = (now - 1000) as f64 - 30.0 * f64::from(ENDED - number);
    let job = Submission {
        submitted_at: ended_at - secs,
        user: format!("user{user}"),
        name: format!("train{user}"),
        nodes: 64,
        further_facts: vec![1.0],
        ..Submission::default()
    };
    PastJob { job, ended_at, secs, estimate: UserEstimate::default() }
}

/// Teaches the predictor the ended jobs and grows a forest. No round includes the time for that.
pub fn learn(predictor: &mut LengthPredictor, now: i64) {
    let past: Vec<PastJob> = (0..ENDED).map(|number| past(number, now)).collect();
    predictor.learn_history(&past);
    predictor.set_forest(predictor.forest_training().grow_forest(1).expect("a forest").expect("jobs enough"));
}
