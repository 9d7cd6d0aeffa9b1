//! Both drawings of one picture, and their axes.

use super::*;
use crate::cli::samples;

fn picture() -> Picture {
    let view = &samples::profiles().profiles[0];
    let row =
        |nodes: u32, rate: f64, width: f64| CurveRow { nodes, rate, low: rate - width, high: rate + width };
    Picture {
        title: "bert <large> & more".to_owned(),
        measured: vec![row(1, 410.0, 4.0), row(2, 780.0, 20.0), row(4, 1390.0, 150.0)],
        curve: view.curve.clone(),
        truth: vec![CurvePoint { nodes: 8, rate: 2300.0 }],
    }
}

#[test]
fn axes_end_at_round_numbers() {
    let nodes = [1.0, 8.0, 9.0, 64.0, 1000.0].map(|n| (Axis::of_nodes(n).max, Axis::of_nodes(n).step));
    assert_eq!(nodes, [(1.0, 1.0), (8.0, 1.0), (10.0, 2.0), (64.0, 8.0), (1024.0, 128.0)]);
    let rates = [0.03, 7.0, 950.0, 1e9].map(|r| Axis::of_rates(r).ticks().count());
    assert!(rates.iter().all(|n| (5..=9).contains(n)), "{rates:?}");
}

#[test]
fn what_is_not_measured_is_not_drawn() {
    assert_eq!(draw(&Picture::default(), 80, false), "");
    assert!(svg(&[Picture::default()], "").is_err());
}

#[test]
fn one_size_is_enough() {
    let mut one = picture();
    one.measured.truncate(1);
    one.curve.truncate(1);
    one.truth.clear();
    assert!(draw(&one, 80, false).contains('●'));
    assert!(svg(&[one], "one").unwrap().contains("circle"));
}

#[test]
fn in_characters() {
    insta::assert_snapshot!(draw(&picture(), 72, false), @r"
    samples/s
    3000 ┤                                                        ·
         │                                                    · ·
    2500 ┤                                                · ·          ░░
         │                                            · ·        ░░░░░░░░
         │                                        · ·       ░░░░░░⣀⣀⣀⠤⠤⠔○
    2000 ┤                                    · ·      ░░░⣀⣀⠤⠤⠒⠒⠉⠉░░░░░░░
         │                                  ·     ░⢀⣀⡠⠤⠒⠊⠉░░░░░░░░░░░░░░░
    1500 ┤                              · ·  ⢀⣀⠤⠔⠒⠉⠁░░░
         │                          · · ⣀●⠔⠒⠉⠁
         │                      · ⢀⣀⠤⠒⠊⠉
    1000 ┤                  · ⣀⠤⠒⠉⠁
         │              ·⣀●⠔⠊⠉
     500 ┤          ·⣀⠤⠒⠉
         │      · ●⠒⠉
         │  · ·
       0 ┤·
         └┬───────┬───────┬──────┬───────┬───────┬───────┬──────┬───────┬
    nodes 0       1       2      3       4       5       6      7       8
    ● measured   ○ true   ⠒ fitted   ░ 90 % interval   · proportional
    ");
}

#[test]
fn colours_are_codes_around_the_same_characters() {
    let (plain, coloured) = (draw(&picture(), 72, false), draw(&picture(), 72, true));
    assert!(coloured.contains("\u{1b}[36m") && !plain.contains('\u{1b}'));
    let codes = regex::Regex::new("\u{1b}\\[[0-9]+m").unwrap();
    assert_eq!(codes.replace_all(&coloured, ""), plain);
}

#[test]
fn any_width_will_do() {
    for width in [0, 1, 40, 200, usize::MAX] {
        let text = draw(&picture(), width, false);
        assert!(text.lines().all(|l| (0..=120).contains(&l.chars().count())), "{width}: {text}");
    }
}

#[test]
fn as_svg() {
    let text = svg(&[picture(), picture()], "both").unwrap();
    assert!(text.contains("bert &lt;large&gt; &amp; more"), "{text}");
    assert!(!text.contains("href") && !text.contains("<script"), "it must need no other file");
    // The numbers are the drawing library's; what is drawn is ours.
    let count = |what: &str| text.matches(what).count();
    assert_eq!((count("<polygon"), count("throughput, samples/s")), (2, 3));
    assert!(text.contains("both"), "all curves on the same axes come first");
    let alone = svg(&[picture()], "alone").unwrap();
    assert!(!alone.contains("alone"), "{alone}");
    let many = vec![picture(); 13];
    assert!(!svg(&many, "all of them").unwrap().contains("all of them"), "too many to be told apart");
}
