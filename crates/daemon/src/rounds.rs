//! The round loop: snapshot → gaps → plan → check → targets, then metrics and history.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::DaemonContext;
use super::control_orders::ControlOrder;
use super::health::{HealthProblem, ProblemTopic};
use super::metrics::RoundEnd;
use super::notices::RoundEvents;
use super::planner_thread::PlannerThread;
use super::round_trigger::RoundUrgency;
use super::state::DaemonState;
use super::{array_splitter, executor, gauges, history_writer, order_storage, profile_storage};
use infill_api::{HiddenCounts, RoundView, SCHEMA_VERSION};
use infill_lifecycle::fleet::{ArraySplit, JobFleet, WING_NUMBER_BLOCK_SIZE, lowest_wing_number};
use infill_model::{
    JobPlan, Plan, Snapshot, SolveStatus, UnixTime, clock::now, config::Config, counted_noun, next_blackout,
};
use infill_planner::{
    plan::Violation,
    round::{self, RoundInput},
};
use infill_slurm::SlurmError;
use infill_store::RoundRecord;

/// How often old rows are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Runs rounds. Never returns.
pub async fn run(context: Arc<DaemonContext>) {
    let planner = PlannerThread::default();
    let mut last_prune = Instant::now();
    loop {
        context.round_trigger.wait_for_round().await;
        let started = Instant::now();
        let snapshot_at = run_round(&context, &planner).await;
        context.metrics.rounds.seconds.observe(started.elapsed().as_secs_f64());
        // Sent only after the round, which would otherwise share the processors with all waiting readers.
        if let Some(at) = snapshot_at {
            context.response_cache.snapshot_times.send_replace(at);
        }
        if last_prune.elapsed() >= PRUNE_INTERVAL {
            last_prune = Instant::now();
            history_writer::prune_history(&context).await;
        }
    }
}

/// Runs one round. Returns when it read its snapshot, if the snapshot can be trusted.
async fn run_round(context: &DaemonContext, planner: &PlannerThread) -> Option<UnixTime> {
    refill_wing_numbers(context).await;
    let read_at = now();
    let clock = Instant::now();
    let snapshot = context.slurm.read_snapshot().await;
    context.round_trigger.record_reading(clock, clock.elapsed());
    let ingested = match snapshot {
        Ok(snapshot) => ingest_snapshot(context, snapshot, read_at).await,
        Err(e) => {
            report_slurm_away(context, &e);
            None
        }
    };
    let snapshot_secs = clock.elapsed().as_secs_f64();
    let snapshot_at = ingested.as_ref().map(|(at, _)| *at);
    let splits = ingested.map(|(_, splits)| splits).unwrap_or_default();
    let plan = async {
        profile_storage::load_missing(context).await;
        plan_and_apply(context, planner, snapshot_at.is_some(), snapshot_secs).await;
    };
    // The plan does not wait for new jobs, which the next round sees.
    tokio::join!(plan, array_splitter::split_arrays(context, splits));
    snapshot_at
}

/// Plans a round and applies the plan. `trusted`: whether this round has read a trusted snapshot.
async fn plan_and_apply(context: &DaemonContext, planner: &PlannerThread, trusted: bool, snapshot_secs: f64) {
    plan_and_apply_with(context, planner, RoundInput::solve_plan, trusted, snapshot_secs).await;
}

/// Like [`plan_and_apply`], with any function as planner.
async fn plan_and_apply_with(
    context: &DaemonContext,
    planner: &PlannerThread,
    plan: impl FnOnce(&RoundInput, &Config) -> Plan + Send + 'static,
    trusted: bool,
    snapshot_secs: f64,
) {
    let Some(input) = context.lock_state().round_input(trusted, now()) else {
        let state = context.lock_state();
        return context.notices.notify_changes(&state, &RoundEvents::default(), now());
    };
    match make_decision(planner, context.config.clone(), input, plan).await {
        Ok(RoundDecision { mut view, refused }) => {
            context.metrics.rounds.count_refused(&refused);
            report_planner_health(context, &view.plan.status);
            view.secs.insert("snapshot".to_owned(), snapshot_secs);
            conclude_round(context, view, trusted).await;
        }
        Err(e) => {
            if let RoundError::Refused(ViolationList(refused)) = &e {
                context.metrics.rounds.count_refused(refused);
            }
            context.metrics.rounds.count_round(RoundEnd::Failed);
            context.notices.notify_changes(&context.lock_state(), &RoundEvents::default(), now());
            tracing::error!("the round failed and changes nothing: {e}");
        }
    }
}

fn report_planner_health(context: &DaemonContext, status: &SolveStatus) {
    let mut state = context.lock_state();
    match status {
        SolveStatus::LastResort(why) => {
            if state.health.raise_problem(HealthProblem::Planner(why.clone())) {
                tracing::warn!("rounds are not planned: {why}");
            }
        }
        _ => {
            if state.health.clear_problem(ProblemTopic::Planner) {
                tracing::info!("rounds are planned again");
            }
        }
    }
}

fn report_slurm_away(context: &DaemonContext, e: &SlurmError) {
    if context.lock_state().health.raise_problem(HealthProblem::Slurm(e.to_string())) {
        tracing::warn!("Slurm does not answer: {e}");
    }
}

/// Updates the state with a snapshot, if it can be trusted. Returns the time of the update then, and which
/// tasks of arrays are to get records.
async fn ingest_snapshot(
    context: &DaemonContext,
    mut snapshot: Snapshot,
    read_at: UnixTime,
) -> Option<(UnixTime, Vec<ArraySplit>)> {
    if let Ok(endpoint) = context.slurm.rest_endpoint().await {
        context.lock_state().endpoint = Some((endpoint.slurm_version, endpoint.rest_version));
    }
    let mut state = context.lock_state();
    if state.health.clear_problem(ProblemTopic::Slurm) {
        tracing::info!("Slurm answers again");
    }
    snapshot.doubts.extend(state.fleet.snapshot_doubt(&snapshot));
    if !snapshot.is_trusted() {
        tracing::debug!(doubts = ?snapshot.doubts, "a doubtful snapshot is not acted on");
        let at = now();
        let outcome = state.fleet.renew_limits(&snapshot, read_at, at);
        let actions = state.apply_output(outcome, at);
        context.run_actions(actions);
        state.health.raise_problem(HealthProblem::Snapshot(snapshot.doubts));
        return None;
    }
    state.health.clear_problem(ProblemTopic::Snapshot);
    context.new_job_check.note_snapshot();
    // Jobs that must leave do not wait for the rest of the round.
    let actions = state.update_fleet(&snapshot, read_at, now());
    context.run_actions(actions);
    let at = now();
    let blackout = next_blackout(&context.config.safety.blackouts, at, &chrono::Local);
    state.round_state.set_blackout(blackout);
    let splits = array_splitter::splits_of_round(&state, &snapshot);
    let actions = state.update_rounds(snapshot, at);
    context.run_actions(actions);
    Some((at, splits))
}

/// All violations of a plan, shown in one line.
#[derive(Debug)]
pub(crate) struct ViolationList(pub Vec<Violation>);

impl fmt::Display for ViolationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let violations: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&violations.join("; "))
    }
}

/// The plan of a round with its report.
struct RoundDecision {
    view: RoundView,
    /// The violations of the planner's own plan, if the checker refused it; else empty.
    refused: Vec<Violation>,
}

/// Why a round has no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoundError {
    /// The checker refuses the last resort, which is a defect. The round changes nothing.
    #[error("the checker refused the last resort: {0}")]
    Refused(ViolationList),
    /// The checker panicked.
    #[error("the checker crashed: {0}")]
    Broken(#[from] tokio::task::JoinError),
}

/// Plans a round and returns its view. See [`make_decision`].
///
/// # Errors
/// As [`make_decision`].
pub(crate) async fn plan_round(
    planner: &PlannerThread,
    config: Arc<Config>,
    input: RoundInput,
) -> Result<RoundView, RoundError> {
    make_decision(planner, config, input, RoundInput::solve_plan).await.map(|decision| decision.view)
}

/// Plans a round on a blocking thread and checks the plan. Takes the last resort instead where the planner
/// exceeds its outer deadline, or still works on an earlier round.
///
/// # Errors
/// When even the last resort breaks a rule, which is a defect. The round changes nothing then.
async fn make_decision(
    planner: &PlannerThread,
    config: Arc<Config>,
    input: RoundInput,
    plan: impl FnOnce(&RoundInput, &Config) -> Plan + Send + 'static,
) -> Result<RoundDecision, RoundError> {
    let clock = Instant::now();
    let input = Arc::new(input);
    let solved = planner.solve_round(config.clone(), input.clone(), plan).await;
    let checking = tokio::task::spawn_blocking(move || {
        let checked = round::check_solved_plan(&input, &config, solved)
            .map_err(|violations| RoundError::Refused(ViolationList(violations)))?;
        let report = input.explain_plan(&config, &checked.plan);
        Ok::<_, RoundError>((checked, report))
    });
    let (checked, report) = checking.await??;
    let refused = ViolationList(checked.refused);
    if !refused.0.is_empty() {
        tracing::error!("the checker refused a plan: {refused}");
    }
    let secs = BTreeMap::from([("plan".to_owned(), clock.elapsed().as_secs_f64())]);
    let hidden = HiddenCounts::default();
    let view = RoundView { schema: SCHEMA_VERSION, plan: checked.plan, report, acting: false, hidden, secs };
    Ok(RoundDecision { view, refused: refused.0 })
}

/// Sets targets, updates metrics and notices, and stores what has changed.
async fn conclude_round(context: &DaemonContext, mut view: RoundView, trusted: bool) {
    view.acting = context.lock_state().is_acting();
    if view.acting {
        set_targets(context, &view.plan).await;
    }
    let ordered = {
        let mut state = context.lock_state();
        view.report.owners = state.job_owners(&view.report);
        let end = match (trusted, view.acting) {
            (false, _) => RoundEnd::Doubtful,
            (true, true) => RoundEnd::Acted,
            (true, false) => RoundEnd::Observed,
        };
        context.metrics.rounds.count_round(end);
        state.fleet.remember_why(&view.report);
        let delays = state.usage_recorder.take_delays();
        let ordered = state.check_delays(&delays, now());
        let spent = state.usage_recorder.take_node_time();
        let events = RoundEvents { delays, spent, lost: state.write_queue.take_lost() };
        gauges::set_gauges(&context.metrics, &mut state, &view, &events);
        gauges::count_node_time(&context.metrics.nodes, &events, context.shows_accounts());
        context.notices.notify_changes(&state, &events, now());
        state.round = Some(view.clone());
        state.forget_old_jobs();
        context.agent_channels.retain_agents(|agent| state.fleet.has_agent(agent));
        let RoundView { plan, report, acting: acted, .. } = view;
        state.write_queue.add_round(RoundRecord { at: plan.at, plan, report, acted });
        ordered
    };
    if let Some(order) = ordered {
        store_own_order(context, &order).await;
    }
    if executor::save_changes(context).await {
        // It has said why it fails, and the next round tries again.
        history_writer::write_history(context).await.ok();
        profile_storage::save_unsaved(context).await;
    }
}

/// Stores an order that the daemon gave itself, so that a restart keeps it, and plans again by it.
async fn store_own_order(context: &DaemonContext, order: &ControlOrder) {
    if let Err(e) = order_storage::store_order_in_force(context).await {
        tracing::error!("infill is {}, but a restart forgets it: {e}", order.state.word());
    }
    context.round_trigger.request_round(RoundUrgency::Urgent, None);
}

/// Gives each job its target.
///
/// Jobs that get fewer nodes, or as many, get theirs first. They do not count towards
/// `daemon.max_actions_a_round`, because leaving is never deferred. Jobs that give up some nodes and gain
/// more follow. Jobs that only gain nodes get theirs last, and only if no main job that may want these nodes
/// has been submitted since the snapshot.
async fn set_targets(context: &DaemonContext, plan: &Plan) {
    let max_growing = context.config.daemon.max_actions_a_round as usize;
    let gaining = {
        let mut state = context.lock_state();
        let (mut growing, mut others): (Vec<&JobPlan>, Vec<&JobPlan>) =
            plan.jobs.iter().partition(|job| grows(&state.fleet, job));
        growing.truncate(max_growing);
        let (gaining, changing): (Vec<&JobPlan>, Vec<&JobPlan>) =
            growing.into_iter().partition(|job| only_adds_nodes(&state.fleet, job, plan.at));
        others.extend(changing);
        apply_targets(context, &mut state, plan.at, &others);
        gaining
    };
    if gaining.is_empty() {
        return;
    }
    let overtaken = context.must_defer_growth().await;
    let mut state = context.lock_state();
    if overtaken {
        tracing::debug!(
            "{} must not grow: a main job has been submitted since the snapshot",
            counted_noun(gaining.len() as u64, "job")
        );
        gaining.iter().for_each(|job| state.fleet.plan_outdated(job.job));
    } else {
        apply_targets(context, &mut state, plan.at, &gaining);
    }
}

/// Whether this plan gives a job more nodes than it occupies.
fn grows(fleet: &JobFleet, plan: &JobPlan) -> bool {
    fleet.job_lifecycle(plan.job).is_some_and(|job| plan.nodes.len() > job.occupied_nodes().len())
}

/// Whether this plan leaves a job all its nodes, and adds nodes that the job does not hold yet.
fn only_adds_nodes(fleet: &JobFleet, plan: &JobPlan, at: UnixTime) -> bool {
    let Some(lifecycle) = fleet.job_lifecycle(plan.job) else { return false };
    let occupied = lifecycle.occupied_nodes();
    let held = lifecycle.held_nodes(at);
    let keeps_all = occupied.keys().all(|node| plan.nodes.iter().any(|planned| planned.node == *node));
    keeps_all && plan.nodes.iter().any(|planned| !held.contains_key(&planned.node))
}

fn apply_targets(context: &DaemonContext, state: &mut DaemonState, at: UnixTime, jobs: &[&JobPlan]) {
    for job in jobs {
        let outcome = state.fleet.set_target(job, state.round_state.gaps(), at);
        let actions = state.apply_output(outcome, at);
        context.run_actions(actions);
    }
}

async fn refill_wing_numbers(context: &DaemonContext) {
    {
        let state = context.lock_state();
        // A store that is down takes time to fail, and the round would wait for it.
        if !state.fleet.wing_numbers.is_running_low() || state.health.has_problem(ProblemTopic::Store) {
            return;
        }
    }
    match context.store.next_wing_numbers(WING_NUMBER_BLOCK_SIZE, lowest_wing_number(now())).await {
        Ok(first) => context.lock_state().fleet.wing_numbers.refill(first),
        Err(e) => tracing::debug!("cannot reserve more wing numbers: {e}"),
    }
}
