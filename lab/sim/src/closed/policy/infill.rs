//! infill on a closed machine: the daemon's round state, advisor, planner and checker, which see the
//! simulated machine. Each GPU is a place that is lent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::machine_snapshot::{MachineSnapshot, PARTITION, job_id, place_type, pool_of};
use super::programs::{TrainingProgram, USER, rate_estimates};
use super::relocation::{ProgressEstimate, relocate_jobs};
use super::{ClosedMachine, ClosedMachinePolicy, ClosedTarget, ClosedView, WorkReport};
use crate::closed::{
    job::{ActiveJob, ActiveRun},
    setup::ClosedSetup,
};
use infill_model::{
    AllowedSizes, BatchMode, ChangeKind, ChangePause, ExcludedNodes, ExecPlan, GenerationStop, HeldNode,
    JobDeclaration, JobFacts, JobLocation, JobProgress, NodeName, NodeType, Plan, ProgramIdentity,
    ProgressReport, RescaleCosts, RescaleMode, ResizeState, SchedulingState, StopOutcome, UnixTime,
    UserEstimate, UserId, config::Config,
};
use infill_planner::round::{AdvisorMode, RoundConstraints, RoundInput, RoundState, check_solved_plan};

/// Seconds between two regular rounds.
const ROUND_INTERVAL_SECS: f64 = 60.0;

/// The solver gets no time: with a time limit, plans would depend on the speed of this machine.
const SOLVE_SECS: f64 = 0.0;

/// Share of a restart that a job takes to save and stop.
const SAVE_SHARE: f64 = 0.5;

/// infill as a policy for closed machines.
#[derive(Debug)]
pub(crate) struct ClosedInfill {
    /// Whether it has profiles of all models from the start.
    knows_speeds: bool,
    /// Whether jobs declare how many steps they will make.
    knows_lengths: bool,
    config: Arc<Config>,
    state: RoundState,
    programs: BTreeMap<String, TrainingProgram>,
    /// The measurements of each job, kept from round to round.
    watched: BTreeMap<usize, JobKnowledge>,
}

/// The measurements of a job, kept from round to round.
#[derive(Clone, Copy, Debug, Default)]
struct JobKnowledge {
    /// Estimated samples a second on one GPU.
    unit: f64,
    /// Number of its starts when it was last measured.
    starts: u32,
    /// The work that was measured since that start.
    ran: WorkReport,
}

impl ClosedInfill {
    /// infill with profiles of all models.
    pub fn with_known_speeds(setup: &ClosedSetup) -> Self {
        let mut infill = ClosedInfill { knows_speeds: true, ..ClosedInfill::with_unknown_speeds(setup) };
        let profiles = infill.programs.iter().filter_map(|(model, program)| {
            Some(program.known_profiles(setup.speeds.for_model(model)?, &setup.machine))
        });
        let profiles = profiles.flatten().collect();
        infill.state.job_advisor_mut().load_profiles(profiles, UnixTime::default());
        infill
    }

    /// infill that learns speeds while jobs run.
    pub fn with_unknown_speeds(setup: &ClosedSetup) -> Self {
        let mut config = setup.config.clone();
        config.planner.solve_secs = SOLVE_SECS;
        config.slurm.partition = PARTITION.to_owned();
        let config = Arc::new(config);
        let mut state = RoundState::new(config.clone(), UnixTime::default());
        let programs = TrainingProgram::all_models(setup);
        for program in programs.values() {
            // Estimates hold for all plans and types of a program, so the key's plan and type do not matter.
            let key = program.profile_key(&ExecPlan::default(), NodeType::new(""));
            state.job_advisor_mut().set_estimates(&key, rate_estimates(setup, program));
        }
        ClosedInfill {
            knows_speeds: false,
            knows_lengths: setup.knows_lengths,
            state,
            config,
            programs,
            watched: BTreeMap::new(),
        }
    }

    fn job_program(&self, job: &ActiveJob) -> Option<&TrainingProgram> {
        self.programs.get(&job.submitted.model)
    }

    /// The facts that a daemon would have of the job.
    fn job_facts(&self, view: &ClosedView<'_>, job: &ActiveJob, held: &[NodeName]) -> Option<JobFacts> {
        let program = self.job_program(job)?;
        let run = job.run.as_ref();
        let submitted_at = unix_time(job.submitted_secs);
        let started_at = run.map(|run| unix_time(run.ready - view.restart_secs));
        let name = &job.submitted.model;
        let total = self.knows_lengths.then_some(job.steps * program.batch);
        let exec_plan = run.map_or_else(ExecPlan::default, |run| program.plan_name(&run.choice.plan));
        Some(JobFacts {
            job: job_id(job.id),
            user: UserId(0),
            program: ProgramIdentity {
                user: USER.to_owned(),
                job_name: job.submitted.name.clone(),
                reported_profile: Some((name.clone(), BatchMode::Global)),
                exec_plan: exec_plan.clone(),
                places_per_node: 1,
                on_cpus: false,
            },
            sizes: AllowedSizes::Set(program.sizes.clone()),
            declaration: JobDeclaration {
                profile: Some(name.clone()),
                costs: Some(restart_costs(view.restart_secs)),
                plans: program.plans.clone(),
                model: program.facts,
                gpus_per_node: Some(1),
                ..JobDeclaration::default()
            },
            scheduling_state: if run.is_some() { SchedulingState::Running } else { SchedulingState::Waiting },
            since: started_at.unwrap_or(submitted_at),
            waits_since: run.is_none().then_some(submitted_at),
            running: run.filter(|run| run.ready <= view.now).map(|run| run.choice.gpus),
            location: job_location(job, held),
            resize: ResizeState {
                exec_plan,
                mode: RescaleMode::Restart,
                pause: current_pause(view, job),
                last_at: started_at,
            },
            progress: JobProgress {
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

    /// The planner's input, restricted to the sizes that the table has on each type: other sizes have no
    /// measured speed.
    fn round_input(&self, view: &ClosedView<'_>, facts: &[JobFacts], now: UnixTime) -> RoundInput {
        let mut input = self.state.round_input(facts, RoundConstraints::FREE, now);
        let jobs: BTreeMap<_, _> = view.jobs.values().map(|job| (job_id(job.id), job)).collect();
        for job in &mut input.jobs {
            let Some(program) = jobs.get(&job.id).and_then(|job| self.job_program(job)) else { continue };
            for rate in &mut job.rates {
                let among = rate.sizes.as_ref().unwrap_or(&job.sizes);
                rate.sizes = rate
                    .node_type
                    .as_ref()
                    .map(|node_type| program.sizes_on(&rate.exec_plan, node_type, among))
                    .or(rate.sizes.take());
            }
        }
        input
    }

    /// The targets of a plan. The machine decides which GPUs jobs get.
    fn closed_targets(&self, view: &ClosedView<'_>, plan: &Plan) -> Vec<ClosedTarget> {
        view.jobs.values().filter_map(|job| self.closed_target(view, plan, job)).collect()
    }

    /// The target of one job; `None` if the plan does not name it, or if no choice of the table matches.
    fn closed_target(&self, view: &ClosedView<'_>, plan: &Plan, job: &ActiveJob) -> Option<ClosedTarget> {
        let planned = plan.job_plan(job_id(job.id))?;
        let Some(first) = planned.nodes.first() else {
            return Some(ClosedTarget::with_choice(job.id, None));
        };
        let pool = pool_of(view.machine, &first.node)?;
        let gpus = planned.nodes.len() as u32;
        let program = self.job_program(job)?;
        let speeds = view.speeds.for_model(&job.submitted.model)?;
        let choice = speeds
            .run_choices()
            .map(|(choice, _)| choice)
            .find(|c| c.pool == pool && c.gpus == gpus && program.is_plan(&planned.exec_plan, &c.plan))?;
        Some(ClosedTarget::with_choice(job.id, Some(choice.clone())))
    }

    /// The estimated progress of a running job.
    fn progress_estimate(
        &self,
        view: &ClosedView<'_>,
        job: &ActiveJob,
        facts: &[JobFacts],
    ) -> Option<ProgressEstimate> {
        let run = job.run.as_ref()?;
        let program = self.job_program(job)?;
        let facts = facts.iter().find(|facts| facts.job == job_id(job.id))?;
        let node_type = place_type(view.machine, run.seat.pool)?;
        let plan = program.plan_name(&run.choice.plan);
        let rates = self
            .state
            .job_advisor()
            .rate_curves(&self.state.job_input(facts), std::slice::from_ref(&node_type));
        let rate_if_close = rates
            .iter()
            .find(|r| r.exec_plan == plan && r.node_type.as_ref().is_none_or(|t| *t == node_type))?
            .curve
            .rate(run.choice.gpus)
            / program.batch;
        let (ahead, unit) = self.state.remaining_work(facts);
        Some(ProgressEstimate {
            left: ahead.remaining_secs() * unit / program.batch,
            rate: self.rate_now(job, run)?,
            rate_if_close,
        })
    }

    /// Steps a second of a job on its present GPUs; `None` before it was measured there.
    fn rate_now(&self, job: &ActiveJob, run: &ActiveRun) -> Option<f64> {
        if self.knows_speeds {
            return Some(run.rate);
        }
        let watched = self.watched.get(&job.id).filter(|w| w.starts == job.starts && w.ran.secs > 0.0)?;
        Some(watched.ran.steps / watched.ran.secs)
    }

    /// Records the stops of jobs that are changed.
    fn note_stops(&mut self, view: &ClosedView<'_>, targets: &[ClosedTarget], now: UnixTime) {
        for target in targets {
            let Some(job) = view.jobs.get(&target.job) else { continue };
            let Some(run) = job
                .run
                .as_ref()
                .filter(|run| target.relocates || Some(&run.choice) != target.choice.as_ref())
            else {
                continue;
            };
            let Some(node_type) = place_type(view.machine, run.seat.pool) else { continue };
            let Some(key) = self.job_program(job).map(|p| p.profile_key(&run.choice.plan, node_type)) else {
                continue;
            };
            let id = job_id(job.id);
            let generation = u64::from(job.starts);
            let stop = GenerationStop {
                job: id,
                generation,
                secs: SAVE_SHARE * view.restart_secs,
                end: StopOutcome::Saved,
            };
            self.state.record_stop(&key, &stop, true, now);
        }
    }
}

impl ClosedMachinePolicy for ClosedInfill {
    fn name(&self) -> String {
        if self.knows_speeds { "infill-known" } else { "infill" }.to_owned()
    }

    fn round_interval_secs(&self) -> f64 {
        ROUND_INTERVAL_SECS
    }

    fn reacts_to_events(&self) -> bool {
        true
    }

    fn learns_speeds(&self) -> bool {
        !self.knows_speeds
    }

    fn record_progress(&mut self, machine: &ClosedMachine, job: &ActiveJob, report: WorkReport, now: f64) {
        let WorkReport { steps, secs } = report;
        let Some((run, program)) = job.run.as_ref().zip(self.job_program(job)) else { return };
        let Some(node_type) = place_type(machine, run.seat.pool) else { return };
        let key = program.profile_key(&run.choice.plan, node_type);
        let samples = steps * program.batch;
        let progress = ProgressReport {
            generation: u64::from(job.starts),
            nodes: run.choice.gpus,
            hosts: run.seat.nodes.len() as u32,
            crosses: false,
            node: &NodeName::new("lead").place_name(0),
            samples,
            secs,
            step: None,
            startup: None,
        };
        self.state.record_progress(job_id(job.id), &key, &progress, unix_time(now));
        let watched = self.watched.entry(job.id).or_default();
        if watched.starts != job.starts {
            watched.starts = job.starts;
            watched.ran = WorkReport::default();
        }
        watched.ran.steps += steps;
        watched.ran.secs += secs;
    }

    fn job_ended(&mut self, job: &ActiveJob, now: f64) {
        let id = job_id(job.id);
        self.state.job_advisor_mut().forget_job(id);
        let unit = self.watched.remove(&job.id).map_or(0.0, |watched| watched.unit);
        let Some(samples) = self.job_program(job).map(|p| job.steps * p.batch).filter(|_| unit > 0.0) else {
            return;
        };
        // The length in seconds on one GPU.
        let secs = samples / unit;
        let estimate =
            UserEstimate { declared_secs: self.knows_lengths.then_some(secs), flat_loss_secs: None };
        self.state.priorities_mut().length_predictor.record_end(id, unix_time(now), secs, &estimate);
    }

    fn decide_targets(&mut self, view: &ClosedView<'_>) -> Vec<ClosedTarget> {
        let now = unix_time(view.now);
        let mirror = MachineSnapshot::from_view(view);
        let jobs = view.jobs.values();
        let facts: Vec<JobFacts> =
            jobs.filter_map(|job| self.job_facts(view, job, mirror.job_places(job.id))).collect();
        let advice = if self.knows_speeds { AdvisorMode::Watch } else { AdvisorMode::Probe };
        self.state.ingest_snapshot(&mirror.snapshot, &facts, advice, now);
        for (job, facts) in view.jobs.values().zip(&facts) {
            let (_, unit) = self.state.remaining_work(facts);
            let watched = self.watched.entry(job.id).or_default();
            watched.unit = if unit > 0.0 { unit } else { watched.unit };
        }
        let input = self.round_input(view, &facts, now);
        let solved = input.solve_plan(&self.config);
        // If even the last resort fails the check, no job changes.
        let Ok(checked) = check_solved_plan(&input, &self.config, Ok(solved)) else { return Vec::new() };
        let mut targets = self.closed_targets(view, &checked.plan);
        relocate_jobs(view, &mut targets, &|job| self.progress_estimate(view, job, &facts));
        self.note_stops(view, &targets, now);
        targets
    }
}

fn unix_time(secs: f64) -> UnixTime {
    UnixTime(secs as i64)
}

fn restart_costs(secs: f64) -> RescaleCosts {
    RescaleCosts { up_secs: secs, down_secs: secs, start_secs: secs }
}

fn job_location(job: &ActiveJob, held: &[NodeName]) -> JobLocation {
    let id = job_id(job.id);
    JobLocation {
        places_per_node: 1,
        held: held.iter().map(|node| HeldNode { node: node.clone(), slurm_job: id }).collect(),
        lead: held.first().cloned(),
        lead_now: held.first().cloned(),
        ..JobLocation::default()
    }
}

/// The pause that a job is in now; `None` if it makes steps or waits.
fn current_pause(view: &ClosedView<'_>, job: &ActiveJob) -> Option<ChangePause> {
    let run = job.run.as_ref().filter(|run| run.ready > view.now)?;
    let change = if job.starts > 1 { ChangeKind::Grow } else { ChangeKind::Start };
    Some(ChangePause { since: unix_time(run.ready - view.restart_secs), change })
}
