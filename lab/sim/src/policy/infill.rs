//! infill itself: the daemon's scene, planner and checker, fed with what the simulation shows.

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

/// A machine on which nothing happens is looked at again after so many seconds, then after twice as many, up
/// to the most.
const QUIET_SECS: (i64, i64) = (600, 3600);

/// The solver is not asked: its time limit would make plans depend on how fast this machine is, and the plan
/// that is in hand before it is asked is mostly proved to be within per mille.
const SOLVE_SECS: f64 = 0.0;

/// Seconds before a window's end at which the last round finds that the node lasts through no step.
const LAST_STEP_SECS: i64 = 4;

/// Seconds from the moment at which a job is changed, or loses nodes, until it can be changed again: it
/// stops, starts, and the next look at Slurm shows who has taken its nodes. As in the daemon, which looks
/// every 5 s.
const STOP_SECS: f64 = 5.0;

/// The owner of simulated jobs whose owner nobody knows.
const UNKNOWN_USER: &str = "user";

/// See the module's text.
#[derive(Debug)]
pub(crate) struct InfillPolicy {
    name: PolicyName,
    config: Arc<Config>,
    mirror: Option<SnapshotMirror>,
    scene: RoundState,
    quiet_secs: i64,
    wake: Option<i64>,
    refused_plans: u64,
    worst_gap: f64,
}

impl InfillPolicy {
    /// One of infill's policies with a site's configuration.
    pub fn new(name: PolicyName, config: &Config) -> Self {
        let mut config = config.clone();
        config.planner.solve_secs = SOLVE_SECS;
        config.slurm.partition = PARTITION.to_owned();
        if name == PolicyName::InfillOracle {
            // It is told the very second at which the main queue comes, and leaves then.
            (config.gaps.leave_secs, config.daemon.poll_interval_secs) = (0.0, 0.0);
        }
        let config = Arc::new(config);
        InfillPolicy {
            name,
            scene: RoundState::new(config.clone(), UnixTime::default()),
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
        self.scene.profile_key(&program_identity(job), lead)
    }

    fn advisor_mode(&self) -> AdvisorMode {
        if self.knows_curves() { AdvisorMode::Unasked } else { AdvisorMode::Probe }
    }

    fn round_input(&self, jobs: &[JobFacts], view: &PolicyView<'_>) -> RoundInput {
        let mut question = self.scene.round_input(jobs, RoundConstraints::FREE, UnixTime(view.now));
        for job in &mut question.jobs {
            if let Some(truth) = view.jobs.get(&job.id) {
                // What it believes of the unit times what a sample is worth: of an unmeasured job it
                // believes a rate of 1.
                job.weight *= truth.submitted.weight * base_node_rate(truth);
            }
        }
        question
    }

    fn checked_plan(&mut self, jobs: &[JobFacts], view: &PolicyView<'_>) -> Option<Plan> {
        let question = self.round_input(jobs, view);
        let solved = question.solve_plan(&self.config);
        match check_solved_plan(&question, &self.config, Ok(solved)) {
            Ok(judged) => {
                self.refused_plans += u64::from(!judged.refused.is_empty());
                if let SolveStatus::TimeLimit { gap } | SolveStatus::Unasked { gap } = judged.plan.status {
                    self.worst_gap = self.worst_gap.max(gap.unwrap_or(f64::INFINITY));
                }
                Some(judged.plan)
            }
            Err(_) => {
                self.refused_plans += 1;
                None
            }
        }
    }

    /// When a window must be left, a job may be changed again, a probe goes on; else later and later.
    fn set_wake(&mut self, view: &PolicyView<'_>, acted: bool) {
        let now = view.now;
        let stay = self.config.planner.min_stay_secs as i64;
        let leave = self.scene.gaps().gaps.iter().filter(|g| g.holder.is_some()).filter_map(|g| g.vacate_by);
        let leave = leave.map(|at| at.0 - LAST_STEP_SECS);
        // What pauses, and what was rescaled a moment ago, can be changed again from then on.
        let may_change =
            |j: &SimJob| stopped_at(j).max(j.last_change.map_or(i64::MIN, |at| at.saturating_add(stay)));
        let changes = view.jobs.values().filter(|j| j.size() > 0).map(may_change);
        let probes = view.jobs.values().filter(|j| self.scene.job_advisor().probe_size(j.id).is_some());
        let probes = probes.map(|_| now + self.config.daemon.poll_interval_secs.ceil() as i64);
        let (least, most) = QUIET_SECS;
        self.quiet_secs = if acted { least } else { (self.quiet_secs * 2).min(most) };
        let quiet = (!view.jobs.is_empty()).then_some(now + self.quiet_secs);
        let turns = self.scene.priorities().next_end(UnixTime(now)).map(|at| at.0);
        let all = leave.chain(changes).chain(probes).chain(quiet).chain(turns);
        self.wake = all.filter(|at| *at > now).min();
    }

    fn plan_targets(&self, view: &PolicyView<'_>, plan: &Plan) -> Vec<Target> {
        let Some(mirror) = &self.mirror else { return Vec::new() };
        let target = |planned: &infill_model::JobPlan| {
            let job = view.jobs.get(&planned.job)?;
            let nodes: Vec<NodeIx> =
                planned.nodes.iter().filter_map(|p| mirror.node_number(&p.node)).collect();
            let probing = self.scene.job_advisor().is_probing(job.id, UnixTime(view.now)) && job.size() > 0;
            let cause = if probing { ChangeCause::Probe } else { ChangeCause::Rescale };
            (nodes != job.nodes).then_some(Target { job: job.id, nodes, cause })
        };
        plan.jobs.iter().filter_map(target).collect()
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
            opening: None,
        };
        let key = self.profile_key(job);
        let news = self.scene.record_progress(job.id, &key, &progress, UnixTime(now));
        news.probed || news.drift.is_some()
    }

    fn job_ended(&mut self, job: &SimJob, now: i64) {
        self.scene.job_advisor_mut().forget_job(job.id);
        self.scene.priorities_mut().outlook.record_end(
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
            self.scene.record_stop(&self.profile_key(job), &stop, true, UnixTime(now));
        }
    }

    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target> {
        let foresight = self.foresight();
        let advice = self.advisor_mode();
        let now = UnixTime(view.now);
        let mut mirror = self.mirror.take().unwrap_or_else(|| SnapshotMirror::new(view.cluster.node_names()));
        let told = OwnerDeclaration {
            curve: self.knows_curves(),
            total: self.knows_curves() && self.config.planner.objective == PlanningObjective::Completion,
        };
        let jobs: Vec<JobFacts> = view.jobs.values().map(|job| job_facts(job, told, view)).collect();
        let _ = self.scene.ingest_snapshot(mirror.update_snapshot(view, foresight), &jobs, advice, now);
        self.mirror = Some(mirror);
        let plan = self.checked_plan(&jobs, view);
        let targets = plan.map(|plan| self.plan_targets(view, &plan)).unwrap_or_default();
        self.set_wake(view, !view.changed.is_empty() || !targets.is_empty());
        targets
    }
}

/// When a job that is changed has stopped, and starts on its new nodes.
fn stopped_at(job: &SimJob) -> i64 {
    let began = job.pausing.until - job.pausing.secs;
    (began + STOP_SECS.min(job.pausing.secs)).ceil() as i64
}

/// What a job runs.
fn program_identity(job: &SimJob) -> ProgramIdentity {
    let told = Some((job.submitted.program.clone(), BatchMode::Auto));
    ProgramIdentity {
        user: job.submitted.user.clone().unwrap_or_else(|| UNKNOWN_USER.to_owned()),
        job_name: job.submitted.name.clone(),
        told,
        exec_plan: ExecPlan::default(),
        block: 1,
        on_cpus: false,
    }
}

/// Its samples a second and node at its smallest size.
fn base_node_rate(job: &SimJob) -> f64 {
    job.submitted.curve.rate(job.submitted.min_nodes) / f64::from(job.submitted.min_nodes)
}

/// How far the job has come. `told`: whether it says how far it will go.
fn job_progress(job: &SimJob, told: bool) -> JobProgress {
    let total = Some(job.submitted.budget).filter(|budget| told && budget.is_finite());
    JobProgress { samples: job.done, total, ..JobProgress::default() }
}

/// What the owners of jobs declare.
#[derive(Clone, Copy)]
struct OwnerDeclaration {
    /// How they scale.
    curve: bool,
    /// How much they do.
    total: bool,
}

/// What a daemon would know of the job.
fn job_facts(job: &SimJob, told: OwnerDeclaration, view: &PolicyView<'_>) -> JobFacts {
    let standing = match job.size() {
        0 => SchedulingState::Waiting,
        // Its commands are stopping; the next round finds them started, if not ready yet.
        _ if job.is_pausing(view.now) && view.now < stopped_at(job) => SchedulingState::Busy,
        _ => SchedulingState::Running,
    };
    JobFacts {
        job: job.id,
        user: UserId(0),
        program: program_identity(job),
        sizes: AllowedSizes::Range { min: job.submitted.min_nodes, max: job.submitted.max_nodes },
        // The first rescale tells the costs.
        claims: JobDeclaration {
            profile: Some(job.submitted.program.clone()),
            curve: told.curve.then(|| (*job.submitted.curve).clone()),
            costs: Some(*view.costs),
            ..JobDeclaration::default()
        },
        standing,
        since: UnixTime(job.since),
        waits_since: (job.size() == 0).then_some(UnixTime(job.since)),
        running: job.is_running(view.now).then(|| job.member_count()),
        place: job_location(job, view),
        // What it costs is told with the job.
        changing: ResizeState {
            exec_plan: ExecPlan::default(),
            way: RescaleMode::Restart,
            pause: job.last_pause(),
            last_at: job.changed_at(),
        },
        course: job_progress(job, told.total),
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
