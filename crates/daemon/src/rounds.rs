//! The round loop: snapshot → gaps → plan → check → targets, then the books.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::health::{Problem, Topic};
use super::metrics::RoundEnd;
use super::notices::Happened;
use super::planner::PlannerThread;
use super::state::State;
use super::{books, executor, gauges, profiles};
use infill_api::{Hidden, RoundView, SCHEMA};
use infill_lifecycle::fleet::{Fleet, ORDERS_AT_ONCE, least_order};
use infill_model::{JobPlan, NodeName, Plan, Snapshot, SolveStatus, UnixTime, clock::now, config::Config};
use infill_planner::{
    plan::Violation,
    round::{self, Question},
};
use infill_slurm::SlurmError;
use infill_store::RoundRecord;

/// How often old rows are deleted.
const BOOKS: Duration = Duration::from_secs(600);

/// Rounds, for ever.
pub async fn run(context: Arc<Context>) {
    let planner = PlannerThread::default();
    let mut books = Instant::now();
    loop {
        context.wake.next().await;
        let started = Instant::now();
        let looked = one(&context, &planner).await;
        context.metrics.rounds.seconds.observe(started.elapsed().as_secs_f64());
        // Not before: the round would share the processors with all who wait for this.
        if let Some(at) = looked {
            context.told.looked.send_replace(at);
        }
        if books.elapsed() >= BOOKS {
            books = Instant::now();
            books::prune(&context).await;
        }
    }
}

/// When it looked at Slurm, if that could be trusted.
async fn one(context: &Context, planner: &PlannerThread) -> Option<UnixTime> {
    refill_orders(context).await;
    let read_at = now();
    let clock = Instant::now();
    let snapshot = context.slurm.snapshot().await;
    context.wake.dumped(clock, clock.elapsed());
    let looked = match snapshot {
        Ok(snapshot) => take_in(context, snapshot, read_at).await,
        Err(e) => {
            slurm_is_away(context, &e);
            None
        }
    };
    let snapshot_secs = clock.elapsed().as_secs_f64();
    profiles::load(context).await;
    answer_question(context, planner, looked.is_some(), snapshot_secs).await;
    looked
}

async fn answer_question(context: &Context, planner: &PlannerThread, trusted: bool, snapshot_secs: f64) {
    answer_by(context, planner, Question::solve, trusted, snapshot_secs).await;
}

async fn answer_by(
    context: &Context,
    planner: &PlannerThread,
    plan: impl FnOnce(&Question, &Config) -> Plan + Send + 'static,
    trusted: bool,
    snapshot_secs: f64,
) {
    let Some(question) = context.state().question(trusted, now()) else {
        let state = context.state();
        return context.notices.look(&state, &Happened::default(), now());
    };
    match decide(planner, context.config.clone(), question, plan).await {
        Ok(Decision { mut view, refused }) => {
            context.metrics.rounds.refused(&refused);
            say_whether_planned(context, &view.plan.status);
            view.secs.insert("snapshot".to_owned(), snapshot_secs);
            conclude(context, view, trusted).await;
        }
        Err(e) => {
            if let RoundError::Refused(Violations(refused)) = &e {
                context.metrics.rounds.refused(refused);
            }
            context.metrics.rounds.ended(RoundEnd::Failed);
            context.notices.look(&context.state(), &Happened::default(), now());
            tracing::error!("the round failed, everything stays as it is: {e}");
        }
    }
}

fn say_whether_planned(context: &Context, status: &SolveStatus) {
    let mut state = context.state();
    match status {
        SolveStatus::LastResort(why) => {
            if state.health.raise(Problem::Planner(why.clone())) {
                tracing::warn!("nothing is planned: {why}");
            }
        }
        _ => {
            if state.health.clear(Topic::Planner) {
                tracing::info!("rounds are planned again");
            }
        }
    }
}

fn slurm_is_away(context: &Context, e: &SlurmError) {
    if context.state().health.raise(Problem::Slurm(e.to_string())) {
        tracing::warn!("Slurm does not answer: {e}");
    }
}

/// Takes a snapshot in, if it can be trusted. Says when.
async fn take_in(context: &Context, mut snapshot: Snapshot, read_at: UnixTime) -> Option<UnixTime> {
    if let Ok(endpoint) = context.slurm.endpoint().await {
        context.state().endpoint = Some((endpoint.slurm_version, endpoint.rest_version));
    }
    let mut state = context.state();
    if state.health.clear(Topic::Slurm) {
        tracing::info!("Slurm answers again");
    }
    snapshot.doubts.extend(state.fleet.doubt(&snapshot));
    if !snapshot.is_trusted() {
        tracing::debug!(doubts = ?snapshot.doubts, "a doubtful snapshot is not acted on");
        let at = now();
        let out = state.fleet.renew(&snapshot, read_at, at);
        let errands = state.absorb(out, at);
        context.run_errands(errands);
        state.health.raise(Problem::Snapshot(snapshot.doubts));
        return None;
    }
    state.health.clear(Topic::Snapshot);
    context.recheck.looked();
    // Whoever is to leave must not wait for the rest.
    let errands = state.see(&snapshot, read_at, now());
    context.run_errands(errands);
    let at = now();
    state.look(snapshot, at);
    Some(at)
}

/// What is wrong with a plan, all in one line.
#[derive(Debug)]
pub(crate) struct Violations(pub Vec<Violation>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&said.join("; "))
    }
}

/// The answer to a round's question, and what was wrong with the plan that it stands in for.
struct Decision {
    view: RoundView,
    refused: Vec<Violation>,
}

/// Why a round has no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoundError {
    /// The checker refuses the last resort: a defect. Nothing is done then.
    #[error("the checker refused the last resort: {0}")]
    Refused(Violations),
    /// The checker broke.
    #[error("the checker broke: {0}")]
    Broken(#[from] tokio::task::JoinError),
}

/// Answers a question on a blocking thread; past the outer deadline, and while the planner is still at work
/// on an earlier question, the last resort is taken instead.
///
/// # Errors
/// When even the last resort breaks a rule, which is a defect: nothing is done then.
pub(crate) async fn answer(
    planner: &PlannerThread,
    config: Arc<Config>,
    question: Question,
) -> Result<RoundView, RoundError> {
    decide(planner, config, question, Question::solve).await.map(|decision| decision.view)
}

async fn decide(
    planner: &PlannerThread,
    config: Arc<Config>,
    question: Question,
    plan: impl FnOnce(&Question, &Config) -> Plan + Send + 'static,
) -> Result<Decision, RoundError> {
    let clock = Instant::now();
    let question = Arc::new(question);
    let solved = planner.solve(config.clone(), question.clone(), plan).await;
    let judging = move || {
        let judged = round::judge(&question, &config, solved)
            .map_err(|found| RoundError::Refused(Violations(found)))?;
        let report = question.explain(&config, &judged.plan);
        Ok::<_, RoundError>((judged, report))
    };
    let (judged, report) = tokio::task::spawn_blocking(judging).await??;
    let refused = Violations(judged.refused);
    if !refused.0.is_empty() {
        tracing::error!("the checker refused a plan: {refused}");
    }
    let secs = BTreeMap::from([("plan".to_owned(), clock.elapsed().as_secs_f64())]);
    let hidden = Hidden::default();
    let view = RoundView { schema: SCHEMA, plan: judged.plan, report, acting: false, hidden, secs };
    Ok(Decision { view, refused: refused.0 })
}

/// Sets targets, counts, stores.
async fn conclude(context: &Context, mut view: RoundView, trusted: bool) {
    view.acting = context.state().acting();
    if view.acting {
        set_targets(context, &view.plan).await;
    }
    {
        let mut state = context.state();
        view.report.owners = state.owners(&view.report);
        let end = match (trusted, view.acting) {
            (false, _) => RoundEnd::Doubtful,
            (true, true) => RoundEnd::Acted,
            (true, false) => RoundEnd::Observed,
        };
        context.metrics.rounds.ended(end);
        state.fleet.remember_why(&view.report);
        let chronicle = &mut state.chronicle;
        let (delays, spent) = (chronicle.take_started(), chronicle.take_spent());
        let happened = Happened { delays, spent, lost: state.ledger.take_lost() };
        gauges::set(&context.metrics, &mut state, &view, &happened);
        gauges::spent(&context.metrics.nodes, &happened, context.tells_accounts());
        context.notices.look(&state, &happened, now());
        state.round = Some(view.clone());
        state.sweep();
        context.lines.keep(|agent| state.fleet.has_agent(agent));
        let acted = view.acting;
        state.ledger.add_round(RoundRecord { at: view.plan.at, plan: view.plan, report: view.report, acted });
    }
    if executor::save(context).await {
        books::write(context).await;
        profiles::save(context).await;
    }
}

/// Gives each job its target. Those that give nodes back come first, and are not counted: leaving is never
/// put off. Nobody takes nodes besides those it has that a job may want that has come since the look.
async fn set_targets(context: &Context, plan: &Plan) {
    let most = context.config.daemon.max_actions_a_round as usize;
    let taking = {
        let mut state = context.state();
        let grows =
            |j: &&JobPlan| state.fleet.machine(j.job).is_some_and(|m| j.nodes.len() > m.occupied().len());
        let (growing, mut others): (Vec<_>, Vec<_>) = plan.jobs.iter().partition(grows);
        let growing = growing.into_iter().take(most);
        let (taking, changing): (Vec<_>, Vec<_>) =
            growing.partition(|job| only_takes(&state.fleet, job, plan.at));
        others.extend(changing);
        set(context, &mut state, plan.at, &others);
        taking
    };
    if taking.is_empty() {
        return;
    }
    let overtaken = context.is_overtaken().await;
    let mut state = context.state();
    if overtaken {
        tracing::debug!("{} jobs do not grow: a job has come since the look at Slurm", taking.len());
        taking.iter().for_each(|job| state.fleet.plan_outdated(job.job));
    } else {
        set(context, &mut state, plan.at, &taking);
    }
}

/// Whether this plan leaves a job all that it has, and gives it nodes that it is not about to have anyway.
fn only_takes(fleet: &Fleet, plan: &JobPlan, at: UnixTime) -> bool {
    let Some(machine) = fleet.machine(plan.job) else { return false };
    let (has, held) = (machine.occupied(), machine.held(at));
    let gets = |node: &NodeName| plan.nodes.iter().any(|p| p.node == *node);
    has.keys().all(gets) && plan.nodes.iter().any(|p| !held.contains_key(&p.node))
}

fn set(context: &Context, state: &mut State, at: UnixTime, jobs: &[&JobPlan]) {
    for job in jobs {
        let out = state.fleet.set_target(job, state.scene.gaps(), at);
        let errands = state.absorb(out, at);
        context.run_errands(errands);
    }
}

async fn refill_orders(context: &Context) {
    {
        let state = context.state();
        // Asking a store that is away takes time, and the round waits.
        if !state.fleet.orders.runs_low() || state.health.ails(Topic::Store) {
            return;
        }
    }
    match context.store.next_orders(ORDERS_AT_ONCE, least_order(now())).await {
        Ok(first) => context.state().fleet.orders.refill(first),
        Err(e) => tracing::debug!("no fresh order numbers: {e}"),
    }
}
