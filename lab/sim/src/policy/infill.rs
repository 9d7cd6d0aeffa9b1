//! infill itself: the daemon's round state, planner and checker, which see the simulated cluster.

use std::sync::Arc;

use super::snapshot_mirror::{PARTITION, SnapshotMirror};
use super::{AllocationPolicy, PolicyName, PolicyView, Target};
use crate::job::{ChangeCause, SimJob};
use crate::queue::{Foresight, NodeIx};
use infill_gaps::CLEANUP_SECS;
use infill_model::{
    AllowedSizes, BatchMode, ExcludedNodes, ExecPlan, GenerationStop, HeldNode, JobDeclaration, JobFacts,
    JobLocation, JobProgress, NodeName, Plan, PlanningObjective, ProfileKey, ProgramIdentity, ProgressReport,
    RescaleMode, ResizeState, SchedulingState, SolveStatus, StopOutcome, UnixTime, UserEstimate, UserId,
    config::Config,
};
use infill_planner::round::{AdvisorMode, RoundConstraints, RoundInput, RoundState, check_solved_plan};

/// Seconds until the next round when nothing happens: first and largest. They double from round to round.
const QUIET_SECS: (i64, i64) = (600, 3600);

/// The solver gets no time: with a time limit, plans would depend on the speed of this machine. The plan
/// before it is mostly proved to be within per mille of the optimum.
const SOLVE_SECS: f64 = 0.0;

/// Seconds before a window's end at which a last round finds that the window is too short for a step.
const LAST_STEP_SECS: i64 = 4;

/// Seconds after a change or a loss of nodes until a job can be changed again: it stops, starts, and the next
/// snapshot shows who has its nodes. The daemon takes a snapshot every 5 s.
const STOP_SECS: f64 = 5.0;

/// The owner of simulated jobs whose owner is unknown.
const UNKNOWN_USER: &str = "user";

/// infill as a simulated policy.
#[derive(Debug)]
pub(crate) struct InfillPolicy {
    name: PolicyName,
    config: Arc<Config>,
    mirror: Option<SnapshotMirror>,
    state: RoundState,
    quiet_secs: i64,
    wake: Option<i64>,
    refused_plans: u64,
    worst_gap: f64,
}

impl InfillPolicy {
    /// The infill policy of this name with a site's configuration.
    pub fn new(name: PolicyName, config: &Config) -> Self {
        let mut config = config.clone();
        config.planner.solve_secs = SOLVE_SECS;
        config.slurm.partition = PARTITION.to_owned();
        if name == PolicyName::InfillOracle {
            // It knows the second in which the main queue needs a node, and leaves then.
            config.gaps.leave_secs = 0.0;
            config.daemon.poll_interval_secs = 0.0;
        }
        let config = Arc::new(config);
        InfillPolicy {
            name,
            state: RoundState::new(config.clone(), UnixTime::default()),
            config,
            mirror: None,
            quiet_secs: QUIET_SECS.0,
            wake: None,
            refused_plans: 0,
            worst_gap: 0.0,
        }
    }

    fn knows_curves(&self) -> bool {
        self.name != PolicyName::Infill
    }

    fn profile_key(&self, job: &SimJob) -> ProfileKey {
        let lead = job.nodes.first().and_then(|n| self.mirror.as_ref()?.node_name(*n));
        self.state.profile_key(&program_identity(job), lead)
    }

    fn advisor_mode(&self) -> AdvisorMode {
        if self.knows_curves() { AdvisorMode::Unasked } else { AdvisorMode::Probe }
    }

    fn round_input(&self, jobs: &[JobFacts], view: &PolicyView<'_>) -> RoundInput {
        let mut input = self.state.round_input(jobs, RoundConstraints::FREE, UnixTime(view.now));
        for job in &mut input.jobs {
            if let Some(truth) = view.jobs.get(&job.id) {
                // The planner's unit is the rate of one node, 1 for a job without measurements. So multiply
                // by the true rate and by what a sample is worth.
                job.weight *= truth.submitted.weight * base_node_rate(truth);
            }
        }
        input
    }

    fn checked_plan(&mut self, jobs: &[JobFacts], view: &PolicyView<'_>) -> Option<Plan> {
        let input = self.round_input(jobs, view);
        let solved = input.solve_plan(&self.config);
        match check_solved_plan(&input, &self.config, Ok(solved)) {
            Ok(checked) => {
                self.refused_plans += u64::from(!checked.refused.is_empty());
                if let SolveStatus::TimeLimit { gap } | SolveStatus::SolverNotUsed { gap } =
                    checked.plan.status
                {
                    self.worst_gap = self.worst_gap.max(gap.unwrap_or(f64::INFINITY));
                }
                Some(checked.plan)
            }
            Err(_) => {
                self.refused_plans += 1;
                None
            }
        }
    }

    /// Sets the next round: when a window must be left, when a job may be changed again, or when a probe
    /// continues; else after a quiet time that doubles.
    fn set_wake(&mut self, view: &PolicyView<'_>, has_acted: bool) {
        let now = view.now;
        let min_stay = self.config.planner.min_stay_secs as i64;
        let held_gaps = self.state.gaps().gaps.iter().filter(|g| g.holder.is_some());
        let window_ends = held_gaps.filter_map(|g| g.vacate_by).map(|at| at.0 - LAST_STEP_SECS);
        let holders = view.jobs.values().filter(|j| j.size() > 0);
        let changes = holders.map(|j| changeable_at(j, min_stay));
        let probed = view.jobs.values().filter(|j| self.state.job_advisor().probe_size(j.id).is_some());
        let probes = probed.map(|_| now + self.config.daemon.poll_interval_secs.ceil() as i64);
        let (first_quiet, longest_quiet) = QUIET_SECS;
        self.quiet_secs = if has_acted { first_quiet } else { (self.quiet_secs * 2).min(longest_quiet) };
        let quiet = (!view.jobs.is_empty()).then_some(now + self.quiet_secs);
        let turns = self.state.priorities().next_end(UnixTime(now)).map(|at| at.0);
        let all = window_ends.chain(changes).chain(probes).chain(quiet).chain(turns);
        self.wake = all.filter(|at| *at > now).min();
    }

    fn plan_targets(&self, view: &PolicyView<'_>, plan: &Plan) -> Vec<Target> {
        let Some(mirror) = &self.mirror else { return Vec::new() };
        plan.jobs.iter().filter_map(|planned| self.plan_target(view, mirror, planned)).collect()
    }

    /// The target for one planned job; `None` if its nodes stay the same.
    fn plan_target(
        &self,
        view: &PolicyView<'_>,
        mirror: &SnapshotMirror,
        planned: &infill_model::JobPlan,
    ) -> Option<Target> {
        let job = view.jobs.get(&planned.job)?;
        let nodes: Vec<NodeIx> = planned.nodes.iter().filter_map(|p| mirror.node_number(&p.node)).collect();
        if nodes == job.nodes {
            return None;
        }
        let is_probing = self.state.job_advisor().is_probing(job.id, UnixTime(view.now)) && job.size() > 0;
        let cause = if is_probing { ChangeCause::Probe } else { ChangeCause::Rescale };
        Some(Target { job: job.id, nodes, cause })
    }
}

impl AllocationPolicy for InfillPolicy {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn foresight(&self) -> Foresight {
        match self.name {
            PolicyName::InfillBlind => Foresight::None,
            PolicyName::InfillOracle => Foresight::Truth,
            _ => Foresight::Backfill,
        }
    }

    fn has_lead(&self) -> bool {
        true
    }

    fn learns_rates(&self) -> bool {
        !self.knows_curves()
    }

    fn wake_at(&self) -> Option<i64> {
        self.wake
    }

    fn record_progress(&mut self, job: &SimJob, samples: f64, secs: f64, now: i64) -> bool {
        let node = NodeName::new("lead");
        let progress = ProgressReport {
            generation: job.generation,
            nodes: job.member_count(),
            hosts: job.member_count(),
            crosses: false,
            node: &node,
            samples,
            secs,
            step: None,
            startup: None,
        };
        let key = self.profile_key(job);
        let news = self.state.record_progress(job.id, &key, &progress, UnixTime(now));
        news.probe_ended || news.drift.is_some()
    }

    fn job_ended(&mut self, job: &SimJob, now: i64) {
        self.state.job_advisor_mut().forget_job(job.id);
        self.state.priorities_mut().length_predictor.record_end(
            job.id,
            UnixTime(now),
            job.done / base_node_rate(job),
            &UserEstimate::default(),
        );
    }

    fn plan_defects(&self) -> (u64, f64) {
        (self.refused_plans, self.worst_gap)
    }

    fn record_leaving(&mut self, job: &SimJob, secs: f64, now: i64) {
        if self.name != PolicyName::InfillOracle {
            let generation = job.generation;
            let secs = (secs - CLEANUP_SECS).max(0.0);
            let stop = GenerationStop { job: job.id, generation, secs, end: StopOutcome::Saved };
            self.state.record_stop(&self.profile_key(job), &stop, true, UnixTime(now));
        }
    }

    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target> {
        let foresight = self.foresight();
        let advice = self.advisor_mode();
        let now = UnixTime(view.now);
        let mut mirror = self.mirror.take().unwrap_or_else(|| SnapshotMirror::new(view.cluster.node_names()));
        let declares = OwnerDeclaration {
            curve: self.knows_curves(),
            total: self.knows_curves() && self.config.planner.objective == PlanningObjective::Completion,
        };
        let jobs: Vec<JobFacts> = view.jobs.values().map(|job| job_facts(job, declares, view)).collect();
        let _ = self.state.ingest_snapshot(mirror.update_snapshot(view, foresight), &jobs, advice, now);
        self.mirror = Some(mirror);
        let plan = self.checked_plan(&jobs, view);
        let targets = plan.map(|plan| self.plan_targets(view, &plan)).unwrap_or_default();
        self.set_wake(view, !view.changed.is_empty() || !targets.is_empty());
        targets
    }
}

/// When a job may be changed again: after its pause, and after the shortest stay since its last change.
fn changeable_at(job: &SimJob, min_stay: i64) -> i64 {
    let stay_ends = job.last_change.map_or(i64::MIN, |at| at.saturating_add(min_stay));
    stopped_at(job).max(stay_ends)
}

/// When a job that is changed has stopped, and starts on its new nodes.
fn stopped_at(job: &SimJob) -> i64 {
    let began = job.pausing.until - job.pausing.secs;
    (began + STOP_SECS.min(job.pausing.secs)).ceil() as i64
}

/// The identity of the program that a job runs.
fn program_identity(job: &SimJob) -> ProgramIdentity {
    ProgramIdentity {
        user: job.submitted.user.clone().unwrap_or_else(|| UNKNOWN_USER.to_owned()),
        job_name: job.submitted.name.clone(),
        reported_profile: Some((job.submitted.program.clone(), BatchMode::Auto)),
        exec_plan: ExecPlan::default(),
        places_per_node: 1,
        on_cpus: false,
    }
}

/// A number for the job's owner: limits of one user are kept by numbers.
fn user_number(job: &SimJob) -> UserId {
    let name = job.submitted.user.as_deref().unwrap_or(UNKNOWN_USER);
    UserId(name.bytes().fold(0, |hash: u32, byte| hash.wrapping_mul(31).wrapping_add(byte.into())))
}

/// Samples a second per node at the job's smallest size.
fn base_node_rate(job: &SimJob) -> f64 {
    job.submitted.curve.rate(job.submitted.min_nodes) / f64::from(job.submitted.min_nodes)
}

/// The job's progress. `declares_total` says whether it declares its total number of samples.
fn job_progress(job: &SimJob, declares_total: bool) -> JobProgress {
    let total = Some(job.submitted.budget).filter(|budget| declares_total && budget.is_finite());
    JobProgress { samples: job.done, total, ..JobProgress::default() }
}

/// Which facts the owners of jobs declare.
#[derive(Clone, Copy)]
struct OwnerDeclaration {
    /// Whether they declare the scaling curve.
    curve: bool,
    /// Whether they declare the total number of samples.
    total: bool,
}

/// The facts that a daemon would have of the job.
fn job_facts(job: &SimJob, declares: OwnerDeclaration, view: &PolicyView<'_>) -> JobFacts {
    let scheduling_state = match job.size() {
        0 => SchedulingState::Waiting,
        // Its commands are stopping. The next round finds them started, even if not ready yet.
        _ if job.is_pausing(view.now) && view.now < stopped_at(job) => SchedulingState::Busy,
        _ => SchedulingState::Running,
    };
    JobFacts {
        job: job.id,
        user: user_number(job),
        program: program_identity(job),
        sizes: AllowedSizes::Range { min: job.submitted.min_nodes, max: job.submitted.max_nodes },
        // The true costs, which a daemon learns at the first rescale.
        declaration: JobDeclaration {
            profile: Some(job.submitted.program.clone()),
            curve: declares.curve.then(|| (*job.submitted.curve).clone()),
            costs: Some(*view.costs),
            ..JobDeclaration::default()
        },
        scheduling_state,
        since: UnixTime(job.since),
        waits_since: (job.size() == 0).then_some(UnixTime(job.since)),
        running: job.is_running(view.now).then(|| job.member_count()),
        location: job_location(job, view),
        // The costs are declared with the job.
        resize: ResizeState {
            exec_plan: ExecPlan::default(),
            mode: RescaleMode::Restart,
            pause: job.last_pause(),
            last_at: job.changed_at(),
        },
        progress: job_progress(job, declares.total),
        submitted_at: UnixTime(job.submitted.at),
        excluded: ExcludedNodes::default(),
        ending: false,
    }
}

fn job_location(job: &SimJob, view: &PolicyView<'_>) -> JobLocation {
    let names = view.cluster.node_names();
    let nodes: Vec<&NodeName> = job.nodes.iter().filter_map(|n| names.get(*n as usize)).collect();
    let lead = nodes.first().map(|n| (*n).clone());
    let mut held: Vec<HeldNode> =
        nodes.into_iter().map(|n| HeldNode { node: n.clone(), slurm_job: job.id }).collect();
    held.sort_by(|a, b| a.node.cmp(&b.node));
    JobLocation { held, lead_now: lead.clone(), lead, ..JobLocation::default() }
}
