//! What is printed of outcomes that are written down.

use super::document::{Document, LossShares, PolicyRow, Replayed};
use super::show::{self, Screen};
use super::unit::Unit;
use infill_api::SCHEMA;
use infill_model::RescaleCosts;
use infill_present::{days::Days, filter::TableArgs};
use infill_sim::Preempted;

pub fn subject() -> Replayed {
    Replayed {
        log: "summit.csv.xz".to_owned(),
        idle_log: true,
        unit: Unit::Node,
        nodes: 200,
        span_secs: 7.0 * 86_400.0,
        malleable: "10 jobs that never end, of 1 to 64 nodes, with the curves vgg, alexnet".to_owned(),
        rescales: RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 },
        warm_secs: None,
        seed: 1,
    }
}

pub fn row(policy: &str, efficiency: f64) -> PolicyRow {
    let loss = LossShares { rescale: 0.05, preemption: 0.1, probing: 0.004, unused: 0.846 - efficiency };
    PolicyRow {
        policy: policy.to_owned(),
        efficiency,
        samples: 1.234e9 * efficiency,
        work: 1e9,
        loss,
        harvest_ratio: 0.987,
        held_node_secs: 3.6e6,
        late_vacates: 0,
        preempted: Preempted { jobs: 4321, late: 0, unforeseen: 321, longest_secs: 3.0, total_secs: 900.0 },
        rescales: 1234,
        finished: 0,
        jct_mean_s: None,
        rounds: 5678,
        refused_plans: 0,
        wall_s: None,
    }
}

pub fn document() -> Document {
    let policies = vec![row("infill-known", 0.8123), row("freetrain", 0.7)];
    Document { schema: SCHEMA, subject: subject(), idle_node_secs: 1.4e7, policies }
}

fn text(args: &TableArgs, width: Option<usize>, colours: bool) -> String {
    show::text(&document(), args, Screen { width, colours }).unwrap()
}

#[test]
fn the_page_of_a_pipe_has_no_bars() {
    insta::assert_snapshot!(text(&TableArgs::default(), None, false), @r"
    log        summit.csv.xz: 200 nodes, 7 days
    idle       23.1 nodes on average (11.6%), 3889 node-hours
    malleable  10 jobs that never end, of 1 to 64 nodes, with the curves vgg, alexnet
    rescales   18 s to grow, 12 s to shrink, 18 s to start; seed 1

    POLICY       EFFIC SAMPLES RESC  PREE PROBE  REST  HARV LATE MAIN DELAY CHANGES
    infill-known 81.2%   1.00G 5.0% 10.0%  0.4%  3.4% 98.7%    0  321  0:03    1234
    freetrain    70.0%    864M 5.0% 10.0%  0.4% 14.6% 98.7%    0  321  0:03    1234

    Efficiency is work as a share of the bound's: of what the best division of the idle
    nodes at every moment would make if all curves were known and rescales took no time.
    ");
}

#[test]
fn the_page_of_a_terminal_has_bars() {
    let plain = text(&TableArgs::default(), Some(80), false);
    insta::assert_snapshot!(plain.lines().skip(9).take(3).collect::<Vec<_>>().join("\n"), @r"
    infill-known ██████████████████████████████████████████████████████▓▓▓▓▒▒▒▒▒▒░··
    freetrain    ███████████████████████████████████████████████▓▓▓▒▒▒▒▒▒▒··········
                 █ done   ▓ rescales   ▒ preemption   ░ probing   · rest
    ");
    assert!(plain.lines().skip(5).take(7).all(|l| l.chars().count() <= 80), "{plain}");
    let coloured = text(&TableArgs::default(), Some(80), true);
    let codes = regex::Regex::new("\u{1b}\\[[0-9]+m").unwrap();
    assert!(!plain.contains('\u{1b}') && coloured.contains("\u{1b}[36m█"));
    assert_eq!(codes.replace_all(&coloured, ""), plain);
}

#[test]
fn own_columns_come_alone() {
    let args = TableArgs {
        noheader: true,
        format: Some("%p|%h|%w|%f|%n|%R|%T".parse().unwrap()),
        ..Default::default()
    };
    insta::assert_snapshot!(text(&args, Some(80), true), @r"
    infill-known|1000|1.00G|0|5678|0|-
    freetrain   |1000|1.00G|0|5678|0|-
    ");
    let unknown = TableArgs { format: Some("%q".parse().unwrap()), ..Default::default() };
    assert!(show::check(&unknown).is_err() && show::check(&args).is_ok());
}

#[test]
fn names_reach_the_terminal_without_control_characters() {
    let mut document = document();
    document.subject.log = "a\u{1b}[31m.csv".to_owned();
    document.policies[0].policy = "x\u{7}".to_owned();
    let text = show::text(&document, &TableArgs::default(), Screen { width: None, colours: false }).unwrap();
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text}");
}

#[test]
fn the_document_has_these_keys() {
    fn keys(value: &serde_json::Value) -> String {
        value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
    let json = serde_json::to_value(document()).unwrap();
    insta::assert_snapshot!(keys(&json), @"idle_node_secs policies schema subject");
    insta::assert_snapshot!(keys(&json["subject"]), @"idle_log log malleable nodes rescales seed span_secs unit");
    insta::assert_snapshot!(keys(&json["policies"][0]), @"efficiency finished harvest_ratio held_node_secs jct_mean_s late_vacates loss policy preempted refused_plans rescales rounds samples wall_s work");
    insta::assert_snapshot!(keys(&json["policies"][0]["loss"]), @"preemption probing rescale unused");
    insta::assert_snapshot!(keys(&json["policies"][0]["preempted"]), @"jobs late longest_secs total_secs unforeseen");
}

#[test]
fn times_are_told_in_days_or_hours() {
    let week = Days(7.0 * 86_400.0);
    assert_eq!((week.text(), week.reached(0.4571)), ("7 days".to_owned(), "day 3.2 of 7".to_owned()));
    let short = Days(0.2 * 86_400.0);
    assert_eq!((short.text(), short.reached(0.5)), ("4.8 hours".to_owned(), "hour 2.4 of 4.8".to_owned()));
    assert_eq!(Days(3600.0).text(), "1 hour");
}
