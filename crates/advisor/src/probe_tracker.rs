//! The probes under way, and the bounds on them: who may try a size now, and for how long.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::job_input::JobInput;
use infill_model::{ExecPlan, JobId, Profile, ProfileKey, RescaleCosts, UnixTime, config::AdvisorConfig};

/// Seconds that a probe may last from its first step, unless it is narrow before.
pub(super) const LONGEST_PROBE_SECS: f64 = 30.0;

/// Seconds that one usually lasts: what it costs is reckoned with these.
pub(super) const USUAL_PROBE_SECS: f64 = 15.0;

/// Seconds that the planner has to bring the job to the size that shall be tried.
const ARRIVAL_SECS: f64 = 60.0;

/// Seconds for which a size is left alone that the planner would not bring the job to.
const DECLINED_SECS: f64 = 600.0;

/// The hour of the whole budget.
const BUDGET_SECS: f64 = 3600.0;

/// What a job shall be brought to, to measure it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeAim {
    /// The signature with the execution plan and the type of nodes.
    pub key: ProfileKey,
    /// The size.
    pub nodes: u32,
}

/// For people: only what is not a matter of course.
impl fmt::Display for ProbeAim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes", self.nodes)?;
        let plan = &self.key.exec_plan;
        if *plan == ExecPlan::default() {
            Ok(())
        } else {
            write!(f, " of {} with plan {}", self.key.node_type, plan.0)
        }
    }
}

/// A size held to measure it.
#[derive(Clone, Debug, PartialEq)]
struct ActiveProbe {
    aim: ProbeAim,
    chosen_at: UnixTime,
    /// Seconds that the job may take to come to that size.
    arrival_secs: f64,
    /// First report at that size.
    since: Option<UnixTime>,
}

impl ActiveProbe {
    fn is_late(&self, now: UnixTime) -> bool {
        match self.since {
            Some(since) => now.age_of(since) > LONGEST_PROBE_SECS,
            None => now.age_of(self.chosen_at) > self.arrival_secs,
        }
    }
}

/// A probe that is over: it counts to this profile.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EndedProbe {
    /// The profile.
    pub(super) key: ProfileKey,
    /// Seconds that it lasted.
    pub(super) secs: f64,
}

/// All probes.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeTracker {
    probes: BTreeMap<JobId, ActiveProbe>,
    /// When a job's last probe ended.
    ended_at: BTreeMap<JobId, UnixTime>,
    declined: BTreeMap<(ProfileKey, u32), UnixTime>,
    /// Seconds of the probes of the last hour, with their ends.
    spent: VecDeque<(UnixTime, f64)>,
}

impl ProbeTracker {
    /// What a job shall be brought to.
    pub(super) fn aim_of(&self, job: JobId) -> Option<&ProbeAim> {
        self.probes.get(&job).map(|p| &p.aim)
    }

    /// Whether the job tries a size, or did so until a moment ago.
    pub(super) fn is_probing(&self, job: JobId, now: UnixTime) -> bool {
        self.probes.contains_key(&job)
            || self.ended_at.get(&job).is_some_and(|at: &UnixTime| now.age_of(*at) < ARRIVAL_SECS)
    }

    /// How far a job's probe has come, for people.
    pub(super) fn describe_probe(&self, job: JobId, now: UnixTime) -> Option<String> {
        let probe = self.probes.get(&job)?;
        Some(match probe.since {
            Some(since) => format!("measures {} for {} s", probe.aim, now.secs_since(since)),
            None => format!("is on its way to {}, to measure them", probe.aim),
        })
    }

    /// Why no probe of a profile may begin, if so.
    pub(super) fn why_forbidden(&self, profile: &Profile, settings: &AdvisorConfig) -> Option<&'static str> {
        if profile.probes >= settings.max_probes {
            Some("as many sizes were tried as may be")
        } else if profile.probe_secs + USUAL_PROBE_SECS > settings.max_probe_secs {
            Some("as long was tried as may be")
        } else if self.probes.values().any(|p| p.aim.key == profile.key) {
            Some("another job of the same kind tries a size")
        } else if self.probes.len() >= settings.max_at_once as usize {
            Some("enough other jobs try sizes")
        } else if self.spent.iter().map(|(_, secs)| secs).sum::<f64>() >= settings.max_secs_an_hour {
            Some("in this hour enough was tried")
        } else {
            None
        }
    }

    /// Whether the planner would not bring a job of this profile to that size lately.
    pub(super) fn is_declined(&self, key: &ProfileKey, nodes: u32) -> bool {
        self.declined.contains_key(&(key.clone(), nodes))
    }

    /// Begins one.
    pub(super) fn begin_probe(&mut self, subject: &JobInput, aim: ProbeAim, now: UnixTime) {
        let RescaleCosts { up_secs, down_secs, start_secs } = subject.costs;
        let moves = if aim.key.node_type == subject.key.node_type { 0.0 } else { start_secs };
        let replans = aim.key.exec_plan != subject.key.exec_plan;
        let swap_secs = subject.swap_secs.filter(|_| replans).unwrap_or(0.0);
        let arrival_secs = ARRIVAL_SECS + 2.0 * up_secs.max(down_secs).max(moves).max(swap_secs);
        self.probes.insert(subject.job, ActiveProbe { aim, chosen_at: now, arrival_secs, since: None });
    }

    /// Notes that the job reports with this signature and at this size.
    pub(super) fn record_arrival(&mut self, job: JobId, key: &ProfileKey, nodes: u32, now: UnixTime) {
        if let Some(probe) = self
            .probes
            .get_mut(&job)
            .filter(|p: &&mut ActiveProbe| p.aim.nodes == nodes && p.aim.key == *key && p.since.is_none())
        {
            probe.since = Some(now);
        }
    }

    /// Ends the probes of what does not fit into memory.
    pub(super) fn end_unfit(&mut self, key: &ProfileKey, nodes: u32, now: UnixTime) -> Vec<EndedProbe> {
        let of = self.probes.iter().filter(|(_, p)| p.aim.nodes == nodes && p.aim.key == *key);
        let jobs: Vec<JobId> = of.map(|(job, _)| *job).collect();
        jobs.into_iter().filter_map(|job| self.end_probe(job, now)).collect()
    }

    /// Ends the job's probe if it is at this size, which has been measured.
    pub(super) fn end_at(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        nodes: u32,
        now: UnixTime,
    ) -> Option<EndedProbe> {
        let there = self
            .probes
            .get(&job)
            .is_some_and(|p: &ActiveProbe| p.aim.nodes == nodes && p.aim.key == *key && p.since.is_some());
        if there { self.end_probe(job, now) } else { None }
    }

    /// Ends the job's probe if it has lasted too long at its size.
    pub(super) fn end_overdue(&mut self, job: JobId, now: UnixTime) -> Option<EndedProbe> {
        let over = self.probes.get(&job).is_some_and(|p| p.since.is_some() && p.is_late(now));
        if over { self.decline_size(job, now) } else { None }
    }

    /// Ends probes that the planner does not come to, or that were interrupted.
    pub(super) fn give_up_late(&mut self, now: UnixTime) -> Vec<EndedProbe> {
        self.declined.retain(|_, at| now.age_of(*at) < DECLINED_SECS);
        self.spent.retain(|(at, _)| now.age_of(*at) < BUDGET_SECS);
        let late = self.probes.iter().filter(|(_, p)| p.is_late(now)).map(|(job, _)| *job);
        late.collect::<Vec<_>>().into_iter().filter_map(|job| self.decline_size(job, now)).collect()
    }

    /// Forgets the probes of all jobs but these.
    pub(super) fn retain(&mut self, of: impl Fn(JobId) -> bool) {
        self.probes.retain(|job, _| of(*job));
    }

    /// Forgets a job that has ended.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.probes.remove(&job);
        self.ended_at.remove(&job);
    }

    /// Ends a probe of which nothing came, and leaves its size alone for a while.
    fn decline_size(&mut self, job: JobId, now: UnixTime) -> Option<EndedProbe> {
        if let Some(probe) = self.probes.get(&job) {
            self.declined.insert((probe.aim.key.clone(), probe.aim.nodes), now);
        }
        self.end_probe(job, now)
    }

    fn end_probe(&mut self, job: JobId, now: UnixTime) -> Option<EndedProbe> {
        let probe = self.probes.remove(&job)?;
        self.ended_at.insert(job, now);
        let secs = probe.since.map_or(0.0, |since| now.secs_since(since).clamp(0.0, LONGEST_PROBE_SECS));
        self.spent.push_back((now, secs));
        Some(EndedProbe { key: probe.aim.key, secs })
    }
}
