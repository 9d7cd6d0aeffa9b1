//! What the survival model learns from gaps of one kind.

use super::*;

/// A thousand equal gaps.
fn gaps(duration_secs: f64, block: u32, hour: u8) -> Vec<GapSample> {
    vec![GapSample { duration_secs, taken: true, block, hour }; 1000]
}

fn median(survival: &SurvivalModel, block: u32, hour: u8) -> f64 {
    survival.quantile_secs(0.0, block, hour, 0.5)
}

#[test]
fn blocks_of_three_sixteen_and_128_nodes_begin_a_class() {
    for least in [3, 16, 128] {
        let survival = SurvivalModel::fit_samples(&gaps(100.0, least, 0));
        let below = median(&survival, least - 1, 0);
        let exact = median(&survival, least, 0);
        let above = median(&survival, least + 1, 0);
        assert!(exact < below, "{least}: {exact} s, and {below} s with a node less");
        assert_eq!(exact, above, "{least}");
    }
}

#[test]
fn each_quarter_of_the_day_is_learned_separately() {
    for (first, last) in [(0, 5), (6, 11), (12, 17), (18, 23)] {
        let survival = SurvivalModel::fit_samples(&gaps(100.0, 1, first));
        let here = median(&survival, 1, first);
        assert_eq!(median(&survival, 1, last), here, "from {first} to {last}");
        for other in [(last + 1) % 24, (first + 23) % 24, (first + 12) % 24] {
            let elsewhere = median(&survival, 1, other);
            assert!(here < elsewhere, "{here} s at {first}, {elsewhere} s at {other}");
        }
    }
}

#[test]
fn a_long_gap_teaches_the_hours_in_which_it_ends() {
    // From four o'clock until shortly after six.
    let survival = SurvivalModel::fit_samples(&gaps(7500.0, 1, 4));
    let remaining = |hour: u8| survival.quantile_secs(7200.0, 1, hour, 0.5);
    assert!(
        remaining(7) < remaining(4) && remaining(7) < remaining(13),
        "{} {} {}",
        remaining(7),
        remaining(4),
        remaining(13)
    );
}

#[test]
fn hours_are_those_of_utc() {
    // 1970-01-12T13:46:40Z, the last and the first second of an hour, and a second before 1970.
    let hours = [1_000_000, 21_599, 21_600, 86_399, 86_400, -1].map(|at| hour_of_day(UnixTime(at)));
    assert_eq!(hours, [13, 5, 6, 23, 0, 23]);
}

#[test]
fn a_node_that_was_free_for_a_day_stays_free_for_nearly_two_hours_more() {
    // From 16 hours on the default hazard is 1.0858e-4 a second: the mean of 16 to 64 hours.
    let secs = SurvivalModel::default().quantile_secs(86_400.0, 1, 0, 0.5);
    assert!((secs - 6384.0).abs() < 10.0, "{secs}");
}

#[test]
fn a_gap_of_no_length_teaches_nothing() {
    let survival = SurvivalModel::fit_samples(&gaps(0.0, 1, 0));
    let default = SurvivalModel::default();
    for age in [0.0, 100.0, 10_000.0] {
        let learned = survival.expected_secs(age, 1, 0);
        let default_secs = default.expected_secs(age, 1, 0);
        assert!((learned / default_secs - 1.0).abs() < 1e-9, "{learned} instead of {default_secs}");
    }
}

#[test]
fn a_gap_without_a_seen_end_counts_as_no_end() {
    let ended = gaps(100.0, 1, 0);
    let watched: Vec<GapSample> = ended.iter().map(|gap| GapSample { taken: false, ..*gap }).collect();
    let probability = |survival: SurvivalModel| survival.probability_free(0.0, 1, 0, 110.0);
    let watched = probability(SurvivalModel::fit_samples(&watched));
    let unknown = probability(SurvivalModel::default());
    let ended = probability(SurvivalModel::fit_samples(&ended));
    assert!(watched > 0.95 && unknown < 0.9 && ended < 0.5, "{watched} {unknown} {ended}");
}
