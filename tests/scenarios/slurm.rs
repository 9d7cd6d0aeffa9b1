//! The cluster of a script, as a snapshot of Slurm at a moment.

use std::collections::BTreeMap;

use infill_model::{
    BackfillState, BaseState, Job, JobId, Node, NodeName, NodeState, Reservation, Snapshot, UnixTime,
};

use crate::script::{Main, Script};

/// The scenario's beginning: midnight, so that a clock shows the time since then.
pub const BEGINNING: UnixTime = UnixTime(1_772_409_600);

/// Its date, in the form that infill writes before a time.
pub const DATE: &str = "2026-03-02T";

/// The malleable partition.
pub const PARTITION: &str = "infill";

/// The main queue's partition.
const MAIN: &str = "main";

/// States that Slurm shows instead of IDLE and ALLOCATED.
const BASE_STATES: [&str; 4] = ["DOWN", "ERROR", "FUTURE", "UNKNOWN"];

/// A moment of the script.
pub fn moment(secs: i64) -> UnixTime {
    BEGINNING + secs
}

/// Slurm's answer. `held`: the nodes of our jobs.
pub fn snapshot(script: &Script, held: &BTreeMap<JobId, Vec<NodeName>>, at: i64) -> Snapshot {
    let mut jobs: Vec<Job> = script.main.iter().filter_map(|j| main_job(j, at)).collect();
    jobs.extend(held.iter().map(|(id, nodes)| ours(*id, nodes)));
    jobs.sort_by_key(|j| j.id);
    let (exit, complete) = script.bf_exit(at);
    let known =
        script.reservations.iter().filter(|r| r.known_from.is_none_or(|from| from <= at) && at < r.end);
    let mut reservations: Vec<Reservation> = known
        .map(|r| Reservation {
            name: r.name.clone(),
            start_time: moment(r.start),
            end_time: moment(r.end),
            nodes: r.nodes.0.clone(),
            flags: Vec::new(),
        })
        .collect();
    reservations.sort_by(|a, b| a.name.cmp(&b.name));
    let doubts = script.doubts.iter().filter(|d| (d.from..d.until).contains(&at));
    Snapshot {
        taken_at: moment(at),
        nodes: nodes(script, &jobs, at),
        jobs,
        reservations,
        backfill: BackfillState {
            last_cycle: Some(moment(at)),
            complete,
            exit: exit.to_owned(),
            ..BackfillState::default()
        },
        doubts: doubts.map(|d| d.doubt.clone()).collect(),
        unread: None,
    }
}

fn nodes(script: &Script, jobs: &[Job], at: i64) -> Vec<Node> {
    let mut nodes = Vec::new();
    for group in &script.nodes {
        nodes.extend(group.names.0.iter().map(|name| Node {
            state: state(script, jobs, name, at),
            partitions: vec![PARTITION.to_owned(), MAIN.to_owned()],
            ..Node::new(name.clone(), group.node_type.clone())
        }));
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

fn state(script: &Script, jobs: &[Job], name: &NodeName, at: i64) -> NodeState {
    let holds = script.states.iter().filter(|s| s.from <= at && s.until.is_none_or(|until| at < until));
    let here = holds.filter(|s| s.nodes.0.contains(name));
    let words: Vec<&str> = here.flat_map(|s| s.words.split('+')).collect();
    let busy = jobs.iter().any(|j| j.state.is_running() && j.nodes.contains(name));
    let base = if busy { "ALLOCATED" } else { "IDLE" };
    let based = words.iter().any(|w| BASE_STATES.contains(w));
    NodeState::from_words(words.iter().copied().chain((!based).then_some(base)))
}

fn main_job(job: &Main, at: i64) -> Option<Job> {
    let state = job.state(at)?;
    let plain = Job {
        submit_time: Some(moment(job.submitted())),
        time_limit_mins: Some(job.limit_mins),
        node_count: job.nodes.0.len() as u32,
        ..Job::new(job.id, MAIN, state.clone())
    };
    if state == BaseState::Pending {
        let planned = job.plan(at);
        let start_time = planned.map(|(start, _)| moment(start));
        let scheduled_nodes = planned.map(|(_, nodes)| nodes.to_vec()).unwrap_or_default();
        return Some(Job { start_time, scheduled_nodes, ..plain });
    }
    let start_time = job.start.map(moment);
    let end_time = start_time.map(|t| t + job.limit_mins as i64 * 60);
    Some(Job { start_time, end_time, nodes: job.nodes.0.clone(), ..plain })
}

/// One of our jobs. A real one has a lead and wings, which are alike to the gap finder.
fn ours(id: JobId, nodes: &[NodeName]) -> Job {
    let mut nodes = nodes.to_vec();
    nodes.sort();
    let state = if nodes.is_empty() { BaseState::Pending } else { BaseState::Running };
    Job { node_count: nodes.len() as u32, held: nodes.is_empty(), nodes, ..Job::new(id, PARTITION, state) }
}
