//! The round loop: snapshot → gaps → plan → check → targets, then the books.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::api::{Control, RoundView, SCHEMA};
use crate::config::Config;
use crate::model::{Plan, Report, Snapshot, SolveStatus, UnixTime};
use crate::round::{self, Question};
use crate::slurm::SlurmError;
use crate::store::RoundRecord;

use super::world::World;
use super::{Context, books, now};

/// Ended gaps that the survival model learns from: some weeks of a large site.
pub const GAPS_TO_LEARN_FROM: u32 = 20_000;

/// A round may not follow the last one sooner: hellos come in crowds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(300);

/// The planner's outer deadline in units of the solver's time limit: building and extracting take time too.
const OUTER_DEADLINE: f64 = 2.0;

/// How often the books are kept: survival model, old rows.
const BOOKS: Duration = Duration::from_secs(600);

/// Rounds, for ever.
pub async fn run(context: Arc<Context>) {
    let interval = Duration::from_secs_f64(context.config.daemon.poll_interval_secs);
    let mut books = Instant::now();
    loop {
        let started = Instant::now();
        one(&context).await;
        context.metrics.round_seconds.observe(started.elapsed().as_secs_f64());
        if books.elapsed() >= BOOKS {
            books = Instant::now();
            books::keep(&context).await;
        }
        tokio::time::sleep(SHORTEST_PAUSE).await;
        let rest = interval.saturating_sub(started.elapsed());
        // Woken or not, the next round does the same.
        let _ = tokio::time::timeout(rest, context.wake.notified()).await;
    }
}

async fn one(context: &Context) {
    refill_orders(context).await;
    let read_at = now();
    let clock = Instant::now();
    let trusted = match context.slurm.snapshot().await {
        Ok(snapshot) => take_in(context, snapshot, read_at).await,
        Err(e) => {
            slurm_is_away(context, &e);
            false
        }
    };
    let snapshot_secs = clock.elapsed().as_secs_f64();
    super::advice::load(context).await;
    let question = {
        let world = context.world.lock();
        let Some(snapshot) = world.snapshot.clone() else { return };
        let mut question = world.question(&snapshot, now());
        if !trusted {
            question.may_grow = false;
            question.notes.push("no trusted snapshot: nothing is started or grown".to_owned());
        }
        question
    };
    match answer(context.config.clone(), question).await {
        Ok(mut view) => {
            view.secs.insert("snapshot".to_owned(), snapshot_secs);
            conclude(context, view, trusted).await;
        }
        Err(e) => {
            context.metrics.round("failed");
            tracing::error!("the round failed, everything stays as it is: {e:#}");
        }
    }
}

fn slurm_is_away(context: &Context, e: &SlurmError) {
    let text = format!("Slurm does not answer ({e}): jobs run on, nothing is started");
    if context.world.lock().problems.insert("slurm", text).is_none() {
        tracing::warn!("Slurm does not answer: {e}");
    }
}

/// Takes a snapshot into the world, if it can be trusted.
async fn take_in(context: &Context, snapshot: Snapshot, read_at: UnixTime) -> bool {
    if let Ok(endpoint) = context.slurm.endpoint().await {
        context.world.lock().endpoint = Some((endpoint.slurm_version, endpoint.rest_version));
    }
    let mut world = context.world.lock();
    if world.problems.remove("slurm").is_some() {
        tracing::info!("Slurm answers again");
    }
    if !snapshot.is_trusted() {
        tracing::debug!(doubts = ?snapshot.doubts, "a doubtful snapshot is not acted on");
        world.problems.insert("snapshot", format!("the last snapshot was doubtful: {:?}", snapshot.doubts));
        return false;
    }
    world.problems.remove("snapshot");
    world.look(&snapshot, read_at, now());
    world.snapshot = Some(Arc::new(snapshot));
    true
}

/// Answers a question on a blocking thread; past the outer deadline the dynamic program's plan is taken
/// instead.
///
/// # Errors
/// When even the fallback breaks a rule, which is a defect: nothing is done then.
pub async fn answer(config: Config, question: Question) -> anyhow::Result<RoundView> {
    let clock = Instant::now();
    let deadline = Duration::from_secs_f64(config.planner.solve_secs * OUTER_DEADLINE + 0.5);
    let (q, c) = (question.clone(), config.clone());
    let solving = tokio::task::spawn_blocking(move || q.solve(&c));
    let solved = match tokio::time::timeout(deadline, solving).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(e)) => {
            tracing::error!("the planner broke: {e}");
            Err("the planner broke")
        }
        Err(_) => {
            tracing::warn!("the planner was not ready after {deadline:?}");
            Err("the outer deadline has passed")
        }
    };
    let judging = move || {
        let judged = round::judge(&question, &config, solved)?;
        let report = question.explain(&config, &judged.plan);
        Ok((judged, report))
    };
    let (judged, report) = tokio::task::spawn_blocking(judging).await.context("the checker broke")?.map_err(
        |violations: Vec<_>| anyhow::anyhow!("the checker refused the fallback plan: {violations:?}"),
    )?;
    if !judged.refused.is_empty() {
        tracing::error!(violations = ?judged.refused, "the checker refused a plan");
    }
    let secs = BTreeMap::from([("plan".to_owned(), clock.elapsed().as_secs_f64())]);
    Ok(RoundView { schema: SCHEMA, plan: judged.plan, report, acting: false, secs })
}

/// Sets targets, counts, stores.
async fn conclude(context: &Context, mut view: RoundView, trusted: bool) {
    {
        let mut world = context.world.lock();
        view.acting = world.acting();
        let outcome = match (trusted, view.acting) {
            (false, _) => "doubtful",
            (true, true) => "acted",
            (true, false) => "observed",
        };
        context.metrics.round(outcome);
        if view.acting {
            set_targets(&mut world, &view.plan, context.config.daemon.max_actions_a_round);
        }
        remember_why(&mut world, &view.report);
        gauge(context, &mut world, &view);
        world.round = Some(view.clone());
        world.sweep();
        let acted = view.acting;
        let record = RoundRecord { at: view.plan.at, plan: view.plan, report: view.report, acted };
        let lost = books::put_back(&mut world.rounds, vec![record], books::MAX_WAITING_ROUNDS);
        world.lose("rounds", lost);
    }
    if super::executor::save(context).await {
        books::write(context).await;
        super::advice::save(context).await;
    }
}

/// Gives each job its target. Those that give nodes back come first, and are not counted: leaving is never
/// put off.
fn set_targets(world: &mut World, plan: &Plan, most: u32) {
    let at = plan.at;
    let grows = |j: &&crate::model::JobPlan| {
        world.machines.get(&j.job).is_some_and(|m| j.nodes.len() > m.occupied().len())
    };
    let (growing, others): (Vec<_>, Vec<_>) = plan.jobs.iter().partition(grows);
    for job in others.into_iter().chain(growing.into_iter().take(most as usize)) {
        world.set_target(job, at);
    }
}

fn remember_why(world: &mut World, report: &Report) {
    for verdict in &report.jobs {
        if let Some(about) = world.about.get_mut(&verdict.job) {
            about.why = verdict.why.to_string();
        }
    }
}

fn gauge(context: &Context, world: &mut World, view: &RoundView) {
    let m = &context.metrics;
    let held = world.gaps.gaps.iter().filter(|g| g.holder.is_some()).count();
    let free = world.gaps.gaps.len() - held;
    let before = world.round.as_ref().map_or(view.plan.at, |r| r.plan.at);
    let secs = view.plan.at.secs_since(before).clamp(0.0, 3600.0);
    m.held_nodes.set(held as i64);
    m.gap_nodes.set(free as i64);
    m.harvested.inc_by(secs * held as f64);
    m.gap_seconds.inc_by(secs * (held + free) as f64);
    m.breaker_open_nodes.set(world.breaker.open(view.plan.at) as i64);
    for state in super::metrics::JOB_STATES {
        let n = world.machines.values().filter(|x| x.state_word() == state).count();
        m.jobs.get_or_create(&vec![("state", state)]).set(n as i64);
    }
    let status = match view.plan.status {
        SolveStatus::Optimal => "optimal",
        SolveStatus::TimeLimit { .. } => "time_limit",
        SolveStatus::Fallback(_) => "fallback",
        SolveStatus::Trivial => "trivial",
    };
    m.solver_status.get_or_create(&vec![("status", status)]).inc();
    m.solve_seconds.observe(view.secs.get("plan").copied().unwrap_or(0.0));
    for (event, n) in std::mem::take(&mut world.counters) {
        m.agent_events.get_or_create(&vec![("event", event)]).inc_by(n);
    }
    for (kind, rows) in std::mem::take(&mut world.lost) {
        m.lost_rows.get_or_create(&vec![("kind", kind)]).inc_by(rows as u64);
    }
    let refused = world.snapshot.as_ref().map_or(0, |s| main_nodes(s, &world.config().slurm.partition));
    m.busy_nodes.set(refused as i64);
    let rescales: u64 = world.machines.values().map(|x| u64::from(x.rescales)).sum();
    m.rescales.inc_by(rescales.saturating_sub(m.rescales.get()));
}

/// Nodes of the partition on which a main job runs.
fn main_nodes(snapshot: &Snapshot, partition: &str) -> usize {
    let main = snapshot.jobs.iter().filter(|j| j.partition != partition && j.state.occupies_nodes());
    main.flat_map(|j| &j.nodes)
        .filter(|n| snapshot.node(n).is_some_and(|n| n.partitions.iter().any(|p| p == partition)))
        .count()
}

async fn refill_orders(context: &Context) {
    {
        let mut world = context.world.lock();
        let enough = world.orders_mut().left() > super::world::ORDERS_AT_ONCE / 2;
        // Asking a store that is away takes time, and the round waits.
        if enough || world.problems.contains_key("store") {
            return;
        }
    }
    match context.store.next_orders(super::world::ORDERS_AT_ONCE).await {
        Ok(first) => context.world.lock().orders_mut().refill(first),
        Err(e) => tracing::debug!("no fresh order numbers: {e}"),
    }
}

/// Whether an order of the administrator forbids growth, or wants all parked.
pub fn wishes(control: Control) -> (bool, bool) {
    (control == Control::Normal, control == Control::Draining)
}
