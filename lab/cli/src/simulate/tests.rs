//! Tests of the output for fixed results.

use super::document::{self, LossShares, PolicyRow, SimulationDocument, SimulationSubject};
use super::show::{self, ScreenOptions};
use super::unit::LogUnit;
use infill_api::SCHEMA_VERSION;
use infill_model::{JobId, RescaleCosts};
use infill_present::{filter::TableArgs, long_duration::LongDuration};
use infill_sim::{FairnessScore, JobScore, MainQueueDelays, PolicyScore, SeriesPoint};

pub fn subject() -> SimulationSubject {
    SimulationSubject {
        log: "summit.csv.xz".to_owned(),
        idle_log: true,
        unit: LogUnit::Node,
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
        preempted: MainQueueDelays {
            jobs: 4321,
            late: 0,
            unforeseen: 321,
            longest_secs: 3.0,
            total_secs: 900.0,
        },
        rescales: 1234,
        finished: 0,
        jct_mean_s: None,
        fairness: FairnessScore {
            jain_jobs: Some(0.8),
            jain_users: Some(0.5),
            longest_first_wait_secs: Some(7384.0),
            median_first_wait_secs: Some(60.0),
            never_started: 0,
        },
        rounds: 5678,
        refused_plans: 0,
        wall_s: None,
        jobs: vec![job("vgg-1", 3600.0)],
    }
}

/// A job that had one node after a wait of ten seconds.
pub fn job(name: &str, node_secs: f64) -> JobScore {
    JobScore {
        id: JobId(1),
        name: name.to_owned(),
        user: None,
        samples: 1e6,
        work: 1e6,
        submitted_at: 0,
        ended_at: None,
        rescales: 3,
        present_secs: node_secs + 10.0,
        node_secs,
        turns: 1,
        first_wait_secs: Some(10.0),
        longest_wait_secs: 10.0,
        waited_secs: 10.0,
        changing_secs: 18.0,
    }
}

pub fn document() -> SimulationDocument {
    let policies = vec![row("infill-known", 0.8123), row("freetrain", 0.7)];
    SimulationDocument { schema: SCHEMA_VERSION, subject: subject(), idle_node_secs: 1.4e7, policies }
}

fn text(args: &TableArgs, width: Option<usize>, colours: bool) -> String {
    show::render_text(&document(), args, ScreenOptions { width, colours }).unwrap()
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
        format: Some("%p|%h|%w|%f|%n|%R|%T|%j|%U|%W".parse().unwrap()),
        ..Default::default()
    };
    insta::assert_snapshot!(text(&args, Some(80), true), @r"
    infill-known|1000|1.00G|0|5678|0|-|0.800|0.500|2:03:04
    freetrain   |1000|1.00G|0|5678|0|-|0.800|0.500|2:03:04
    ");
    let unknown = TableArgs { format: Some("%q".parse().unwrap()), ..Default::default() };
    assert!(show::check_format(&unknown).is_err() && show::check_format(&args).is_ok());
}

#[test]
fn names_reach_the_terminal_without_control_characters() {
    let mut document = document();
    document.subject.log = "a\u{1b}[31m.csv".to_owned();
    document.policies[0].policy = "x\u{7}".to_owned();
    let text =
        show::render_text(&document, &TableArgs::default(), ScreenOptions { width: None, colours: false })
            .unwrap();
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
    insta::assert_snapshot!(keys(&json["policies"][0]), @"efficiency fairness finished harvest_ratio held_node_secs jct_mean_s jobs late_vacates loss policy preempted refused_plans rescales rounds samples wall_s work");
    insta::assert_snapshot!(keys(&json["policies"][0]["loss"]), @"preemption probing rescale unused");
    insta::assert_snapshot!(keys(&json["policies"][0]["fairness"]), @"jain_jobs jain_users longest_first_wait_secs median_first_wait_secs never_started");
    insta::assert_snapshot!(keys(&json["policies"][0]["jobs"][0]), @"changing_secs ended_at first_wait_secs id longest_wait_secs name node_secs present_secs rescales samples submitted_at turns user waited_secs work");
    insta::assert_snapshot!(keys(&json["policies"][0]["preempted"]), @"jobs late longest_secs total_secs unforeseen");
}

#[test]
fn the_document_has_each_job_and_fairness() {
    let alice = JobScore { user: Some("alice".to_owned()), ..job("a", 90.0) };
    let never = JobScore {
        present_secs: 100.0,
        turns: 0,
        first_wait_secs: None,
        longest_wait_secs: 100.0,
        waited_secs: 100.0,
        changing_secs: 0.0,
        ..job("b", 0.0)
    };
    let outcome = PolicyScore {
        jobs: vec![alice, never],
        series: vec![SeriesPoint { at: 0.0, secs: 100.0, idle: 1.0, held: 0.9 }],
        ..PolicyScore::default()
    };
    let json = serde_json::to_value(document::simulation_document(
        &[(outcome.clone(), 0.0)],
        &outcome,
        subject(),
        false,
    ))
    .unwrap();
    let policy = &json["policies"][0];
    assert_eq!(
        policy["fairness"],
        serde_json::json!({
            "jain_jobs": 0.5,
            "jain_users": 0.5,
            "longest_first_wait_secs": 100.0,
            "median_first_wait_secs": 10.0,
            "never_started": 1,
        })
    );
    let of = |job: usize, key: &str| policy["jobs"][job][key].to_string();
    let keys =
        ["name", "user", "node_secs", "turns", "first_wait_secs", "longest_wait_secs", "changing_secs"];
    assert_eq!(keys.map(|key| of(0, key)), ["\"a\"", "\"alice\"", "90.0", "1", "10.0", "10.0", "18.0"]);
    assert_eq!(keys.map(|key| of(1, key)), ["\"b\"", "null", "0.0", "0", "null", "100.0", "0.0"]);
}

#[test]
fn missing_figures_of_fairness_are_dashes() {
    let mut document = document();
    document.policies.truncate(1);
    document.policies[0].fairness = FairnessScore::default();
    let args = TableArgs { noheader: true, format: Some("%j|%U|%W".parse().unwrap()), ..Default::default() };
    assert_eq!(
        show::render_text(&document, &args, ScreenOptions { width: None, colours: false }).unwrap(),
        "-|-|-\n"
    );
}

#[test]
fn times_are_shown_in_days_or_hours() {
    let week = LongDuration(7.0 * 86_400.0);
    assert_eq!(
        (week.to_text(), week.position_text(0.4571)),
        ("7 days".to_owned(), "day 3.2 of 7".to_owned())
    );
    let short = LongDuration(0.2 * 86_400.0);
    assert_eq!(
        (short.to_text(), short.position_text(0.5)),
        ("4.8 hours".to_owned(), "hour 2.4 of 4.8".to_owned())
    );
    assert_eq!(LongDuration(3600.0).to_text(), "1 hour");
}
