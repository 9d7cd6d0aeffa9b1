//! What the world looks like from outside: the documents of the HTTP API.

use infill_api::{
    DaemonStatus, EndView, Hidden, IdleShare, JobView, LengthsView, NodeFailure, NodeKind, NodeView,
    PlanView, SCHEMA,
};
use infill_model::{Gap, Job, JobId, MalleableState, Node, NodeName, UnixTime, WindowCause, WindowEnd};
use infill_slurm::identity::own_uid;

use super::state::DaemonState;
use infill_advisor::{PlanOffer, length::AccuracyCounts};
use infill_gaps::{IdleUnits, NodeOccupancy, OccupancyState};
use infill_lifecycle::{JobLifecycle, JobPhase};
use infill_model::{JobFacts, NodeStrike};
use infill_planner::round::RemainingWork;

/// Which nodes a status is to tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhichNodes<'a> {
    /// Those of the malleable partition.
    All,
    /// Of these the one of this name.
    Called(&'a str),
    /// None.
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
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slurm,
        rest,
        runs_as: Some(own_uid()),
        mode: state.config.daemon.mode,
        control: state.control,
        started_at: state.started_at,
        last_round: state.round.as_ref().map(|r| r.report.at),
        problems: state.health.problem_sentences(),
        lengths: lengths_view(&state.scene.priorities().outlook.accuracy_counts()),
        nodes: node_views(state, which, now),
        jobs: state.fleet.job_lifecycles().filter_map(|m| job_view(state, m.job, now)).collect(),
        hidden: Hidden::default(),
    }
}

fn lengths_view(tally: &AccuracyCounts) -> Option<LengthsView> {
    let share = |jobs: usize| jobs as f64 / tally.jobs as f64;
    (tally.jobs > 0).then(|| LengthsView {
        jobs: tally.jobs,
        within_2x: share(tally.within_2x),
        in_interval: share(tally.in_interval),
        predictable: share(tally.predictable),
    })
}

fn node_views(state: &DaemonState, which: WhichNodes<'_>, now: UnixTime) -> Vec<NodeView> {
    let Some(snapshot) = state.snapshot.as_ref().filter(|_| which != WhichNodes::None) else {
        return Vec::new();
    };
    let partition = &state.config.slurm.partition;
    let occupied = state.fleet.occupied_nodes();
    let occupancy = NodeOccupancy::from_snapshot(snapshot, partition);
    let ours = snapshot.nodes.iter().enumerate().filter(|(_, n)| n.partitions.contains(partition));
    let ours = ours.filter(|(_, n)| which.selects_node(&n.name));
    let main_job = |at| match occupancy.use_at(at) {
        Some(OccupancyState::Main(job)) => Some(job),
        _ => None,
    };
    let view = |(at, n): (usize, &Node)| {
        let idle = state.scene.idle_beside_main().get(&n.name).map(to_idle_share);
        NodeView { idle, ..node_view(state, n, main_job(at), occupied.get(&n.name)) }
    };
    let mut views: Vec<NodeView> = ours.map(view).collect();
    for (name, strikes) in state.scene.breaker().recent_strikes(now) {
        let failures: Vec<NodeFailure> = strikes
            .into_iter()
            .map(|s: &NodeStrike| NodeFailure { job: Some(s.job), at: s.at, what: s.why.clone() })
            .collect();
        for view in views.iter_mut().filter(|v| v.node.matches_name(name.as_str())) {
            view.failures.clone_from(&failures);
        }
    }
    views
}

fn node_view(state: &DaemonState, node: &Node, main: Option<&Job>, occupant: Option<&JobId>) -> NodeView {
    let gap = state.scene.gaps().get(&node.name);
    let refused = state.scene.gaps().refusal_for(&node.name).map(ToString::to_string);
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

/// The believed rate at the present size as a share of what is proportional to the smallest.
fn job_efficiency(state: &DaemonState, machine: &JobLifecycle, now: UnixTime) -> Option<f64> {
    let JobPhase::Running { members } = &machine.phase else { return None };
    let facts = state.fleet.facts_for_job(machine.job, now)?;
    let rates = state.scene.job_advisor().rate_curves(&state.scene.job_input(&facts), &[]);
    let curve = &rates.first()?.curve;
    let min = facts.sizes.min();
    let nodes = machine.generation_node_count(members.len());
    let ideal = curve.rate(min) * f64::from(nodes) / f64::from(min);
    (ideal > 0.0).then(|| curve.rate(nodes) / ideal)
}

/// When a job that trains will have ended at the rate that is believed of its present size.
fn end_view(state: &DaemonState, facts: &JobFacts, ahead: &RemainingWork, unit: f64) -> Option<EndView> {
    let nodes = facts.running?;
    let rates = state.scene.job_advisor().rate_curves(&state.scene.job_input(facts), &[]);
    let now = rates.iter().find(|r| r.exec_plan == facts.changing.exec_plan);
    let speed = now.or(rates.first())?.curve.rate(nodes) / unit;
    let left = ahead.remaining_lengths();
    let at = |share: f64| left.quantile_secs(share) / speed;
    let is_sound = unit > 0.0 && speed > 0.0 && (0.0..1e12).contains(&at(0.9));
    is_sound.then(|| EndView {
        low_secs: at(0.1),
        median_secs: at(0.5),
        high_secs: at(0.9),
        predictable: ahead.is_well_known(),
    })
}

/// One malleable job.
pub(crate) fn job_view(state: &DaemonState, id: JobId, now: UnixTime) -> Option<JobView> {
    let machine = state.fleet.job_lifecycle(id)?;
    let about = state.fleet.job_details(id).cloned().unwrap_or_default();
    let lead = machine.lead_node().cloned();
    let wings = machine.occupied_nodes().into_keys().filter(|n| Some(n) != lead.as_ref());
    let running = machine.malleable_state() == MalleableState::Running;
    let facts = state.fleet.facts_for_job(id, now);
    let ahead = facts.as_ref().map(|f| {
        let (ahead, unit) = state.scene.remaining_work(f);
        (f, ahead, unit)
    });
    Some(JobView {
        job: id,
        name: about.name,
        user: about.user,
        state: machine.malleable_state(),
        sizes: machine.allowed_sizes().shifted_up(machine.extra_lead_nodes()).to_string(),
        nodes: machine.generation_nodes(&lead.clone().into_iter().chain(wings).collect::<Vec<_>>()),
        own: machine.submitted.own.len() as u32,
        generation: machine.generation.number,
        rescales: machine.counts.rescales,
        restarts: machine.counts.restarts,
        kills: machine.counts.kills,
        step: machine.counts.course.step,
        loss: about.loss,
        samples: machine.counts.course.samples,
        // A sum of nothing would be -0.0.
        rate: running.then(|| about.rates.values().fold(0.0, |sum, rate| sum + rate)),
        wings: machine.wings.values().filter_map(|w| w.job).collect(),
        why: about.why,
        shortage: machine.shortage_reason(now),
        efficiency: job_efficiency(state, machine, now),
        advice: state.scene.job_advisor().describe_job(id).to_owned(),
        leaving: facts.as_ref().map(|f| state.scene.describe_leaving(f)).unwrap_or_default(),
        ends: ahead.as_ref().and_then(|(f, ahead, unit)| end_view(state, f, ahead, *unit)),
        turn: ahead
            .as_ref()
            .map(|(f, ahead, _)| state.scene.priorities().describe_turn(f, ahead))
            .unwrap_or_default(),
        changing: facts.as_ref().map(|f| state.scene.describe_rescale(f)).unwrap_or_default(),
        profile: facts.as_ref().map(|f| state.scene.job_input(f).key),
        plans: facts.as_ref().map(|f| plan_views(state, f)).unwrap_or_default(),
    })
}

/// The job's execution plans on the nodes that it has.
fn plan_views(state: &DaemonState, facts: &JobFacts) -> Vec<PlanView> {
    let nodes = facts.place.held.len() as u32 + facts.place.extra_own_nodes();
    if facts.place.held.is_empty() || facts.claims.plans.len() < 2 {
        return Vec::new();
    }
    let offers = state.scene.job_advisor().plan_offers(&state.scene.job_input(facts), nodes);
    let present = offers.iter().find(|o| o.plan == facts.changing.exec_plan).and_then(|o| o.rate.ok());
    let view = |offer: PlanOffer| PlanView {
        runs: offer.plan == facts.changing.exec_plan,
        rate: offer.rate.ok(),
        share: offer.rate.ok().zip(present).map(|(rate, present)| rate / present),
        is_measured: offer.is_measured,
        source: offer.source,
        low: offer.interval.map(|(low, _)| low),
        high: offer.interval.map(|(_, high)| high),
        lacks: offer.rate.err().map(|lack| lack.to_string()),
        plan: offer.plan,
    };
    let mut views: Vec<PlanView> = offers.into_iter().map(view).collect();
    views.sort_by_key(|view| !view.runs);
    views
}
