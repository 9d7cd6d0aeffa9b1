//! The data of a report.

use serde::Serialize;

use infill_api::{ReportView, UsesView};
use infill_model::{NodeTimeUsage, UnixTime};

/// The seconds of an hour.
pub const HOUR_SECS: f64 = 3600.0;

/// A main job counts as delayed if it waited longer than this, in seconds, beyond the time that Slurm itself
/// needs.
pub const DELAYED_SECS: f64 = 1.0;

/// Statistics of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitStatistics {
    /// The number of waits.
    pub count: usize,
    /// The median, in seconds.
    pub median_s: f64,
    /// The 99th percentile, in seconds.
    pub p99_s: f64,
    /// The longest wait, in seconds.
    pub max_s: f64,
}

impl WaitStatistics {
    /// The statistics of these waits, in seconds. All are 0 if there are none.
    pub fn from_secs(mut secs: Vec<f64>) -> WaitStatistics {
        secs.sort_by(f64::total_cmp);
        WaitStatistics {
            count: secs.len(),
            median_s: nearest_rank(&secs, 0.5),
            p99_s: nearest_rank(&secs, 0.99),
            max_s: nearest_rank(&secs, 1.0),
        }
    }
}

/// A quantile of sorted values by the nearest-rank method; 0 if there are none.
fn nearest_rank(sorted: &[f64], share: f64) -> f64 {
    let rank = ((sorted.len() as f64 * share).ceil() as usize).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// Node-time of one account, user or type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageRow {
    /// The account, user or type of nodes.
    pub name: String,
    /// Node-hours that malleable jobs held.
    pub node_hours: f64,
    /// GPU-hours that malleable jobs held.
    pub gpu_hours: f64,
    /// Node-hours of training steps. This and the next three are as the daemon saw them.
    pub useful_hours: f64,
    /// Node-hours of starts and changes.
    pub rescale_hours: f64,
    /// Node-hours of starts and changes that were necessary because the main queue took nodes.
    pub preempted_hours: f64,
    /// Node-hours of probes.
    pub probing_hours: f64,
}

impl UsageRow {
    /// `hours` as a share of the node-hours that the daemon saw, from 0 to 1.
    pub fn share_of(&self, hours: f64) -> f64 {
        let seen = self.useful_hours + self.rescale_hours + self.preempted_hours + self.probing_hours;
        hours / seen.max(f64::MIN_POSITIVE)
    }
}

/// The energy that malleable jobs used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EnergyUse {
    /// The energy, in kWh.
    pub kwh: f64,
    /// Whether a part was estimated from `report.node_watts` instead of measured by Slurm.
    pub is_estimated: bool,
}

/// The value of node-hours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportCost {
    /// The amount, in the unit of `currency`.
    pub amount: f64,
    /// The currency, from `report.currency`.
    pub currency: String,
}

/// Node-hours of the malleable partition's nodes, by use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeUses {
    /// The number of hours with data.
    pub hours_known: u32,
    /// Node-hours of main jobs.
    pub main_hours: f64,
    /// Node-hours of malleable jobs.
    pub malleable_hours: f64,
    /// Idle node-hours that infill could have used.
    pub idle_hours: f64,
    /// Idle node-hours that the main queue wanted back too soon to be useful.
    pub wanted_hours: f64,
    /// Idle node-hours that infill was not allowed to use.
    pub refused_hours: f64,
    /// Node-hours of nodes that were down, drained or switched off.
    pub down_hours: f64,
    /// The share of the time that main jobs left idle which malleable jobs used, from 0 to 1. `None` if main
    /// jobs left no time.
    pub harvested: Option<f64>,
}

impl NodeUses {
    /// The uses in node-hours. `None` if there is no hour with data.
    pub fn from_view(view: &UsesView) -> Option<NodeUses> {
        let UsesView { hours, secs } = view;
        if *hours == 0 {
            return None;
        }
        let left_secs = secs.malleable_secs + secs.idle_secs + secs.wanted_secs + secs.refused_secs;
        Some(NodeUses {
            hours_known: *hours,
            main_hours: secs.main_secs / HOUR_SECS,
            malleable_hours: secs.malleable_secs / HOUR_SECS,
            idle_hours: secs.idle_secs / HOUR_SECS,
            wanted_hours: secs.wanted_secs / HOUR_SECS,
            refused_hours: secs.refused_secs / HOUR_SECS,
            down_hours: secs.down_secs / HOUR_SECS,
            harvested: (left_secs > 0.0).then(|| secs.malleable_secs / left_secs),
        })
    }
}

/// The totals of `sreport cluster utilization`, in CPU-hours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClusterHours {
    /// CPU-hours allocated to jobs.
    pub allocated_hours: f64,
    /// Idle CPU-hours.
    pub idle_hours: f64,
    /// CPU-hours that were idle because Slurm kept them for planned jobs.
    pub planned_hours: f64,
    /// CPU-hours of nodes that were down, planned or not.
    pub down_hours: f64,
}

/// The waits of main jobs in another period, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedPeriod {
    /// The start of the period.
    pub from: UnixTime,
    /// The end of the period.
    pub to: UnixTime,
    /// How long main jobs waited that started in it.
    pub main_waits: WaitStatistics,
}

/// A line of the report's list of months.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MonthSummary {
    /// The start of the month.
    pub from: UnixTime,
    /// Node-hours of malleable jobs, as the daemon saw them.
    pub node_hours: f64,
    /// GPU-hours of malleable jobs, as the daemon saw them.
    pub gpu_hours: f64,
    /// The share of these node-hours with training steps, from 0 to 1. `None` if there were none.
    pub useful: Option<f64>,
    /// Main jobs that waited longer than a second for nodes of malleable jobs.
    pub delayed: usize,
    /// The longest such wait, in seconds.
    pub longest_s: f64,
}

impl MonthSummary {
    /// The summary of a month's report.
    pub fn from_view(view: &ReportView) -> MonthSummary {
        let seen = observed_usage(view);
        MonthSummary {
            from: view.from,
            node_hours: seen.held_secs() / HOUR_SECS,
            gpu_hours: seen.gpu_secs / HOUR_SECS,
            useful: useful_share(&seen),
            delayed: view.delays.iter().filter(|(secs, _)| *secs > DELAYED_SECS).count(),
            longest_s: view.delays.iter().map(|(secs, _)| *secs).fold(0.0, f64::max),
        }
    }

    /// The month's name, `2026-10`. Months begin at midnight in UTC.
    pub fn name(&self) -> String {
        let at = chrono::DateTime::from_timestamp(self.from.0, 0);
        at.map_or_else(|| "-".to_owned(), |at| at.format("%Y-%m").to_string())
    }
}

/// The node-time of all malleable jobs, as the daemon saw it.
pub fn observed_usage(view: &ReportView) -> NodeTimeUsage {
    view.spent.iter().fold(NodeTimeUsage::default(), |sum, row| sum.sum_with(&row.spent))
}

/// The share of node-time with training steps, probes included. `None` if no node-time was held.
pub fn useful_share(spent: &NodeTimeUsage) -> Option<f64> {
    (spent.held_secs() > 0.0).then(|| (spent.useful_secs + spent.probing_secs) / spent.held_secs())
}

/// A whole report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HarvestReport {
    /// [`SCHEMA_VERSION`](infill_api::SCHEMA_VERSION).
    pub schema: u32,
    /// The start of the period.
    pub from: UnixTime,
    /// The end of the period.
    pub to: UnixTime,
    /// The number of main jobs that started.
    pub main_jobs: usize,
    /// How long these waited after they could have started.
    pub main_waits: WaitStatistics,
    /// How long main jobs waited for malleable jobs to leave, if they started on nodes of those.
    pub delays: WaitStatistics,
    /// The number of these waits that were longer than a second.
    pub delayed: usize,
    /// The number of main jobs that missed a planned start because of such a wait.
    pub missed: usize,
    /// Node-hours of main jobs, by accounting.
    pub main_node_hours: f64,
    /// CPU-hours of all jobs, by accounting.
    pub cpu_hours: f64,
    /// Node-hours of malleable jobs, by accounting.
    pub node_hours: f64,
    /// GPU-hours of malleable jobs, by accounting.
    pub gpu_hours: f64,
    /// Whether parts of nodes were lent. Node-hours then count parts.
    pub lends_parts: bool,
    /// The number of additional nodes that would have given the same node-hours over the whole period. GPUs,
    /// where parts of nodes are lent.
    pub like_nodes: f64,
    /// Node-hours of malleable jobs as the daemon saw them. It saw less while it was down.
    pub seen_node_hours: f64,
    /// The share of these with training steps, from 0 to 1. `None` if it saw none.
    pub useful: Option<f64>,
    /// The energy of malleable jobs. `None` if it was neither measured nor estimated.
    pub energy: Option<EnergyUse>,
    /// The value of their node-hours. `None` without a price in the configuration.
    pub cost: Option<ReportCost>,
    /// The uses of the nodes. `None` if the daemon has no data of this time.
    pub nodes: Option<NodeUses>,
    /// Slurm's own totals. `None` if it was not asked or did not answer.
    pub cluster: Option<ClusterHours>,
    /// The waits of main jobs in the period of `--compare`.
    pub before: Option<ComparedPeriod>,
    /// The months up to this one, the earliest first, as the daemon saw them.
    pub months: Vec<MonthSummary>,
    /// Rows by account, user or type of nodes, the largest first.
    pub rows: Vec<UsageRow>,
}
