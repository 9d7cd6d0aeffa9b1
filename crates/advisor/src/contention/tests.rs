//! What overlapping stops say about contention, and what they leave open.

use super::*;
use infill_model::{BatchMode, ExecPlan, NodeType};

fn key(name: &str) -> ProfileKey {
    ProfileKey {
        user: "anna".to_owned(),
        name: name.to_owned(),
        node_type: NodeType::new("a"),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

/// Records stops of this program that begin at this moment and take these seconds, each of another job.
fn record(saves: &mut ContentionEstimator, program: &str, began: i64, secs: &[f64]) {
    for secs in secs {
        let job = JobId(saves.last.iter().map(|s| s.job.0).max().unwrap_or(0) + 1);
        let stop = GenerationStop { job, generation: 1, secs: *secs, end: StopOutcome::Saved };
        saves.record_stop(Some(&key(program)), &stop, UnixTime(began).plus_secs(*secs));
    }
}

/// The lower and upper bound of c for saves that take `secs`.
fn believed(saves: &mut ContentionEstimator, secs: f64) -> [f64; 2] {
    saves.learn_contention();
    saves.contention_bounds().map(|c| c.slowdown_factor(secs))
}

#[test]
fn at_first_both_bounds_are_possible() {
    let mut saves = ContentionEstimator::default();
    assert_eq!(believed(&mut saves, 10.0), [0.0, 1.0]);
    // No other job saved beside these.
    (0..30).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
    assert_eq!(believed(&mut saves, 10.0), [0.0, 1.0]);
    // Here the crowd is always the same, so that a program that is as slow alone looks the same.
    let mut crowds = ContentionEstimator::default();
    (0..5).for_each(|n| record(&mut crowds, "x", n * 1000, &[200.0; 20]));
    assert_eq!(believed(&mut crowds, 200.0), [0.0, 1.0]);
}

#[test]
fn crowds_show_whether_saves_share_a_pipe() {
    for (crowded_secs, least, most) in [(10.0, 0.0, 0.0), (105.0, 0.4, 0.5), (200.0, 0.9, 1.0)] {
        let mut saves = ContentionEstimator::default();
        (0..3).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
        (1..6).for_each(|n| record(&mut saves, "x", n * 1000, &[crowded_secs; 20]));
        assert_eq!(believed(&mut saves, 10.0), [least, most], "{crowded_secs}");
        let crowded =
            GenerationStop { job: JobId(9), generation: 1, secs: crowded_secs, end: StopOutcome::Saved };
        let [slow, quick] = saves.alone_stops(&crowded).map(|stop| stop.secs);
        assert!((quick - 10.0).abs() < 0.01 && (quick..quick * 1.3).contains(&slow), "{slow} {quick}");
        let alone = GenerationStop { job: JobId(1), ..crowded };
        assert_eq!(saves.alone_stops(&alone).map(|stop| stop.secs), [crowded_secs; 2], "nothing beside it");
    }
}

#[test]
fn one_crowd_may_have_been_slow_or_quick_for_another_reason() {
    for crowded_secs in [10.0, 200.0] {
        let mut saves = ContentionEstimator::default();
        (0..3).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
        record(&mut saves, "x", 1000, &[crowded_secs; 20]);
        assert_eq!(believed(&mut saves, 10.0), [0.0, 1.0]);
        let crowded =
            GenerationStop { job: JobId(9), generation: 1, secs: crowded_secs, end: StopOutcome::Saved };
        assert_eq!(saves.alone_stops(&crowded).map(|stop| stop.secs), [crowded_secs, crowded_secs / 20.0]);
    }
    // One crowd of six was slow. The others stay quick, and it does not show what saves usually cost each
    // other.
    let mut saves = ContentionEstimator::default();
    (0..3).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
    (1..6).for_each(|n| record(&mut saves, "x", n * 1000, &[10.0; 40]));
    record(&mut saves, "x", 9000, &[200.0; 10]);
    assert_eq!(believed(&mut saves, 10.0), [0.0, 0.0]);
}

#[test]
fn saves_that_overlap_in_part_count_as_well() {
    // For 12 s the save does half as much as alone, 6 s of its 10; or all of it.
    for (secs, most) in [(16.0, 0.2), (10.0, 0.0)] {
        let mut saves = ContentionEstimator::default();
        (0..3).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
        for crowd in 1..31 {
            record(&mut saves, "other", crowd * 1000, &[12.0; 5]);
            record(&mut saves, "x", crowd * 1000, &[secs]);
        }
        assert_eq!(believed(&mut saves, 10.0), [0.0, most]);
    }
}

#[test]
fn few_overlapping_stops_say_less_than_many() {
    let mut saves = ContentionEstimator::default();
    (0..3).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
    let mut pair = |n: i64| {
        record(&mut saves, "x", 1000 + n * 100, &[10.0, 10.0]);
        believed(&mut saves, 10.0)[1]
    };
    assert_eq!((0..13).map(&mut pair).last(), Some(1.0), "26 stops beside one other");
    assert_eq!(pair(13), 0.0);
}

#[test]
fn quick_saves_say_nothing_about_slow_ones() {
    let mut saves = ContentionEstimator::default();
    (0..3).for_each(|n| record(&mut saves, "quick", n * 100, &[2.0]));
    (1..3).for_each(|n| record(&mut saves, "quick", n * 1000, &[2.0; 20]));
    assert_eq!(
        [2.0, 10.0, 60.0].map(|secs| believed(&mut saves, secs)),
        [[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    );
    (0..3).for_each(|n| record(&mut saves, "slow", 5000 + n * 100, &[10.0]));
    (6..8).for_each(|n| record(&mut saves, "slow", n * 1000, &[10.0; 20]));
    assert_eq!([2.0, 10.0, 60.0].map(|secs| believed(&mut saves, secs)[1]), [0.0, 0.0, 1.0]);
}

#[test]
fn a_stop_that_was_killed_in_a_crowd_would_have_taken_longer() {
    let mut saves = ContentionEstimator::default();
    (0..3).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
    for job in 101..=140 {
        let stop = GenerationStop { job: JobId(job), generation: 1, secs: 20.0, end: StopOutcome::Killed };
        saves.record_stop(Some(&key("x")), &stop, UnixTime(1020 + i64::from((job - 101) / 10) * 100));
    }
    // At least 30 s, beside nine others.
    assert_eq!(believed(&mut saves, 10.0)[1], 0.3);
}

#[test]
fn the_stops_outlive_the_daemon_and_are_bounded() {
    let mut saves = ContentionEstimator::default();
    (0..3).for_each(|n| record(&mut saves, "x", n * 100, &[10.0]));
    (1..3).for_each(|n| record(&mut saves, "x", n * 1000, &[10.0; 20]));
    let before = believed(&mut saves, 10.0);
    let text = saves.take_unsaved().unwrap();
    assert_eq!(saves.take_unsaved(), None);
    let mut next = ContentionEstimator::default();
    next.load(&text);
    assert_eq!((believed(&mut next, 10.0), before), (before, [0.0, 0.0]));
    next.load("nonsense");
    assert_eq!(believed(&mut next, 10.0), [0.0, 1.0]);
    // Both kinds of stops are kept, because one says nothing without the other.
    for crowd in 0..6 {
        record(&mut saves, "x", 5000 + crowd * 1000, &[10.0; 200]);
        assert_eq!(believed(&mut saves, 10.0), [0.0, 0.0]);
    }
    assert_eq!((saves.last.len(), saves.last[0].began), (REMEMBERED, 0.0));
    let stop = GenerationStop { job: JobId(1), generation: 1, secs: f64::NAN, end: StopOutcome::Saved };
    saves.record_stop(None, &stop, UnixTime(0));
    assert_eq!(saves.last.len(), REMEMBERED);
}
