//! Measures how long it takes to learn how long jobs run: `cargo bench --bench lengths`.
//!
//! The history is a hundred thousand ended jobs of five hundred users. Goals: at most 50 µs to learn one
//! ended job; at most 100 µs to predict one with a forest; at most 60 s and 500 MiB to grow the forest again.
//! The same history and seed give the same answer.

#[path = "common/mod.rs"]
mod common;

use std::time::Instant;

use infill_advisor::length::LengthPredictor;
use infill_model::{JobId, PastJob, Submission, UserEstimate};

const JOBS: usize = 100_000;

/// Number of jobs that are predicted.
const ASKED: u32 = 2_000;

/// A pseudo-random number between 0 and 1, derived from `input` (SplitMix64).
fn chance(input: u64) -> f64 {
    let mut z = input.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

fn past(number: usize) -> PastJob {
    let dice = |draw: u64| chance(number as u64 * 16 + draw);
    let user = (dice(0) * 500.0) as u32;
    let kind = (dice(1) * 4.0) as u32;
    let submitted_at = 60.0 * number as f64;
    let usual = 10f64.powf(1.5 + 3.0 * chance(u64::from(user * 4 + kind)));
    let secs = usual * (0.6 * (dice(2) + dice(3) - 1.0)).exp();
    let job = Submission {
        submitted_at,
        user: format!("user{user:03}"),
        name: format!("train-{kind}"),
        nodes: 1 << (dice(4) * 4.0) as u32,
        further_facts: vec![1.0],
        ..Submission::default()
    };
    PastJob { job, ended_at: submitted_at + secs, secs, estimate: UserEstimate::default() }
}

/// Prints how long something took, and whether that is within its goal.
fn report(title: &str, value: f64, unit: &str, goal: f64) {
    let verdict = if value <= goal { "within" } else { "BEYOND" };
    println!("{title:<44} {value:9.2} {unit}  ({verdict} its goal of {goal} {unit})");
}

fn median_us(predictor: &mut LengthPredictor, from: usize) -> f64 {
    let mut times: Vec<f64> = (0..ASKED)
        .map(|n| {
            let job = past(from + n as usize).job;
            let began = Instant::now();
            predictor.add_job(JobId(n + 1), &job);
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Peak memory of this process so far, MiB.
fn peak_mib() -> f64 {
    common::most_resident_kib().map_or(0.0, |kib| kib as f64 / 1024.0)
}

fn main() {
    let history: Vec<PastJob> = (0..JOBS).map(past).collect();
    let mut predictor = LengthPredictor::default();
    let began = Instant::now();
    predictor.learn_history(&history);
    let learned_us = began.elapsed().as_secs_f64() * 1e6 / JOBS as f64;
    let alone_us = median_us(&mut predictor, JOBS);
    predictor.retain(|_| false);
    let before = peak_mib();
    let began = Instant::now();
    let forest = predictor.forest_training().grow_forest(1).expect("a forest").expect("jobs enough");
    let grown_secs = began.elapsed().as_secs_f64();
    let grown_mib = peak_mib() - before;
    predictor.set_forest(forest);
    let with_forest_us = median_us(&mut predictor, JOBS);
    let predicted: Vec<f64> = (1..=ASKED)
        .map(|n| predictor.predict_lengths(JobId(n), &UserEstimate::default()).quantile_secs(0.5))
        .collect();
    report("to learn a job that has ended", learned_us, "us", 50.0);
    report("to predict a job, without a forest", alone_us, "us", 100.0);
    report("to predict a job, with a forest", with_forest_us, "us", 100.0);
    report("to grow the forest again", grown_secs, "s", 60.0);
    report("peak memory of that", grown_mib, "MiB", 500.0);
    let mut again = LengthPredictor::default();
    again.learn_history(&history);
    again.set_forest(again.forest_training().grow_forest(1).expect("a forest").expect("jobs enough"));
    (1..=ASKED).for_each(|n| again.add_job(JobId(n), &past(JOBS + n as usize - 1).job));
    let same = (1..=ASKED).zip(&predicted).all(|(n, secs)| {
        again.predict_lengths(JobId(n), &UserEstimate::default()).quantile_secs(0.5) == *secs
    });
    println!("the same history and seed give the same answer: {same}");
    let within = predicted
        .iter()
        .enumerate()
        .filter(|(n, secs)| (past(JOBS + n).secs / **secs).ln().abs() < std::f64::consts::LN_2)
        .count();
    println!("within a factor of two: {:.0} % of {ASKED}", 100.0 * within as f64 / f64::from(ASKED));
}
