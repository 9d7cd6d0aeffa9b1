//! What a report consists of.

use serde::Serialize;

use infill_api::{ReportView, UsesView};
use infill_model::{NodeTimeUsage, UnixTime};

/// Seconds of an hour.
pub const HOUR_SECS: f64 = 3600.0;

/// Main jobs that waited longer than this beyond what Slurm itself needs are delayed, seconds.
pub const DELAYED_SECS: f64 = 1.0;

/// Some seconds, sorted, in three numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitStatistics {
    /// How many.
    pub count: usize,
    /// The median, seconds.
    pub median_s: f64,
    /// 99 of a hundred are no longer, seconds.
    pub p99_s: f64,
    /// The longest, seconds.
    pub max_s: f64,
}

impl WaitStatistics {
    /// Of these seconds.
    pub fn from_secs(mut secs: Vec<f64>) -> WaitStatistics {
        secs.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            secs.get(((secs.len() as f64 * share).ceil() as usize).max(1) - 1).copied().unwrap_or(0.0)
        };
        WaitStatistics { count: secs.len(), median_s: rank(0.5), p99_s: rank(0.99), max_s: rank(1.0) }
    }
}

/// Node-time of one account, user or type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageRow {
    /// Whose, or of what.
    pub name: String,
    /// Node-hours that malleable jobs held.
    pub node_hours: f64,
    /// GPU-hours of these.
    pub gpu_hours: f64,
    /// Of those that the daemon saw, the node-hours in which steps were made.
    pub useful_hours: f64,
    /// Those that went into starts and changes.
    pub rescale_hours: f64,
    /// Those that went into the same because the main queue took nodes.
    pub preempted_hours: f64,
    /// Those in which sizes were tried.
    pub probing_hours: f64,
}

impl UsageRow {
    /// A part of the node-hours that the daemon saw, 0 to 1.
    pub fn share_of(&self, hours: f64) -> f64 {
        let seen = self.useful_hours + self.rescale_hours + self.preempted_hours + self.probing_hours;
        hours / seen.max(f64::MIN_POSITIVE)
    }
}

/// Energy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EnergyUse {
    /// kWh.
    pub kwh: f64,
    /// Whether that follows from `report.node_watts`, and was not measured by Slurm.
    pub is_estimated: bool,
}

/// What something cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportCost {
    /// How much.
    pub amount: f64,
    /// In what.
    pub currency: String,
}

/// Node-hours of the malleable partition's nodes, by what they were used for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeUses {
    /// Hours of which something is known.
    pub hours_known: u32,
    /// Main jobs.
    pub main_hours: f64,
    /// Malleable jobs.
    pub malleable_hours: f64,
    /// Idle, and infill could have used it.
    pub idle_hours: f64,
    /// Idle, and wanted by the main queue too soon to be worth anything.
    pub wanted_hours: f64,
    /// Idle, and something forbade that infill used it.
    pub refused_hours: f64,
    /// Down, drained, or switched off.
    pub down_hours: f64,
    /// Share of what main jobs left idle that malleable ones used, 0 to 1.
    pub harvested: Option<f64>,
}

impl NodeUses {
    /// `None` of no hour.
    pub fn from_view(view: &UsesView) -> Option<NodeUses> {
        let UsesView { hours, secs } = view;
        let left = secs.malleable_secs + secs.idle_secs + secs.wanted_secs + secs.refused_secs;
        (*hours > 0).then(|| NodeUses {
            hours_known: *hours,
            main_hours: secs.main_secs / HOUR_SECS,
            malleable_hours: secs.malleable_secs / HOUR_SECS,
            idle_hours: secs.idle_secs / HOUR_SECS,
            wanted_hours: secs.wanted_secs / HOUR_SECS,
            refused_hours: secs.refused_secs / HOUR_SECS,
            down_hours: secs.down_secs / HOUR_SECS,
            harvested: (left > 0.0).then(|| secs.malleable_secs / left),
        })
    }
}

/// What `sreport cluster utilization` says, in CPU-hours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClusterHours {
    /// Of all jobs.
    pub allocated_hours: f64,
    /// Idle.
    pub idle_hours: f64,
    /// Idle for jobs that were to start.
    pub planned_hours: f64,
    /// Down.
    pub down_hours: f64,
}

/// Main jobs of another time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedPeriod {
    /// Its begin.
    pub from: UnixTime,
    /// Its end.
    pub to: UnixTime,
    /// How long they waited.
    pub main_waits: WaitStatistics,
}

/// A month in a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MonthSummary {
    /// Its begin.
    pub from: UnixTime,
    /// Node-hours of malleable jobs, as the daemon saw them.
    pub node_hours: f64,
    /// GPU-hours of these.
    pub gpu_hours: f64,
    /// Share in which steps were made.
    pub useful: Option<f64>,
    /// Main jobs that waited for longer than a second for nodes of malleable ones.
    pub delayed: usize,
    /// The longest that one did, seconds.
    pub longest_s: f64,
}

impl MonthSummary {
    /// Of what the daemon knows of it.
    pub fn from_view(view: &ReportView) -> MonthSummary {
        let seen = observed_usage(view);
        let secs = || view.delays.iter().map(|(secs, _)| *secs);
        MonthSummary {
            from: view.from,
            node_hours: seen.held_secs() / HOUR_SECS,
            gpu_hours: seen.gpu_secs / HOUR_SECS,
            useful: useful_share(&seen),
            delayed: secs().filter(|secs| *secs > DELAYED_SECS).count(),
            longest_s: secs().fold(0.0, f64::max),
        }
    }

    /// `2026-10`: months begin at midnight in UTC.
    pub fn name(&self) -> String {
        let at = chrono::DateTime::from_timestamp(self.from.0, 0);
        at.map_or_else(|| "-".to_owned(), |at| at.format("%Y-%m").to_string())
    }
}

/// All that the daemon saw of malleable jobs.
pub fn observed_usage(view: &ReportView) -> NodeTimeUsage {
    view.spent.iter().fold(NodeTimeUsage::default(), |sum, row| sum.sum_with(&row.spent))
}

/// The share of it in which steps were made; `None` of nothing.
pub fn useful_share(spent: &NodeTimeUsage) -> Option<f64> {
    (spent.held_secs() > 0.0).then(|| (spent.useful_secs + spent.probing_secs) / spent.held_secs())
}

/// The whole of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HarvestReport {
    /// [`SCHEMA`](infill_api::SCHEMA).
    pub schema: u32,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Main jobs that started.
    pub main_jobs: usize,
    /// How long they waited from when they could have started.
    pub main_waits: WaitStatistics,
    /// Those that started on nodes that malleable jobs were on, and how long they waited for these.
    pub delays: WaitStatistics,
    /// Of these, those that waited for longer than a second.
    pub delayed: usize,
    /// Those that missed a planned start by that.
    pub missed: usize,
    /// Node-hours of main jobs, by accounting.
    pub main_node_hours: f64,
    /// CPU-hours of all jobs, by accounting.
    pub cpu_hours: f64,
    /// Node-hours of malleable jobs, by accounting.
    pub node_hours: f64,
    /// GPU-hours of these, by accounting.
    pub gpu_hours: f64,
    /// Whether parts of nodes were lent: node-hours are those of parts then.
    pub lends_parts: bool,
    /// So many more nodes all the time would have given as much; GPUs, where parts of nodes are lent.
    pub like_nodes: f64,
    /// Node-hours of malleable jobs as the daemon saw them: less where it was away.
    pub seen_node_hours: f64,
    /// Of these the share in which steps were made, 0 to 1; `None` where it saw none.
    pub useful: Option<f64>,
    /// Energy of malleable jobs.
    pub energy: Option<EnergyUse>,
    /// What their node-hours cost, where the configuration has a price.
    pub cost: Option<ReportCost>,
    /// What nodes were used for, as far as the daemon still knows.
    pub nodes: Option<NodeUses>,
    /// What Slurm's own sums say, where it was asked.
    pub cluster: Option<ClusterHours>,
    /// Main jobs' waits of the time that this one is compared with.
    pub before: Option<ComparedPeriod>,
    /// The months until this one, the earliest first, as the daemon saw them.
    pub months: Vec<MonthSummary>,
    /// By account, user or type of nodes, the largest first.
    pub rows: Vec<UsageRow>,
}
