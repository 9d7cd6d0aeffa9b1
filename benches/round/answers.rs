//! The answers of slurmrestd for a large cluster: recorded records of v0.0.42 with their names, nodes and
//! times replaced.
//!
//! An answer is made while it is read, so that its bytes need not be held.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use serde_json::Value;

pub const NODES: u32 = 10_000;
pub const RUNNING: u32 = 20_000;
pub const PENDING: u32 = 20_000;

/// Nodes without a job of the main queue. The last `HELD` of them are held by malleable jobs.
pub const FREE: u32 = 1_500;
pub const HELD: u32 = 100;

/// Nodes that each running malleable job holds.
pub const HELD_EACH: u32 = 10;

/// Nodes that are down.
const DOWN: u32 = 100;

/// Running jobs of this many nodes each fill most of the machine; the others share what is left.
const WIDE_JOBS: u32 = 400;
const WIDE_NODES: u32 = 16;

/// Pending jobs that backfill has planned on this many nodes each.
const PLANNED: u32 = 300;
const PLANNED_NODES: u32 = 4;

/// The moment of the snapshot.
pub const NOW: i64 = 1_795_212_000;

/// Where a value of the record's own goes.
struct Slot {
    /// What precedes it.
    text: String,
    field: &'static str,
}

/// A recorded record with holes.
struct Template {
    slots: Vec<Slot>,
    end: String,
}

impl Template {
    /// Cuts the values of `fields` out of a record.
    fn new(mut record: Value, fields: &[&'static str]) -> Template {
        for field in fields {
            record[field] = format!("@{field}@").into();
        }
        let mut rest = record.to_string();
        let mut slots = Vec::new();
        while let Some((at, field)) =
            fields.iter().filter_map(|f| Some((rest.find(&format!("\"@{f}@\""))?, *f))).min()
        {
            let after = rest[at + field.len() + 4..].to_owned();
            rest.truncate(at);
            slots.push(Slot { text: rest, field });
            rest = after;
        }
        Template { slots, end: rest }
    }

    fn write(&self, out: &mut Vec<u8>, value: impl Fn(&str) -> Value) {
        for slot in &self.slots {
            out.extend_from_slice(slot.text.as_bytes());
            serde_json::to_writer(&mut *out, &value(slot.field)).expect("a value has a text");
        }
        out.extend_from_slice(self.end.as_bytes());
    }
}

/// Writes the record of a number.
type Record = Box<dyn FnMut(u32, &mut Vec<u8>)>;

/// An answer that is made as it is read.
pub struct Answer {
    record: Record,
    count: u32,
    next: u32,
    made: Vec<u8>,
    given: usize,
    end: Vec<u8>,
    /// Time spent on making it.
    pub spent: Duration,
    /// Bytes so far.
    pub bytes: usize,
}

impl Answer {
    fn new(whole: &Value, list: &str, count: u32, record: impl FnMut(u32, &mut Vec<u8>) + 'static) -> Answer {
        // The other members as Slurm orders them: after the list.
        let mut others = whole.clone();
        let members = others.as_object_mut().expect("an answer is an object");
        members.remove(list);
        let end = format!("],{}", &others.to_string()[1..]);
        Answer {
            record: Box::new(record),
            count,
            next: 0,
            made: format!("{{\"{list}\":[").into_bytes(),
            given: 0,
            end: end.into_bytes(),
            spent: Duration::ZERO,
            bytes: 0,
        }
    }

    fn refill(&mut self) {
        if self.given < self.made.len() || self.next > self.count {
            return;
        }
        if self.given > 0 {
            self.made.clear();
            self.given = 0;
        }
        match self.next {
            n if n == self.count => self.made.append(&mut self.end),
            n => {
                if n > 0 {
                    self.made.push(b',');
                }
                (self.record)(n, &mut self.made);
            }
        }
        self.next += 1;
    }
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let clock = Instant::now();
        let mut filled = 0;
        while filled < buffer.len() {
            self.refill();
            let n = (self.made.len() - self.given).min(buffer.len() - filled);
            if n == 0 {
                break;
            }
            buffer[filled..filled + n].copy_from_slice(&self.made[self.given..self.given + n]);
            self.given += n;
            filled += n;
        }
        self.spent += clock.elapsed();
        self.bytes += filled;
        Ok(filled)
    }
}

pub fn recorded(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rest/24.11/v0.0.42");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).expect("a recorded answer");
    serde_json::from_str(&text).expect("JSON")
}

pub fn node_name(number: u32) -> String {
    format!("nid{:06}", number + 1)
}

fn number(n: i64) -> Value {
    serde_json::json!({ "infinite": false, "number": n, "set": true })
}

/// `GET /nodes`: free nodes first, then busy ones, then those that are down.
pub fn nodes() -> Answer {
    let whole = recorded("nodes");
    let template =
        Template::new(whole["nodes"][0].clone(), &["name", "address", "hostname", "state", "gres", "cpus"]);
    let state = |n: u32| match n {
        n if n < FREE - HELD => "IDLE",
        n if n < NODES - DOWN => "ALLOCATED",
        _ => "DOWN",
    };
    Answer::new(&whole, "nodes", NODES, move |n, out| {
        template.write(out, |field| match field {
            "state" => serde_json::json!([state(n)]),
            "gres" => "gpu:a100:4(S:0-1)".into(),
            "cpus" => 64.into(),
            _ => node_name(n).into(),
        });
    })
}

const JOB_FIELDS: [&str; 15] = [
    "job_id",
    "name",
    "user_name",
    "user_id",
    "account",
    "partition",
    "nodes",
    "batch_host",
    "scheduled_nodes",
    "required_nodes",
    "node_count",
    "submit_time",
    "start_time",
    "end_time",
    "standard_output",
];

/// `GET /jobs`: running jobs of the main queue and ours, then pending ones.
pub fn jobs() -> Answer {
    let whole = recorded("jobs");
    let running = Template::new(whole["jobs"][1].clone(), &JOB_FIELDS);
    let pending = Template::new(whole["jobs"][4].clone(), &JOB_FIELDS);
    let mut whole = whole;
    whole["last_backfill"] = number(NOW);
    Answer::new(&whole, "jobs", RUNNING + PENDING, move |n, out| {
        let template = if n < RUNNING { &running } else { &pending };
        template.write(out, |field| job_field(n, field));
    })
}

/// Nodes of a job, as first and count. Those of a pending one are planned.
fn nodes_of(n: u32) -> (u32, u32) {
    let shared_from = FREE + WIDE_JOBS * WIDE_NODES;
    let shared = NODES - DOWN - shared_from;
    match n {
        n if n < HELD / HELD_EACH => (FREE - HELD + n * HELD_EACH, HELD_EACH),
        n if n < HELD / HELD_EACH + WIDE_JOBS => (FREE + (n - HELD / HELD_EACH) * WIDE_NODES, WIDE_NODES),
        n if n < RUNNING => (shared_from + n % shared, 1),
        n if n < RUNNING + PLANNED => ((n - RUNNING) * PLANNED_NODES % (FREE - HELD), PLANNED_NODES),
        _ => (0, 0),
    }
}

fn host_list(first: u32, count: u32) -> String {
    match count {
        0 => String::new(),
        1 => node_name(first),
        _ => format!("nid[{:06}-{:06}]", first + 1, first + count),
    }
}

fn job_field(n: u32, field: &str) -> Value {
    let (first, count) = nodes_of(n);
    let runs = n < RUNNING;
    let start = match (runs, count) {
        (true, _) => NOW - 600 - i64::from(n % 3000),
        (false, 0) => 0,
        // Windows from two minutes to two hours.
        (false, _) => NOW + 120 + i64::from((n - RUNNING) * 24),
    };
    match field {
        "job_id" => (1000 + n).into(),
        "name" => format!("train-{n}").into(),
        "user_name" => format!("user{}", n % 500).into(),
        "user_id" => (6000 + n % 500).into(),
        "account" => format!("project{}", n % 90).into(),
        "partition" => if n < HELD / HELD_EACH { "infill" } else { "main" }.into(),
        "nodes" => if runs { host_list(first, count) } else { String::new() }.into(),
        "batch_host" => if runs { node_name(first) } else { String::new() }.into(),
        "scheduled_nodes" => if runs { String::new() } else { host_list(first, count) }.into(),
        "required_nodes" => "".into(),
        "node_count" => number(i64::from(count.max(1))),
        "submit_time" => number(NOW - 4000),
        "start_time" => number(start),
        "end_time" => number(if start > 0 { start + 7200 } else { 0 }),
        _ => format!("/lustre/project{}/user{}/logs/train-{n}.out", n % 90, n % 500).into(),
    }
}

/// `GET /diag` at [`NOW`], with backfill at rest.
pub fn diag() -> Vec<u8> {
    let mut diag = recorded("diag");
    for (field, value) in [("req_time", NOW), ("bf_when_last_cycle", NOW)] {
        diag["statistics"][field] = number(value);
    }
    diag["statistics"]["bf_active"] = false.into();
    diag.to_string().into_bytes()
}

/// `GET /reservations`: as recorded, of nodes that are not here.
pub fn reservations() -> Vec<u8> {
    recorded("reservations").to_string().into_bytes()
}
