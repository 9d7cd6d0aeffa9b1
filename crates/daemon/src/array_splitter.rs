//! Gives tasks of job arrays records of their own, so that each becomes a malleable job.

use std::time::Duration;

use super::context::DaemonContext;
use super::health::{HealthProblem, ProblemTopic};
use super::round_trigger::RoundUrgency;
use super::state::DaemonState;
use infill_lifecycle::fleet::{ArraySplit, due_splits};
use infill_model::{ControlState, Snapshot};

/// The longest time for all splits of a round. The next round goes on where this one stopped.
const MAX_SPLIT_TIME: Duration = Duration::from_secs(2);

/// The splits that are due, unless nothing may start now.
pub(crate) fn splits_of_round(state: &DaemonState, snapshot: &Snapshot) -> Vec<ArraySplit> {
    if !state.is_acting() || state.control != ControlState::Normal {
        return Vec::new();
    }
    due_splits(snapshot, &state.config.slurm.partition)
}

/// Carries the splits out and requests a round that sees the new jobs.
pub(crate) async fn split_arrays(context: &DaemonContext, splits: Vec<ArraySplit>) {
    if splits.is_empty() || !context.leadership.may_act() {
        return;
    }
    let failure = match tokio::time::timeout(MAX_SPLIT_TIME, split_in_order(context, &splits)).await {
        Ok(failure) => failure,
        Err(_) => Some(format!("scontrol took longer than {} s", MAX_SPLIT_TIME.as_secs())),
    };
    let mut state = context.lock_state();
    match failure {
        Some(why) => {
            if state.health.raise_problem(HealthProblem::Arrays(why.clone())) {
                tracing::warn!("tasks of job arrays cannot be started: {why}");
            }
        }
        None => {
            state.health.clear_problem(ProblemTopic::Arrays);
        }
    }
    drop(state);
    context.round_trigger.request_round(RoundUrgency::Ordinary, None);
}

/// Carries all splits out, also after one has failed. Returns the last failure.
async fn split_in_order(context: &DaemonContext, splits: &[ArraySplit]) -> Option<String> {
    let mut failure = None;
    for ArraySplit { array, tasks } in splits {
        match context.slurm.split_array(*array, tasks).await {
            Ok(()) => tracing::info!("gave tasks {tasks:?} of array {array} records of their own"),
            Err(e) => failure = Some(e.to_string()),
        }
    }
    failure
}
