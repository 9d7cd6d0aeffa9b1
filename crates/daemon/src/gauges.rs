//! The gauges, set after each round.

use std::sync::atomic::Ordering;

use rustc_hash::FxHashSet;

use super::ledger::Kind;
use super::metrics::{HELLO, JobMetrics, Metrics, NodeMetrics};
use super::notices::Happened;
use super::state::State;
use infill_api::RoundView;
use infill_gaps::Idle;
use infill_model::{AgentEventKind, MalleableState, NodeName, Snapshot};

/// Sets the gauges to what the state is after a round, and adds up what has come since the last one.
pub(crate) fn set(metrics: &Metrics, state: &mut State, view: &RoundView, happened: &Happened) {
    nodes(&metrics.nodes, state, view);
    jobs(&metrics.jobs, state);
    happened.delays.iter().for_each(|delay| metrics.main.started(delay));
    metrics.rounds.solved(view.plan.status.kind(), view.secs.get("plan").copied().unwrap_or(0.0));
    for (event, n) in std::mem::take(&mut state.heard) {
        let word = event.map_or(HELLO, AgentEventKind::word);
        metrics.jobs.agent_events.get_or_create(&vec![("event", word)]).inc_by(n);
    }
    for (kind, rows) in &happened.lost {
        metrics.store.lost_rows.get_or_create(&vec![("kind", Kind::word(*kind))]).inc_by(*rows as u64);
    }
}

/// Whether accounts may be told from now on. What was told of them must not stand there any longer then.
pub(crate) fn tell_accounts(metrics: &NodeMetrics, may_be: bool) {
    if metrics.told_accounts.swap(may_be, Ordering::Relaxed) && !may_be {
        metrics.time.clear();
    }
}

/// Counts what malleable jobs held; by account where that may be told.
pub(crate) fn spent(metrics: &NodeMetrics, happened: &Happened, by_account: bool) {
    tell_accounts(metrics, by_account);
    for (account, spent) in &happened.spent {
        metrics.spent(by_account.then_some(account.as_str()), spent);
    }
}

fn nodes(metrics: &NodeMetrics, state: &State, view: &RoundView) {
    let gaps = &state.scene.gaps().gaps;
    let held = gaps.iter().filter(|g| g.holder.is_some()).count();
    let free = gaps.len() - held;
    let before = state.round.as_ref().map_or(view.plan.at, |r| r.plan.at);
    let secs = view.plan.at.secs_since(before).clamp(0.0, 3600.0);
    metrics.held.set(held as i64);
    metrics.gaps.set(free as i64);
    metrics.harvested.inc_by(secs * held as f64);
    metrics.gap_seconds.inc_by(secs * (held + free) as f64);
    metrics.kept_out.set(state.scene.breaker().open(view.plan.at) as i64);
    let busy = state.snapshot.as_ref().map_or(0, |s| main_nodes(s, &state.config.slurm.partition));
    metrics.busy.set(busy as i64);
    let beside = state.scene.beside_main();
    let sum = |of: fn(&Idle) -> u32| beside.values().map(|idle| i64::from(of(idle))).sum();
    metrics.idle_beside_gpus.set(sum(Idle::gpus));
    metrics.idle_beside_cpus.set(sum(Idle::cpus));
}

fn jobs(metrics: &JobMetrics, state: &State) {
    for shown in MalleableState::ALL {
        let n = state.fleet.machines().filter(|m| m.state() == *shown).count();
        metrics.by_state.get_or_create(&vec![("state", shown.word())]).set(n as i64);
    }
    let rescales: u64 = state.fleet.machines().map(|m| u64::from(m.counts.rescales)).sum();
    metrics.rescales.inc_by(rescales.saturating_sub(metrics.rescales.get()));
    let (lengths, tally) = (&metrics.lengths, state.scene.turns().outlook.tally());
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
    let is_ours =
        |n: &&NodeName| snapshot.node(n).is_some_and(|n| n.partitions.iter().any(|p| p == partition));
    nodes.into_iter().filter(is_ours).count()
}
