//! Every metric, declared in one place. Label sets are closed; zeros are reported.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::write_queue::HistoryKind;
use infill_lifecycle::EffectKind;
use infill_model::{AgentEventKind, MainDelay, MalleableState, NodeTimeUsage, SolveStatusKind, words};
use infill_planner::plan::{Rule, Violation};

/// What [`DaemonMetrics::encode_text`] is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One label with one word as value.
type LabelSet = Vec<(&'static str, &'static str)>;
type CounterFamily = Family<LabelSet, Counter>;
type SecondsCounter = Counter<f64, AtomicU64>;

/// Buckets for the duration of rounds and solves, seconds: from a small site to the outer deadline.
const DURATION_BUCKETS: [f64; 10] = [0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Buckets for how long main jobs waited for nodes of ours, seconds: Slurm tells whole ones.
const DELAY_BUCKETS: [f64; 9] = [0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The word for an agent's hello among the kinds of events.
pub(crate) const HELLO_WORD: &str = "hello";

words! {
    /// How a round ended.
    pub enum RoundEnd {
        /// Targets were set.
        Acted = "acted",
        /// Nothing was to be done: the daemon only observes.
        Observed = "observed",
        /// The snapshot could not be trusted.
        Doubtful = "doubtful",
        /// There was no plan.
        Failed = "failed",
    }
}

words! {
    /// How an action on Slurm ended.
    pub enum ActionEnd {
        /// Slurm did it.
        Ok = "ok",
        /// Slurm did not.
        Failed = "failed",
    }
}

/// The nodes.
#[derive(Default)]
pub struct NodeMetrics {
    /// Usable nodes that nobody uses.
    pub gaps: Gauge,
    /// Nodes that infill uses.
    pub held: Gauge,
    /// Nodes of the partition that a main job uses.
    pub busy: Gauge,
    /// GPUs that main jobs leave idle on nodes that they share, with their share of the node.
    pub idle_beside_gpus: Gauge,
    /// CPUs of these, and those idle beside main jobs on nodes without GPUs.
    pub idle_beside_cpus: Gauge,
    /// Nodes that the circuit breaker keeps out.
    pub kept_out: Gauge,
    /// Node-seconds that infill used.
    pub harvested: SecondsCounter,
    /// Node-seconds that the main queue left, used or not.
    pub gap_seconds: SecondsCounter,
    /// Node-seconds that malleable jobs held, by what they went into and, where the site wants that, account.
    pub time: Family<Vec<(&'static str, String)>, SecondsCounter>,
    /// Whether accounts were told of that last.
    pub told_accounts: AtomicBool,
}

/// What node-seconds of malleable jobs go into.
pub(crate) const NODE_TIME_CAUSES: [&str; 4] = ["steps", "probing", "changes", "recovery"];

impl NodeMetrics {
    /// Counts what was held; `account` where it is to be told.
    pub fn add_node_time(&self, account: Option<&str>, spent: &NodeTimeUsage) {
        let NodeTimeUsage { useful_secs, probing_secs, rescale_secs, preempted_secs, .. } = *spent;
        for (cause, secs) in
            NODE_TIME_CAUSES.into_iter().zip([useful_secs, probing_secs, rescale_secs, preempted_secs])
        {
            let account = account.map(|account| ("account", account.to_owned()));
            let labels = std::iter::once(("cause", cause.to_owned())).chain(account).collect();
            self.time.get_or_create(&labels).inc_by(secs);
        }
    }
}

/// What was expected of the last jobs that ended, and how true that was.
#[derive(Default)]
pub struct LengthMetrics {
    /// Jobs that count.
    pub jobs: Gauge,
    /// Of these, those whose length was expected within a factor of two.
    pub within_2x: Gauge,
    /// Those that ended within the interval from 10 to 90 %.
    pub in_interval: Gauge,
    /// Those that counted as predictable.
    pub predictable: Gauge,
}

/// The malleable jobs.
#[derive(Default)]
pub struct JobMetrics {
    /// Malleable jobs by state.
    pub by_state: Family<LabelSet, Gauge>,
    /// Generations after a job's first.
    pub rescales: Counter,
    /// Actions on Slurm.
    pub actions: CounterFamily,
    /// What agents reported.
    pub agent_events: CounterFamily,
    /// How long they were expected to run.
    pub lengths: LengthMetrics,
}

/// Main jobs that started on nodes that ours were on.
pub struct MainMetrics {
    /// How long they waited for that.
    pub delay_seconds: Histogram,
    /// Those that started later than planned.
    pub missed_planned_starts: Counter,
}

/// The rounds.
pub struct RoundMetrics {
    /// Rounds by their end.
    pub ends: CounterFamily,
    /// Duration of a round.
    pub seconds: Histogram,
    /// Duration of the planner's part.
    pub solve_seconds: Histogram,
    /// How solves ended.
    pub solver_status: CounterFamily,
    /// Plans that the checker refused, by rule.
    pub refused_plans: CounterFamily,
}

/// The store.
#[derive(Default)]
pub struct StoreMetrics {
    /// Whether the store works.
    pub up: Gauge,
    /// Rows of history that could not be stored.
    pub lost_rows: CounterFamily,
}

/// All metrics of the daemon.
pub struct DaemonMetrics {
    registry: Mutex<Registry>,
    /// The nodes.
    pub nodes: NodeMetrics,
    /// The malleable jobs.
    pub jobs: JobMetrics,
    /// Main jobs that started on nodes of ours.
    pub main: MainMetrics,
    /// The rounds.
    pub rounds: RoundMetrics,
    /// The store.
    pub store: StoreMetrics,
    /// Whether this daemon leads (1) or stands by (0).
    pub leading: Gauge,
    /// Whether another daemon waits to take over.
    pub standby: Gauge,
}

impl Default for MainMetrics {
    fn default() -> Self {
        MainMetrics {
            delay_seconds: Histogram::new(DELAY_BUCKETS),
            missed_planned_starts: Counter::default(),
        }
    }
}

impl MainMetrics {
    /// Counts one.
    pub fn record_start(&self, delay: &MainDelay) {
        self.delay_seconds.observe(delay.secs);
        if delay.planned && delay.secs > 0.0 {
            self.missed_planned_starts.inc();
        }
    }
}

impl Default for RoundMetrics {
    fn default() -> Self {
        RoundMetrics {
            ends: Family::default(),
            seconds: Histogram::new(DURATION_BUCKETS),
            solve_seconds: Histogram::new(DURATION_BUCKETS),
            solver_status: Family::default(),
            refused_plans: Family::default(),
        }
    }
}

impl RoundMetrics {
    /// Counts a round.
    pub fn count_round(&self, end: RoundEnd) {
        self.ends.get_or_create(&vec![("outcome", end.word())]).inc();
    }

    /// Counts a solve.
    pub fn record_solve(&self, kind: SolveStatusKind, secs: f64) {
        self.solver_status.get_or_create(&vec![("status", kind.word())]).inc();
        self.solve_seconds.observe(secs);
    }

    /// Counts a plan that the checker refused, once for each rule that it breaks.
    pub fn count_refused(&self, violations: &[Violation]) {
        let rules: BTreeSet<Rule> = violations.iter().map(Violation::rule).collect();
        for rule in rules {
            self.refused_plans.get_or_create(&vec![("rule", rule.word())]).inc();
        }
    }
}

impl JobMetrics {
    /// Counts an action on Slurm.
    pub fn count_action(&self, kind: EffectKind, end: ActionEnd) {
        self.actions.get_or_create(&vec![("kind", kind.word()), ("outcome", end.word())]).inc();
    }
}

impl Default for DaemonMetrics {
    fn default() -> Self {
        let m = DaemonMetrics {
            registry: Mutex::new(Registry::with_prefix("infill")),
            nodes: NodeMetrics::default(),
            jobs: JobMetrics::default(),
            main: MainMetrics::default(),
            rounds: RoundMetrics::default(),
            store: StoreMetrics::default(),
            leading: Gauge::default(),
            standby: Gauge::default(),
        };
        m.register_all();
        m.init_zeros();
        m
    }
}

impl DaemonMetrics {
    fn register_all(&self) {
        let DaemonMetrics { registry, nodes, jobs, main, rounds, store, leading, standby } = self;
        let mut r = registry.lock().unwrap_or_else(PoisonError::into_inner);
        r.register("gap_nodes", "Usable nodes that nobody uses", nodes.gaps.clone());
        r.register("held_nodes", "Nodes that infill uses", nodes.held.clone());
        r.register("busy_nodes", "Nodes of the partition used by the main queue", nodes.busy.clone());
        let gpus = nodes.idle_beside_gpus.clone();
        let cpus = nodes.idle_beside_cpus.clone();
        r.register("idle_beside_gpus", "GPUs idle on nodes that main jobs share", gpus);
        r.register("idle_beside_cpus", "CPUs that come with them, or are idle without GPUs", cpus);
        r.register("jobs", "Malleable jobs by state", jobs.by_state.clone());
        let waited = "From when infill was to leave their nodes until main jobs started there";
        r.register("main_job_delay_seconds", waited, main.delay_seconds.clone());
        let late = "Main jobs that started later than planned on nodes that infill was on";
        r.register("missed_planned_starts", late, main.missed_planned_starts.clone());
        r.register("rounds", "Rounds by outcome", rounds.ends.clone());
        r.register("rescales", "Generations after a job's first", jobs.rescales.clone());
        r.register("round_seconds", "Duration of a round", rounds.seconds.clone());
        r.register("solve_seconds", "Duration of planning", rounds.solve_seconds.clone());
        r.register("solver_status", "How solves ended", rounds.solver_status.clone());
        r.register("refused_plans", "Plans that the checker refused, by rule", rounds.refused_plans.clone());
        r.register("slurm_actions", "Actions on Slurm by kind and outcome", jobs.actions.clone());
        r.register("agent_events", "What agents reported", jobs.agent_events.clone());
        r.register("breaker_open_nodes", "Nodes left alone after failures", nodes.kept_out.clone());
        r.register("store_up", "Whether the store works", store.up.clone());
        r.register("leading", "Whether this daemon leads", leading.clone());
        r.register("standby", "Whether another daemon waits to take over", standby.clone());
        r.register("lost_rows", "History that could not be stored", store.lost_rows.clone());
        let lengths = &jobs.lengths;
        let held = "Of these, those within their interval from 10 to 90 %";
        r.register(
            "expected_jobs",
            "Jobs that ended lately and whose lengths were expected",
            lengths.jobs.clone(),
        );
        r.register(
            "expected_within_2x_jobs",
            "Of these, those right within a factor of two",
            lengths.within_2x.clone(),
        );
        r.register("expected_in_interval_jobs", held, lengths.in_interval.clone());
        r.register(
            "expected_predictable_jobs",
            "Of these, those that counted as predictable",
            lengths.predictable.clone(),
        );
        r.register("harvested_node_seconds", "Node-seconds that infill used", nodes.harvested.clone());
        r.register("gap_node_seconds", "Node-seconds left by the main queue", nodes.gap_seconds.clone());
        let held = "Node-seconds that malleable jobs held, by what they went into";
        r.register("job_node_seconds", held, nodes.time.clone());
    }

    fn init_zeros(&self) {
        let DaemonMetrics { jobs, rounds, store, .. } = self;
        MalleableState::ALL
            .iter()
            .for_each(|s| drop(jobs.by_state.get_or_create(&vec![("state", s.word())])));
        self.nodes.add_node_time(None, &NodeTimeUsage::default());
        init_counters(&rounds.ends, "outcome", RoundEnd::ALL.iter().map(|end| end.word()));
        init_counters(&rounds.solver_status, "status", SolveStatusKind::ALL.iter().map(|kind| kind.word()));
        init_counters(&rounds.refused_plans, "rule", Rule::ALL.iter().map(|rule| rule.word()));
        init_counters(
            &jobs.agent_events,
            "event",
            AgentEventKind::ALL.iter().map(|kind| kind.word()).chain([HELLO_WORD]),
        );
        init_counters(&store.lost_rows, "kind", HistoryKind::ALL.iter().map(|kind| kind.word()));
        for kind in EffectKind::ALL {
            for end in ActionEnd::ALL {
                drop(jobs.actions.get_or_create(&vec![("kind", kind.word()), ("outcome", end.word())]));
            }
        }
        self.store.up.set(1);
        self.leading.set(1);
    }

    /// All metrics in the text format of OpenMetrics.
    pub fn encode_text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

/// Has a counter report 0 for each of these words.
fn init_counters(counters: &CounterFamily, label: &'static str, words: impl Iterator<Item = &'static str>) {
    words.for_each(|word| drop(counters.get_or_create(&vec![(label, word)])));
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    #[test]
    fn the_dashboard_asks_only_for_what_there_is() {
        let text = DaemonMetrics::default().encode_text();
        let dashboard = include_str!("../../../contrib/grafana/infill.json");
        let name = regex::Regex::new(r"infill_[a-z_]+").unwrap();
        let exprs = dashboard.lines().filter(|l| l.contains("\"expr\""));
        let asked: Vec<&str> = exprs.flat_map(|l| name.find_iter(l)).map(|m| m.as_str()).collect();
        assert!(asked.len() > 10, "{asked:?}");
        for metric in asked {
            assert!(
                text.contains(&format!("{metric}{{")) || text.contains(&format!("{metric} ")),
                "{metric}\n{text}"
            );
        }
    }
    #[test]
    fn a_refused_plan_counts_once_for_each_rule_that_it_breaks() {
        let metrics = DaemonMetrics::default();
        let unknown = |job| Violation::UnknownJob { job: JobId(job) };
        metrics.rounds.count_refused(&[unknown(1), Violation::Unsorted, unknown(2)]);
        let text = metrics.encode_text();
        let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("infill_refused_plans")).collect();
        assert_eq!(lines.len(), Rule::ALL.len(), "{text}");
        let mut broken: Vec<&str> = lines.into_iter().filter(|l| !l.ends_with(" 0")).collect();
        broken.sort_unstable();
        let said = [r#"{rule="known_job"} 1"#, r#"{rule="order"} 1"#];
        assert_eq!(broken, said.map(|s| format!("infill_refused_plans_total{s}")));
    }
}
