//! Sets the gauges and counters of the metrics after each round.

use std::sync::atomic::Ordering;

use rustc_hash::FxHashSet;

use super::metrics::{DaemonMetrics, HELLO_WORD, JobMetrics, NodeMetrics};
use super::notices::RoundEvents;
use super::state::DaemonState;
use super::write_queue::HistoryKind;
use infill_api::RoundView;
use infill_model::{AgentEventKind, MalleableState, NodeName, Snapshot};

/// Sets the gauges to the state after a round, and adds what has happened since the last one to the counters.
pub(crate) fn set_gauges(
    metrics: &DaemonMetrics,
    state: &mut DaemonState,
    view: &RoundView,
    happened: &RoundEvents,
) {
    set_node_gauges(&metrics.nodes, state, view);
    set_job_gauges(&metrics.jobs, state);
    happened.delays.iter().for_each(|delay| metrics.main.record_start(delay));
    metrics.rounds.record_solve(view.plan.status.kind(), view.secs.get("plan").copied().unwrap_or(0.0));
    for (event, n) in std::mem::take(&mut state.agent_events) {
        let word = event.map_or(HELLO_WORD, AgentEventKind::word);
        metrics.jobs.agent_events.get_or_create(&vec![("event", word)]).inc_by(n);
    }
    for (kind, rows) in &happened.lost {
        metrics.store.lost_rows.get_or_create(&vec![("kind", HistoryKind::word(*kind))]).inc_by(*rows as u64);
    }
}

/// Sets whether the metrics may name accounts. When they may no more, the named ones are removed.
pub(crate) fn set_account_reporting(metrics: &NodeMetrics, allowed: bool) {
    if metrics.shows_accounts.swap(allowed, Ordering::Relaxed) && !allowed {
        metrics.time.clear();
    }
}

/// Counts the node-time that malleable jobs held. `by_account`: whether accounts may be named.
pub(crate) fn count_node_time(metrics: &NodeMetrics, happened: &RoundEvents, by_account: bool) {
    set_account_reporting(metrics, by_account);
    for (account, spent) in &happened.spent {
        metrics.add_node_time(by_account.then_some(account.as_str()), spent);
    }
}

fn set_node_gauges(metrics: &NodeMetrics, state: &DaemonState, view: &RoundView) {
    let gaps = &state.round_state.gaps().gaps;
    let held = gaps.iter().filter(|gap| gap.holder.is_some()).count();
    let free = gaps.len() - held;
    let last_round_at = state.round.as_ref().map_or(view.plan.at, |round| round.plan.at);
    let secs = view.plan.at.secs_since(last_round_at).clamp(0.0, 3600.0);
    metrics.held.set(held as i64);
    metrics.gaps.set(free as i64);
    metrics.harvested.inc_by(secs * held as f64);
    metrics.gap_seconds.inc_by(secs * (held + free) as f64);
    metrics.kept_out.set(state.round_state.breaker().count_open(view.plan.at) as i64);
    let busy = state.snapshot.as_ref().map_or(0, |s| main_nodes(s, &state.config.slurm.partition));
    metrics.busy.set(busy as i64);
    let idle_beside = state.round_state.idle_beside_main();
    metrics.idle_beside_gpus.set(idle_beside.values().map(|idle| i64::from(idle.gpus())).sum());
    metrics.idle_beside_cpus.set(idle_beside.values().map(|idle| i64::from(idle.cpus())).sum());
}

fn set_job_gauges(metrics: &JobMetrics, state: &DaemonState) {
    for job_state in MalleableState::ALL {
        let jobs = state.fleet.job_lifecycles().filter(|job| job.malleable_state() == *job_state).count();
        metrics.by_state.get_or_create(&vec![("state", job_state.word())]).set(jobs as i64);
    }
    let rescales: u64 = state.fleet.job_lifecycles().map(|m| u64::from(m.counts.rescales)).sum();
    metrics.rescales.inc_by(rescales.saturating_sub(metrics.rescales.get()));
    let lengths = &metrics.lengths;
    let accuracy = state.round_state.priorities().length_predictor.accuracy_counts();
    lengths.jobs.set(accuracy.jobs as i64);
    lengths.within_2x.set(accuracy.within_2x as i64);
    lengths.in_interval.set(accuracy.in_interval as i64);
    lengths.predictable.set(accuracy.predictable as i64);
}

/// Counts the nodes of the partition on which a main job runs.
fn main_nodes(snapshot: &Snapshot, partition: &str) -> usize {
    let main = snapshot.jobs.iter().filter(|j| j.partition != partition && j.state.occupies_nodes());
    // Several main jobs may share a node, so each name counts once.
    let names: FxHashSet<&NodeName> = main.flat_map(|job| &job.nodes).collect();
    let nodes = names.into_iter().filter_map(|name| snapshot.node(name));
    nodes.filter(|node| node.partitions.iter().any(|p| p == partition)).count()
}
