//! infill on a closed machine: the daemon's scene, advisor, planner and checker, fed with what the simulation
//! shows. Each GPU is a place that is lent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mirror::{Mirror, PARTITION, job_id, place_type, pool_of};
use super::programs::{TrainingProgram, USER, estimates};
use super::reseating::{Progressing, reseat};
use super::{Machine, Policy, View, Wish, WorkReport};
use crate::closed::{
    job::{Job, Run},
    setup::Setup,
    speeds::Choice,
};
use infill_model::{
    AllowedSizes, BatchMode, ChangeKind, ChangePause, ExcludedNodes, ExecPlan, GenerationStop, HeldNode,
    JobDeclaration, JobFacts, JobLocation, JobProgress, NodeName, NodeType, Plan, ProgramIdentity,
    ProgressReport, RescaleCosts, RescaleMode, ResizeState, SchedulingState, StopOutcome, UnixTime,
    UserEstimate, UserId, config::Config,
};
use infill_planner::round::{Advice, Question, Scene, Terms, judge};

/// Seconds between two rounds in which nothing happened.
const EVERY_SECS: f64 = 60.0;

/// The solver is not asked: its time limit would make plans depend on how fast this machine is.
const SOLVE_SECS: f64 = 0.0;

/// Share of a restart that a job takes to save and stop.
const SAVING: f64 = 0.5;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Infill {
    /// Whether it has profiles of all models from the start.
    knows_speeds: bool,
    /// Whether jobs tell how many steps they will make.
    knows_lengths: bool,
    config: Arc<Config>,
    scene: Scene,
    programs: BTreeMap<String, TrainingProgram>,
    /// What is known of each job from round to round.
    watched: BTreeMap<usize, Watched>,
}

/// What is known of a job from round to round.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// Samples a second that are believed of it on one GPU.
    unit: f64,
    /// How often it had been started when it was last measured.
    starts: u32,
    /// What it did since that start.
    ran: WorkReport,
}

impl Infill {
    /// Knows how fast all models are.
    pub fn knowing(setup: &Setup) -> Self {
        let mut infill = Infill { knows_speeds: true, ..Infill::learning(setup) };
        let profiles = infill
            .programs
            .iter()
            .filter_map(|(model, program)| Some(program.profiles(setup.speeds.of(model)?, &setup.machine)));
        let profiles = profiles.flatten().collect();
        infill.scene.library_mut().load(profiles, UnixTime::default());
        infill
    }

    /// Learns it while jobs run.
    pub fn learning(setup: &Setup) -> Self {
        let mut config = setup.config.clone();
        config.planner.solve_secs = SOLVE_SECS;
        config.slurm.partition = PARTITION.to_owned();
        let config = Arc::new(config);
        let mut scene = Scene::new(config.clone(), UnixTime::default());
        let programs = TrainingProgram::all(setup);
        for program in programs.values() {
            // Of a program, whichever plan or type the signature names.
            let key = program.key(&ExecPlan::default(), NodeType::new(""));
            scene.library_mut().know_estimates(&key, estimates(setup, program));
        }
        Infill {
            knows_speeds: false,
            knows_lengths: setup.knows_lengths,
            scene,
            config,
            programs,
            watched: BTreeMap::new(),
        }
    }

    fn program(&self, job: &Job) -> Option<&TrainingProgram> {
        self.programs.get(&job.submitted.model)
    }

    /// What a daemon would know of the job.
    fn facts(&self, view: &View<'_>, job: &Job, held: &[NodeName]) -> Option<JobFacts> {
        let program = self.program(job)?;
        let run = job.run.as_ref();
        let submitted_at = moment(job.submitted_secs);
        let started_at = run.map(|run| moment(run.ready - view.restart_secs));
        let name = &job.submitted.model;
        let total = self.knows_lengths.then_some(job.steps * program.batch);
        let exec_plan = run.map_or_else(ExecPlan::default, |run| program.plan_name(&run.choice.plan));
        Some(JobFacts {
            job: job_id(job.id),
            user: UserId(0),
            program: ProgramIdentity {
                user: USER.to_owned(),
                job_name: job.submitted.name.clone(),
                told: Some((name.clone(), BatchMode::Global)),
                exec_plan: exec_plan.clone(),
                block: 1,
                on_cpus: false,
            },
            sizes: AllowedSizes::Set(program.sizes.clone()),
            claims: JobDeclaration {
                profile: Some(name.clone()),
                costs: Some(costs(view.restart_secs)),
                plans: program.plans.clone(),
                model: program.facts,
                gpus_per_node: Some(1),
                ..JobDeclaration::default()
            },
            standing: if run.is_some() { SchedulingState::Running } else { SchedulingState::Waiting },
            since: started_at.unwrap_or(submitted_at),
            waits_since: run.is_none().then_some(submitted_at),
            running: run.filter(|run| run.ready <= view.now).map(|run| run.choice.gpus),
            place: place(job, held),
            changing: ResizeState {
                exec_plan,
                way: RescaleMode::Restart,
                pause: pause(view, job),
                last_at: started_at,
            },
            course: JobProgress {
                samples: job.done * program.batch,
                total,
                first_said: total,
                ..JobProgress::default()
            },
            submitted_at,
            excluded: ExcludedNodes::default(),
            ending: false,
        })
    }

    /// The daemon's question, with the sizes that the table has on each type: how fast a model is at others
    /// nobody has measured.
    fn question(&self, view: &View<'_>, facts: &[JobFacts], now: UnixTime) -> Question {
        let mut question = self.scene.question(facts, Terms::FREE, now);
        let jobs: BTreeMap<_, _> = view.jobs.values().map(|job| (job_id(job.id), job)).collect();
        for job in &mut question.jobs {
            let Some(program) = jobs.get(&job.id).and_then(|job| self.program(job)) else { continue };
            for rate in &mut job.rates {
                let among = rate.sizes.as_ref().unwrap_or(&job.sizes);
                let known = |node_type| program.sizes_on(&rate.exec_plan, node_type, among);
                rate.sizes = rate.node_type.as_ref().map(known).or(rate.sizes.take());
            }
        }
        question
    }

    /// What a plan means for each job. Where GPUs sit is the machine's to say.
    fn wishes(&self, view: &View<'_>, plan: &Plan) -> Vec<Wish> {
        let wish = |job: &Job| {
            let planned = plan.job_plan(job_id(job.id))?;
            let Some(first) = planned.nodes.first() else { return Some(Wish::to(job.id, None)) };
            let (pool, gpus) = (pool_of(view.machine, &first.node)?, planned.nodes.len() as u32);
            let program = self.program(job)?;
            let is_planned = |c: &&Choice| {
                c.pool == pool && c.gpus == gpus && program.is_plan(&planned.exec_plan, &c.plan)
            };
            let speeds = view.speeds.of(&job.submitted.model)?;
            let choice = speeds.choices().map(|(choice, _)| choice).find(is_planned)?;
            Some(Wish::to(job.id, Some(choice.clone())))
        };
        view.jobs.values().filter_map(wish).collect()
    }

    /// What is believed of a job that runs.
    fn progressing(&self, view: &View<'_>, job: &Job, facts: &[JobFacts]) -> Option<Progressing> {
        let (run, program) = (job.run.as_ref()?, self.program(job)?);
        let facts = facts.iter().find(|facts| facts.job == job_id(job.id))?;
        let node_type = place_type(view.machine, run.seat.pool)?;
        let plan = program.plan_name(&run.choice.plan);
        let rates = self.scene.library().rates(&self.scene.subject(facts), std::slice::from_ref(&node_type));
        let is_it = |r: &&infill_model::malleable::RateCurve| {
            r.exec_plan == plan && r.node_type.as_ref().is_none_or(|t| *t == node_type)
        };
        let rate_if_close = rates.iter().find(is_it)?.curve.rate(run.choice.gpus) / program.batch;
        let (ahead, unit) = self.scene.ahead(facts);
        Some(Progressing {
            left: ahead.left_secs() * unit / program.batch,
            rate: self.rate_now(job, run)?,
            rate_if_close,
        })
    }

    /// Steps a second that a job makes where it is; `None` before it was measured there.
    fn rate_now(&self, job: &Job, run: &Run) -> Option<f64> {
        if self.knows_speeds {
            return Some(run.rate);
        }
        let watched = self.watched.get(&job.id).filter(|w| w.starts == job.starts && w.ran.secs > 0.0)?;
        Some(watched.ran.steps / watched.ran.secs)
    }

    /// Takes in that these jobs are stopped to be changed.
    fn note_stops(&mut self, view: &View<'_>, wishes: &[Wish], now: UnixTime) {
        for wish in wishes {
            let Some(job) = view.jobs.get(&wish.job) else { continue };
            let stays = |run: &&Run| wish.anew || Some(&run.choice) != wish.choice.as_ref();
            let Some(run) = job.run.as_ref().filter(stays) else { continue };
            let Some(node_type) = place_type(view.machine, run.seat.pool) else { continue };
            let Some(key) = self.program(job).map(|p| p.key(&run.choice.plan, node_type)) else { continue };
            let (id, generation) = (job_id(job.id), u64::from(job.starts));
            let stop = GenerationStop {
                job: id,
                generation,
                secs: SAVING * view.restart_secs,
                end: StopOutcome::Saved,
            };
            self.scene.stopped(&key, &stop, true, now);
        }
    }
}

impl Policy for Infill {
    fn name(&self) -> String {
        if self.knows_speeds { "infill-known" } else { "infill" }.to_owned()
    }

    fn every_secs(&self) -> f64 {
        EVERY_SECS
    }

    fn hears_events(&self) -> bool {
        true
    }

    fn learns(&self) -> bool {
        !self.knows_speeds
    }

    fn progress(&mut self, machine: &Machine, job: &Job, report: WorkReport, now: f64) {
        let WorkReport { steps, secs } = report;
        let Some((run, program)) = job.run.as_ref().zip(self.program(job)) else { return };
        let Some(node_type) = place_type(machine, run.seat.pool) else { return };
        let (key, samples) = (program.key(&run.choice.plan, node_type), steps * program.batch);
        let progress = ProgressReport {
            generation: u64::from(job.starts),
            nodes: run.choice.gpus,
            hosts: run.seat.nodes.len() as u32,
            crosses: false,
            node: &NodeName::new("lead").place_name(0),
            samples,
            secs,
            step: None,
            opening: None,
        };
        self.scene.progress(job_id(job.id), &key, &progress, moment(now));
        let watched = self.watched.entry(job.id).or_default();
        if watched.starts != job.starts {
            watched.starts = job.starts;
            watched.ran = WorkReport::default();
        }
        watched.ran.steps += steps;
        watched.ran.secs += secs;
    }

    fn ended(&mut self, job: &Job, now: f64) {
        let id = job_id(job.id);
        self.scene.library_mut().ended(id);
        let unit = self.watched.remove(&job.id).map_or(0.0, |watched| watched.unit);
        let Some(samples) = self.program(job).map(|p| job.steps * p.batch).filter(|_| unit > 0.0) else {
            return;
        };
        // As many seconds as on one GPU.
        let secs = samples / unit;
        let word = UserEstimate { said_secs: self.knows_lengths.then_some(secs), flat_secs: None };
        self.scene.turns_mut().outlook.ended(id, moment(now), secs, &word);
    }

    fn decide(&mut self, view: &View<'_>) -> Vec<Wish> {
        let (now, mirror) = (moment(view.now), Mirror::of(view));
        let facts = |job: &Job| self.facts(view, job, mirror.held(job.id));
        let facts: Vec<JobFacts> = view.jobs.values().filter_map(facts).collect();
        let advice = if self.knows_speeds { Advice::Watch } else { Advice::Probe };
        self.scene.look(&mirror.snapshot, &facts, advice, now);
        for (job, facts) in view.jobs.values().zip(&facts) {
            let unit = self.scene.ahead(facts).1;
            let watched = self.watched.entry(job.id).or_default();
            watched.unit = if unit > 0.0 { unit } else { watched.unit };
        }
        let question = self.question(view, &facts, now);
        let solved = question.solve(&self.config);
        // What even the last resort does not pass changes nothing.
        let Ok(judged) = judge(&question, &self.config, Ok(solved)) else { return Vec::new() };
        let mut wishes = self.wishes(view, &judged.plan);
        reseat(view, &mut wishes, &|job| self.progressing(view, job, &facts));
        self.note_stops(view, &wishes, now);
        wishes
    }
}

fn moment(secs: f64) -> UnixTime {
    UnixTime(secs as i64)
}

fn costs(secs: f64) -> RescaleCosts {
    RescaleCosts { up_secs: secs, down_secs: secs, start_secs: secs }
}

fn place(job: &Job, held: &[NodeName]) -> JobLocation {
    let id = job_id(job.id);
    JobLocation {
        block: 1,
        held: held.iter().map(|node| HeldNode { node: node.clone(), slurm_job: id }).collect(),
        lead: held.first().cloned(),
        lead_now: held.first().cloned(),
        ..JobLocation::default()
    }
}

/// The pause that a job is in.
fn pause(view: &View<'_>, job: &Job) -> Option<ChangePause> {
    let run = job.run.as_ref().filter(|run| run.ready > view.now)?;
    let change = if job.starts > 1 { ChangeKind::Grow } else { ChangeKind::Start };
    Some(ChangePause { since: moment(run.ready - view.restart_secs), change })
}
