//! Adds up the numbers of a report from accounting and from the daemon.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::parts::{
    ComparedPeriod, DELAYED_SECS, EnergyUse, HOUR_SECS, HarvestReport, NodeUses, ReportCost, UsageRow,
    WaitStatistics, observed_usage, useful_share,
};
use infill_api::{ReportView, SCHEMA_VERSION};
use infill_model::{JobId, JobRun, NodeTimeRow, ReportConfig, UnixTime};

/// The groups into which node-time is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GroupBy {
    /// Slurm's accounts
    #[default]
    Account,
    /// Users
    User,
    /// Types of nodes
    Type,
}

/// Totals of the runs in accounting.
#[derive(Debug)]
pub struct AccountingTotals {
    from: UnixTime,
    to: UnixTime,
    now: UnixTime,
    ours: String,
    /// The first start of each main job, and how long it had waited then, in seconds.
    starts: FxHashMap<JobId, (UnixTime, f64)>,
    main_secs: f64,
    /// CPU-seconds of all jobs.
    cpu_secs: f64,
    /// Node-time of malleable jobs by account and user.
    held: BTreeMap<(String, String), HeldTime>,
    joules: f64,
    /// Node-seconds of malleable jobs whose energy was not measured.
    unmeasured_secs: f64,
}

/// The time for which malleable jobs held nodes.
#[derive(Clone, Copy, Debug, Default)]
struct HeldTime {
    node_secs: f64,
    gpu_secs: f64,
}

impl AccountingTotals {
    /// Empty totals for a period. `ours` is the malleable partition.
    pub fn new(from: UnixTime, to: UnixTime, now: UnixTime, ours: &str) -> AccountingTotals {
        let ours = ours.to_owned();
        AccountingTotals {
            from,
            to,
            now,
            ours,
            starts: FxHashMap::default(),
            main_secs: 0.0,
            cpu_secs: 0.0,
            held: BTreeMap::new(),
            joules: 0.0,
            unmeasured_secs: 0.0,
        }
    }

    /// Adds a run. For a requeued main job, the wait for its first start counts.
    pub fn add_run(&mut self, run: &JobRun) {
        let secs = run.secs_within(self.from, self.to, self.now);
        let node_secs = f64::from(run.nodes) * secs;
        self.cpu_secs += run.cpus as f64 * secs;
        if run.partition != self.ours {
            self.main_secs += node_secs;
            let start = (run.start, run.start.secs_since(run.waited_from));
            let first = self.starts.entry(run.job).or_insert(start);
            if run.start < first.0 {
                *first = start;
            }
            return;
        }
        let held = self.held.entry((run.account.clone(), run.user.clone())).or_default();
        held.node_secs += node_secs;
        held.gpu_secs += f64::from(run.gpus) * secs;
        match run.joules {
            Some(joules) => {
                let run_secs = run.end.unwrap_or(self.now).secs_since(run.start).max(1.0);
                self.joules += joules * secs / run_secs;
            }
            None => self.unmeasured_secs += node_secs,
        }
    }

    fn wait_statistics(&self) -> WaitStatistics {
        let started = self.starts.values().filter(|(start, _)| (self.from..self.to).contains(start));
        WaitStatistics::from_secs(started.map(|(_, waited)| *waited).collect())
    }

    /// How long main jobs waited that started in the period.
    pub fn main_job_waits(&self) -> ComparedPeriod {
        ComparedPeriod { from: self.from, to: self.to, main_waits: self.wait_statistics() }
    }

    fn energy_use(&self, prices: &ReportConfig, lends_parts: bool) -> Option<EnergyUse> {
        // The power of a part of a node is not known.
        let watts = if lends_parts { 0.0 } else { prices.node_watts };
        let estimated_kwh = self.unmeasured_secs / HOUR_SECS * watts / 1000.0;
        let kwh = self.joules / 3.6e6 + estimated_kwh;
        (kwh > 0.0).then_some(EnergyUse { kwh, is_estimated: estimated_kwh > 0.0 })
    }

    /// The report from these totals and the daemon's data.
    pub fn build_report(&self, view: &ReportView, by: GroupBy) -> HarvestReport {
        let prices = &view.prices;
        let seen = observed_usage(view);
        let energy = self.energy_use(prices, view.lends_parts);
        let node_secs = self.held.values().fold(0.0, |sum, held| sum + held.node_secs);
        let gpu_secs = self.held.values().fold(0.0, |sum, held| sum + held.gpu_secs);
        let waits = self.wait_statistics();
        let amount = node_secs / HOUR_SECS * prices.node_hour_cost;
        let cost = ReportCost { amount, currency: prices.currency.clone() };
        let delays: Vec<f64> = view.delays.iter().map(|(secs, _)| *secs).collect();
        let late = view.delays.iter().filter(|(secs, _)| *secs > DELAYED_SECS);
        let hours = self.to.min(self.now).secs_since(self.from).max(1.0) / HOUR_SECS;
        let lent_secs = if view.lends_parts { gpu_secs } else { node_secs };
        HarvestReport {
            schema: SCHEMA_VERSION,
            from: self.from,
            to: self.to,
            main_jobs: waits.count,
            main_waits: waits,
            delayed: late.clone().count(),
            missed: late.filter(|(_, was_planned)| *was_planned).count(),
            delays: WaitStatistics::from_secs(delays),
            main_node_hours: self.main_secs / HOUR_SECS,
            cpu_hours: self.cpu_secs / HOUR_SECS,
            node_hours: node_secs / HOUR_SECS,
            gpu_hours: gpu_secs / HOUR_SECS,
            lends_parts: view.lends_parts,
            like_nodes: lent_secs / HOUR_SECS / hours,
            seen_node_hours: seen.held_secs() / HOUR_SECS,
            useful: useful_share(&seen),
            energy,
            cost: (prices.node_hour_cost > 0.0 && !view.lends_parts).then_some(cost),
            nodes: NodeUses::from_view(&view.uses),
            cluster: None,
            before: None,
            months: Vec::new(),
            rows: usage_rows(&self.held, view, by),
        }
    }
}

/// The rows of node-time. Totals by account and user come from accounting, those by type and all uses from
/// the daemon.
fn usage_rows(held: &BTreeMap<(String, String), HeldTime>, view: &ReportView, by: GroupBy) -> Vec<UsageRow> {
    let mut rows: BTreeMap<&str, UsageRow> = BTreeMap::new();
    for ((account, user), time) in held {
        let name = match by {
            GroupBy::Account => account,
            GroupBy::User => user,
            GroupBy::Type => continue,
        };
        let row = rows.entry(name).or_default();
        row.node_hours += time.node_secs / HOUR_SECS;
        row.gpu_hours += time.gpu_secs / HOUR_SECS;
    }
    for NodeTimeRow { key, spent } in &view.spent {
        let name = match by {
            GroupBy::Account => &key.account,
            GroupBy::User => &key.user,
            GroupBy::Type => &key.node_type,
        };
        let row = rows.entry(name).or_default();
        if by == GroupBy::Type {
            row.node_hours += spent.held_secs() / HOUR_SECS;
            row.gpu_hours += spent.gpu_secs / HOUR_SECS;
        }
        row.useful_hours += spent.useful_secs / HOUR_SECS;
        row.rescale_hours += spent.rescale_secs / HOUR_SECS;
        row.preempted_hours += spent.preempted_secs / HOUR_SECS;
        row.probing_hours += spent.probing_secs / HOUR_SECS;
    }
    let mut rows: Vec<UsageRow> =
        rows.into_iter().map(|(name, row)| UsageRow { name: name.to_owned(), ..row }).collect();
    rows.sort_by(|a, b| b.node_hours.total_cmp(&a.node_hours));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::parts::MonthSummary;
    use infill_api::UsesView;
    use infill_model::{NodeTimeKey, NodeTimeUsage, NodeUsageSecs};

    fn run(partition: &str, waited: i64, start: i64, end: Option<i64>, nodes: u32) -> JobRun {
        JobRun {
            job: JobId((start + 1000) as u32),
            user: "alice".to_owned(),
            account: "ml".to_owned(),
            waited_from: UnixTime(start - waited),
            start: UnixTime(start),
            end: end.map(UnixTime),
            partition: partition.to_owned(),
            nodes,
            gpus: 4 * nodes,
            cpus: 64 * u64::from(nodes),
            joules: None,
        }
    }

    /// The daemon's view of two hours without any data.
    fn view() -> ReportView {
        ReportView {
            schema: SCHEMA_VERSION,
            from: UnixTime(0),
            to: UnixTime(7200),
            partition: "infill".to_owned(),
            is_partial: false,
            lends_parts: false,
            prices: ReportConfig::default(),
            spent: Vec::new(),
            uses: UsesView::default(),
            delays: Vec::new(),
            delays_cut: false,
        }
    }

    #[test]
    fn totals_come_from_accounting_and_uses_from_the_daemon() {
        let mut sums = AccountingTotals::new(UnixTime(0), UnixTime(7200), UnixTime(100_000), "infill");
        for run in [
            run("main", 10, 100, Some(1900), 2),
            run("main", 30, 200, Some(10_000), 1),
            // The first job, requeued.
            JobRun { job: JobId(1100), ..run("main", 900, 1950, Some(2000), 1) },
            // Runs that reach over the ends of the period.
            run("main", 500, -100, Some(100), 1),
            run("infill", 5, 1800, Some(5400), 2),
            JobRun { joules: Some(7.2e6), ..run("infill", 5, 5400, None, 1) },
        ] {
            sums.add_run(&run);
        }
        let key = |user: &str, node_type: &str| NodeTimeKey {
            from: UnixTime(0),
            account: "ml".to_owned(),
            user: user.to_owned(),
            node_type: node_type.to_owned(),
        };
        let spent = |secs: f64| NodeTimeUsage {
            useful_secs: secs,
            rescale_secs: secs / 4.0,
            ..NodeTimeUsage::default()
        };
        let spent = vec![
            NodeTimeRow { key: key("alice", "a"), spent: spent(3600.0) },
            NodeTimeRow { key: key("bob", "a"), spent: spent(7200.0) },
        ];
        let delays = vec![(0.5, false), (2.0, true), (3.0, false)];
        let secs = NodeUsageSecs { malleable_secs: 9000.0, idle_secs: 1000.0, ..NodeUsageSecs::default() };
        let uses = UsesView { hours: 2, secs };
        let prices = ReportConfig { node_hour_cost: 2.0, node_watts: 500.0, ..ReportConfig::default() };
        let report = sums.build_report(&ReportView { spent, uses, delays, prices, ..view() }, GroupBy::User);
        assert_eq!((report.main_jobs, report.main_waits.median_s, report.main_waits.max_s), (2, 10.0, 30.0));
        assert!(
            (report.main_node_hours - (3600.0 + 7000.0 + 100.0 + 50.0) / 3600.0).abs() < 1e-9,
            "{report:?}"
        );
        let hours = report.main_node_hours + report.node_hours;
        assert!((report.cpu_hours - 64.0 * hours).abs() < 1e-6, "{report:?}");
        assert!((report.node_hours - 2.5).abs() < 1e-9 && (report.like_nodes - 1.25).abs() < 1e-9);
        assert_eq!((report.delayed, report.missed, report.delays.count), (2, 1, 3));
        assert!((report.useful.unwrap() - 0.8).abs() < 1e-9);
        let energy = report.energy.unwrap();
        assert!(
            (energy.kwh - 1.038).abs() < 1e-3 && energy.is_estimated,
            "only the energy of this period: {energy:?}"
        );
        assert_eq!(report.cost, Some(ReportCost { amount: 5.0, currency: "EUR".to_owned() }));
        assert_eq!(report.nodes.and_then(|nodes| nodes.harvested), Some(0.9));
        let rows: Vec<_> =
            report.rows.iter().map(|r| (r.name.as_str(), r.node_hours, r.useful_hours)).collect();
        assert_eq!(rows, [("alice", 2.5, 1.0), ("bob", 0.0, 2.0)]);
        assert!((report.rows[0].share_of(report.rows[0].useful_hours) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn unknown_numbers_are_left_out() {
        let sums = || AccountingTotals::new(UnixTime(0), UnixTime(7200), UnixTime(100_000), "infill");
        let report = sums().build_report(&view(), GroupBy::Account);
        assert!(report.energy.is_none() && report.cost.is_none() && report.nodes.is_none());
        assert!(report.useful.is_none() && report.rows.is_empty());
        let mut busy = sums();
        busy.add_run(&run("infill", 5, 0, Some(7200), 2));
        let prices = ReportConfig { node_watts: 500.0, ..ReportConfig::default() };
        let energy = busy.build_report(&ReportView { prices, ..view() }, GroupBy::Account).energy;
        assert_eq!(energy, Some(EnergyUse { kwh: 2.0, is_estimated: true }));
    }

    #[test]
    fn the_summary_of_a_month() {
        let key = NodeTimeKey {
            from: UnixTime(0),
            account: String::new(),
            user: "a".to_owned(),
            node_type: "n".to_owned(),
        };
        let spent = NodeTimeUsage { useful_secs: 3600.0, rescale_secs: 3600.0, ..NodeTimeUsage::default() };
        let delays = vec![(0.5, false), (4.0, true)];
        let view = ReportView { spent: vec![NodeTimeRow { key, spent }], delays, ..view() };
        let month = MonthSummary::from_view(&view);
        assert_eq!(
            (month.node_hours, month.useful, month.delayed, month.longest_s),
            (2.0, Some(0.5), 1, 4.0)
        );
    }
}
