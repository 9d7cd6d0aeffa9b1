//! Small worlds from short texts, for the planner's tests.

pub(crate) use crate::plan::{
    Assignment, Milp, PlanningProblem, SiteLimits, check_plan, explain_plan, last_resort,
    placement::evaluate::evaluate_plan,
    plan_round, plan_without_solver,
    solver::{Limits, Solution, Solver, SolverError},
    space::steps::TimeSteps,
};
use infill_model::malleable::RateCurve;
pub use infill_model::{
    AllowedSizes, CpuMemory, ExcludedNodes, ExecPlan, Gap, GapSet, GuaranteeProspect, HeldNode, JobId,
    MalleableJob, NodeName, NodeType, PlaceShare, Plan, PlanNeeds, Probe, RateGuarantee, RescaleCosts,
    RoundReport, ScalingCurve, SchedulingState, SolveStatus, SufficientSizes, UnixTime, UserId, WindowCause,
    WindowEnd, config::PlannerConfig,
};

/// The moment of all test rounds.
pub const NOW: UnixTime = UnixTime(1_000_000);

/// A world that owns what a [`PlanningProblem`] borrows.
#[derive(Clone, Debug)]
pub struct World {
    pub gaps: GapSet,
    pub jobs: Vec<MalleableJob>,
    pub config: PlannerConfig,
    pub min_window_secs: f64,
    pub may_grow: bool,
    pub drain: bool,
    pub limits: SiteLimits,
}

impl World {
    /// `gaps`: `name:secs` or `name:secs:type`, a trailing `?` for an unknown end, and `name#number` for a
    /// place of a node. `jobs`: see [`job`].
    pub fn new(gaps: &str, jobs: &[&str]) -> World {
        let mut world = World {
            gaps: GapSet { gaps: gaps.split_whitespace().map(gap).collect(), refused: Vec::new() },
            jobs: jobs.iter().map(|text| job(text)).collect(),
            config: PlannerConfig { solve_secs: 10.0, mip_gap: 0.0, ..PlannerConfig::default() },
            min_window_secs: 60.0,
            may_grow: true,
            drain: false,
            limits: SiteLimits::default(),
        };
        world.gaps.gaps.sort_by(|a, b| a.node.cmp(&b.node));
        world.set_holders();
        world
    }

    pub fn set_holders(&mut self) {
        for gap in &mut self.gaps.gaps {
            gap.holder = self
                .jobs
                .iter()
                .find(|j| j.held.iter().any(|h| h.node.single_places().contains(&gap.node)))
                .map(|j| j.id);
        }
    }

    /// Counts CPUs and memory of these hosts. `host=CPUS/MIB` is what malleable jobs may have of the host.
    /// Each of its places comes with `own`, and the job on a place has as much.
    pub fn count(&mut self, own: (u32, u64), hosts: &str) {
        let portion = |(cpus, memory_mib)| CpuMemory { cpus, memory_mib };
        for (host, has) in hosts.split_whitespace().filter_map(|word| word.split_once('=')) {
            let (cpus, mib) = has.split_once('/').unwrap();
            let all = portion((cpus.parse().unwrap(), mib.parse().unwrap()));
            let on_host = || self.gaps.gaps.iter().filter(|gap| gap.node.host() == NodeName::from(host));
            let held = on_host().filter(|gap| gap.holder.is_some()).count() as u32;
            let free = all.saturating_sub(portion(own).scaled_by(held));
            for gap in self.gaps.gaps.iter_mut().filter(|gap| gap.node.host() == NodeName::from(host)) {
                let held = if gap.holder.is_some() { portion(own) } else { CpuMemory::default() };
                gap.share = Some(PlaceShare { own: portion(own), held, free });
            }
        }
    }

    pub fn problem(&self) -> PlanningProblem<'_> {
        let mut problem =
            PlanningProblem::new(NOW, &self.gaps, &self.jobs, &self.config, self.min_window_secs);
        problem.may_grow = self.may_grow;
        problem.drain = self.drain;
        problem.limits = Some(&self.limits);
        problem
    }

    /// The world after the plan was carried out, without any time passing.
    pub fn after(&self, plan: &Plan) -> World {
        let mut next = self.clone();
        for job in &mut next.jobs {
            let Some(planned) = plan.job_plan(job.id) else { continue };
            let slurm_job = job.id;
            job.held = planned.nodes.iter().map(|p| HeldNode { node: p.node.clone(), slurm_job }).collect();
            job.held.sort_by(|a, b| a.node.cmp(&b.node));
            job.lead_node = planned.nodes.first().map(|p| p.node.clone());
            job.exec_plan = planned.exec_plan.clone();
            if matches!(job.scheduling_state, SchedulingState::Waiting | SchedulingState::Running) {
                job.scheduling_state =
                    if job.held.is_empty() { SchedulingState::Waiting } else { SchedulingState::Running };
            }
        }
        next.set_holders();
        next
    }
}

pub fn gap(text: &str) -> Gap {
    let unknown = text.ends_with('?');
    let mut parts = text.trim_end_matches('?').split(':');
    let node = NodeName::new(parts.next().unwrap().replace('#', ":"));
    let usable_until = NOW + parts.next().unwrap().parse::<i64>().unwrap();
    let cause = WindowCause::PlannedJob(JobId(9));
    Gap {
        node,
        node_type: NodeType::new(parts.next().unwrap_or("a")),
        since: NOW + -100,
        end: if unknown { WindowEnd::Unknown } else { WindowEnd::Known { at: usable_until + 15, cause } },
        vacate_by: (!unknown).then_some(usable_until),
        usable_until,
        expected_secs: usable_until.secs_since(NOW),
        holder: None,
        share: None,
    }
}

/// Promises the job `minimum` samples a second, of the rates that it has. It gets no bonus.
pub fn promise(job: &mut MalleableJob, minimum: f64) {
    let allowed = job.sizes.up_to(u32::MAX);
    let sufficient_sizes: Vec<SufficientSizes> = job
        .rates
        .iter()
        .map(|rate| {
            let is_enough = |nodes| rate.rate(nodes) >= minimum * (1.0 - 1e-9);
            SufficientSizes::from_allowed(rate.exec_plan.clone(), rate.node_type.clone(), &allowed, is_enough)
        })
        .collect();
    let needs = sufficient_sizes.iter().filter_map(SufficientSizes::min_nodes).min().unwrap_or(0);
    let prospect = GuaranteeProspect::Open { needs };
    job.guarantee =
        Some(RateGuarantee { rate: minimum, requested: None, prospect, bonus: 0.0, sufficient_sizes });
}

/// `id sizes curve [key=value]…`. Keys: `held` (the lead's node first), `block`, `w`, `age`, `changed`,
/// `busy`, `away`, `backoff`, `up`, `down`, `start`, `swap`, `not`, `probe`; `promise` comes last. A further
/// curve for a type is `on:TYPE=CURVE`, for a plan `plan:NAME=CURVE`. What a worker of that plan needs is
/// `needs:NAME=CPUS/MIB`, and the plan that runs now is `runs=NAME`.
pub fn job(text: &str) -> MalleableJob {
    let mut words = text.split_whitespace();
    let id = JobId(words.next().unwrap().parse().unwrap());
    let sizes = AllowedSizes::parse(words.next().unwrap()).unwrap();
    let curve = |text: &str| {
        if text == "linear" { ScalingCurve::linear() } else { ScalingCurve::parse(text).unwrap() }
    };
    let rate = |plan: &str, node_type, text: &str| {
        RateCurve::new(ExecPlan(plan.to_owned()), node_type, curve(text), None)
    };
    let mut job = MalleableJob {
        id,
        user: UserId(1),
        weight: 1.0,
        sizes,
        places_per_node: 1,
        rates: vec![rate("default", None, words.next().unwrap())],
        rates_are_assumed: false,
        costs: RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 },
        swap_secs: None,
        hysteresis_share: 1.0,
        scheduling_state: SchedulingState::Waiting,
        exec_plan: ExecPlan::default(),
        lead_node: None,
        lead_away: false,
        held: Vec::new(),
        submitted_at: NOW + -1000,
        last_change: None,
        guarantee: None,
        probe: None,
        stay_secs: 0.0,
        turn: None,
        waiting_bonus: 0.0,
        excluded: ExcludedNodes::default(),
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<f64>().unwrap();
        let names = || value.split(',').map(NodeName::new).collect::<Vec<_>>();
        match key.split_once(':').unwrap_or((key, "")) {
            ("held", _) => {
                job.lead_node = names().first().cloned();
                job.held = names().into_iter().map(|node| HeldNode { node, slurm_job: id }).collect();
                job.held.sort_by(|a, b| a.node.cmp(&b.node));
                job.scheduling_state = SchedulingState::Running;
            }
            ("block", _) => job.places_per_node = number() as u32,
            ("w", _) => job.weight = number(),
            ("age", _) => job.submitted_at = NOW.plus_secs(-number()),
            ("changed", _) => job.last_change = Some(NOW.plus_secs(-number())),
            ("busy", _) => job.scheduling_state = SchedulingState::Busy,
            ("away", _) => {
                job.scheduling_state = SchedulingState::Busy;
                job.lead_away = true;
            }
            ("backoff", _) => job.scheduling_state = SchedulingState::BackOff(NOW.plus_secs(number())),
            ("up", _) => job.costs.up_secs = number(),
            ("down", _) => job.costs.down_secs = number(),
            ("start", _) => job.costs.start_secs = number(),
            ("promise", _) => promise(&mut job, number()),
            ("swap", _) => job.swap_secs = Some(number()),
            ("not", _) => job.excluded = names().into(),
            ("probe", _) => job.probe = Some(Probe { nodes: number() as u32, with: None }),
            ("on", t) => job.rates.push(rate("default", Some(NodeType::new(t)), value)),
            ("plan", name) => job.rates.push(rate(name, None, value)),
            ("needs", name) => {
                let (cpus, mib) = value.split_once('/').unwrap_or((value, ""));
                let cpus = cpus.parse().ok();
                let memory_mib = mib.parse().ok();
                let needs = PlanNeeds { cpus, memory_mib, gpu_memory_mib: None };
                job.rates.iter_mut().filter(|r| r.exec_plan.0 == name).for_each(|r| r.needs = needs);
            }
            ("runs", _) => job.exec_plan = ExecPlan(value.to_owned()),
            (key, _) => panic!("unknown key {key}"),
        }
    }
    job
}

/// What the plan gives to each job: `1: n1* n2 | 2: -`, the lead's node with a star.
pub fn show(plan: &Plan) -> String {
    let job = |j: &infill_model::JobPlan| {
        let names: Vec<String> = j
            .nodes
            .iter()
            .enumerate()
            .map(|(i, p)| format!("{}{}", p.node, if i == 0 { "*" } else { "" }))
            .collect();
        format!("{}: {}", j.job, if names.is_empty() { "-".to_owned() } else { names.join(" ") })
    };
    plan.jobs.iter().map(job).collect::<Vec<_>>().join(" | ")
}

/// Asserts that the checker passes the plan.
pub fn passes(world: &World, plan: &Plan) {
    if let Err(violations) = check_plan(&world.problem(), plan) {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("{}\n{plan:#?}\n{world:#?}\n{}", list.join("\n"), show(plan));
    }
}

pub fn solver() -> Box<dyn Solver> {
    crate::plan::solver::default_solver().expect("the tests need a solver")
}

/// Plans with the solver; checks the plan.
pub fn solve(world: &World) -> (Plan, RoundReport) {
    let plan = crate::plan::plan_round(&world.problem(), solver().as_ref());
    passes(world, &plan);
    let report = explain_plan(&world.problem(), &plan);
    (plan, report)
}

/// What a [`Broken`] solver does.
pub type Answer = fn(&Milp, Option<&Assignment>) -> Result<Solution, SolverError>;

/// A solver that does what a test says.
pub struct Broken(pub Answer);

impl Solver for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn solve(&self, milp: &Milp, _: Limits, start: Option<&Assignment>) -> Result<Solution, SolverError> {
        (self.0)(milp, start)
    }
}
