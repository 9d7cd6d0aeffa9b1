//! The gap finder: from a snapshot to the nodes that the main queue does not use now, and until when.
//!
//! [`find`] judges every node of the malleable partition: it is a gap with a window, or it is refused with a reason in
//! words. [`Tracker`] remembers since when each gap has been open and hands out the ones that ended; [`Survival`]
//! learns from those how long gaps last when nothing is planned.

mod fit;
mod occupancy;
mod survival;
mod tracker;
mod window;

use std::collections::BTreeMap;

use crate::config::GapsConfig;
use crate::model::{Gap, Gaps, JobId, Node, NodeName, Snapshot, UnixTime, WindowCause, WindowEnd};

pub use occupancy::{Occupancy, Use};
pub use survival::{GapSample, Survival, hour_of};
pub use tracker::Tracker;
use window::Windows;

/// What the gap finder needs besides the snapshot.
#[derive(Clone, Copy, Debug)]
pub struct GapContext<'a> {
    /// The malleable partition.
    pub partition: &'a str,
    /// Settings.
    pub config: &'a GapsConfig,
    /// Nodes that our malleable jobs hold, with the lead's id.
    pub holders: &'a BTreeMap<NodeName, JobId>,
    /// Since when each node has been a gap (see [`Tracker::since`]); a node that is absent became one now. Nodes
    /// with the same moment became free together.
    pub since: &'a BTreeMap<NodeName, UnixTime>,
    /// How long gaps last when nothing is planned.
    pub survival: &'a Survival,
    /// Measured seconds from the decision to leave a node until Slurm can give it to another job.
    pub leave_secs: f64,
}

/// Finds the gaps of `snapshot` at the moment `now`.
///
/// A held node stays a gap however short its window is: the planner decides when to leave it. `usable_until` may then
/// lie in the past, which means that the main queue wants the node now.
pub fn find(snapshot: &Snapshot, context: &GapContext<'_>, now: UnixTime) -> Gaps {
    let occupancy = Occupancy::of(snapshot, context.partition);
    let windows = Windows::of(snapshot, context.partition, now);
    let blocks = block_sizes(context.since);
    let mut found = Gaps::default();
    for node in &snapshot.nodes {
        if !node.partitions.iter().any(|p| p == context.partition) {
            continue;
        }
        let judged = usable(node, &occupancy, &windows, context).and_then(|()| {
            let gap = measure(node, snapshot, &windows, &blocks, context, now);
            worth_starting(&gap, context.config, now).map(|()| gap)
        });
        match judged {
            Ok(gap) => found.gaps.push(gap),
            Err(why) => found.refused.push((node.name.clone(), why)),
        }
    }
    found.gaps.sort_by(|a, b| a.node.cmp(&b.node));
    found.refused.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// What makes this snapshot's windows less sure than usual, in words for the round's report.
pub fn notes(snapshot: &Snapshot, config: &GapsConfig) -> Vec<String> {
    if snapshot.backfill.complete {
        return Vec::new();
    }
    let exit = if snapshot.backfill.exit.is_empty() { "it has not run yet" } else { &snapshot.backfill.exit };
    vec![format!(
        "backfill did not look at the whole queue ({exit}): nodes without a planned end are counted on at a \
         confidence of {:.2} instead of {:.2}",
        trusted_confidence(snapshot, config),
        config.confidence,
    )]
}

/// Whether the node is sound and used by nobody but us; if not, why.
fn usable(
    node: &Node,
    occupancy: &Occupancy,
    windows: &Windows,
    context: &GapContext<'_>,
) -> Result<(), String> {
    let usage = occupancy.usage(node);
    match usage {
        Use::Main { job, partition } => {
            return Err(format!("busy: job {job} of partition {partition} is on it"));
        }
        Use::Unsound(words) => return Err(format!("not usable: {words}")),
        Use::Unexplained => {
            return Err("allocated, but no job of the snapshot is on it".to_owned());
        }
        Use::Leaving(job) => return Err(format!("job {job} of ours is still cleaning up on it")),
        Use::Ours(job) if !context.holders.contains_key(&node.name) => {
            return Err(format!("held by job {job}, not ours to plan yet"));
        }
        Use::Ours(_) | Use::Free => {}
    }
    match windows.ongoing(&node.name) {
        Some(name) => Err(format!("covered by reservation {name}")),
        None => Ok(()),
    }
}

/// Builds the gap of a usable node.
fn measure(
    node: &Node,
    snapshot: &Snapshot,
    windows: &Windows,
    blocks: &BTreeMap<UnixTime, u32>,
    context: &GapContext<'_>,
    now: UnixTime,
) -> Gap {
    let since = context.since.get(&node.name).copied().unwrap_or(now).min(now);
    let end = windows.end(&node.name);
    let vacate_by = match &end {
        WindowEnd::Known { at, .. } => Some(at.plus_secs(-context.leave_secs)),
        WindowEnd::Unknown => None,
    };
    let (usable_until, expected_secs) = match vacate_by {
        Some(at) => (at, at.secs_since(now).max(0.0)),
        None => {
            let (age, hour) = (now.secs_since(since), hour_of(now));
            let block = blocks.get(&since).copied().unwrap_or(1);
            let confidence = trusted_confidence(snapshot, context.config);
            let secs = context.survival.quantile(age, block, hour, confidence);
            (now.plus_secs(secs), context.survival.expected(age, block, hour))
        }
    };
    let holder = context.holders.get(&node.name).copied();
    let (name, node_type) = (node.name.clone(), node.node_type.clone());
    Gap { node: name, node_type, since, end, vacate_by, usable_until, expected_secs, holder }
}

/// Whether a node that nobody holds is worth starting on; if not, why.
fn worth_starting(gap: &Gap, config: &GapsConfig, now: UnixTime) -> Result<(), String> {
    if gap.holder.is_some() {
        return Ok(());
    }
    let settled_secs = now.secs_since(gap.since);
    if settled_secs < config.settle_secs {
        return Err(format!("free for {settled_secs:.0} s; it is used after {:.0} s", config.settle_secs));
    }
    let window_secs = gap.usable_until.secs_since(now);
    if window_secs >= config.min_window_secs {
        return Ok(());
    }
    let by = match &gap.end {
        WindowEnd::Known { cause: WindowCause::PlannedJob(job), .. } => format!(" (job {job} is planned)"),
        WindowEnd::Known { cause: WindowCause::Reservation(name), .. } => {
            format!(" (reservation {name} begins)")
        }
        WindowEnd::Unknown => String::new(),
    };
    Err(format!(
        "window of {:.0} s{by} is shorter than the {:.0} s that are worth starting in",
        window_secs.max(0.0),
        config.min_window_secs
    ))
}

/// The confidence to ask of the survival model: halfway to certainty when backfill's plan was cut short, because a
/// job that backfill did not reach may take the node at any moment.
fn trusted_confidence(snapshot: &Snapshot, config: &GapsConfig) -> f64 {
    if snapshot.backfill.complete { config.confidence } else { (1.0 + config.confidence) / 2.0 }
}

/// Number of nodes that became free at each moment.
fn block_sizes(since: &BTreeMap<NodeName, UnixTime>) -> BTreeMap<UnixTime, u32> {
    let mut sizes = BTreeMap::new();
    for at in since.values() {
        *sizes.entry(*at).or_insert(0) += 1;
    }
    sizes
}

#[cfg(test)]
mod tests;
