//! The gauges, set after each round.

use std::sync::atomic::Ordering;

use rustc_hash::FxHashSet;

use super::metrics::{DaemonMetrics, HELLO_WORD, JobMetrics, NodeMetrics};
use super::notices::RoundEvents;
use super::state::DaemonState;
use super::write_queue::HistoryKind;
use infill_api::RoundView;
use infill_gaps::IdleUnits;
use infill_model::{AgentEventKind, MalleableState, NodeName, Snapshot};

/// Sets the gauges to what the state is after a round, and adds up what has come since the last one.
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
    for (event, n) in std::mem::take(&mut state.heard) {
        let word = event.map_or(HELLO_WORD, AgentEventKind::word);
        metrics.jobs.agent_events.get_or_create(&vec![("event", word)]).inc_by(n);
    }
    for (kind, rows) in &happened.lost {
        metrics.store.lost_rows.get_or_create(&vec![("kind", HistoryKind::word(*kind))]).inc_by(*rows as u64);
    }
}

/// Whether accounts may be told from now on. What was told of them must not stand there any longer then.
pub(crate) fn set_account_reporting(metrics: &NodeMetrics, may_be: bool) {
    if metrics.told_accounts.swap(may_be, Ordering::Relaxed) && !may_be {
        metrics.time.clear();
    }
}

/// Counts what malleable jobs held; by account where that may be told.
pub(crate) fn count_node_time(metrics: &NodeMetrics, happened: &RoundEvents, by_account: bool) {
    set_account_reporting(metrics, by_account);
    for (account, spent) in &happened.spent {
        metrics.add_node_time(by_account.then_some(account.as_str()), spent);
    }
}

fn set_node_gauges(metrics: &NodeMetrics, state: &DaemonState, view: &RoundView) {
    let gaps = &state.scene.gaps().gaps;
    let held = gaps.iter().filter(|g| g.holder.is_some()).count();
    let free = gaps.len() - held;
    let before = state.round.as_ref().map_or(view.plan.at, |r| r.plan.at);
    let secs = view.plan.at.secs_since(before).clamp(0.0, 3600.0);
    metrics.held.set(held as i64);
    metrics.gaps.set(free as i64);
    metrics.harvested.inc_by(secs * held as f64);
    metrics.gap_seconds.inc_by(secs * (held + free) as f64);
    metrics.kept_out.set(state.scene.breaker().count_open(view.plan.at) as i64);
    let busy = state.snapshot.as_ref().map_or(0, |s| main_nodes(s, &state.config.slurm.partition));
    metrics.busy.set(busy as i64);
    let beside = state.scene.idle_beside_main();
    let sum = |of: fn(&IdleUnits) -> u32| beside.values().map(|idle| i64::from(of(idle))).sum();
    metrics.idle_beside_gpus.set(sum(IdleUnits::gpus));
    metrics.idle_beside_cpus.set(sum(IdleUnits::cpus));
}

fn set_job_gauges(metrics: &JobMetrics, state: &DaemonState) {
    for shown in MalleableState::ALL {
        let n = state.fleet.job_lifecycles().filter(|m| m.malleable_state() == *shown).count();
        metrics.by_state.get_or_create(&vec![("state", shown.word())]).set(n as i64);
    }
    let rescales: u64 = state.fleet.job_lifecycles().map(|m| u64::from(m.counts.rescales)).sum();
    metrics.rescales.inc_by(rescales.saturating_sub(metrics.rescales.get()));
    let lengths = &metrics.lengths;
    let tally = state.scene.priorities().outlook.accuracy_counts();
    lengths.jobs.set(tally.jobs as i64);
    lengths.within_2x.set(tally.within_2x as i64);
    lengths.in_interval.set(tally.in_interval as i64);
    lengths.predictable.set(tally.predictable as i64);
}

/// Nodes of the partition on which a main job runs.
fn main_nodes(snapshot: &Snapshot, partition: &str) -> usize {
    let main = snapshot.jobs.iter().filter(|j| j.partition != partition && j.state.occupies_nodes());
    // Several may share one.
    let nodes: FxHashSet<&NodeName> = main.flat_map(|j| &j.nodes).collect();
    nodes
        .into_iter()
        .filter(|n: &&NodeName| snapshot.node(n).is_some_and(|n| n.partitions.iter().any(|p| p == partition)))
        .count()
}
