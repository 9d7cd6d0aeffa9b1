//! The round loop: snapshot → gaps → plan → check → targets, then the books.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::DaemonContext;
use super::health::{HealthProblem, ProblemTopic};
use super::metrics::RoundEnd;
use super::notices::RoundEvents;
use super::planner_thread::PlannerThread;
use super::state::DaemonState;
use super::{executor, gauges, history_writer, profile_storage};
use infill_api::{Hidden, RoundView, SCHEMA};
use infill_lifecycle::fleet::{JobFleet, ORDER_BLOCK_SIZE, lowest_order_number};
use infill_model::{JobPlan, NodeName, Plan, Snapshot, SolveStatus, UnixTime, clock::now, config::Config};
use infill_planner::{
    plan::Violation,
    round::{self, RoundInput},
};
use infill_slurm::SlurmError;
use infill_store::RoundRecord;

/// How often old rows are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Rounds, for ever.
pub async fn run(context: Arc<DaemonContext>) {
    let planner = PlannerThread::default();
    let mut books = Instant::now();
    loop {
        context.wake.wait_for_round().await;
        let started = Instant::now();
        let looked = run_round(&context, &planner).await;
        context.metrics.rounds.seconds.observe(started.elapsed().as_secs_f64());
        // Not before: the round would share the processors with all who wait for this.
        if let Some(at) = looked {
            context.told.looked.send_replace(at);
        }
        if books.elapsed() >= PRUNE_INTERVAL {
            books = Instant::now();
            history_writer::prune_history(&context).await;
        }
    }
}

/// When it looked at Slurm, if that could be trusted.
async fn run_round(context: &DaemonContext, planner: &PlannerThread) -> Option<UnixTime> {
    refill_order_numbers(context).await;
    let read_at = now();
    let clock = Instant::now();
    let snapshot = context.slurm.read_snapshot().await;
    context.wake.record_dump(clock, clock.elapsed());
    let looked = match snapshot {
        Ok(snapshot) => ingest_snapshot(context, snapshot, read_at).await,
        Err(e) => {
            report_slurm_away(context, &e);
            None
        }
    };
    let snapshot_secs = clock.elapsed().as_secs_f64();
    profile_storage::load_missing(context).await;
    plan_and_apply(context, planner, looked.is_some(), snapshot_secs).await;
    looked
}

async fn plan_and_apply(context: &DaemonContext, planner: &PlannerThread, trusted: bool, snapshot_secs: f64) {
    plan_and_apply_with(context, planner, RoundInput::solve_plan, trusted, snapshot_secs).await;
}

async fn plan_and_apply_with(
    context: &DaemonContext,
    planner: &PlannerThread,
    plan: impl FnOnce(&RoundInput, &Config) -> Plan + Send + 'static,
    trusted: bool,
    snapshot_secs: f64,
) {
    let Some(question) = context.lock_state().round_input(trusted, now()) else {
        let state = context.lock_state();
        return context.notices.notify_changes(&state, &RoundEvents::default(), now());
    };
    match make_decision(planner, context.config.clone(), question, plan).await {
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
            tracing::error!("the round failed, everything stays as it is: {e}");
        }
    }
}

fn report_planner_health(context: &DaemonContext, status: &SolveStatus) {
    let mut state = context.lock_state();
    match status {
        SolveStatus::LastResort(why) => {
            if state.health.raise_problem(HealthProblem::Planner(why.clone())) {
                tracing::warn!("nothing is planned: {why}");
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

/// Takes a snapshot in, if it can be trusted. Says when.
async fn ingest_snapshot(
    context: &DaemonContext,
    mut snapshot: Snapshot,
    read_at: UnixTime,
) -> Option<UnixTime> {
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
        let out = state.fleet.renew_limits(&snapshot, read_at, at);
        let errands = state.apply_output(out, at);
        context.run_actions(errands);
        state.health.raise_problem(HealthProblem::Snapshot(snapshot.doubts));
        return None;
    }
    state.health.clear_problem(ProblemTopic::Snapshot);
    context.recheck.note_snapshot();
    // Whoever is to leave must not wait for the rest.
    let errands = state.update_fleet(&snapshot, read_at, now());
    context.run_actions(errands);
    let at = now();
    let errands = state.update_rounds(snapshot, at);
    context.run_actions(errands);
    Some(at)
}

/// What is wrong with a plan, all in one line.
#[derive(Debug)]
pub(crate) struct ViolationList(pub Vec<Violation>);

impl fmt::Display for ViolationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&said.join("; "))
    }
}

/// The answer to a round's question, and what was wrong with the plan that it stands in for.
struct RoundDecision {
    view: RoundView,
    refused: Vec<Violation>,
}

/// Why a round has no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoundError {
    /// The checker refuses the last resort: a defect. Nothing is done then.
    #[error("the checker refused the last resort: {0}")]
    Refused(ViolationList),
    /// The checker broke.
    #[error("the checker broke: {0}")]
    Broken(#[from] tokio::task::JoinError),
}

/// Answers a question on a blocking thread; past the outer deadline, and while the planner is still at work
/// on an earlier question, the last resort is taken instead.
///
/// # Errors
/// When even the last resort breaks a rule, which is a defect: nothing is done then.
pub(crate) async fn plan_round(
    planner: &PlannerThread,
    config: Arc<Config>,
    question: RoundInput,
) -> Result<RoundView, RoundError> {
    make_decision(planner, config, question, RoundInput::solve_plan).await.map(|decision| decision.view)
}

async fn make_decision(
    planner: &PlannerThread,
    config: Arc<Config>,
    question: RoundInput,
    plan: impl FnOnce(&RoundInput, &Config) -> Plan + Send + 'static,
) -> Result<RoundDecision, RoundError> {
    let clock = Instant::now();
    let question = Arc::new(question);
    let solved = planner.solve_round(config.clone(), question.clone(), plan).await;
    let judging = move || {
        let judged = round::check_solved_plan(&question, &config, solved)
            .map_err(|found| RoundError::Refused(ViolationList(found)))?;
        let report = question.explain_plan(&config, &judged.plan);
        Ok::<_, RoundError>((judged, report))
    };
    let (judged, report) = tokio::task::spawn_blocking(judging).await??;
    let refused = ViolationList(judged.refused);
    if !refused.0.is_empty() {
        tracing::error!("the checker refused a plan: {refused}");
    }
    let secs = BTreeMap::from([("plan".to_owned(), clock.elapsed().as_secs_f64())]);
    let hidden = Hidden::default();
    let view = RoundView { schema: SCHEMA, plan: judged.plan, report, acting: false, hidden, secs };
    Ok(RoundDecision { view, refused: refused.0 })
}

/// Sets targets, counts, stores.
async fn conclude_round(context: &DaemonContext, mut view: RoundView, trusted: bool) {
    view.acting = context.lock_state().is_acting();
    if view.acting {
        set_targets(context, &view.plan).await;
    }
    {
        let mut state = context.lock_state();
        view.report.owners = state.job_owners(&view.report);
        let end = match (trusted, view.acting) {
            (false, _) => RoundEnd::Doubtful,
            (true, true) => RoundEnd::Acted,
            (true, false) => RoundEnd::Observed,
        };
        context.metrics.rounds.count_round(end);
        state.fleet.remember_why(&view.report);
        let chronicle = &mut state.chronicle;
        let delays = chronicle.take_delays();
        let spent = chronicle.take_node_time();
        let happened = RoundEvents { delays, spent, lost: state.ledger.take_lost() };
        gauges::set_gauges(&context.metrics, &mut state, &view, &happened);
        gauges::count_node_time(&context.metrics.nodes, &happened, context.shows_accounts());
        context.notices.notify_changes(&state, &happened, now());
        state.round = Some(view.clone());
        state.forget_old_jobs();
        context.lines.retain_agents(|agent| state.fleet.has_agent(agent));
        let acted = view.acting;
        state.ledger.add_round(RoundRecord { at: view.plan.at, plan: view.plan, report: view.report, acted });
    }
    if executor::save_changes(context).await {
        history_writer::write_history(context).await;
        profile_storage::save_unsaved(context).await;
    }
}

/// Gives each job its target. Those that give nodes back come first, and are not counted: leaving is never
/// put off. Nobody takes nodes besides those it has that a job may want that has come since the look.
async fn set_targets(context: &DaemonContext, plan: &Plan) {
    let most = context.config.daemon.max_actions_a_round as usize;
    let taking = {
        let mut state = context.lock_state();
        let (growing, mut others): (Vec<_>, Vec<_>) = plan.jobs.iter().partition(|j: &&JobPlan| {
            state.fleet.job_lifecycle(j.job).is_some_and(|m| j.nodes.len() > m.occupied_nodes().len())
        });
        let growing = growing.into_iter().take(most);
        let (taking, changing): (Vec<_>, Vec<_>) =
            growing.partition(|job| only_adds_nodes(&state.fleet, job, plan.at));
        others.extend(changing);
        apply_targets(context, &mut state, plan.at, &others);
        taking
    };
    if taking.is_empty() {
        return;
    }
    let overtaken = context.has_new_jobs().await;
    let mut state = context.lock_state();
    if overtaken {
        tracing::debug!("{} jobs do not grow: a job has come since the look at Slurm", taking.len());
        taking.iter().for_each(|job| state.fleet.plan_outdated(job.job));
    } else {
        apply_targets(context, &mut state, plan.at, &taking);
    }
}

/// Whether this plan leaves a job all that it has, and gives it nodes that it is not about to have anyway.
fn only_adds_nodes(fleet: &JobFleet, plan: &JobPlan, at: UnixTime) -> bool {
    let Some(machine) = fleet.job_lifecycle(plan.job) else { return false };
    let has = machine.occupied_nodes();
    let held = machine.held_nodes(at);
    let gets = |node: &NodeName| plan.nodes.iter().any(|p| p.node == *node);
    has.keys().all(gets) && plan.nodes.iter().any(|p| !held.contains_key(&p.node))
}

fn apply_targets(context: &DaemonContext, state: &mut DaemonState, at: UnixTime, jobs: &[&JobPlan]) {
    for job in jobs {
        let out = state.fleet.set_target(job, state.scene.gaps(), at);
        let errands = state.apply_output(out, at);
        context.run_actions(errands);
    }
}

async fn refill_order_numbers(context: &DaemonContext) {
    {
        let state = context.lock_state();
        // Asking a store that is away takes time, and the round waits.
        if !state.fleet.orders.is_running_low() || state.health.has_problem(ProblemTopic::Store) {
            return;
        }
    }
    match context.store.next_orders(ORDER_BLOCK_SIZE, lowest_order_number(now())).await {
        Ok(first) => context.lock_state().fleet.orders.refill(first),
        Err(e) => tracing::debug!("no fresh order numbers: {e}"),
    }
}
