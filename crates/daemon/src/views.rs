//! Builds the documents of the HTTP API from the daemon's state.

use infill_api::{
    DaemonStatus, EndPrediction, HiddenCounts, IdleShare, JobView, LengthAccuracy, NodeFailure, NodeKind,
    NodeView, PlanView, SCHEMA_VERSION,
};
use infill_model::{
    ArrayPart, Gap, Job, JobId, JobRequest, MalleableState, Node, NodeName, UnixTime, WindowCause, WindowEnd,
};
use infill_slurm::identity::own_uid;

use super::state::DaemonState;
use infill_advisor::{PlanOffer, length::AccuracyCounts};
use infill_gaps::{IdleUnits, NodeOccupancy, OccupancyState};
use infill_lifecycle::{JobLifecycle, JobPhase};
use infill_model::{ExecPlan, JobFacts};
use infill_planner::round::RemainingWork;

/// The nodes that a status contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhichNodes<'a> {
    /// All nodes of the malleable partition.
    All,
    /// The nodes of the malleable partition that have this name.
    Called(&'a str),
    /// No nodes.
    None,
}

impl WhichNodes<'_> {
    fn selects_node(self, node: &NodeName) -> bool {
        match self {
            WhichNodes::All => true,
            WhichNodes::Called(name) => node.matches_name(name),
            WhichNodes::None => false,
        }
    }
}

/// `GET /v1/status`.
pub(crate) fn status_view(state: &DaemonState, which: WhichNodes<'_>, now: UnixTime) -> DaemonStatus {
    let (slurm, rest) = state.endpoint.clone().unzip();
    DaemonStatus {
        schema: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slurm,
        rest,
        runs_as: Some(own_uid()),
        mode: state.config.daemon.mode,
        control: state.control.state,
        control_origin: state.control.origin.clone(),
        started_at: state.started_at,
        last_round: state.round.as_ref().map(|r| r.report.at),
        problems: state.health.problem_sentences(),
        lengths: lengths_view(&state.round_state.priorities().length_predictor.accuracy_counts()),
        nodes: node_views(state, which, now),
        jobs: job_views(state, now),
        hidden: HiddenCounts::default(),
    }
}

/// The malleable jobs, then the tasks of arrays that have no job of their own yet.
fn job_views(state: &DaemonState, now: UnixTime) -> Vec<JobView> {
    let jobs = state.fleet.job_lifecycles().filter_map(|m| job_view(state, m.job, now));
    let shown = state.snapshot.iter().flat_map(|snapshot| &snapshot.jobs);
    let tasks = shown.filter(|job| job.partition == state.config.slurm.partition && job.state.is_pending());
    jobs.chain(tasks.filter_map(unsplit_view)).collect()
}

/// The view of the tasks of an array that share a record; `None` for another record.
fn unsplit_view(record: &Job) -> Option<JobView> {
    let unsplit = record.unsplit_tasks()?;
    let sizes = match JobRequest::from_job(&Job { array: None, ..record.clone() }) {
        Ok(Some(JobRequest::Lead(sizes))) => sizes.to_string(),
        _ => return None,
    };
    let why = match unsplit.limit {
        Some(limit) => format!("tasks of an array: they start in their order, at most {limit} at a time"),
        None => "tasks of an array: they start in their order".to_owned(),
    };
    Some(JobView {
        array_task: record.array.as_ref().map(ArrayPart::name),
        why,
        ..JobView::queued(record.id, record.name.clone(), record.user_name.clone(), sizes)
    })
}

/// How accurate predicted job lengths were, as shares; `None` where no job has ended yet.
fn lengths_view(counts: &AccuracyCounts) -> Option<LengthAccuracy> {
    if counts.jobs == 0 {
        return None;
    }
    let jobs = counts.jobs as f64;
    Some(LengthAccuracy {
        jobs: counts.jobs,
        within_2x: counts.within_2x as f64 / jobs,
        in_interval: counts.in_interval as f64 / jobs,
        predictable: counts.predictable as f64 / jobs,
    })
}

fn node_views(state: &DaemonState, which: WhichNodes<'_>, now: UnixTime) -> Vec<NodeView> {
    let Some(snapshot) = state.snapshot.as_ref().filter(|_| which != WhichNodes::None) else {
        return Vec::new();
    };
    let partition = &state.config.slurm.partition;
    let occupied = state.fleet.occupied_nodes();
    let occupancy = NodeOccupancy::from_snapshot(snapshot, partition);
    let mut views = Vec::new();
    for (index, node) in snapshot.nodes.iter().enumerate() {
        if !node.partitions.contains(partition) || !which.selects_node(&node.name) {
            continue;
        }
        let main_job = match occupancy.state_at(index) {
            Some(OccupancyState::Main(job)) => Some(job),
            _ => None,
        };
        let idle = state.round_state.idle_beside_main().get(&node.name).map(to_idle_share);
        views.push(NodeView { idle, ..node_view(state, node, main_job, occupied.get(&node.name)) });
    }
    for (name, strikes) in state.round_state.breaker().recent_strikes(now) {
        let failures: Vec<NodeFailure> = strikes
            .into_iter()
            .map(|strike| NodeFailure { job: Some(strike.job), at: strike.at, what: strike.why.clone() })
            .collect();
        for view in views.iter_mut().filter(|v| v.node.matches_name(name.as_str())) {
            view.failures.clone_from(&failures);
        }
    }
    views
}

fn node_view(state: &DaemonState, node: &Node, main: Option<&Job>, occupant: Option<&JobId>) -> NodeView {
    let gap = state.round_state.gaps().get(&node.name);
    let refused = state.round_state.gaps().refusal_for(&node.name).map(ToString::to_string);
    let job = gap.and_then(|g| g.holder).or(occupant.copied());
    let kind = match (main, job, gap) {
        (Some(_), _, _) => NodeKind::Busy,
        (None, Some(_), _) => NodeKind::Held,
        (None, None, Some(_)) => NodeKind::Gap,
        (None, None, None) => NodeKind::Refused,
    };
    let (window_end, wanted_by) = gap.map(window_end_parts).unwrap_or_default();
    NodeView {
        node: node.name.clone(),
        node_type: node.node_type.as_str().to_owned(),
        state: node.state.to_string(),
        kind,
        job,
        main_job: main.map(|j| j.id),
        since: gap.map(|g| g.since),
        window_end,
        wanted_by,
        usable_until: gap.map(|g| g.usable_until),
        why: refused,
        idle: None,
        failures: Vec::new(),
    }
}

fn to_idle_share(idle: &IdleUnits) -> IdleShare {
    IdleShare { gpus: idle.gpus(), cpus: idle.cpus(), memory_mib: idle.memory_mib() }
}

fn window_end_parts(gap: &Gap) -> (Option<UnixTime>, Option<String>) {
    match &gap.end {
        WindowEnd::Known { at, cause: WindowCause::PlannedJob(id) } => (Some(*at), Some(format!("job {id}"))),
        WindowEnd::Known { at, cause: WindowCause::Reservation(name) } => {
            (Some(*at), Some(format!("reservation {name}")))
        }
        WindowEnd::Unknown => (None, None),
    }
}

/// The estimated rate at the present size, as a share of the rate of the smallest size scaled up linearly.
/// `None` where the job does not run or its rates are unknown.
fn job_efficiency(state: &DaemonState, lifecycle: &JobLifecycle, now: UnixTime) -> Option<f64> {
    let JobPhase::Running { members } = &lifecycle.phase else { return None };
    let facts = state.fleet.facts_for_job(lifecycle.job, now)?;
    let rates = state.round_state.job_advisor().rate_curves(&state.round_state.job_input(&facts), &[]);
    let curve = &rates.first()?.curve;
    let min = facts.sizes.min();
    let nodes = lifecycle.generation_node_count(members.len());
    let ideal = curve.rate(min) * f64::from(nodes) / f64::from(min);
    (ideal > 0.0).then(|| curve.rate(nodes) / ideal)
}

/// When a running job will end at the estimated rate of its present size. `unit` is the job's estimated rate
/// on one node, samples a second. `None` where the job does not run or no finite time follows.
fn end_view(
    state: &DaemonState,
    facts: &JobFacts,
    remaining: &RemainingWork,
    unit: f64,
) -> Option<EndPrediction> {
    let nodes = facts.running?;
    let rates = state.round_state.job_advisor().rate_curves(&state.round_state.job_input(facts), &[]);
    let of_present_plan = rates.iter().find(|rate| rate.exec_plan == facts.resize.exec_plan);
    let speed = of_present_plan.or(rates.first())?.curve.rate(nodes) / unit;
    let lengths = remaining.remaining_lengths();
    let high_secs = lengths.quantile_secs(0.9) / speed;
    let is_sound = unit > 0.0 && speed > 0.0 && (0.0..1e12).contains(&high_secs);
    is_sound.then(|| EndPrediction {
        low_secs: lengths.quantile_secs(0.1) / speed,
        median_secs: lengths.quantile_secs(0.5) / speed,
        high_secs,
        predictable: remaining.is_well_known(),
    })
}

/// The view of one malleable job; `None` for a job that the fleet does not have.
pub(crate) fn job_view(state: &DaemonState, id: JobId, now: UnixTime) -> Option<JobView> {
    let lifecycle = state.fleet.job_lifecycle(id)?;
    let details = state.fleet.job_details(id).cloned().unwrap_or_default();
    let lead = lifecycle.lead_node().cloned();
    let wings = lifecycle.occupied_nodes().into_keys().filter(|n| Some(n) != lead.as_ref());
    let running = lifecycle.malleable_state() == MalleableState::Running;
    let facts = state.fleet.facts_for_job(id, now);
    let remaining = facts.as_ref().map(|facts| {
        let (work, unit) = state.round_state.remaining_work(facts);
        (facts, work, unit)
    });
    Some(JobView {
        job: id,
        array_task: details.array_task,
        name: details.name,
        user: details.user,
        state: lifecycle.malleable_state(),
        sizes: lifecycle.allowed_sizes().shifted_up(lifecycle.extra_lead_nodes()).to_string(),
        nodes: lifecycle.generation_nodes(&lead.clone().into_iter().chain(wings).collect::<Vec<_>>()),
        own: lifecycle.submitted.own_nodes.len() as u32,
        generation: lifecycle.generation.number,
        rescales: lifecycle.counts.rescales,
        restarts: lifecycle.counts.restarts,
        kills: lifecycle.counts.kills,
        step: lifecycle.counts.progress.step,
        loss: details.loss,
        samples: lifecycle.counts.progress.samples,
        // `sum` of an empty iterator would be -0.0.
        rate: running.then(|| details.rates.values().fold(0.0, |sum, rate| sum + rate)),
        wings: lifecycle.wings.values().filter_map(|w| w.job).collect(),
        why: details.why,
        gpus: lifecycle.gpu_use(),
        shortage: lifecycle.shortage_reason(now),
        efficiency: job_efficiency(state, lifecycle, now),
        advice: state.round_state.job_advisor().describe_job(id).to_owned(),
        leaving: facts.as_ref().map(|f| state.round_state.describe_leaving(f)).unwrap_or_default(),
        ends: remaining.as_ref().and_then(|(facts, work, unit)| end_view(state, facts, work, *unit)),
        turn: remaining
            .as_ref()
            .map(|(facts, work, _)| state.round_state.priorities().describe_turn(facts, work))
            .unwrap_or_default(),
        changing: facts.as_ref().map(|f| state.round_state.describe_rescale(f)).unwrap_or_default(),
        profile: facts.as_ref().map(|f| state.round_state.job_input(f).key),
        plans: facts.as_ref().map(|f| plan_views(state, f)).unwrap_or_default(),
    })
}

/// The job's execution plans on the nodes that it has, the present one first. Empty where it has no nodes or
/// only one plan.
fn plan_views(state: &DaemonState, facts: &JobFacts) -> Vec<PlanView> {
    let nodes = facts.location.held.len() as u32 + facts.location.extra_own_nodes();
    if facts.location.held.is_empty() || facts.declaration.plans.len() < 2 {
        return Vec::new();
    }
    let offers = state.round_state.job_advisor().plan_offers(&state.round_state.job_input(facts), nodes);
    let present_plan = &facts.resize.exec_plan;
    let present_rate =
        offers.iter().find(|offer| offer.plan == *present_plan).and_then(|offer| offer.rate.ok());
    let mut views: Vec<PlanView> =
        offers.into_iter().map(|offer| plan_view(offer, present_plan, present_rate)).collect();
    views.sort_by_key(|view| !view.runs);
    views
}

fn plan_view(offer: PlanOffer, present_plan: &ExecPlan, present_rate: Option<f64>) -> PlanView {
    PlanView {
        runs: offer.plan == *present_plan,
        rate: offer.rate.ok(),
        share: offer.rate.ok().zip(present_rate).map(|(rate, present)| rate / present),
        is_measured: offer.is_measured,
        source: offer.source,
        low: offer.interval.map(|(low, _)| low),
        high: offer.interval.map(|(_, high)| high),
        lacks: offer.rate.err().map(|obstacle| obstacle.to_string()),
        plan: offer.plan,
    }
}
