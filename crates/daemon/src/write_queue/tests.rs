//! What waits for the store, for each kind of history and each event.

use super::*;
use infill_model::{
    BatchMode, ExecPlan, NodeName, NodeType, Plan, ProfileKey, RoundReport, SolveStatus, UnixTime, WindowEnd,
};
use infill_testkit::ended_job;

/// Plays events, one letter each: `a` adds a row, `t` takes all rows for writing, `b` puts the taken rows
/// back, `f` adds as many rows as may wait, `l` loses a row. Returns the waiting rows and the number of lost
/// ones.
fn play(kind: HistoryKind, events: &str) -> String {
    let mut queue = WriteQueue::default();
    let mut taken = WriteBatch::default();
    let mut number = 0;
    let mut taken_generations = Vec::new();
    for event in events.chars() {
        match event {
            'a' => add(&mut queue, kind, &mut number),
            'f' => (0..most(kind)).for_each(|_| add(&mut queue, kind, &mut number)),
            't' => {
                taken = queue.take_batch();
                taken_generations = queue.take_generations();
            }
            'b' => {
                queue.put_batch_back(std::mem::take(&mut taken));
                queue.put_generations_back(std::mem::take(&mut taken_generations));
            }
            'l' => queue.count_lost(kind, 1),
            other => panic!("no event {other}"),
        }
    }
    let lost = queue.take_lost().get(&kind).copied().unwrap_or(0);
    assert!(queue.take_lost().is_empty(), "losses are returned once");
    let rows = numbers(&mut queue, kind);
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

fn add(queue: &mut WriteQueue, kind: HistoryKind, number: &mut i64) {
    *number += 1;
    let at = UnixTime(*number);
    let job = JobId(*number as u32);
    match kind {
        HistoryKind::Rounds => queue.add_round(round(at)),
        HistoryKind::Gaps => queue.add_gaps(vec![gap(at)]),
        HistoryKind::Measurements => {
            queue.add_measurement(measurement(job, 2, 1.0, at));
            queue.close_measurement(job);
        }
        HistoryKind::Generations => queue.add_generations([GenerationRecord {
            job,
            generation: 1,
            started_at: at,
            nodes: Vec::new(),
            why: String::new(),
        }]),
        HistoryKind::Ended => queue.add_ended_job(ended_job(job, at)),
        HistoryKind::Hours => {
            let mut hour = UsageHour::default();
            hour.from = at;
            queue.add_usage(RecordedUsage { hours: vec![Arc::new(hour)], ..RecordedUsage::default() });
        }
        HistoryKind::Spent => {
            queue.add_usage(RecordedUsage { spent: vec![spent(at)], ..RecordedUsage::default() })
        }
        HistoryKind::Delays => {
            let delay = MainDelay { job, at, secs: 1.0, planned: false };
            queue.add_usage(RecordedUsage { delays: vec![delay], ..RecordedUsage::default() });
        }
    }
}

fn numbers(queue: &mut WriteQueue, kind: HistoryKind) -> Vec<i64> {
    let generations = queue.take_generations();
    let batch = queue.take_batch();
    match kind {
        HistoryKind::Rounds => batch.rounds.iter().map(|row| row.at.0).collect(),
        HistoryKind::Gaps => batch.gaps.iter().map(|row| row.end.0).collect(),
        HistoryKind::Measurements => batch.measurements.iter().map(|row| row.at.0).collect(),
        HistoryKind::Generations => generations.iter().map(|row| row.started_at.0).collect(),
        HistoryKind::Ended => batch.ended.iter().map(|row| row.ended_at.0).collect(),
        HistoryKind::Hours => batch.hours.iter().map(|row| row.from.0).collect(),
        HistoryKind::Spent => batch.spent.iter().map(|row| row.key.from.0).collect(),
        HistoryKind::Delays => batch.delays.iter().map(|row| row.at.0).collect(),
    }
}

fn round(at: UnixTime) -> RoundRecord {
    let plan = Plan {
        at,
        jobs: Vec::new(),
        status: SolveStatus::Trivial,
        proof: None,
        objective: 0.0,
        steps: Vec::new(),
    };
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

/// What waits and what is being written, and the events that lead to that state.
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

/// A number relative to the limit of its kind, which is written as `F`.
fn relative_number(word: &str, full: i64) -> String {
    match word.parse::<i64>() {
        Ok(number) if number >= full => {
            let times = if number < 2 * full { String::new() } else { (number / full).to_string() };
            let more = if number % full == 0 { String::new() } else { format!("+{}", number % full) };
            format!("{times}F{more}")
        }
        _ => word.to_owned(),
    }
}

/// The result of [`play`] with numbers relative to the limit, so that one table serves all kinds.
fn relative(played: &str, full: i64) -> String {
    let (rows, lost) = played.split_once("; lost ").expect("the format of `play`");
    let ranges = rows.split(' ').map(|range| {
        range.split("..").map(|number| relative_number(number, full)).collect::<Vec<_>>().join("..")
    });
    let rows = if rows.is_empty() { "none".to_owned() } else { ranges.collect::<Vec<_>>().join(" ") };
    let lost = if lost == "0" { String::new() } else { format!(" -{}", relative_number(lost, full)) };
    format!("{rows}{lost}")
}

/// The rows that wait after each event in each state, by their numbers, and how many were lost. Where nothing
/// was taken, nothing can be put back.
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
    // Rows that came meanwhile stay behind the rows that are put back.
    for kind in HistoryKind::ALL.iter().copied() {
        assert_eq!(play(kind, "aatb"), "1 2; lost 0", "{}", kind.word());
        assert_eq!(play(kind, "aataab"), "1 2 3 4; lost 0", "{}", kind.word());
        assert_eq!(play(kind, "aatbaatb"), "1 2 3 4; lost 0", "{}", kind.word());
        // One row is lost before the rows are taken, another when they are put back.
        let full = most(kind) as i64;
        assert_eq!(play(kind, "fatab"), format!("3..{}; lost 2", full + 2), "{}", kind.word());
    }
}

/// Takes the measurements that wait: nodes and seconds.
fn measured(queue: &mut WriteQueue) -> Vec<(u32, f64)> {
    queue.take_batch().measurements.iter().map(|row| (row.nodes, row.secs)).collect()
}

#[test]
fn measurements_add_up_to_rows_of_a_minute() {
    let mut queue = WriteQueue::default();
    for second in 1..=50 {
        queue.add_measurement(measurement(JobId(1), 2, 1.0, UnixTime(second)));
    }
    assert_eq!(measured(&mut queue), []);
    for second in 51..=70 {
        queue.add_measurement(measurement(JobId(1), 2, 1.0, UnixTime(second)));
    }
    assert_eq!(measured(&mut queue), [(2, 60.0)]);
    // Another size makes another row. So does the rest of an interrupted generation.
    queue.add_measurement(measurement(JobId(1), 4, 5.0, UnixTime(80)));
    assert_eq!(measured(&mut queue), [(2, 10.0)]);
    queue.close_measurement(JobId(1));
    assert_eq!(measured(&mut queue), [(4, 5.0)]);
    queue.add_measurement(measurement(JobId(1), 4, 5.0, UnixTime(90)));
    queue.drop_measurements(&ProfileFilter { user: Some("alice".to_owned()), ..ProfileFilter::default() });
    queue.close_measurement(JobId(1));
    assert_eq!(measured(&mut queue), []);
}

#[test]
fn a_record_is_stored_until_it_changes_again() {
    let mut queue = WriteQueue::default();
    assert!(queue.is_stored(JobId(1)));
    queue.mark_dirty([JobId(1), JobId(2)]);
    assert!(!queue.is_stored(JobId(1)));
    let taken = queue.take_dirty();
    assert!(taken.contains(&JobId(2)) && queue.is_stored(JobId(2)));
    // The record changed again, or could not be written.
    queue.mark_dirty(taken);
    assert!(!queue.is_stored(JobId(2)));
}
