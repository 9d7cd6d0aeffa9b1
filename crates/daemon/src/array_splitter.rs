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
    if !state.is_acting() || state.control.state != ControlState::Normal {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::context::DaemonServices;
    use crate::views::{self, WhichNodes};
    use infill_model::{ArrayPart, DaemonMode, JobId, clock::now, config::Config};
    use infill_slurm::{
        SlurmApi as _, SlurmError,
        fake::{FakeChange, FakeSlurm},
        identity::FakeIdentity,
    };
    use infill_store::LeadStanding;

    /// A daemon in this mode on five nodes, with an array of ten tasks.
    async fn daemon(mode: DaemonMode) -> (Arc<FakeSlurm>, DaemonContext) {
        let slurm = Arc::new(FakeSlurm::new(5, "infill"));
        slurm.submit_held(7, 6101, "infill:nodes=1-2");
        slurm.edit_snapshot(|snapshot| {
            snapshot.taken_at = now();
            snapshot.jobs[0].array = ArrayPart::from_record(7, None, "0-9%4", 4);
        });
        let mut config = Config::default();
        config.daemon.mode = mode;
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let services =
            DaemonServices { slurm: slurm.clone(), store, identity: Arc::new(FakeIdentity::default()) };
        let state = DaemonState::new(Arc::new(config), now());
        let (context, _queues) = DaemonContext::new(services, state, LeadStanding::Alone, now());
        (slurm, context)
    }

    /// One look at Slurm, with its splits.
    async fn look(slurm: &FakeSlurm, context: &DaemonContext) {
        let snapshot = slurm.read_snapshot().await.unwrap();
        let splits = {
            let mut state = context.lock_state();
            drop(state.update_fleet(&snapshot, now(), now()));
            let splits = splits_of_round(&state, &snapshot);
            drop(state.update_rounds(snapshot, now()));
            splits
        };
        split_arrays(context, splits).await;
    }

    /// The names of the jobs that users see.
    fn shown(context: &DaemonContext) -> Vec<String> {
        let status = views::status_view(&context.lock_state(), WhichNodes::None, now());
        status.jobs.iter().map(infill_api::JobView::display_name).collect()
    }

    #[tokio::test]
    async fn tasks_become_jobs_and_the_rest_is_shown_as_one() {
        let (slurm, context) = daemon(DaemonMode::Act).await;
        look(&slurm, &context).await;
        assert_eq!(shown(&context), ["7_[0-9%4]"]);
        let split = FakeChange::Split { array: JobId(7), tasks: vec![0, 1, 2, 3] };
        assert_eq!(slurm.recorded_changes(), [split]);
        look(&slurm, &context).await;
        assert_eq!(shown(&context), ["7_0", "7_1", "7_2", "7_3", "7_[4,5,6,7,8,9]"]);
        assert_eq!(slurm.recorded_changes().len(), 1, "no more than the array's limit");
    }

    #[tokio::test]
    async fn a_daemon_that_observes_or_is_paused_splits_nothing() {
        let (slurm, context) = daemon(DaemonMode::Observe).await;
        look(&slurm, &context).await;
        let (other, paused) = daemon(DaemonMode::Act).await;
        paused.lock_state().control.state = ControlState::Paused;
        look(&other, &paused).await;
        assert_eq!([slurm.recorded_changes(), other.recorded_changes()], [vec![], vec![]]);
        assert_eq!(shown(&context), ["7_[0-9%4]"]);
    }

    #[tokio::test]
    async fn a_failure_is_shown_until_a_split_succeeds() {
        let (slurm, context) = daemon(DaemonMode::Act).await;
        let snapshot = slurm.read_snapshot().await.unwrap();
        let splits = splits_of_round(&context.lock_state(), &snapshot);
        let what = "denied".to_owned();
        slurm.fail_next(SlurmError::Denied { doing: "splitting".to_owned(), what });
        split_arrays(&context, splits.clone()).await;
        let problems = context.lock_state().health.problem_sentences();
        assert_eq!(problems, ["tasks of job arrays cannot be started (splitting: access denied: denied)"]);
        split_arrays(&context, splits).await;
        assert_eq!(context.lock_state().health.problem_sentences(), [""; 0]);
    }
}
