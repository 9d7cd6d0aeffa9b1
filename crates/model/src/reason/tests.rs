//! The sentences of all reasons.

use super::*;
use crate::{CpuMemory, HostPart};

fn leaving(names: &str) -> LeavingNodes {
    LeavingNodes(names.split_whitespace().map(NodeName::new).collect())
}

#[test]
fn every_reason_has_a_kind_and_a_sentence() {
    let one = RatedSize { nodes: 1, rate: Some(2.5) };
    let two = RatedSize { nodes: 2, rate: Some(2.5) };
    let shortage = NodeShortage { min_nodes: 2, free: 1, window_secs: 60.0 };
    let reasons = [
        JobReason::Busy { nodes: 1 },
        JobReason::Drained,
        JobReason::BacksOff { secs: 12.4 },
        JobReason::Blocked { blocker: StartBlocker::Begin(UnixTime(160)), at: UnixTime(100) },
        JobReason::Stays { size: one, secs: 5.0 },
        JobReason::AtMaximum(two),
        JobReason::MayNotGrow(two),
        JobReason::Settled(two),
        JobReason::LeftAsItIs(two),
        JobReason::Grows { had: 1, gets: two, before: 1.0, secs: 18.0, leaving: leaving("") },
        JobReason::GivesUp { had: 2, gets: one, before: 4.0, taken: 1, secs: 12.0 },
        JobReason::Shrinks { had: 6, gets: 1, leaving: leaving("a b c d e") },
        JobReason::Swaps { gets: two, moves: true, plan: None, leaving: leaving("a b c d") },
        JobReason::Probes { had: 5, gets: 1, secs: 2.0, leaving: leaving(""), probe: probe(1) },
        JobReason::Starts { gets: two, secs: 18.0 },
        JobReason::StartsAgain { gets: two, secs: 18.0, leaving: leaving("a") },
        JobReason::Outbid { had: 3, taken: 2 },
        JobReason::TurnEnds { had: 3, taken: 3 },
        JobReason::Parked { leaving: leaving("a"), shortage },
        JobReason::WaitsForResume,
        JobReason::WaitsForPlan,
        JobReason::WaitsForNodes(NodeShortage { free: 0, ..shortage }),
        JobReason::WaitsForRate,
        JobReason::WaitsForHosts(shortage_of(2, HostPart::Cpus)),
        JobReason::WaitsForBudget { most: 20 },
        JobReason::WaitsForWindows { free: 1, all: 2, start_secs: 18.0 },
        JobReason::WaitsForOthers { min_nodes: 2, taken: 3, all: 4, window_secs: 60.0 },
        JobReason::WaitsForTurn(QueuePosition { position: 3, queue_length: 12, secs: 750.0 }),
        JobReason::Said("as it was".to_owned()),
    ];
    let kinds: Vec<JobReasonKind> = reasons.iter().map(JobReason::kind).collect();
    assert_eq!(kinds, JobReasonKind::ALL);
    let lines: Vec<String> =
        reasons.iter().map(|reason| format!("{}: {reason}", reason.kind().word())).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    busy: is in the middle of a change; keeps 1 node until that is done
    drained: is parked: an administrator drains infill
    backs_off: backs off for 12 s more after a preemption or failure
    barred: must not begin for another 60 s (--begin)
    stays: keeps its 1 node at 2.50 samples/s: it was rescaled a moment ago and stays for 5 s more
    at_maximum: keeps its 2 nodes at 2.50 samples/s: that is its maximum
    may_not_grow: keeps its 2 nodes at 2.50 samples/s: growth is paused
    settled: keeps its 2 nodes at 2.50 samples/s: no change would gain more than it costs
    left_as_it_is: keeps its 2 nodes at 2.50 samples/s: nothing was planned in this round
    grows: grows from 1 to 2 nodes because 2.50 samples/s instead of 1.00 are worth 18 s without samples
    gives_up: shrinks from 2 to 1 node: other jobs make more of 1 node than the 12 s without samples cost
    shrinks: shrinks from 6 to 1 node; it must leave a and 4 more
    swaps: moves to other nodes: 2 nodes at 2.50 samples/s; it must leave a, b, c, d
    probes: shrinks from 5 to 1 node: a probe, to measure how fast it is on 1 node; 2 s without samples
    starts: starts on 2 nodes at 2.50 samples/s after 18 s
    starts_anew: starts again on 2 nodes with its lead on another node, at 2.50 samples/s after 18 s; it must leave a
    outbid: is parked: other jobs make more of 2 of its 3 nodes
    turn_ends: is parked: its turn has ended, and other jobs get its 3 nodes
    parked: is parked; it must leave a; needs at least 2 nodes; 1 is free for longer than 60 s
    waits_for_resume: waits: starting is paused
    waits_for_plan: waits: nothing was planned in this round
    waits_for_nodes: waits: needs at least 2 nodes; 0 are free for longer than 60 s
    waits_for_rate: waits: no rate is known on the node types that are free
    waits_for_hosts: waits: 2 more workers each need 8 CPUs of one host, and hosts with free places have CPUs left for 1
    waits_for_budget: waits for the next round: this one may make 20 changes, and has made them all
    waits_for_windows: waits: 1 of 2 nodes are free, but not for long enough to earn back a start of 18 s
    waits_for_others: waits: needs at least 2 nodes; other jobs make more of 3 of the 4 that are free for longer than 60 s
    waits_for_turn: waits for its turn: it is number 3 of 12 in line, about 12:30 from now
    said: as it was
    ");
}

#[test]
fn no_rate_is_told_where_none_is_known() {
    let gets = RatedSize { nodes: 2, rate: None };
    let all = [
        JobReason::AtMaximum(gets),
        JobReason::Grows { had: 1, gets, before: 1.0, secs: 18.0, leaving: leaving("") },
        JobReason::GivesUp { had: 3, gets, before: 1.0, taken: 0, secs: 18.0 },
        JobReason::Swaps { gets, moves: true, plan: None, leaving: leaving("") },
        JobReason::Starts { gets, secs: 18.0 },
        JobReason::StartsAgain { gets, secs: 18.0, leaving: leaving("") },
    ];
    insta::assert_snapshot!(all.map(|reason| reason.to_string()).join("\n"), @r"
    keeps its 2 nodes: that is its maximum
    grows from 1 to 2 nodes because that should be worth 18 s without samples; its rate is not known yet
    shrinks from 3 to 2 nodes: later steps of the plan are worth more with fewer nodes now
    moves to other nodes: 2 nodes
    starts on 2 nodes after 18 s
    starts again on 2 nodes with its lead on another node, after 18 s
    ");
}

fn shortage_of(workers: u32, lacks: HostPart) -> HostShortage {
    let takes = CpuMemory { cpus: 8, memory_mib: 1900 };
    HostShortage { workers, takes, lacks, fit: workers - 1 }
}

#[test]
fn a_shortage_of_hosts_names_the_resource() {
    let sentences = [HostPart::Cpus, HostPart::Memory].map(|part| shortage_of(1, part).to_string());
    insta::assert_snapshot!(sentences.join("\n"), @r"
    1 more worker needs 8 CPUs of one host, and hosts with free places have CPUs left for none
    1 more worker needs 1900 MiB of one host, and hosts with free places have memory left for none
    ");
}

fn probe(nodes: u32) -> Probe {
    Probe { nodes, with: None }
}

#[test]
fn a_probe_says_how_the_size_changes() {
    let sentences =
        [probe_sentence(0, 2, 18.0, ""), probe_sentence(1, 4, 9.0, "a"), probe_sentence(4, 4, 0.0, "")];
    insta::assert_snapshot!(sentences.join("\n"), @r"
    starts on 2 nodes: a probe, to measure how fast it is on 2 nodes; 18 s without samples
    grows from 1 to 4 nodes: a probe, to measure how fast it is on 4 nodes; 9 s without samples; it must leave a
    keeps its size of 4 nodes: a probe, to measure how fast it is on 4 nodes
    ");
}

fn probe_sentence(had: usize, gets: u32, secs: f64, left: &str) -> String {
    let leaving = leaving(left);
    JobReason::Probes { had, gets: gets as usize, secs, leaving, probe: probe(gets) }.to_string()
}

#[test]
fn in_json_a_reason_is_its_sentence() {
    let reason = JobReason::BacksOff { secs: 40.0 };
    let json = r#""backs off for 40 s more after a preemption or failure""#;
    assert_eq!(serde_json::to_string(&reason).unwrap(), json);
    assert_eq!(serde_json::from_str::<JobReason>(json).unwrap().to_string(), reason.to_string());
}

#[test]
fn a_job_without_competition_is_not_said_to_make_room_for_others() {
    let gives_up = |rate: f64, taken| {
        let gets = RatedSize { nodes: 1, rate: Some(rate) };
        JobReason::GivesUp { had: 4, gets, before: 80.0, taken, secs: 12.0 }.to_string()
    };
    let swaps = |moves, plan: Option<&str>| {
        let plan = plan.map(|name| ExecPlan(name.to_owned()));
        let gets = RatedSize { nodes: 2, rate: Some(2.5) };
        JobReason::Swaps { gets, moves, plan, leaving: leaving("") }.to_string()
    };
    let all = [
        gives_up(100.0, 0),
        gives_up(60.0, 0),
        gives_up(60.0, 3),
        JobReason::Outbid { had: 3, taken: 0 }.to_string(),
        swaps(false, Some("tp2")),
        swaps(true, Some("tp2")),
        swaps(true, None),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    shrinks from 4 to 1 node because 100.00 samples/s instead of 80.00 are worth 12 s without samples
    shrinks from 4 to 1 node: later steps of the plan are worth more with fewer nodes now
    shrinks from 4 to 1 node: other jobs make more of 3 nodes than the 12 s without samples cost
    is parked: its 3 nodes would soon cost more in changes than it gains on them
    keeps its nodes and changes to execution plan tp2: 2 nodes at 2.50 samples/s
    moves to other nodes and changes to execution plan tp2: 2 nodes at 2.50 samples/s
    moves to other nodes: 2 nodes at 2.50 samples/s
    ");
}
