//! Rounds to plan, drawn from published data. Windows are the true remaining times of Summit's idle intervals
//! at random instants. Jobs scale like published tables. The measured round is in mid-life: a first plan was
//! carried out, time went on, some nodes left and others joined.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use infill_gaps::{SurvivalModel, hour_of_day};
use infill_model::{
    AllowedSizes, CurvePoint, ExcludedNodes, ExecPlan, Gap, GapSet, HeldNode, JobId, MalleableJob, NodeName,
    NodeType, Plan, PlanNeeds, RescaleCosts, ScalingCurve, SchedulingState, SwitchRecord, Topology, UnixTime,
    UserId, WindowCause, WindowEnd,
    config::{GapsConfig, PlannerConfig},
    malleable::RateCurve,
};
use infill_planner::plan::{PlanningProblem, plan_without_solver};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Start of Summit's week, 2021-02-10 00:08:52 UTC. The survival model uses the hour of the day.
const WEEK_START: UnixTime = UnixTime(1_612_915_732);

/// The week is divided into buckets of this length, seconds, to find intervals quickly.
const BUCKET_SECS: i64 = 600;

/// Share of the blocks of nodes that have a planned end, in tenths.
const PLANNED_TENTHS: u64 = 6;

/// GPUs of a node that each worker takes where GPUs are lent, one entry per job in turn.
const BLOCKS: [u32; 5] = [1, 1, 2, 4, 8];

/// GPUs of each node.
const GPUS: u64 = 8;

/// Relative speed of the nodes of each type.
const TYPES: [f64; 3] = [1.0, 0.6, 1.6];

/// How the execution plans of a job differ: their speed on one node, and the exponent with which they scale.
const PLANS: [(f64, f64); 4] = [(1.0, 0.0), (1.1, -0.08), (0.85, 0.06), (0.7, 0.1)];

fn node_type(number: u64) -> NodeType {
    NodeType::new(format!("type{number}"))
}

/// What is lent.
#[derive(Clone, Copy, PartialEq)]
enum Lent {
    Nodes,
    Gpus,
    /// Nodes of several types, for jobs with several execution plans.
    Types,
}

impl Lent {
    /// The gaps of one idle node.
    fn of(self, gaps: GapSet) -> GapSet {
        let number = |gap: &Gap| {
            let number = gap.node.as_str().bytes().fold(0u64, |sum, b| sum.wrapping_mul(31) + u64::from(b));
            number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
        };
        match self {
            Lent::Nodes => return gaps,
            Lent::Types => {
                return GapSet {
                    gaps: gaps
                        .gaps
                        .into_iter()
                        .map(|gap| Gap { node_type: node_type(number(&gap) % TYPES.len() as u64), ..gap })
                        .collect(),
                    ..gaps
                };
            }
            Lent::Gpus => {}
        }
        let free = |gap: &Gap| 1 + number(gap) % GPUS;
        let mut found: Vec<Gap> = gaps
            .gaps
            .iter()
            .flat_map(|gap| {
                let gap = gap.clone();
                (0..free(&gap)).map(move |gpu| Gap { node: gap.node.place_name(gpu as usize), ..gap.clone() })
            })
            .collect();
        found.sort_by(|a, b| a.node.cmp(&b.node));
        GapSet { gaps: found, refused: Vec::new() }
    }
}

/// An idle interval of a node, in seconds since the start of the week.
#[derive(Clone, Copy)]
struct Interval {
    start: i64,
    end: i64,
    node: u32,
}

/// The published data from which rounds are drawn.
pub struct Data {
    buckets: BTreeMap<i64, Vec<Interval>>,
    last: i64,
    curves: Vec<ScalingCurve>,
}

/// One round to plan.
pub struct Case {
    now: UnixTime,
    gaps: GapSet,
    jobs: Vec<MalleableJob>,
    config: PlannerConfig,
    min_window_secs: f64,
    topology: Option<Topology>,
}

impl Case {
    /// The malleable jobs of the round.
    pub fn jobs(&self) -> &[MalleableJob] {
        &self.jobs
    }

    /// The gaps of the round: idle nodes, or places where GPUs are lent.
    pub fn nodes(&self) -> &[Gap] {
        &self.gaps.gaps
    }

    /// The problem that the planner solves.
    pub fn problem(&self) -> PlanningProblem<'_> {
        let mut problem =
            PlanningProblem::new(self.now, &self.gaps, &self.jobs, &self.config, self.min_window_secs);
        problem.topology = self.topology.as_ref();
        problem
    }

    /// The same round with its nodes spread over `leaves` leaf switches, in their order.
    pub fn on_switches(mut self, leaves: usize) -> Case {
        let nodes: Vec<NodeName> = self.gaps.gaps.iter().map(|gap| gap.node.clone()).collect();
        let nodes_per_leaf = nodes.len().div_ceil(leaves).max(1);
        let records: Vec<SwitchRecord> = nodes
            .chunks(nodes_per_leaf)
            .enumerate()
            .map(|(number, nodes)| SwitchRecord {
                name: format!("leaf{number}"),
                nodes: nodes.to_vec(),
                below: Vec::new(),
            })
            .collect();
        self.topology = Some(Topology::from_records(&records).expect("leaves without switches below them"));
        self
    }

    /// The same round just after `plan` was carried out, so that nothing can change.
    pub fn settled(mut self, plan: &Plan) -> Case {
        hold(&mut self.jobs, plan, &mut self.gaps, self.now);
        self
    }
}

impl Data {
    /// Reads the idle log and the scaling tables below `root`.
    pub fn load(root: &Path) -> Result<Data, String> {
        let intervals = read_log(&root.join("idle/summit-2021-02-week1.csv.xz"))?;
        let mut buckets: BTreeMap<i64, Vec<Interval>> = BTreeMap::new();
        for interval in &intervals {
            for bucket in interval.start / BUCKET_SECS..=interval.end / BUCKET_SECS {
                buckets.entry(bucket).or_default().push(*interval);
            }
        }
        let last = intervals.iter().map(|i| i.end).max().ok_or("the idle log is empty")?;
        let curves = super::curves::load(&root.join("scaling"))?;
        Ok(Data { buckets, last, curves })
    }

    /// The idle intervals that contain an instant.
    fn idle_at(&self, at: i64) -> impl Iterator<Item = &Interval> {
        let bucket = self.buckets.get(&(at / BUCKET_SECS));
        bucket.into_iter().flatten().filter(move |i| i.start <= at && at < i.end)
    }

    /// A round in mid-life with this many `jobs` and idle `nodes`, planned for at most `steps` steps.
    pub fn draw(&self, seed: u64, jobs: usize, nodes: usize, steps: u32) -> Case {
        self.draw_by(Lent::Nodes, seed, jobs, nodes, steps)
    }

    /// As `draw`, where GPUs are lent: each node has 1 to 8 free GPUs, and workers take 1, 2, 4 or 8 of a
    /// node.
    pub fn draw_shared(&self, seed: u64, jobs: usize, nodes: usize, steps: u32) -> Case {
        self.draw_by(Lent::Gpus, seed, jobs, nodes, steps)
    }

    /// As `draw`, with nodes of three types and jobs with four execution plans whose curves cross.
    pub fn draw_plans(&self, seed: u64, jobs: usize, nodes: usize, steps: u32) -> Case {
        self.draw_by(Lent::Types, seed, jobs, nodes, steps)
    }

    fn draw_by(&self, lent: Lent, seed: u64, jobs: usize, nodes: usize, steps: u32) -> Case {
        let mut r = StdRng::seed_from_u64(seed);
        let passed = r.random_range(30..600);
        let shards = self.shards(&mut r, nodes, passed);
        let mut config = PlannerConfig { max_steps: steps, ..PlannerConfig::default() };
        let budget = std::mem::replace(&mut config.max_changes, jobs as u32);
        let job = |id: usize| {
            let block = if lent == Lent::Gpus { BLOCKS[id % BLOCKS.len()] } else { 1 };
            let job = MalleableJob { places_per_node: block, ..self.job(&mut r, id as u32) };
            if lent == Lent::Types { with_plans(job, &mut r) } else { job }
        };
        let jobs = (1..=jobs).map(job).collect();
        let min_window_secs = GapsConfig::default().min_window_secs;
        let gaps = lent.of(self.gaps(&shards, 0, nodes, &BTreeSet::new()));
        let mut case = Case { now: WEEK_START, gaps, jobs, config, min_window_secs, topology: None };
        let plan = plan_without_solver(&case.problem(), "a first round");
        let held: BTreeSet<NodeName> =
            plan.jobs.iter().flat_map(|j| &j.nodes).map(|p| p.node.host()).collect();
        case.now = WEEK_START + passed;
        case.gaps = lent.of(self.gaps(&shards, passed, nodes, &held));
        case.config.max_changes = budget;
        hold(&mut case.jobs, &plan, &mut case.gaps, WEEK_START);
        case
    }

    /// Instants that together have enough idle nodes, both at once and `passed` seconds later.
    fn shards(&self, r: &mut StdRng, nodes: usize, passed: i64) -> Vec<i64> {
        let mut shards = Vec::new();
        let mut now = 0;
        let mut later = 0;
        while now < nodes || later < nodes {
            let at = r.random_range(0..self.last - 2 * passed);
            now += self.idle_at(at).count();
            later += self.idle_at(at + passed).count();
            shards.push(at);
        }
        shards
    }

    /// The gaps of all shards, `passed` seconds after their instants: those of `held` nodes first, then
    /// others, at most `most` in all.
    fn gaps(&self, shards: &[i64], passed: i64, most: usize, held: &BTreeSet<NodeName>) -> GapSet {
        let mut found: Vec<Gap> = Vec::new();
        for (shard, at) in shards.iter().enumerate() {
            let idle = self.idle_at(at + passed);
            found.extend(idle.map(|interval| gap(shard, *interval, at + passed, WEEK_START + passed)));
        }
        // Held nodes come first. The order of the shards follows, so that an earlier gap stays one.
        found.sort_by_key(|gap| !held.contains(&gap.node));
        found.truncate(most);
        found.sort_by(|a, b| a.node.cmp(&b.node));
        GapSet { gaps: found, refused: Vec::new() }
    }

    fn job(&self, r: &mut StdRng, id: u32) -> MalleableJob {
        let curve = self.curves[r.random_range(0..self.curves.len())].clone();
        let min = curve.points()[0];
        let max = curve.points()[curve.points().len() - 1].nodes;
        let slow = r.random_range(0.5..2.0);
        let costs = RescaleCosts { up_secs: 18.0 * slow, down_secs: 12.0 * slow, start_secs: 18.0 * slow };
        // Jobs count samples in different units. As in the daemon, a node-second at the smallest size weighs
        // the same for all.
        let weight = r.random_range(0.5..2.0) * f64::from(min.nodes) / min.rate;
        MalleableJob {
            id: JobId(id),
            user: UserId(id % 10),
            weight,
            sizes: AllowedSizes::Range { min: min.nodes, max },
            places_per_node: 1,
            rates: vec![RateCurve::new(ExecPlan::default(), None, curve, None)],
            rates_are_assumed: false,
            costs,
            swap_secs: None,
            hysteresis_share: 1.0,
            scheduling_state: SchedulingState::Waiting,
            exec_plan: ExecPlan::default(),
            lead_node: None,
            lead_away: false,
            held: Vec::new(),
            submitted_at: WEEK_START + -r.random_range(0..10_000),
            last_change: None,
            guarantee: None,
            probe: None,
            stay_secs: 0.0,
            turn: None,
            waiting_bonus: 0.0,
            excluded: ExcludedNodes::default(),
        }
    }
}

/// Gives the job several execution plans, each on all types of nodes.
fn with_plans(job: MalleableJob, r: &mut StdRng) -> MalleableJob {
    let base = job.rates[0].curve.clone();
    let mut rates = Vec::new();
    for (number, (level, exponent)) in PLANS.into_iter().enumerate() {
        for (of_type, speed) in TYPES.into_iter().enumerate() {
            let factor = level * speed * r.random_range(0.85..1.15);
            rates.push(RateCurve {
                exec_plan: ExecPlan(format!("plan{number}")),
                node_type: Some(node_type(of_type as u64)),
                curve: ScalingCurve::new(
                    base.points()
                        .iter()
                        .map(|p| CurvePoint {
                            rate: p.rate * factor * f64::from(p.nodes).powf(exponent),
                            ..*p
                        })
                        .collect(),
                )
                .expect("a curve"),
                sizes: None,
                needs: PlanNeeds::default(),
            });
        }
    }
    MalleableJob { rates, exec_plan: ExecPlan("plan0".to_owned()), ..job }
}

/// The gap of an interval. Whole blocks have a planned end or none; without one the survival model estimates
/// it.
fn gap(shard: usize, interval: Interval, at: i64, now: UnixTime) -> Gap {
    let block = (interval.end as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ shard as u64;
    let planned = block % 10 < PLANNED_TENTHS;
    let settings = GapsConfig::default();
    let survival = SurvivalModel::default();
    let age = (at - interval.start) as f64;
    let hour = hour_of_day(WEEK_START + at);
    let end = now + (interval.end - at);
    let vacate_by = planned.then(|| end.plus_secs(-settings.leave_secs));
    let counted = now.plus_secs(survival.quantile_secs(age, 1, hour, settings.confidence));
    let usable_until = vacate_by.unwrap_or(counted);
    let expected_secs =
        if planned { usable_until.secs_since(now).max(0.0) } else { survival.expected_secs(age, 1, hour) };
    Gap {
        node: NodeName::new(format!("s{shard:03}n{:04}", interval.node)),
        node_type: NodeType::new("summit"),
        since: now + -(at - interval.start),
        end: match planned {
            true => WindowEnd::Known { at: end, cause: WindowCause::PlannedJob(JobId(1_000_000)) },
            false => WindowEnd::Unknown,
        },
        vacate_by,
        usable_until,
        expected_secs,
        holder: None,
        share: None,
    }
}

/// Carries out a plan made at `at` on the nodes that are still there. A job that has lost its lead waits.
fn hold(jobs: &mut [MalleableJob], plan: &Plan, gaps: &mut GapSet, at: UnixTime) {
    let mut holders = BTreeMap::new();
    for job in jobs {
        let planned = plan.job_plan(job.id).map_or(&[][..], |p| &p.nodes);
        let alive = |node: &NodeName| node.single_places().iter().all(|part| gaps.get(part).is_some());
        let lead = planned.first().map(|p| p.node.clone()).filter(alive);
        let left = planned.iter().map(|p| &p.node).filter(|n| lead.is_some() && alive(n));
        job.held = left.map(|node| HeldNode { node: node.clone(), slurm_job: job.id }).collect();
        job.held.sort_by(|a, b| a.node.cmp(&b.node));
        job.scheduling_state =
            if lead.is_some() { SchedulingState::Running } else { SchedulingState::Waiting };
        job.last_change = lead.is_some().then_some(at);
        if let Some(planned) = plan.job_plan(job.id).filter(|_| lead.is_some()) {
            job.exec_plan = planned.exec_plan.clone();
        }
        job.lead_node = lead;
        let parts = job.held.iter().flat_map(|h| h.node.single_places());
        holders.extend(parts.map(|part| (part, job.id)));
    }
    for gap in &mut gaps.gaps {
        gap.holder = holders.get(&gap.node).copied();
    }
}

fn read_log(path: &PathBuf) -> Result<Vec<Interval>, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let (reader, _) = niffler::from_path(path).map_err(|e| failed(&e))?;
    let rows = csv::Reader::from_reader(reader).into_deserialize::<(f64, f64, u32)>();
    rows.map(|row| row.map(|(start, end, node)| Interval { start: start as i64, end: end as i64, node }))
        .collect::<Result<_, _>>()
        .map_err(|e| failed(&e))
}
