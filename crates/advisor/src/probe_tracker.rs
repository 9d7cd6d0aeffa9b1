//! The active probes, and the bounds on them: which jobs may try a size now, and for how long.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::job_input::JobInput;
use infill_model::{
    ExecPlan, JobId, NodeCount, Profile, ProfileKey, RescaleCosts, UnixTime, config::AdvisorConfig,
};

/// Most seconds of a probe from its first step, if it is not exact enough before.
pub(super) const LONGEST_PROBE_SECS: f64 = 30.0;

/// Usual seconds of a probe, with which its cost is estimated.
pub(super) const USUAL_PROBE_SECS: f64 = 15.0;

/// Seconds that the planner has to bring the job to the probe's size.
const ARRIVAL_SECS: f64 = 60.0;

/// Seconds for which a size is not tried again after the planner did not bring the job to it.
const DECLINED_SECS: f64 = 600.0;

/// The time over which the budget of all probes counts: an hour.
const BUDGET_SECS: f64 = 3600.0;

/// The configuration to which a job shall be brought to measure it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeAim {
    /// The profile key with the execution plan and the type of nodes.
    pub key: ProfileKey,
    /// The size, nodes of that type.
    pub nodes: u32,
}

/// For people. Names plan and type only where the plan is not the default one.
impl fmt::Display for ProbeAim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", NodeCount(self.nodes))?;
        let plan = &self.key.exec_plan;
        if *plan == ExecPlan::default() {
            Ok(())
        } else {
            write!(f, " of {} with plan {}", self.key.node_type, plan.0)
        }
    }
}

/// A size that a job is brought to, or held at, to measure it.
#[derive(Clone, Debug, PartialEq)]
struct ActiveProbe {
    aim: ProbeAim,
    chosen_at: UnixTime,
    /// Seconds that the job may take to come to that size.
    arrival_secs: f64,
    /// When the job first reported at that size.
    arrived_at: Option<UnixTime>,
}

impl ActiveProbe {
    fn is_late(&self, now: UnixTime) -> bool {
        match self.arrived_at {
            Some(arrived_at) => now.age_of(arrived_at) > LONGEST_PROBE_SECS,
            None => now.age_of(self.chosen_at) > self.arrival_secs,
        }
    }
}

/// A probe that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EndedProbe {
    /// The profile that it counts to.
    pub(super) key: ProfileKey,
    /// Seconds that it lasted.
    pub(super) secs: f64,
}

/// The active probes of all jobs, and the last ones.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeTracker {
    probes: BTreeMap<JobId, ActiveProbe>,
    /// When a job's last probe ended.
    ended_at: BTreeMap<JobId, UnixTime>,
    /// Sizes that the planner did not bring a job to, and when each probe was given up.
    declined: BTreeMap<(ProfileKey, u32), UnixTime>,
    /// The ends and seconds of the probes of the last hour.
    spent: VecDeque<(UnixTime, f64)>,
}

impl ProbeTracker {
    /// The configuration to which a job shall be brought.
    pub(super) fn aim_of(&self, job: JobId) -> Option<&ProbeAim> {
        self.probes.get(&job).map(|p| &p.aim)
    }

    /// Whether the job tries a size, or did so until a moment ago.
    pub(super) fn is_probing(&self, job: JobId, now: UnixTime) -> bool {
        self.probes.contains_key(&job)
            || self.ended_at.get(&job).is_some_and(|at| now.age_of(*at) < ARRIVAL_SECS)
    }

    /// The progress of a job's probe, for people.
    pub(super) fn describe_probe(&self, job: JobId, now: UnixTime) -> Option<String> {
        let probe = self.probes.get(&job)?;
        Some(match probe.arrived_at {
            Some(arrived_at) => format!("measures {} for {} s", probe.aim, now.secs_since(arrived_at)),
            None => format!("is on its way to {}, to measure them", probe.aim),
        })
    }

    /// Why no probe of a profile may begin; `None` when one may.
    pub(super) fn why_forbidden(&self, profile: &Profile, settings: &AdvisorConfig) -> Option<&'static str> {
        if profile.probes >= settings.max_probes {
            Some("all probes that a profile may have were made")
        } else if profile.probe_secs + USUAL_PROBE_SECS > settings.max_probe_secs {
            Some("probes have used all the time that a profile may spend on them")
        } else if self.probes.values().any(|p| p.aim.key == profile.key) {
            Some("another job of the same kind tries a size")
        } else if self.probes.len() >= settings.max_at_once as usize {
            Some("enough other jobs try sizes")
        } else if self.spent.iter().map(|(_, secs)| secs).sum::<f64>() >= settings.max_secs_an_hour {
            Some("the probes of this hour have used their time")
        } else {
            None
        }
    }

    /// Whether the planner recently failed to bring a job of this profile to that size.
    pub(super) fn is_declined(&self, key: &ProfileKey, nodes: u32) -> bool {
        self.declined.contains_key(&(key.clone(), nodes))
    }

    /// Begins a probe of a job.
    pub(super) fn begin_probe(&mut self, input: &JobInput, aim: ProbeAim, now: UnixTime) {
        let RescaleCosts { up_secs, down_secs, start_secs } = input.costs;
        let moves = if aim.key.node_type == input.key.node_type { 0.0 } else { start_secs };
        let replans = aim.key.exec_plan != input.key.exec_plan;
        let swap_secs = input.swap_secs.filter(|_| replans).unwrap_or(0.0);
        let arrival_secs = ARRIVAL_SECS + 2.0 * up_secs.max(down_secs).max(moves).max(swap_secs);
        let probe = ActiveProbe { aim, chosen_at: now, arrival_secs, arrived_at: None };
        self.probes.insert(input.job, probe);
    }

    /// Notes that the job reports with this profile key and at this size.
    pub(super) fn record_arrival(&mut self, job: JobId, key: &ProfileKey, nodes: u32, now: UnixTime) {
        let Some(probe) = self.probes.get_mut(&job) else { return };
        if probe.aim.nodes == nodes && probe.aim.key == *key && probe.arrived_at.is_none() {
            probe.arrived_at = Some(now);
        }
    }

    /// Ends the probes of a size that does not fit into memory.
    pub(super) fn end_unfit(&mut self, key: &ProfileKey, nodes: u32, now: UnixTime) -> Vec<EndedProbe> {
        let unfit = self.probes.iter().filter(|(_, p)| p.aim.nodes == nodes && p.aim.key == *key);
        let jobs: Vec<JobId> = unfit.map(|(job, _)| *job).collect();
        jobs.into_iter().filter_map(|job| self.end_probe(job, now)).collect()
    }

    /// Ends the job's probe if it is at this size, which is measured now.
    pub(super) fn end_at(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        nodes: u32,
        now: UnixTime,
    ) -> Option<EndedProbe> {
        let probe = self.probes.get(&job)?;
        let is_there = probe.aim.nodes == nodes && probe.aim.key == *key && probe.arrived_at.is_some();
        if is_there { self.end_probe(job, now) } else { None }
    }

    /// Ends the job's probe if it has lasted too long at its size.
    pub(super) fn end_overdue(&mut self, job: JobId, now: UnixTime) -> Option<EndedProbe> {
        let over = self.probes.get(&job).is_some_and(|p| p.arrived_at.is_some() && p.is_late(now));
        if over { self.decline_size(job, now) } else { None }
    }

    /// Ends probes whose size the planner did not bring the job to, or that were interrupted.
    pub(super) fn give_up_late(&mut self, now: UnixTime) -> Vec<EndedProbe> {
        self.declined.retain(|_, at| now.age_of(*at) < DECLINED_SECS);
        self.spent.retain(|(at, _)| now.age_of(*at) < BUDGET_SECS);
        let late = self.probes.iter().filter(|(_, p)| p.is_late(now));
        let jobs: Vec<JobId> = late.map(|(job, _)| *job).collect();
        jobs.into_iter().filter_map(|job| self.decline_size(job, now)).collect()
    }

    /// Forgets the probes of jobs that `is_kept` does not select.
    pub(super) fn retain(&mut self, is_kept: impl Fn(JobId) -> bool) {
        self.probes.retain(|job, _| is_kept(*job));
    }

    /// Forgets a job that has ended.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.probes.remove(&job);
        self.ended_at.remove(&job);
    }

    /// Ends a probe without a result, and declines its size for a while.
    fn decline_size(&mut self, job: JobId, now: UnixTime) -> Option<EndedProbe> {
        if let Some(probe) = self.probes.get(&job) {
            self.declined.insert((probe.aim.key.clone(), probe.aim.nodes), now);
        }
        self.end_probe(job, now)
    }

    fn end_probe(&mut self, job: JobId, now: UnixTime) -> Option<EndedProbe> {
        let probe = self.probes.remove(&job)?;
        self.ended_at.insert(job, now);
        let since_arrival = probe.arrived_at.map_or(0.0, |arrived_at| now.secs_since(arrived_at));
        let secs = since_arrival.clamp(0.0, LONGEST_PROBE_SECS);
        self.spent.push_back((now, secs));
        Some(EndedProbe { key: probe.aim.key, secs })
    }
}
