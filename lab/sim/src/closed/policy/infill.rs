//! infill on a closed machine: the daemon's planner, asked for as many places as there are GPUs.
//!
//! A sample of a job counts as much as it brings its end nearer: one over the seconds that are left of it at
//! its best, a start included. So short jobs come first, as far as they make good use of what they get.

use std::collections::BTreeMap;

use super::{Policy, View, Wish, as_submitted, offers, offers_by};
use crate::closed::{
    job::{Job, Run},
    learned::Learned,
    setup::Setup,
    speeds::Choice,
};
use infill_advisor::length::Outlook;
use infill_model::{
    Curve, CurvePoint, ExcludedNodes, ExecPlan, Gap, Gaps, HeldNode, JobId, MalleableJob, NodeName, OwnWord,
    Plan, PlanNeeds, RescaleCosts, Sizes, Standing, Submission, UnixTime, UserId, WindowEnd,
    config::PlannerConfig, malleable::RateCurve,
};
use infill_planner::plan::{Problem, fallback};

/// Seconds between two rounds in which nothing happened.
const EVERY_SECS: f64 = 60.0;

/// How far ahead samples count, in restarts, and at least, s.
const HORIZON: (f64, f64) = (5.0, 600.0);

/// Most jobs without GPUs that a round considers: those that come first.
const MOST_WAITING: usize = 48;

/// Times that a round is planned anew because a change would not pay, or found no seats.
const MOST_PASSES: usize = 8;

/// A change must bring a job's end nearer by this share.
const MARGIN: f64 = 0.03;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Infill {
    /// What it has learned; `None` where it knows.
    learned: Option<Learned>,
    /// What it expects of lengths, in steps; `None` where it knows.
    outlook: Option<Outlook>,
}

/// A job as the policy sees it.
struct Candidate<'a> {
    job: &'a Job,
    offers: Vec<(Choice, f64)>,
    /// What a step counts.
    weight: f64,
    /// Steps that are left of it, as far as is known.
    left: f64,
    /// Whether it is to be left as it is.
    fixed: bool,
}

impl Infill {
    /// Knows how fast all models are.
    pub fn knowing(setup: &Setup) -> Self {
        Infill { learned: None, outlook: (!setup.knows_lengths).then(Outlook::default) }
    }

    /// Learns it while jobs run.
    pub fn learning(setup: &Setup) -> Self {
        Infill { learned: Some(Learned::of(setup)), ..Infill::knowing(setup) }
    }

    /// Ways to run a job with what is believed of their rates; for one that runs, with the rate of where it
    /// is. Of a model of which nothing is known there is one way, as it was submitted.
    fn offers(&self, view: &View<'_>, job: &Job) -> Vec<(Choice, f64)> {
        let mut found = match &self.learned {
            None => offers(view, job),
            Some(learned) => offers_by(view, job, |m| learned.rate(&job.submitted.model, m.row)),
        };
        if found.is_empty() {
            found.extend(as_submitted(view, job, false).map(|(choice, _)| (choice, 1.0)));
        }
        if let Some(run) = &job.run {
            let rate = self.rate_of(job, run);
            found.iter_mut().filter(|(c, _)| *c == run.choice).for_each(|(_, r)| *r = rate.unwrap_or(*r));
        }
        found
    }

    /// What is believed of a job's present rate.
    fn rate_of(&self, job: &Job, run: &Run) -> Option<f64> {
        match &self.learned {
            None => Some(run.rate),
            Some(learned) => learned.rate(&job.submitted.model, run.row),
        }
    }

    /// Steps that are left of a job, as far as it knows.
    fn left(&self, job: &Job) -> f64 {
        let expected = self.outlook.as_ref().map(|outlook| outlook.of(job_id(job.id), &OwnWord::default()));
        expected.map_or_else(|| job.left(), |lengths| lengths.corrected_left_secs(job.done))
    }

    /// Jobs that run, and of the others those that come first.
    fn candidates<'a>(&self, view: &View<'a>) -> Vec<Candidate<'a>> {
        let candidate = |job: &'a Job| {
            let offers = self.offers(view, job);
            let best = offers.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
            let left = self.left(job);
            let weight = 1.0 / (best * view.restart_secs.max(1.0) + left);
            (best > 0.0).then_some(Candidate { job, offers, weight, left, fixed: false })
        };
        let (mut running, mut waiting): (Vec<_>, Vec<_>) =
            view.jobs.values().filter_map(candidate).partition(|c| c.job.run.is_some());
        let first = |c: &Candidate<'_>| {
            let a_gpu = |(choice, rate): &(Choice, f64)| rate / f64::from(choice.gpus);
            c.weight * c.offers.iter().map(a_gpu).fold(0.0, f64::max)
        };
        waiting.sort_by(|a, b| first(b).total_cmp(&first(a)));
        waiting.truncate(MOST_WAITING);
        running.append(&mut waiting);
        running
    }
}

impl Policy for Infill {
    fn name(&self) -> String {
        if self.learned.is_some() { "infill" } else { "infill-known" }.to_owned()
    }

    fn every_secs(&self) -> f64 {
        EVERY_SECS
    }

    fn hears_events(&self) -> bool {
        true
    }

    fn learns(&self) -> bool {
        self.learned.is_some()
    }

    fn measured(&mut self, model: &str, row: usize, step_secs: f64) {
        if let Some(learned) = &mut self.learned {
            learned.measured(model, row, step_secs);
        }
    }

    fn ended(&mut self, job: &Job, now: f64) {
        if let Some(outlook) = &mut self.outlook {
            outlook.ended(job_id(job.id), UnixTime(now as i64), job.steps, &OwnWord::default());
        }
    }

    fn decide(&mut self, view: &View<'_>) -> Vec<Wish> {
        if let Some(outlook) = &mut self.outlook {
            view.jobs.values().for_each(|job| outlook.meet(job_id(job.id), &submission(job)));
        }
        self.learned.iter_mut().for_each(Learned::update);
        let mut candidates = self.candidates(view);
        let (places, mut wishes) = (places(view), Vec::new());
        for _ in 0..MOST_PASSES {
            wishes = plan(view, &candidates, &places);
            let in_vain = |c: &&mut Candidate<'_>| !c.fixed && !pays(view, c, &wishes);
            let fixed = candidates.iter_mut().filter(in_vain).map(|c| c.fixed = true).count();
            let homeless = homeless(view, &wishes);
            for candidate in &mut candidates {
                let is_homeless = |choice: &Choice| homeless.contains(&(candidate.job.id, choice.clone()));
                candidate.offers.retain(|(choice, _)| !is_homeless(choice));
            }
            if fixed == 0 && homeless.is_empty() {
                break;
            }
        }
        let fixed = |job: usize| candidates.iter().any(|c| c.job.id == job && c.fixed);
        wishes.retain(|w| !fixed(w.job));
        wishes
    }
}

/// What is known of a job when it comes.
fn submission(job: &Job) -> Submission {
    let submitted = &job.submitted;
    Submission { name: submitted.model.clone(), nodes: submitted.gpus, ..Submission::default() }
}

/// Whether what is wished for a job is worth its restart. To give GPUs up is for others, and worth it unless
/// they will be free sooner anyway.
fn pays(view: &View<'_>, candidate: &Candidate<'_>, wishes: &[Wish]) -> bool {
    let (job, left) = (candidate.job, candidate.left);
    let (Some(run), Some(wish)) = (&job.run, wishes.iter().find(|w| w.job == job.id)) else { return true };
    if wish.choice.as_ref() == Some(&run.choice) {
        return true;
    }
    let rate = |choice: &Choice| candidate.offers.iter().find(|(c, _)| c == choice).map(|(_, rate)| *rate);
    let stays = (run.ready - view.now).max(0.0) + left / rate(&run.choice).unwrap_or(run.rate);
    let others = wish.choice.as_ref().is_none_or(|choice| choice.gpus < run.choice.gpus);
    if others {
        return stays > view.restart_secs;
    }
    let rate = wish.choice.as_ref().and_then(rate).unwrap_or(0.0);
    rate > 0.0 && view.restart_secs + left / rate < stays * (1.0 - MARGIN)
}

/// Wishes for which there would be no seats of the kind that they need: free GPUs may lie too far apart.
fn homeless(view: &View<'_>, wishes: &[Wish]) -> Vec<(usize, Choice)> {
    let mut machine = view.machine.clone();
    let run = |wish: &Wish| view.jobs.get(&wish.job).and_then(|job| job.run.as_ref());
    let changes = |wish: &&Wish| run(wish).map(|run| &run.choice) != wish.choice.as_ref();
    let mut changed: Vec<&Wish> = wishes.iter().filter(changes).collect();
    changed.iter().filter_map(|w| run(w)).for_each(|run| machine.give_back(&run.seat));
    changed.sort_by_key(|w| w.order());
    let mut found = Vec::new();
    for (wish, choice) in changed.into_iter().filter_map(|w| Some((w, w.choice.as_ref()?))) {
        let speeds = view.jobs.get(&wish.job).and_then(|job| view.speeds.of(&job.submitted.model));
        match speeds.and_then(|m| m.seat(&machine, choice)) {
            Some((seat, _)) => machine.take(&seat),
            None => found.push((wish.job, choice.clone())),
        }
    }
    found
}

/// How far ahead samples count, s.
fn horizon_secs(view: &View<'_>) -> f64 {
    (HORIZON.0 * view.restart_secs).max(HORIZON.1)
}

/// Plans a round.
fn plan(view: &View<'_>, candidates: &[Candidate<'_>], places: &Places) -> Vec<Wish> {
    let config = PlannerConfig {
        horizon_secs: horizon_secs(view),
        max_steps: 1,
        solve_secs: 0.0,
        min_stay_secs: 0.0,
        max_changes: u32::MAX,
        ..PlannerConfig::default()
    };
    let none = Vec::new();
    let held = |c: &Candidate<'_>| places.held.get(&c.job.id).unwrap_or(&none);
    let jobs: Vec<MalleableJob> = candidates.iter().map(|c| malleable(view, c, held(c))).collect();
    let problem = Problem::new(UnixTime(view.now as i64), &places.gaps, &jobs, &config, 0.0);
    let plan = fallback(&problem, "a simulation asks no solver");
    wishes(view, candidates, &plan, &places.gaps)
}

/// The GPUs of the machine as the planner sees them; the same in all passes of a round.
struct Places {
    /// A place for each.
    gaps: Gaps,
    /// The places of each job, by name.
    held: BTreeMap<usize, Vec<NodeName>>,
}

/// The places of this moment.
fn places(view: &View<'_>) -> Places {
    let now = UnixTime(view.now as i64);
    let until = now.plus_secs(horizon_secs(view));
    let mut users: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for job in view.jobs.values() {
        for (pool, (node, gpus)) in job.run.iter().flat_map(|r| r.seat.nodes.iter().map(|n| (r.seat.pool, n)))
        {
            users.entry((pool, *node)).or_default().extend(std::iter::repeat_n(job.id, *gpus as usize));
        }
    }
    let (mut gaps, mut held) = (Vec::new(), BTreeMap::<usize, Vec<NodeName>>::new());
    for (number, pool) in view.machine.pools.iter().enumerate() {
        for node in 0..pool.free_by_node().len() {
            let name = NodeName::new(format!("{}-{node:05}", pool.node_type));
            let of = users.get(&(number, node));
            for gpu in 0..pool.per_node as usize {
                let user = of.and_then(|of| of.get(gpu)).copied();
                let name = name.place(gpu);
                user.into_iter().for_each(|job| held.entry(job).or_default().push(name.clone()));
                gaps.push(Gap {
                    node: name,
                    node_type: pool.node_type.clone(),
                    since: now,
                    end: WindowEnd::Unknown,
                    vacate_by: None,
                    usable_until: until,
                    expected_secs: until.secs_since(now),
                    holder: user.map(job_id),
                    share: None,
                });
            }
        }
    }
    gaps.sort_by(|a, b| a.node.cmp(&b.node));
    held.values_mut().for_each(|names| names.sort());
    Places { gaps: Gaps { gaps, refused: Vec::new() }, held }
}

fn job_id(job: usize) -> JobId {
    JobId(u32::try_from(job + 1).unwrap_or(u32::MAX))
}

/// A job as the planner sees it.
fn malleable(view: &View<'_>, candidate: &Candidate<'_>, held: &[NodeName]) -> MalleableJob {
    let job = candidate.job;
    let secs = view.restart_secs;
    let standing = match &job.run {
        None => Standing::Waiting,
        Some(_) if candidate.fixed => Standing::Busy,
        Some(_) => Standing::Running,
    };
    let mut sizes: Vec<u32> = candidate.offers.iter().map(|(c, _)| c.gpus).collect();
    sizes.sort_unstable();
    sizes.dedup();
    MalleableJob {
        id: job_id(job.id),
        user: UserId(0),
        weight: candidate.weight,
        sizes: Sizes::Set(sizes),
        block: 1,
        rates: rates(view, candidate),
        costs: RescaleCosts { up_secs: secs, down_secs: secs, start_secs: secs },
        swap_secs: None,
        reluctance: 1.0,
        standing,
        exec_plan: job.run.as_ref().map_or_else(ExecPlan::default, |run| run.choice.plan.clone()),
        lead_node: held.first().cloned(),
        lead_away: false,
        held: held.iter().map(|n| HeldNode { node: n.clone(), slurm_job: job_id(job.id) }).collect(),
        submitted_at: UnixTime(job.submitted.submit_secs as i64),
        last_change: None,
        assured: None,
        probe: None,
        stay_secs: 0.0,
        turn: None,
        waiting_bonus: 0.0,
        excluded: ExcludedNodes::default(),
    }
}

/// A curve for each plan and type, at the sizes that the plan has.
fn rates(view: &View<'_>, candidate: &Candidate<'_>) -> Vec<RateCurve> {
    let mut points: BTreeMap<(&ExecPlan, usize), Vec<CurvePoint>> = BTreeMap::new();
    for (choice, rate) in &candidate.offers {
        let point = CurvePoint { nodes: choice.gpus, rate: *rate };
        points.entry((&choice.plan, choice.pool)).or_default().push(point);
    }
    let curve = |((plan, pool), points): ((&ExecPlan, usize), Vec<CurvePoint>)| {
        let mut sizes: Vec<u32> = points.iter().map(|p| p.nodes).collect();
        sizes.sort_unstable();
        Some(RateCurve {
            exec_plan: plan.clone(),
            node_type: Some(view.machine.pools.get(pool)?.node_type.clone()),
            curve: Curve::new(points).ok()?,
            sizes: Some(Sizes::Set(sizes)),
            needs: PlanNeeds::default(),
        })
    };
    points.into_iter().filter_map(curve).collect()
}

/// What a plan means for each job. Where GPUs sit is the machine's to say: plans know counts only.
fn wishes(view: &View<'_>, candidates: &[Candidate<'_>], plan: &Plan, gaps: &Gaps) -> Vec<Wish> {
    let wish = |candidate: &Candidate<'_>| {
        let planned = plan.job(job_id(candidate.job.id))?;
        let Some(first) = planned.nodes.first() else { return Some(Wish::to(candidate.job.id, None)) };
        let node_type = &gaps.get(&first.node)?.node_type;
        let pool = view.machine.pools.iter().position(|p| p.node_type == *node_type)?;
        let gpus = planned.nodes.len() as u32;
        let choice = Choice { pool, gpus, plan: planned.exec_plan.clone() };
        let offered = candidate.offers.iter().any(|(c, _)| *c == choice);
        offered.then(|| Wish::to(candidate.job.id, Some(choice)))
    };
    candidates.iter().filter_map(wish).collect()
}
