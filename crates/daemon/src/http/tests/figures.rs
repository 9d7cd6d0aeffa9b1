//! Figures and reports: the numbers from the store, how exact moments are for each reader, and refused
//! requests.

use serde_json::{Value, json};

use super::*;
use crate::http::report;
use crate::redaction::ApiReader;
use infill_api::{FigureView, MAX_FIGURE_SECS};
use infill_model::{LendingMode, MainDelay, NodeUsageSecs, PackedHour};

/// The hour of the cluster's clock: 1970-01-12 13:00 UTC.
const HOUR: i64 = 997_200;

/// A row of the store: time for steps, for steps at probed sizes, for starts and changes, and for the same of
/// main jobs.
fn spent_in(hour: i64, [useful_secs, probing_secs, rescale_secs, preempted_secs]: [f64; 4]) -> NodeTimeRow {
    let key = NodeTimeKey {
        from: UnixTime(hour),
        account: String::new(),
        user: OWNER.to_owned(),
        node_type: "cpu2".to_owned(),
    };
    NodeTimeRow {
        key,
        spent: NodeTimeUsage { useful_secs, rescale_secs, preempted_secs, probing_secs, gpu_secs: 0.0 },
    }
}

async fn figure(daemon: &mut TestDaemon, who: ReaderKind, asked: &str) -> FigureView {
    let (status, body) = daemon.get(who, &format!("/v1/figures/{asked}")).await;
    assert_eq!(status, 200, "{asked}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Whether a drawing has this mark on its time axis.
fn has_mark(view: &FigureView, mark: &str) -> bool {
    view.svg.as_ref().unwrap().contains(&format!(">\n{mark}\n<"))
}

#[tokio::test]
async fn a_figure_of_node_time_has_the_mean_of_each_hour() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let first = spent_in(HOUR, [7200.0, 1800.0, 936.0, 444.44]);
    let second = spent_in(HOUR + 3600, [4453.2, 0.0, 0.0, 0.0]);
    daemon.context.store.put_node_time(&[first, second]).await.unwrap();
    let rows = json!([[HOUR, 2.0, 0.5, 0.26, 0.12], [HOUR + 3600, 1.24, 0.0, 0.0, 0.0]]);
    // Hours are whole: the span begins within the first, and ends at the end of the second or within it.
    for to in [HOUR + 7200, HOUR + 5400] {
        let view =
            figure(&mut daemon, ReaderKind::Admin, &format!("node_time?from={}&to={to}", HOUR + 800)).await;
        assert_eq!(view.title, "Nodes that malleable jobs had, by what their time was used for");
        let heads = [
            "from",
            "steps",
            "steps at sizes that are tried",
            "starts and changes",
            "starts and changes for main jobs or after losses",
        ];
        assert_eq!(view.heads, heads);
        assert_eq!(json!(view.rows), rows, "until {to}");
        assert!(has_mark(&view, "13:00") && has_mark(&view, "15:00"), "{:?}", view.svg);
    }
}

#[tokio::test]
async fn a_figure_of_more_than_two_weeks_has_the_means_of_several_hours() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let rows = [(0, 7200.0), (1, 4453.2), (3, 7200.0)]
        .map(|(hour, secs)| spent_in(HOUR + hour * 3600, [secs, 0.0, 0.0, 0.0]));
    daemon.context.store.put_node_time(&rows).await.unwrap();
    for (hours, parts, begun) in [
        (336, 336, [json!([HOUR, 2.0, 0.0, 0.0, 0.0]), json!([HOUR + 3600, 1.24, 0.0, 0.0, 0.0])]),
        (337, 169, [json!([HOUR, 1.62, 0.0, 0.0, 0.0]), json!([HOUR + 7200, 1.0, 0.0, 0.0, 0.0])]),
    ] {
        let asked = format!("node_time?from={HOUR}&to={}", HOUR + hours * 3600);
        let view = figure(&mut daemon, ReaderKind::Admin, &asked).await;
        assert_eq!(view.rows.len(), parts, "{hours} hours");
        assert_eq!(view.rows[..2], begun.map(|row| row.as_array().unwrap().clone()), "{hours} hours");
    }
}

#[tokio::test]
async fn the_longest_figure_reaches_its_last_hour() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let begin = HOUR + 7200;
    let rows: Vec<NodeTimeRow> =
        (0..=9600).map(|hour| spent_in(begin + hour * 3600, [29.0 * 3600.0, 0.0, 0.0, 0.0])).collect();
    daemon.context.store.put_node_time(&rows).await.unwrap();
    let from = begin + 1;
    let asked = format!("node_time?from={from}&to={}", from + MAX_FIGURE_SECS);
    let view = figure(&mut daemon, ReaderKind::Admin, &asked).await;
    // Parts of 29 hours. The last part has two of them.
    assert_eq!(view.rows.len(), 332);
    assert_eq!((&view.rows[0][1], &view.rows[331][1]), (&json!(29.0), &json!(2.0)));
}

#[tokio::test]
async fn only_the_past_part_of_the_present_hour_counts() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let begin = crate::timeline::hour_of(now()).0;
    daemon.context.store.put_node_time(&[spent_in(begin, [3_600_000.0, 0.0, 0.0, 0.0])]).await.unwrap();
    let mean_now = || 3_600_000.0 / (now().0 - begin).clamp(1, 3600) as f64;
    let most = mean_now();
    let asked = format!("node_time?from={}&to={}", begin - 3600, begin + 3600);
    let view = figure(&mut daemon, ReaderKind::Admin, &asked).await;
    let least = mean_now();
    assert_eq!(view.rows[0], [json!(begin - 3600), json!(0.0), json!(0.0), json!(0.0), json!(0.0)]);
    let mean = view.rows[1][1].as_f64().unwrap();
    assert!((least - 0.01..=most + 0.01).contains(&mean), "{mean}, not {least} to {most}");
}

#[tokio::test]
async fn a_figure_of_nodes_has_what_they_were_used_for() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    let begin = HOUR + 7200;
    for (hour, parts) in [
        (0, [3600.0, 7200.0, 10_800.0, 14_400.0, 18_000.0, 21_600.0]),
        (1, [4453.2, 0.0, 444.44, 0.0, 0.0, 0.0]),
    ] {
        let hour = PackedHour { from: UnixTime(begin + hour * 3600), packed: Vec::new() };
        daemon.context.store.put_hour(&hour, &NodeUsageSecs::from_array(parts)).await.unwrap();
    }
    let asked = format!("nodes?from={begin}&to={}", begin + 7200);
    let view = figure(&mut daemon, ReaderKind::Admin, &asked).await;
    assert_eq!(view.title, "Nodes");
    let heads = ["from", "main jobs", "malleable jobs", "idle", "wanted soon", "refused", "down"];
    assert_eq!(view.heads, heads);
    let rows = json!([[begin, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [begin + 3600, 1.24, 0.0, 0.12, 0.0, 0.0, 0.0]]);
    assert_eq!(json!(view.rows), rows);
}

/// Two main jobs that waited for malleable jobs.
fn delays() -> [MainDelay; 2] {
    let at = UnixTime(1_000_123);
    let first = MainDelay { job: JobId(7), at, secs: 41.256, planned: true };
    [first, MainDelay { job: JobId(8), at: UnixTime(1_003_456), secs: 3.0, planned: false }]
}

#[tokio::test]
async fn the_very_second_of_a_main_jobs_start_is_for_those_who_may_see_jobs() {
    let mut daemon = TestDaemon::start(ReadAccess::Open).await;
    daemon.context.store.add_delays(&delays()).await.unwrap();
    let exact = json!([[1_000_123, 41.26, "a planned start"], [1_003_456, 3.0, "a preemption"]]);
    // Nothing lies before the requested span.
    let coarse = json!([[998_000, 41.26, "a planned start"], [1_000_800, 3.0, "a preemption"]]);
    for (private, who, rows) in [
        ("none", ReaderKind::Other, &exact),
        ("nodes,usage", ReaderKind::Other, &exact),
        ("jobs", ReaderKind::Other, &coarse),
        ("jobs", ReaderKind::Nobody, &coarse),
        ("jobs", ReaderKind::Admin, &exact),
        ("all", ReaderKind::Operator, &exact),
    ] {
        daemon.keep_private(PrivateData::parse(private));
        let view = figure(&mut daemon, who, "delays?from=998000&to=1010000").await;
        assert_eq!(view.title, "Seconds that main jobs waited for nodes of malleable jobs");
        assert_eq!(
            (&json!(view.heads), &json!(view.rows)),
            (&json!(["at", "seconds", "for"]), rows),
            "{who:?}, {private}"
        );
    }
}

#[tokio::test]
async fn a_figure_of_no_time_or_too_much_is_refused() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    for (asked, expected) in [
        (format!("from={HOUR}&to={HOUR}"), 400),
        (format!("from={HOUR}&to={}", HOUR + 1), 200),
        (format!("from={HOUR}&to={}", HOUR + MAX_FIGURE_SECS), 200),
        (format!("from={HOUR}&to={}", HOUR + MAX_FIGURE_SECS + 1), 400),
        ("from=-1&to=3600".to_owned(), 400),
        (format!("from={HOUR}&to={}&zone=50400", HOUR + 1), 200),
        (format!("from={HOUR}&to={}&zone=-50401", HOUR + 1), 400),
    ] {
        for kind in ["nodes", "node_time", "delays"] {
            let (status, body) = daemon.get(ReaderKind::Admin, &format!("/v1/figures/{kind}?{asked}")).await;
            assert_eq!(status, expected, "{kind}, {asked}: {body}");
        }
    }
}

async fn report_seen_by(daemon: &mut TestDaemon, who: ReaderKind) -> Value {
    let (status, body) = daemon.get(who, "/v1/report?from=998000&to=1010000").await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn a_report_says_whether_it_is_partial_and_of_parts() {
    for (lend, lends_parts) in [(LendingMode::Nodes, false), (LendingMode::Gpus, true)] {
        let mut daemon = TestDaemon::configured(|config| config.gaps.lend = lend).await;
        for (private, who, is_partial) in [
            ("none", ReaderKind::Other, false),
            ("jobs", ReaderKind::Other, true),
            ("usage", ReaderKind::Owner, true),
            ("all", ReaderKind::Admin, false),
        ] {
            daemon.keep_private(PrivateData::parse(private));
            let shown = report_seen_by(&mut daemon, who).await;
            assert_eq!(shown["is_partial"], is_partial, "{who:?}, {private}: {shown}");
            assert_eq!(shown["lends_parts"], lends_parts, "{lend:?}: {shown}");
        }
    }
}

#[tokio::test]
async fn a_report_says_whether_there_were_more_delays_than_it_has() {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    daemon.context.store.add_delays(&delays()).await.unwrap();
    let all = [(41.256, true), (3.0, false)];
    for (most, expected, is_cut) in [(1, &all[..1], true), (2, &all[..], false), (3, &all[..], false)] {
        let viewer = ApiReader { all: true, ..ApiReader::default() };
        let from = UnixTime(998_000);
        let to = UnixTime(1_010_000);
        let view = report::build_report(daemon.context.clone(), viewer, from, to, most).await.unwrap();
        assert_eq!((&view.delays[..], view.delays_cut), (expected, is_cut), "at most {most}");
    }
}
