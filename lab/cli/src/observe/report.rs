//! What an observation says: to people, and as JSON.

use std::fmt;

use serde::Serialize;

use super::{PeriodSums, SiteObservation};
use infill_api::SCHEMA_VERSION;
use infill_model::{JobId, NodeName, UnixTime, counted_noun, duration::format_duration};

/// Hours and events in a report. The sums of days are all there.
const HOURS_IN_REPORT: usize = 48;
const EVENTS_IN_REPORT: usize = 20;

/// Fewer main jobs have no percentile of their waits besides the longest.
const ENOUGH_FOR_P99: u64 = 100;

/// Seconds of observation that allow a first judgement.
const SETTLED_SECS: f64 = 86_400.0;

/// A main job that would have found a node held by a shadow job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShadowDelay {
    /// When it came.
    pub at: UnixTime,
    /// The node for which it would have waited longest.
    pub node: NodeName,
    /// The main job.
    pub main_job: JobId,
    /// The shadow job on this node.
    pub shadow_job: String,
    /// Whether Slurm had planned its start in time.
    pub planned: bool,
    /// Seconds that it would have waited.
    pub wait_secs: f64,
}

/// What was observed, and what infill would have made of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservationReport {
    /// [`SCHEMA_VERSION`].
    pub schema: u32,
    /// How Slurm is read: `rest` or `commands`.
    pub via: String,
    /// Nodes that were observed.
    pub nodes: usize,
    /// The number of shadow jobs.
    pub shadow_jobs: u32,
    /// The largest number of nodes of one of them.
    pub max_nodes: u32,
    /// Seconds for which Slurm gave no answer, and nothing was counted.
    pub blind_secs: f64,
    /// The sums since the start.
    #[serde(flatten)]
    pub total: PeriodSums,
    /// The sums of each day, by UTC.
    pub days: Vec<PeriodSums>,
    /// The sums of the last hours.
    pub hours: Vec<PeriodSums>,
    /// The last main jobs that would have found a node held.
    pub recent: Vec<ShadowDelay>,
}

impl SiteObservation {
    /// What is known so far. `via` says how Slurm is read.
    pub fn report(&self, via: &str) -> ObservationReport {
        let skipped = self.recent.len().saturating_sub(EVENTS_IN_REPORT);
        ObservationReport {
            schema: SCHEMA_VERSION,
            via: via.to_owned(),
            nodes: self.node_count(),
            shadow_jobs: self.jobs.count.get(),
            max_nodes: self.jobs.sizes.1,
            blind_secs: self.blind_secs,
            total: self.total.clone(),
            days: self.days.last_periods(usize::MAX),
            hours: self.hours.last_periods(HOURS_IN_REPORT),
            recent: self.recent.iter().skip(skipped).cloned().collect(),
        }
    }

    /// A line for each hour and each day that ended after this moment, by the last look.
    pub fn period_lines(&self, after: UnixTime) -> Vec<String> {
        let now = UnixTime(self.span.map_or(0, |(_, last)| last));
        let hours = self.hours.completed(after, now).into_iter().map(|p| (p, "hour"));
        let days = self.days.completed(after, now).into_iter().map(|p| (p, "day"));
        hours.chain(days).map(|(period, name)| period_line(name, &period)).collect()
    }

    /// The last look, by Slurm's clock.
    pub fn last_look(&self) -> Option<UnixTime> {
        self.span.map(|(_, last)| UnixTime(last))
    }
}

/// An hour or a day in one line.
fn period_line(name: &str, period: &PeriodSums) -> String {
    let stamp = period.from.to_string();
    let from = if name == "day" { stamp.get(..10) } else { stamp.get(..16) };
    let from = from.unwrap_or(&stamp).replace('T', " ");
    let worst = period.worst.as_ref().map_or_else(String::new, |worst| format!(" ({worst})"));
    format!(
        "{name:<9} {from} UTC: {} of {} idle node-hours ({:.0} %); {} main jobs took idle nodes, {} preempting, \
         {} late; wait p99 {:.0} s, at most {:.0} s{worst}",
        format_hours(period.held_node_hours),
        format_hours(period.idle_node_hours),
        100.0 * period.harvested_share(),
        period.main_jobs,
        period.preempting_main_jobs,
        period.late_main_jobs,
        period.p99_wait_secs,
        period.longest_wait_secs,
    )
}

/// Node-hours. Two digits would often show the same number for what is idle and what is harvested below 1.
fn format_hours(hours: f64) -> String {
    let digits = if hours < 1.0 { 3 } else { 2 };
    format!("{hours:.digits$}")
}

/// Without its subject: `node n3, main job 17, planned, 5 s`.
impl fmt::Display for ShadowDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let planned = if self.planned { "planned" } else { "not planned" };
        write!(
            f,
            "node {}, main job {}, {planned}, {} would have left in {:.0} s",
            self.node, self.main_job, self.shadow_job, self.wait_secs
        )
    }
}

impl ObservationReport {
    /// The events after this moment as lines for people, the oldest first.
    pub fn event_lines(&self, after: UnixTime) -> Vec<String> {
        let events = self.recent.iter().filter(|delay| delay.at > after);
        events.map(|delay| format!("held      {}: {delay}", delay.at)).collect()
    }

    /// Nodes that were idle on average.
    pub fn mean_idle(&self) -> f64 {
        let hours = self.total.observed_secs / 3600.0;
        if hours > 0.0 { self.total.idle_node_hours / hours } else { 0.0 }
    }

    /// What the figures do not show yet; `None` after a day.
    pub fn reservation(&self) -> Option<String> {
        let secs = self.total.observed_secs;
        (secs < SETTLED_SECS)
            .then(|| format!("{} is little: watch for a day before you judge", format_duration(secs)))
    }
}

/// As people read it, in a few lines.
impl fmt::Display for ObservationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = &self.total;
        let mean_idle = self.mean_idle();
        let how = if self.via == "rest" { "slurmrestd" } else { "Slurm's commands" };
        writeln!(
            f,
            "observed  {}, {}, {mean_idle:.1} of them idle on average ({:.1} %), by {how}",
            format_duration(total.observed_secs),
            counted_noun(self.nodes as u64, "node"),
            100.0 * mean_idle / self.nodes.max(1) as f64
        )?;
        writeln!(
            f,
            "harvest   {} of {} idle node-hours ({:.0} %), by {} of 1 to {}, in {}",
            format_hours(total.held_node_hours),
            format_hours(total.idle_node_hours),
            100.0 * total.harvested_share(),
            counted_noun(u64::from(self.shadow_jobs), "shadow job"),
            counted_noun(u64::from(self.max_nodes), "node"),
            counted_noun(total.rescales, "rescale")
        )?;
        writeln!(
            f,
            "main jobs {} took idle nodes; {} would have preempted a shadow job, {} would have been late though planned",
            total.main_jobs, total.preempting_main_jobs, total.late_main_jobs
        )?;
        write!(f, "wait      at most {:.0} s for a shadow job to leave", total.longest_wait_secs)?;
        if total.main_jobs >= ENOUGH_FOR_P99 {
            write!(f, "; 99 of 100 main jobs at most {:.0} s", total.p99_wait_secs)?;
        }
        if let Some(worst) = &total.worst {
            write!(f, "\nworst     {}: {worst}", worst.at)?;
        }
        if self.blind_secs > 0.0 {
            write!(f, "\nblind     {} without an answer from Slurm", format_duration(self.blind_secs))?;
        }
        if let Some(reservation) = self.reservation() {
            write!(f, "\nnote      {reservation}")?;
        }
        Ok(())
    }
}
