//! The answers of slurmrestd for a large cluster: recorded records of v0.0.42 with their names, nodes and
//! times replaced.
//!
//! An answer is made while it is read, so that it is never held in memory as a whole.

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

/// Running jobs of this many nodes each fill most of the cluster. The others share the remaining nodes.
const WIDE_JOBS: u32 = 400;
const WIDE_NODES: u32 = 16;

/// Pending jobs that backfill has planned on this many nodes each.
const PLANNED: u32 = 300;
const PLANNED_NODES: u32 = 4;

/// GPUs of each node. Each GPU comes with this many CPUs and MiB.
pub const GPUS: u32 = 4;
const CPUS_A_GPU: u32 = 16;
const MIB_A_GPU: u32 = 125_000;

/// Where GPUs are lent, this many nodes have three jobs, of 2, 1 and 1 GPU. Every fourth of the other busy
/// nodes has two jobs of 2 and 1 GPU; the rest have two jobs of 2 GPUs.
const OF_THREE: u32 = 3_100;

/// The moment of the snapshot.
pub const NOW: i64 = 1_795_212_000;

/// How main jobs occupy nodes.
#[derive(Clone, Copy, PartialEq)]
pub enum Site {
    /// As a whole, or by their CPUs alone; many jobs share a few nodes.
    Whole,
    /// By their GPUs.
    Shared,
}

/// A hole in a record where a value goes.
struct Slot {
    /// The text before the hole.
    text: String,
    field: &'static str,
}

/// A recorded record with holes for its own values.
struct Template {
    slots: Vec<Slot>,
    end: String,
}

impl Template {
    /// Cuts the values of `fields` out of a record.
    fn new(mut record: Value, fields: &[&'static str]) -> Template {
        mark(&mut record, fields);
        Template::cut(&record, fields)
    }

    /// Cuts the marked values of `fields` out of a record.
    fn cut(record: &Value, fields: &[&'static str]) -> Template {
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

fn mark(record: &mut Value, fields: &[&str]) {
    for field in fields {
        record[field] = format!("@{field}@").into();
    }
}

/// Writes the record with a given number.
type Record = Box<dyn FnMut(u32, &mut Vec<u8>)>;

/// An answer that is made as it is read.
pub struct Answer {
    record: Record,
    count: u32,
    next: u32,
    made: Vec<u8>,
    given: usize,
    end: Vec<u8>,
    /// Time spent on making the answer.
    pub spent: Duration,
    /// Bytes read so far.
    pub bytes: usize,
}

impl Answer {
    fn new(whole: &Value, list: &str, count: u32, record: impl FnMut(u32, &mut Vec<u8>) + 'static) -> Answer {
        // The other members follow the list, as Slurm orders them.
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

const NODE_FIELDS: [&str; 11] = [
    "name",
    "address",
    "hostname",
    "state",
    "gres",
    "gres_used",
    "cpus",
    "effective_cpus",
    "alloc_cpus",
    "real_memory",
    "alloc_memory",
];

/// `GET /nodes`: free nodes first, then busy ones, then those that are down.
pub fn nodes(site: Site) -> Answer {
    let whole = recorded("nodes");
    let template = Template::new(whole["nodes"][0].clone(), &NODE_FIELDS);
    let state = move |n: u32| match n {
        n if n < FREE - held_nodes(site) => "IDLE",
        n if n < NODES - DOWN => "ALLOCATED",
        _ => "DOWN",
    };
    Answer::new(&whole, "nodes", NODES, move |n, out| {
        let used = if site == Site::Shared { gpus_used(n) } else { 0 };
        template.write(out, |field| match field {
            "state" => serde_json::json!([state(n)]),
            "gres" => "gpu:a100:4(S:0-1)".into(),
            "gres_used" => format!("gpu:a100:{used}").into(),
            "cpus" | "effective_cpus" => (GPUS * CPUS_A_GPU).into(),
            "alloc_cpus" => (used * CPUS_A_GPU).into(),
            "real_memory" => (GPUS * MIB_A_GPU).into(),
            "alloc_memory" => (used * MIB_A_GPU).into(),
            _ => node_name(n).into(),
        });
    })
}

/// Nodes that malleable jobs are on.
fn held_nodes(site: Site) -> u32 {
    if site == Site::Shared { HELD / GPUS } else { HELD }
}

/// GPUs of a node that jobs occupy, where GPUs are lent.
fn gpus_used(node: u32) -> u32 {
    match node {
        n if n < FREE - held_nodes(Site::Shared) || n >= NODES - DOWN => 0,
        n if n < FREE + OF_THREE => GPUS,
        n => GPUS - u32::from(n.is_multiple_of(4)),
    }
}

/// The node and the GPUs of a running job, where GPUs are lent.
pub fn share_of(n: u32) -> (u32, u32) {
    match n {
        n if n < HELD => (FREE - HELD / GPUS + n / GPUS, 1),
        n if n < HELD + 3 * OF_THREE => {
            let n = n - HELD;
            (FREE + n / 3, if n.is_multiple_of(3) { 2 } else { 1 })
        }
        n => {
            let n = n - HELD - 3 * OF_THREE;
            let node = FREE + OF_THREE + n / 2;
            (node, if n.is_multiple_of(2) { 2 } else { gpus_used(node) - 2 })
        }
    }
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

/// `GET /jobs`: running jobs of the main queue and malleable ones, then pending ones.
pub fn jobs(site: Site) -> Answer {
    let whole = recorded("jobs");
    let running = match site {
        Site::Whole => Template::new(whole["jobs"][1].clone(), &JOB_FIELDS),
        Site::Shared => shared_job(),
    };
    let pending = Template::new(whole["jobs"][4].clone(), &JOB_FIELDS);
    let mut whole = whole;
    whole["last_backfill"] = number(NOW);
    Answer::new(&whole, "jobs", RUNNING + PENDING, move |n, out| {
        let template = if n < RUNNING { &running } else { &pending };
        template.write(out, |field| job_field(site, n, field));
    })
}

/// A job that occupies a part of its node.
fn shared_job() -> Template {
    let mut job = recorded("shared-jobs")["jobs"][0].take();
    mark(&mut job, &JOB_FIELDS);
    let part = &mut job["job_resources"]["nodes"]["allocation"][0];
    part["name"] = "@on@".into();
    part["cpus"]["count"] = "@cpus_held@".into();
    part["memory"]["allocated"] = "@mib_held@".into();
    job["gres_detail"] = serde_json::json!(["@gres_held@"]);
    let fields = [JOB_FIELDS.as_slice(), &["on", "cpus_held", "mib_held", "gres_held"]].concat();
    Template::cut(&job, &fields)
}

/// Nodes of a job, as first and count. For a pending job these are the planned ones.
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

fn job_field(site: Site, n: u32, field: &str) -> Value {
    let runs = n < RUNNING;
    let (first, count) = if site == Site::Shared && runs { (share_of(n).0, 1) } else { nodes_of(n) };
    let ours = if site == Site::Shared { HELD } else { HELD / HELD_EACH };
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
        "on" => node_name(first).into(),
        "cpus_held" => (share_of(n).1 * CPUS_A_GPU).into(),
        "mib_held" => (share_of(n).1 * MIB_A_GPU).into(),
        "gres_held" => format!("gpu:a100:{0}(IDX:0-{0})", share_of(n).1).into(),
        "partition" => if n < ours { "infill" } else { "main" }.into(),
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

/// `GET /diag` at [`NOW`], with backfill idle.
pub fn diag() -> Vec<u8> {
    let mut diag = recorded("diag");
    for (field, value) in [("req_time", NOW), ("bf_when_last_cycle", NOW)] {
        diag["statistics"][field] = number(value);
    }
    diag["statistics"]["bf_active"] = false.into();
    diag.to_string().into_bytes()
}

/// `GET /reservations`: as recorded. The reserved nodes are not part of this cluster.
pub fn reservations() -> Vec<u8> {
    recorded("reservations").to_string().into_bytes()
}
