//! What the world looks like from outside: the documents of the HTTP API.

use infill_api::{
    EndView, Hidden, IdleShare, JobView, LengthsView, NodeFailure, NodeKind, NodeView, PlanView, SCHEMA,
    Status,
};
use infill_model::{Gap, Job, JobId, MalleableState, Node, NodeName, UnixTime, WindowCause, WindowEnd};
use infill_slurm::identity::own_uid;

use super::state::State;
use infill_advisor::{Offer, length::Tally};
use infill_gaps::{Idle, Occupancy, Use};
use infill_lifecycle::{Machine, Phase};
use infill_model::{JobFacts, NodeStrike};
use infill_planner::round::Ahead;

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
    fn has(self, node: &NodeName) -> bool {
        match self {
            WhichNodes::All => true,
            WhichNodes::Called(name) => node.matches_name(name),
            WhichNodes::None => false,
        }
    }
}

/// `GET /v1/status`.
pub(crate) fn status(state: &State, which: WhichNodes<'_>, now: UnixTime) -> Status {
    let (slurm, rest) = state.endpoint.clone().unzip();
    Status {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slurm,
        rest,
        runs_as: Some(own_uid()),
        mode: state.config.daemon.mode,
        control: state.control,
        started_at: state.started_at,
        last_round: state.round.as_ref().map(|r| r.report.at),
        problems: state.health.sentences(),
        lengths: lengths(&state.scene.turns().outlook.tally()),
        nodes: nodes(state, which, now),
        jobs: state.fleet.machines().filter_map(|m| job(state, m.job, now)).collect(),
        hidden: Hidden::default(),
    }
}

fn lengths(tally: &Tally) -> Option<LengthsView> {
    let share = |jobs: usize| jobs as f64 / tally.jobs as f64;
    (tally.jobs > 0).then(|| LengthsView {
        jobs: tally.jobs,
        within_2x: share(tally.within_2x),
        in_interval: share(tally.in_interval),
        predictable: share(tally.predictable),
    })
}

fn nodes(state: &State, which: WhichNodes<'_>, now: UnixTime) -> Vec<NodeView> {
    let Some(snapshot) = state.snapshot.as_ref().filter(|_| which != WhichNodes::None) else {
        return Vec::new();
    };
    let partition = &state.config.slurm.partition;
    let occupied = state.fleet.occupied();
    let occupancy = Occupancy::of(snapshot, partition);
    let ours = snapshot.nodes.iter().enumerate().filter(|(_, n)| n.partitions.contains(partition));
    let ours = ours.filter(|(_, n)| which.has(&n.name));
    let main_job = |at| match occupancy.usage(at) {
        Some(Use::Main(job)) => Some(job),
        _ => None,
    };
    let view = |(at, n): (usize, &Node)| {
        let idle = state.scene.beside_main().get(&n.name).map(idle_share);
        NodeView { idle, ..node(state, n, main_job(at), occupied.get(&n.name)) }
    };
    let mut views: Vec<NodeView> = ours.map(view).collect();
    let failure = |s: &NodeStrike| NodeFailure { job: Some(s.job), at: s.at, what: s.why.clone() };
    for (name, strikes) in state.scene.breaker().strikes(now) {
        let failures: Vec<NodeFailure> = strikes.into_iter().map(failure).collect();
        for view in views.iter_mut().filter(|v| v.node.matches_name(name.as_str())) {
            view.failures.clone_from(&failures);
        }
    }
    views
}

fn node(state: &State, node: &Node, main: Option<&Job>, occupant: Option<&JobId>) -> NodeView {
    let gap = state.scene.gaps().get(&node.name);
    let refused = state.scene.gaps().refusal_for(&node.name).map(ToString::to_string);
    let job = gap.and_then(|g| g.holder).or(occupant.copied());
    let kind = match (main, job, gap) {
        (Some(_), _, _) => NodeKind::Busy,
        (None, Some(_), _) => NodeKind::Held,
        (None, None, Some(_)) => NodeKind::Gap,
        (None, None, None) => NodeKind::Refused,
    };
    let (window_end, wanted_by) = gap.map(wanted).unwrap_or_default();
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

fn idle_share(idle: &Idle) -> IdleShare {
    IdleShare { gpus: idle.gpus(), cpus: idle.cpus(), memory_mib: idle.memory_mib() }
}

fn wanted(gap: &Gap) -> (Option<UnixTime>, Option<String>) {
    match &gap.end {
        WindowEnd::Known { at, cause: WindowCause::PlannedJob(id) } => (Some(*at), Some(format!("job {id}"))),
        WindowEnd::Known { at, cause: WindowCause::Reservation(name) } => {
            (Some(*at), Some(format!("reservation {name}")))
        }
        WindowEnd::Unknown => (None, None),
    }
}

/// The believed rate at the present size as a share of what is proportional to the smallest.
fn efficiency(state: &State, machine: &Machine, now: UnixTime) -> Option<f64> {
    let Phase::Running { members } = &machine.phase else { return None };
    let facts = state.fleet.facts_of(machine.job, now)?;
    let rates = state.scene.library().rates(&state.scene.subject(&facts), &[]);
    let curve = &rates.first()?.curve;
    let (min, nodes) = (facts.sizes.min(), machine.nodes_of(members.len()));
    let ideal = curve.rate(min) * f64::from(nodes) / f64::from(min);
    (ideal > 0.0).then(|| curve.rate(nodes) / ideal)
}

/// When a job that trains will have ended at the rate that is believed of its present size.
fn ends(state: &State, facts: &JobFacts, ahead: &Ahead, unit: f64) -> Option<EndView> {
    let nodes = facts.running?;
    let rates = state.scene.library().rates(&state.scene.subject(facts), &[]);
    let now = rates.iter().find(|r| r.exec_plan == facts.changing.exec_plan);
    let speed = now.or(rates.first())?.curve.rate(nodes) / unit;
    let left = ahead.left();
    let at = |share: f64| left.secs(share) / speed;
    let is_sound = unit > 0.0 && speed > 0.0 && (0.0..1e12).contains(&at(0.9));
    is_sound.then(|| EndView {
        low_secs: at(0.1),
        median_secs: at(0.5),
        high_secs: at(0.9),
        predictable: ahead.is_sure(),
    })
}

/// One malleable job.
pub(crate) fn job(state: &State, id: JobId, now: UnixTime) -> Option<JobView> {
    let machine = state.fleet.machine(id)?;
    let about = state.fleet.about(id).cloned().unwrap_or_default();
    let lead = machine.lead_node().cloned();
    let wings = machine.occupied().into_keys().filter(|n| Some(n) != lead.as_ref());
    let running = machine.state() == MalleableState::Running;
    let facts = state.fleet.facts_of(id, now);
    let ahead = facts.as_ref().map(|f| {
        let (ahead, unit) = state.scene.ahead(f);
        (f, ahead, unit)
    });
    Some(JobView {
        job: id,
        name: about.name,
        user: about.user,
        state: machine.state(),
        sizes: machine.allowed().shifted_up(machine.more_of_its_own()).to_string(),
        nodes: machine.all_nodes(&lead.clone().into_iter().chain(wings).collect::<Vec<_>>()),
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
        shortage: machine.shortage(now),
        efficiency: efficiency(state, machine, now),
        advice: state.scene.library().thought(id).to_owned(),
        leaving: facts.as_ref().map(|f| state.scene.leaving_in_words(f)).unwrap_or_default(),
        ends: ahead.as_ref().and_then(|(f, ahead, unit)| ends(state, f, ahead, *unit)),
        turn: ahead.as_ref().map(|(f, ahead, _)| state.scene.turns().in_words(f, ahead)).unwrap_or_default(),
        changing: facts.as_ref().map(|f| state.scene.changing_in_words(f)).unwrap_or_default(),
        profile: facts.as_ref().map(|f| state.scene.subject(f).key),
        plans: facts.as_ref().map(|f| plans(state, f)).unwrap_or_default(),
    })
}

/// The job's execution plans on the nodes that it has.
fn plans(state: &State, facts: &JobFacts) -> Vec<PlanView> {
    let nodes = facts.place.held.len() as u32 + facts.place.extra_own_nodes();
    if facts.place.held.is_empty() || facts.claims.plans.len() < 2 {
        return Vec::new();
    }
    let offers = state.scene.library().offers(&state.scene.subject(facts), nodes);
    let present = offers.iter().find(|o| o.plan == facts.changing.exec_plan).and_then(|o| o.rate.ok());
    let view = |offer: Offer| PlanView {
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
