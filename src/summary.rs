//! The summary of `infill status`, in a few lines of text.

use std::fmt::Write;

use super::jobs;
use infill_api::{DaemonStatus, IdleShare, LengthAccuracy, NodeKind};
use infill_model::{ControlState, DaemonMode};
use infill_present::{
    exit::CommandFailure,
    hidden::describe_hidden,
    output::DisplayClock,
    phrases::{self, percent, status_headline::StatusHeadline},
};

/// The headline, the summary, the problems and the table of jobs.
pub fn status_summary(
    status: &DaemonStatus,
    url: &str,
    when: DisplayClock,
) -> Result<String, CommandFailure> {
    let headline = StatusHeadline::from_status(status, when);
    let mut text = format!("{headline}\n\n{}", summary_head(status, url, when));
    if !status.problems.is_empty() {
        text.push_str("\nproblems\n");
        text.extend(status.problems.iter().map(|p| format!("  - {p}\n")));
    }
    if !status.jobs.is_empty() {
        let _ = write!(text, "\n{}", jobs::job_table(&status.jobs)?);
    }
    if let Some(line) = describe_hidden(&status.hidden) {
        let _ = write!(text, "\n{line}\n");
    }
    Ok(text)
}

fn summary_head(status: &DaemonStatus, url: &str, when: DisplayClock) -> String {
    let round = match status.last_round {
        Some(at) => format!("last {} ago", when.time_since(at)),
        None => "none yet".to_owned(),
    };
    let slurm = status.slurm.as_deref().unwrap_or("unknown");
    let rest = status.rest.as_deref().unwrap_or("unknown");
    let up = when.time_since(status.started_at);
    let lines = [
        format!("daemon  infill {} at {url}, up {up}", status.version),
        format!("mode    {}", mode_word(status)),
        format!("slurm   {slurm}, REST {rest}"),
        format!("rounds  {round}"),
        format!("nodes   {}{}", node_counts(status), idle_beside_main(status)),
        format!("jobs    {}", job_counts(status)),
    ];
    let lengths = status.lengths.iter().map(|l| format!("lengths {}", length_accuracy(l)));
    lines.into_iter().chain(lengths).map(|line| line + "\n").collect()
}

/// `last 512 jobs: 58.0 % predicted within a factor of two, 79.2 % ended within their 80 % interval; …`.
fn length_accuracy(lengths: &LengthAccuracy) -> String {
    let [near, in_interval, predictable] =
        [lengths.within_2x, lengths.in_interval, lengths.predictable].map(percent::sentence_percent);
    format!(
        "last {}: {near} predicted within a factor of two, {in_interval} ended within their 80 % interval; \
         {predictable} were predictable",
        phrases::counted_noun(lengths.jobs as u64, "job")
    )
}

/// `; beside main jobs 3 GPUs, 12 CPUs, 11.7 GiB are idle on 2 nodes`. Empty if none are.
fn idle_beside_main(status: &DaemonStatus) -> String {
    let idle: Vec<IdleShare> = status.nodes.iter().filter_map(|n| n.idle).collect();
    let all = IdleShare {
        gpus: idle.iter().fold(0, |sum, i| i.gpus.saturating_add(sum)),
        cpus: idle.iter().fold(0, |sum, i| i.cpus.saturating_add(sum)),
        memory_mib: idle.iter().fold(0, |sum, i| i.memory_mib.saturating_add(sum)),
    };
    match idle.len() {
        0 => String::new(),
        1 => format!("; beside main jobs {} are idle on a node", phrases::idle_share(all)),
        n => format!("; beside main jobs {} are idle on {n} nodes", phrases::idle_share(all)),
    }
}

fn mode_word(status: &DaemonStatus) -> &'static str {
    match (status.mode, status.control) {
        (DaemonMode::Observe, ControlState::Normal) => "observe: plans are made but not carried out",
        (DaemonMode::Observe, _) => "observe (an order to pause or drain is also in force)",
        (DaemonMode::Act, ControlState::Normal) => "act",
        (DaemonMode::Act, ControlState::Paused) => "act, but paused: no job starts or grows",
        (DaemonMode::Act, ControlState::Draining) => "act, but draining: all jobs save and are parked",
    }
}

/// The number of nodes of each kind: `5: 2 held, 1 gap, 1 busy, 1 refused`.
pub fn node_counts(status: &DaemonStatus) -> String {
    let kinds = [NodeKind::Held, NodeKind::Gap, NodeKind::Busy, NodeKind::Refused].map(|kind| {
        let shown = status.nodes.iter().filter(|n| n.kind == kind).count();
        let count = shown + status.hidden.nodes.get(&kind).map_or(0, |n| *n as usize);
        format!("{count} {}", phrases::node_kind_name(kind))
    });
    let all = status.nodes.len() + status.hidden.nodes.values().sum::<u32>() as usize;
    format!("{all}: {}", kinds.join(", "))
}

fn job_counts(status: &DaemonStatus) -> String {
    let mut states: Vec<&str> = status.jobs.iter().map(|j| j.state.word()).collect();
    states.sort_unstable();
    let counts: Vec<String> =
        states.chunk_by(|a, b| a == b).map(|same| format!("{} {}", same.len(), same[0])).collect();
    if counts.is_empty() {
        "none".to_owned()
    } else {
        format!("{}: {}", status.jobs.len(), counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use infill_api::HiddenCounts;

    #[test]
    fn a_summary() {
        let text =
            status_summary(&samples::sample_status(), "http://ctl:6810", samples::sample_moment()).unwrap();
        insta::assert_snapshot!(text, @r"
        PROBLEM: node n5 drained after infill left it; acting on 5 nodes; 1 job trains on 2 of 3 idle nodes, 1 waits

        daemon  infill 0.1.0 at http://ctl:6810, up 1-01:00:00
        mode    act
        slurm   24.11.5, REST v0.0.42
        rounds  last 0:03 ago
        nodes   5: 2 held, 1 gap, 1 busy, 1 refused
        jobs    2: 1 queued, 1 running

        problems
          - node n5 drained after infill left it

        JOBID NAME      USER  STATE   NODES SIZES STEP RATE EFFIC NODELIST REASON
        101   train-101 alice running 2     1-8   4200 812  87%   n[1-2]   2 of 3 gaps: the third closes in 4:00
        102   train-102 bob   queued  0     1-8   -    -    -     -        no gap lasts a minute
        ");
    }

    #[test]
    fn the_accuracy_of_predicted_lengths() {
        let lengths = LengthAccuracy { jobs: 512, within_2x: 0.58, in_interval: 0.792, predictable: 0.45 };
        let status = DaemonStatus {
            lengths: Some(lengths),
            problems: vec![],
            jobs: vec![],
            ..samples::sample_status()
        };
        let text = status_summary(&status, "http://ctl:6810", samples::sample_moment()).unwrap();
        insta::assert_snapshot!(text.lines().last().unwrap(), @"lengths last 512 jobs: 58.0 % predicted within a factor of two, 79.2 % ended within their 80 % interval; 45.0 % were predictable");
    }

    #[test]
    fn hidden_nodes_and_jobs_are_counted() {
        let all = samples::sample_status();
        let nodes = [(NodeKind::Held, 2), (NodeKind::Busy, 1)].into();
        let status = DaemonStatus {
            nodes: all.nodes.iter().filter(|n| n.kind == NodeKind::Gap).cloned().collect(),
            jobs: vec![],
            problems: vec![],
            hidden: HiddenCounts { jobs: 1, job_nodes: 2, nodes },
            ..all
        };
        insta::assert_snapshot!(status_summary(&status, "http://ctl:6810", samples::sample_moment()).unwrap(), @r"
        ok: acting on 4 nodes; 1 job trains on 2 of 3 idle nodes; no problem

        daemon  infill 0.1.0 at http://ctl:6810, up 1-01:00:00
        mode    act
        slurm   24.11.5, REST v0.0.42
        rounds  last 0:03 ago
        nodes   4: 2 held, 1 gap, 1 busy, 0 refused
        jobs    none

        not shown (Slurm's PrivateData): 1 job of other users on 2 nodes; 3 nodes
        ");
    }

    #[test]
    fn a_daemon_that_has_just_started() {
        let status = DaemonStatus {
            mode: DaemonMode::Observe,
            slurm: None,
            rest: None,
            last_round: None,
            started_at: samples::NOW + -3,
            problems: vec![],
            nodes: vec![],
            jobs: vec![],
            ..samples::sample_status()
        };
        insta::assert_snapshot!(status_summary(&status, "http://ctl:6810", samples::sample_moment()).unwrap(), @r"
        starting: no round has ended yet

        daemon  infill 0.1.0 at http://ctl:6810, up 0:03
        mode    observe: plans are made but not carried out
        slurm   unknown, REST unknown
        rounds  none yet
        nodes   0: 0 held, 0 gap, 0 busy, 0 refused
        jobs    none
        ");
    }
}
