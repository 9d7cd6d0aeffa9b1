//! Tests of figures in files of their own, and of their axes.

use super::*;
use crate::samples::picture;
use infill_model::UnixTime;

#[test]
fn axes_end_at_round_numbers() {
    let nodes =
        [1.0, 8.0, 9.0, 64.0, 1000.0].map(|n| (ValueAxis::for_nodes(n).max, ValueAxis::for_nodes(n).step));
    assert_eq!(nodes, [(1.0, 1.0), (8.0, 1.0), (10.0, 2.0), (64.0, 8.0), (1024.0, 128.0)]);
    let rates = [0.03, 7.0, 950.0, 1e9].map(|r| ValueAxis::for_rates(r).tick_values().count());
    assert!(rates.iter().all(|n| (5..=9).contains(n)), "{rates:?}");
}

#[test]
fn a_curve_without_measurements_is_an_error() {
    assert!(draw_curves(&[CurveFigure::default()], "").is_err());
}

#[test]
fn one_size_is_enough() {
    let mut one = picture();
    one.measured.truncate(1);
    one.curve.truncate(1);
    one.truth.clear();
    assert!(draw_curves(&[one], "one").unwrap().contains("circle"));
}

#[test]
fn as_svg() {
    let text = draw_curves(&[picture(), picture()], "both").unwrap();
    assert!(text.contains("bert &lt;large&gt; &amp; more"), "{text}");
    assert!(!text.contains("href") && !text.contains("<script"), "it must need no other file");
    // The drawing library chooses the coordinates, so only the elements are counted.
    assert_eq!(text.matches("<polygon").count(), 2);
    assert_eq!(text.matches("throughput, samples/s").count(), 3);
    assert!(text.contains("both"), "all curves on the same axes come first");
    let alone = draw_curves(&[picture()], "alone").unwrap();
    assert!(!alone.contains("alone"), "{alone}");
    let many = vec![picture(); 13];
    assert!(!draw_curves(&many, "all of them").unwrap().contains("all of them"), "too many on one panel");
}

#[test]
fn the_present_point_of_a_job_is_on_its_curve() {
    let now = Some(CurrentPoint { nodes: 16, rate: 3000.0 });
    let text = draw_curves(&[CurveFigure { now, ..picture() }], "").unwrap();
    assert!(
        text.contains("the job, now") && !draw_curves(&[picture()], "").unwrap().contains("the job, now")
    );
    assert!(text.contains(">\n16\n<"), "the axis reaches there: {text}");
}

/// A figure of the day that begins at 2026-03-01 22:00 UTC.
fn over_a_day(marks: TimeMarks<'_>) -> TimeFigure<'_> {
    let from = UnixTime(1_772_402_400);
    TimeFigure { title: "Nodes <b>", unit: "nodes", from, to: from + 86_400, zone_secs: 3600, marks }
}

fn area(name: &str, values: Vec<f64>) -> StackedArea<'_> {
    StackedArea { name, colour: (140, 149, 159), values }
}

#[test]
fn areas_are_stacked_over_the_clock() {
    let areas = vec![area("main", vec![10.0, 20.0, 0.0]), area("idle", vec![5.0, 0.0, 3.0])];
    let text = over_a_day(TimeMarks::Areas(areas)).to_svg().unwrap();
    assert!(text.contains("Nodes &lt;b&gt;") && text.matches("<polygon").count() == 2, "{text}");
    for mark in ["\n00:00\n", "\n03:00\n", "\nmain\n", "\nidle\n", "\n20.0\n"] {
        assert!(text.contains(mark), "{mark:?} in {text}");
    }
    assert!(!text.contains("href") && !text.contains("<script"));
}

#[test]
fn events_are_dots() {
    let from = over_a_day(TimeMarks::Dots(&[])).from;
    let dots = [(from + 60, 0.5), (from + 7200, 12.0), (from + 90_000, 3.0)];
    let text = over_a_day(TimeMarks::Dots(&dots)).to_svg().unwrap();
    assert_eq!(text.matches("<circle").count(), 2, "dots outside of the time are left out: {text}");
    assert!(over_a_day(TimeMarks::Dots(&[])).to_svg().is_ok(), "nothing happened");
    let nothing = TimeFigure { to: from, ..over_a_day(TimeMarks::Areas(Vec::new())) };
    assert!(nothing.to_svg().is_ok());
}

#[test]
fn days_and_weeks_have_dates() {
    let day = over_a_day(TimeMarks::Dots(&[]));
    let week = TimeFigure { to: day.from + 14 * 86_400, ..over_a_day(TimeMarks::Dots(&[])) };
    let text = week.to_svg().unwrap();
    assert!(text.contains("\n03-04\n") && !text.contains("00:00"), "{text}");
}
