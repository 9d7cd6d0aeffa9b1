//! What a report says, from accounting and from the daemon.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::{ReportView, SCHEMA};
use crate::model::{Run, Spent, UnixTime};

const HOUR_SECS: f64 = 3600.0;

/// Main jobs that waited longer than this beyond what Slurm itself needs are delayed, seconds.
const DELAYED_SECS: f64 = 1.0;

/// By what node-time is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Slurm's accounts
    #[default]
    Account,
    /// Users
    User,
    /// Types of nodes
    Type,
}

/// Some seconds, sorted, in three numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// How many.
    pub count: usize,
    /// The median, seconds.
    pub median_s: f64,
    /// 99 of a hundred are no longer, seconds.
    pub p99_s: f64,
    /// The longest, seconds.
    pub max_s: f64,
}

impl Waits {
    fn of(mut secs: Vec<f64>) -> Waits {
        secs.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            secs.get(((secs.len() as f64 * share).ceil() as usize).max(1) - 1).copied().unwrap_or(0.0)
        };
        Waits { count: secs.len(), median_s: rank(0.5), p99_s: rank(0.99), max_s: rank(1.0) }
    }
}

/// Node-time of one account, user or type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Whose, or of what.
    pub name: String,
    /// Node-hours that malleable jobs held.
    pub node_hours: f64,
    /// GPU-hours of these.
    pub gpu_hours: f64,
    /// Of the node-hours, those in which steps were made.
    pub useful_hours: f64,
    /// Those that went into starts and changes.
    pub rescale_hours: f64,
    /// Those that went into the same because the main queue took nodes.
    pub preempted_hours: f64,
    /// Those in which sizes were tried.
    pub probing_hours: f64,
}

/// The whole of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Main jobs that started.
    pub main_jobs: usize,
    /// How long they waited from when they could have started.
    pub main_waits: Waits,
    /// Those that started on nodes that malleable jobs were on, and how long they waited for these.
    pub delays: Waits,
    /// Of these, those that waited for longer than a second.
    pub delayed: usize,
    /// Those that missed a planned start by that.
    pub missed: usize,
    /// Node-hours of main jobs, by accounting.
    pub main_node_hours: f64,
    /// Node-hours of malleable jobs, by accounting.
    pub node_hours: f64,
    /// GPU-hours of these, by accounting.
    pub gpu_hours: f64,
    /// So many more nodes all the time would have given as much.
    pub like_nodes: f64,
    /// Node-hours of malleable jobs as the daemon saw them: less where it was away.
    pub seen_node_hours: f64,
    /// Of these the share in which steps were made, 0 to 1; `None` where it saw none.
    pub useful: Option<f64>,
    /// Energy of malleable jobs, kWh, where Slurm measures it.
    pub kwh: Option<f64>,
    /// By account, user or type of nodes, the largest first.
    pub rows: Vec<Row>,
}

/// Adds up what accounting has.
#[derive(Debug)]
pub struct Sums {
    from: UnixTime,
    to: UnixTime,
    now: UnixTime,
    ours: String,
    waits: Vec<f64>,
    main_secs: f64,
    secs: f64,
    gpu_secs: f64,
    joules: Option<f64>,
}

impl Sums {
    /// Of a stretch of time; `ours` is the malleable partition.
    pub fn new(from: UnixTime, to: UnixTime, now: UnixTime, ours: &str) -> Sums {
        let ours = ours.to_owned();
        Sums {
            from,
            to,
            now,
            ours,
            waits: Vec::new(),
            main_secs: 0.0,
            secs: 0.0,
            gpu_secs: 0.0,
            joules: None,
        }
    }

    /// Takes in a run. Wings count as node-time, and as no jobs.
    pub fn add(&mut self, run: &Run) {
        let secs = run.secs_within(self.from, self.to, self.now);
        let node_secs = f64::from(run.nodes) * secs;
        if run.partition != self.ours && !run.is_wing {
            self.main_secs += node_secs;
            if (self.from..self.to).contains(&run.start) {
                self.waits.push(run.start.secs_since(run.waited_from));
            }
            return;
        }
        self.secs += node_secs;
        self.gpu_secs += f64::from(run.gpus) * secs;
        if let Some(joules) = run.joules {
            let whole = run.end.unwrap_or(self.now).secs_since(run.start).max(1.0);
            *self.joules.get_or_insert(0.0) += joules * secs / whole;
        }
    }

    /// With what the daemon knows.
    pub fn report(self, view: &ReportView, by: By) -> Report {
        let seen = view.spent.iter().fold(Spent::default(), |sum, row| sum.plus(&row.spent));
        let delays: Vec<f64> = view.delays.iter().map(|(secs, _)| *secs).collect();
        let is_late = |secs: f64| secs > DELAYED_SECS;
        let hours = self.to.min(self.now).secs_since(self.from).max(1.0) / HOUR_SECS;
        Report {
            schema: SCHEMA,
            from: self.from,
            to: self.to,
            main_jobs: self.waits.len(),
            main_waits: Waits::of(self.waits),
            delayed: delays.iter().filter(|secs| is_late(**secs)).count(),
            missed: view.delays.iter().filter(|(secs, planned)| *planned && is_late(*secs)).count(),
            delays: Waits::of(delays),
            main_node_hours: self.main_secs / HOUR_SECS,
            node_hours: self.secs / HOUR_SECS,
            gpu_hours: self.gpu_secs / HOUR_SECS,
            like_nodes: self.secs / HOUR_SECS / hours,
            seen_node_hours: seen.held_secs() / HOUR_SECS,
            useful: (seen.held_secs() > 0.0)
                .then(|| (seen.useful_secs + seen.probing_secs) / seen.held_secs()),
            kwh: self.joules.map(|joules| joules / 3.6e6),
            rows: rows(view, by),
        }
    }
}

fn rows(view: &ReportView, by: By) -> Vec<Row> {
    let mut sums: BTreeMap<&str, Spent> = BTreeMap::new();
    for row in &view.spent {
        let name = match by {
            By::Account => &row.key.account,
            By::User => &row.key.user,
            By::Type => &row.key.node_type,
        };
        let sum = sums.entry(name).or_default();
        *sum = sum.plus(&row.spent);
    }
    let row = |(name, spent): (&str, Spent)| Row {
        name: name.to_owned(),
        node_hours: spent.held_secs() / HOUR_SECS,
        gpu_hours: spent.gpu_secs / HOUR_SECS,
        useful_hours: spent.useful_secs / HOUR_SECS,
        rescale_hours: spent.rescale_secs / HOUR_SECS,
        preempted_hours: spent.preempted_secs / HOUR_SECS,
        probing_hours: spent.probing_secs / HOUR_SECS,
    };
    let mut rows: Vec<Row> = sums.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.node_hours.total_cmp(&a.node_hours));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SpentKey, SpentRow};

    fn run(partition: &str, waited: i64, start: i64, end: Option<i64>, nodes: u32) -> Run {
        Run {
            waited_from: UnixTime(start - waited),
            start: UnixTime(start),
            end: end.map(UnixTime),
            user: "alice".to_owned(),
            account: "ml".to_owned(),
            partition: partition.to_owned(),
            nodes,
            gpus: 4 * nodes,
            joules: None,
            is_wing: false,
        }
    }

    #[test]
    fn accounting_says_how_much_and_the_daemon_what_became_of_it() {
        let mut sums = Sums::new(UnixTime(0), UnixTime(7200), UnixTime(100_000), "infill");
        for run in [
            run("main", 10, 100, Some(1900), 2),
            run("main", 30, 200, Some(10_000), 1),
            // Before, and after.
            run("main", 500, -100, Some(100), 1),
            run("infill", 5, 1800, Some(5400), 2),
            Run { joules: Some(7.2e6), ..run("infill", 5, 5400, None, 1) },
        ] {
            sums.add(&run);
        }
        let key = |user: &str, node_type: &str| SpentKey {
            from: UnixTime(0),
            account: "ml".to_owned(),
            user: user.to_owned(),
            node_type: node_type.to_owned(),
        };
        let spent = |secs: f64| Spent { useful_secs: secs, rescale_secs: secs / 4.0, ..Spent::default() };
        let spent = vec![
            SpentRow { key: key("alice", "a"), spent: spent(3600.0) },
            SpentRow { key: key("bob", "a"), spent: spent(7200.0) },
        ];
        let delays = vec![(0.5, false), (2.0, true), (3.0, false)];
        let view = ReportView { schema: SCHEMA, from: UnixTime(0), to: UnixTime(7200), spent, delays };
        let report = sums.report(&view, By::User);
        assert_eq!((report.main_jobs, report.main_waits.median_s, report.main_waits.max_s), (2, 10.0, 30.0));
        assert!((report.main_node_hours - (3600.0 + 7000.0 + 100.0) / 3600.0).abs() < 1e-9, "{report:?}");
        assert!((report.node_hours - 2.5).abs() < 1e-9 && (report.like_nodes - 1.25).abs() < 1e-9);
        assert_eq!((report.delayed, report.missed, report.delays.count), (2, 1, 3));
        assert!((report.useful.unwrap() - 0.8).abs() < 1e-9);
        assert!(report.kwh.unwrap() < 2.0, "only what is of this time");
        let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["bob", "alice"]);
    }
}
