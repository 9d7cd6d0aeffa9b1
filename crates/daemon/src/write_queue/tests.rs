//! What waits for the store, kind by kind and event by event.

use super::*;
use infill_model::{
    BatchMode, ExecPlan, NodeName, NodeType, Plan, ProfileKey, RoundReport, SolveStatus, UnixTime, WindowEnd,
};
use infill_testkit::ended_job;

/// What can happen to the rows of a kind, one letter each: `a` a row comes, `t` all are taken to be written,
/// `b` those that were taken come back, `f` as many rows come as may wait, `l` one is lost.
fn play(kind: HistoryKind, events: &str) -> String {
    let mut ledger = WriteQueue::default();
    let mut taken = WriteBatch::default();
    let mut number = 0;
    let mut taken_generations = Vec::new();
    for event in events.chars() {
        match event {
            'a' => add(&mut ledger, kind, &mut number),
            'f' => (0..most(kind)).for_each(|_| add(&mut ledger, kind, &mut number)),
            't' => (taken, taken_generations) = (ledger.take_batch(), ledger.take_generations()),
            'b' => {
                ledger.put_batch_back(std::mem::take(&mut taken));
                ledger.put_generations_back(std::mem::take(&mut taken_generations));
            }
            'l' => ledger.count_lost(kind, 1),
            other => panic!("no event {other}"),
        }
    }
    let lost = ledger.take_lost().get(&kind).copied().unwrap_or(0);
    assert!(ledger.take_lost().is_empty(), "told once");
    let rows = numbers(&mut ledger, kind);
    let rows = match rows.as_slice() {
        [first, .., last] if rows.len() > 5 => format!("{first}..{last}"),
        few => few.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    format!("{rows}; lost {lost}")
}

fn most(kind: HistoryKind) -> usize {
    match kind {
        HistoryKind::Rounds => MAX_WAITING_ROUNDS,
        HistoryKind::Hours => MAX_WAITING_HOURS,
        HistoryKind::Spent => MAX_WAITING_SPENT,
        _ => MAX_WAITING_ROWS,
    }
}

fn add(ledger: &mut WriteQueue, kind: HistoryKind, number: &mut i64) {
    *number += 1;
    let at = UnixTime(*number);
    let job = JobId(*number as u32);
    match kind {
        HistoryKind::Rounds => ledger.add_round(round(at)),
        HistoryKind::Gaps => ledger.add_gaps(vec![gap(at)]),
        HistoryKind::Measurements => {
            ledger.add_measurement(measurement(job, 2, 1.0, at));
            ledger.close_measurement(job);
        }
        HistoryKind::Generations => ledger.add_generations([GenerationRecord {
            job,
            generation: 1,
            started_at: at,
            nodes: Vec::new(),
            why: String::new(),
        }]),
        HistoryKind::Ended => ledger.add_ended_job(ended_job(job, at)),
        HistoryKind::Hours => {
            let mut hour = UsageHour::default();
            hour.from = at;
            ledger.add_usage(RecordedUsage { hours: vec![Arc::new(hour)], ..RecordedUsage::default() });
        }
        HistoryKind::Spent => {
            ledger.add_usage(RecordedUsage { spent: vec![spent(at)], ..RecordedUsage::default() })
        }
        HistoryKind::Delays => {
            let delay = MainDelay { job, at, secs: 1.0, planned: false };
            ledger.add_usage(RecordedUsage { delays: vec![delay], ..RecordedUsage::default() });
        }
    }
}

fn numbers(ledger: &mut WriteQueue, kind: HistoryKind) -> Vec<i64> {
    let generations = ledger.take_generations();
    let pages = ledger.take_batch();
    match kind {
        HistoryKind::Rounds => pages.rounds.iter().map(|r| r.at.0).collect(),
        HistoryKind::Gaps => pages.gaps.iter().map(|g| g.end.0).collect(),
        HistoryKind::Measurements => pages.measurements.iter().map(|m| m.at.0).collect(),
        HistoryKind::Generations => generations.iter().map(|g| g.started_at.0).collect(),
        HistoryKind::Ended => pages.ended.iter().map(|j| j.ended_at.0).collect(),
        HistoryKind::Hours => pages.hours.iter().map(|h| h.from.0).collect(),
        HistoryKind::Spent => pages.spent.iter().map(|row| row.key.from.0).collect(),
        HistoryKind::Delays => pages.delays.iter().map(|delay| delay.at.0).collect(),
    }
}

fn round(at: UnixTime) -> RoundRecord {
    let jobs = Vec::new();
    let steps = Vec::new();
    let plan = Plan { at, jobs, status: SolveStatus::Trivial, proof: None, objective: 0.0, steps };
    RoundRecord { at, plan, report: RoundReport::default(), acted: true }
}

fn gap(end: UnixTime) -> EndedGap {
    EndedGap {
        node: NodeName::from("n1"),
        node_type: NodeType::new("cpu"),
        start: UnixTime(0),
        end,
        taken: true,
        block: 1,
        planned: WindowEnd::Unknown,
    }
}

fn spent(from: UnixTime) -> NodeTimeRow {
    let account = "ml".to_owned();
    let user = "alice".to_owned();
    let node_type = "cpu".to_owned();
    NodeTimeRow { key: NodeTimeKey { from, account, user, node_type }, spent: NodeTimeUsage::default() }
}

fn measurement(job: JobId, nodes: u32, secs: f64, at: UnixTime) -> Measurement {
    let user = "alice".to_owned();
    let name = "bert".to_owned();
    let node_type = NodeType::new("cpu");
    let key = ProfileKey { user, name, node_type, exec_plan: ExecPlan::default(), batch: BatchMode::Auto };
    Measurement { key, job, nodes, samples: 10.0 * secs, secs, probe: false, at }
}

/// What waits and what is being written, by what has happened before.
const STATES: [(&str, &str); 7] = [
    ("nothing", ""),
    ("some", "aa"),
    ("written", "aat"),
    ("some, written", "aata"),
    ("full", "f"),
    ("full, written", "ft"),
    ("both full", "ftf"),
];

const EVENTS: [(&str, &str); 5] =
    [("comes", "a"), ("many come", "f"), ("taken", "t"), ("not written", "b"), ("lost", "l")];

/// The numbers near what may wait are told as `F`, so that all kinds have one table.
fn relative(rows: &str, full: i64) -> String {
    let word = |word: &str| match word.parse::<i64>() {
        Ok(number) if number >= full => {
            let times = if number < 2 * full { String::new() } else { (number / full).to_string() };
            let more = if number % full == 0 { String::new() } else { format!("+{}", number % full) };
            format!("{times}F{more}")
        }
        _ => word.to_owned(),
    };
    let (rows, lost) = rows.split_once("; lost ").expect("what play says");
    let said: Vec<String> =
        rows.split(' ').map(|part| part.split("..").map(word).collect::<Vec<_>>().join("..")).collect();
    let lost = if lost == "0" { String::new() } else { format!(" -{}", word(lost)) };
    let said = if rows.is_empty() { "none".to_owned() } else { said.join(" ") };
    format!("{said}{lost}")
}

/// Rows that wait after each event in each state, by their numbers, and how many were lost. Where
/// nothing was taken nothing can be put back: nothing happens then.
#[test]
fn every_event_in_every_state_of_every_kind_of_history() {
    let mut tables = HistoryKind::ALL.iter().map(|kind| {
        let full = most(*kind) as i64;
        let mut table = format!("{:<14}", "");
        EVENTS.iter().for_each(|(name, _)| table += &format!(" {name:<14}"));
        for (state, before) in STATES {
            table = format!("{}\n{state:<14}", table.trim_end());
            for (_, event) in EVENTS {
                let after = relative(&play(*kind, &format!("{before}{event}")), full);
                table += &format!(" {after:<14}");
            }
        }
        table.trim_end().to_owned()
    });
    let first = tables.next().unwrap();
    tables.for_each(|table| assert_eq!(table, first, "kinds differ"));
    insta::assert_snapshot!(first, @r"
                   comes          many come      taken          not written    lost
    nothing        1              1..F           none           none           none -1
    some           1 2 3          3..F+2 -2      none           1 2            1 2 -1
    written        3              3..F+2         none           1 2            none -1
    some, written  3 4            4..F+3 -1      none           1 2 3          3 -1
    full           2..F+1 -1      F+1..2F -F     none           1..F           1..F -1
    full, written  F+1            F+1..2F        none           1..F           none -1
    both full      F+2..2F+1 -1   2F+1..3F -F    none           F+1..2F -F     F+1..2F -1
    ");
}

#[test]
fn every_kind_of_history_waits_bounded_and_in_its_order() {
    // The rows that came meanwhile stand behind those that come back.
    for kind in HistoryKind::ALL.iter().copied() {
        assert_eq!(play(kind, "aatb"), "1 2; lost 0", "{}", kind.word());
        assert_eq!(play(kind, "aataab"), "1 2 3 4; lost 0", "{}", kind.word());
        assert_eq!(play(kind, "aatbaatb"), "1 2 3 4; lost 0", "{}", kind.word());
        // One was lost before they were taken, another when they came back.
        let full = most(kind) as i64;
        assert_eq!(play(kind, "fatab"), format!("3..{}; lost 2", full + 2), "{}", kind.word());
    }
}

#[test]
fn what_is_measured_adds_up_to_rows_of_a_minute() {
    let mut ledger = WriteQueue::default();
    let rows = |ledger: &mut WriteQueue| -> Vec<(u32, f64)> {
        ledger.take_batch().measurements.iter().map(|m| (m.nodes, m.secs)).collect()
    };
    for second in 1..=50 {
        ledger.add_measurement(measurement(JobId(1), 2, 1.0, UnixTime(second)));
    }
    assert_eq!(rows(&mut ledger), []);
    for second in 51..=70 {
        ledger.add_measurement(measurement(JobId(1), 2, 1.0, UnixTime(second)));
    }
    assert_eq!(rows(&mut ledger), [(2, 60.0)]);
    // Another size is another row, and so is what an interrupted generation leaves.
    ledger.add_measurement(measurement(JobId(1), 4, 5.0, UnixTime(80)));
    assert_eq!(rows(&mut ledger), [(2, 10.0)]);
    ledger.close_measurement(JobId(1));
    assert_eq!(rows(&mut ledger), [(4, 5.0)]);
    ledger.add_measurement(measurement(JobId(1), 4, 5.0, UnixTime(90)));
    ledger.drop_measurements(&ProfileFilter { user: Some("alice".to_owned()), ..ProfileFilter::default() });
    ledger.close_measurement(JobId(1));
    assert_eq!(rows(&mut ledger), []);
}

#[test]
fn a_record_is_stored_until_it_changes_again() {
    let mut ledger = WriteQueue::default();
    assert!(ledger.is_stored(JobId(1)));
    ledger.mark_dirty([JobId(1), JobId(2)]);
    assert!(!ledger.is_stored(JobId(1)));
    let taken = ledger.take_dirty();
    assert!(taken.contains(&JobId(2)) && ledger.is_stored(JobId(2)));
    // It changed, or could not be written.
    ledger.mark_dirty(taken);
    assert!(!ledger.is_stored(JobId(2)));
}
