//! All metrics of the daemon. Label sets are closed, and counters start at a reported zero.

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
use infill_planner::plan::{CheckerRule, Violation};

/// The content type of [`DaemonMetrics::encode_text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels with one word as value each.
type LabelSet = Vec<(&'static str, &'static str)>;
type CounterFamily = Family<LabelSet, Counter>;
type SecondsCounter = Counter<f64, AtomicU64>;

/// Buckets for the duration of rounds and solves, seconds: from a small site to the outer deadline.
const DURATION_BUCKETS: [f64; 10] = [0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Buckets for how long main jobs waited for nodes of malleable jobs, seconds. Slurm reports whole seconds.
const DELAY_BUCKETS: [f64; 9] = [0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The word for an agent's hello among the kinds of events.
pub(crate) const HELLO_WORD: &str = "hello";

words! {
    /// How a round ended.
    pub enum RoundEnd {
        /// Targets were set.
        Acted = "acted",
        /// No targets were set, because the daemon only observes.
        Observed = "observed",
        /// The snapshot could not be trusted.
        Doubtful = "doubtful",
        /// The round ended without a plan.
        Failed = "failed",
    }
}

words! {
    /// How an action on Slurm ended.
    pub enum ActionEnd {
        /// Slurm carried the action out.
        Ok = "ok",
        /// Slurm refused the action or did not answer.
        Failed = "failed",
    }
}

/// Metrics of nodes.
#[derive(Default)]
pub struct NodeMetrics {
    /// Usable nodes that no job uses.
    pub gaps: Gauge,
    /// Nodes that malleable jobs hold.
    pub held: Gauge,
    /// Nodes of the partition that a main job uses.
    pub busy: Gauge,
    /// GPUs that are idle on nodes that main jobs share, with their share of the node.
    pub idle_beside_gpus: Gauge,
    /// CPUs that belong to these GPUs, and idle CPUs beside main jobs on nodes without GPUs.
    pub idle_beside_cpus: Gauge,
    /// Nodes that a circuit breaker keeps out.
    pub kept_out: Gauge,
    /// Node-seconds that malleable jobs held.
    pub harvested: SecondsCounter,
    /// Node-seconds that the main queue left, used or not.
    pub gap_seconds: SecondsCounter,
    /// Node-seconds that malleable jobs held, by cause and, where the site wants that, by account.
    pub time: Family<Vec<(&'static str, String)>, SecondsCounter>,
    /// Whether `time` names accounts.
    pub shows_accounts: AtomicBool,
}

/// What node-seconds of malleable jobs are used for.
pub(crate) const NODE_TIME_CAUSES: [&str; 4] = ["steps", "probing", "changes", "recovery"];

impl NodeMetrics {
    /// Adds held node-time. `account` is `None` where it must not be named.
    pub fn add_node_time(&self, account: Option<&str>, spent: &NodeTimeUsage) {
        let secs_by_cause = [spent.useful_secs, spent.probing_secs, spent.rescale_secs, spent.preempted_secs];
        for (cause, secs) in NODE_TIME_CAUSES.into_iter().zip(secs_by_cause) {
            let account = account.map(|account| ("account", account.to_owned()));
            let labels = std::iter::once(("cause", cause.to_owned())).chain(account).collect();
            self.time.get_or_create(&labels).inc_by(secs);
        }
    }
}

/// How accurate the predicted lengths of the last ended jobs were.
#[derive(Default)]
pub struct LengthMetrics {
    /// Ended jobs with a predicted length.
    pub jobs: Gauge,
    /// Those whose prediction was right within a factor of two.
    pub within_2x: Gauge,
    /// Those that ended within their interval from 10 to 90 %.
    pub in_interval: Gauge,
    /// Those that counted as predictable.
    pub predictable: Gauge,
}

/// Metrics of malleable jobs.
#[derive(Default)]
pub struct JobMetrics {
    /// Malleable jobs by state.
    pub by_state: Family<LabelSet, Gauge>,
    /// Generations after a job's first.
    pub rescales: Counter,
    /// Actions on Slurm, by kind and outcome.
    pub actions: CounterFamily,
    /// Agents' events, by kind.
    pub agent_events: CounterFamily,
    /// Accuracy of the predicted lengths.
    pub lengths: LengthMetrics,
}

/// Metrics of main jobs that started on nodes of malleable jobs.
pub struct MainMetrics {
    /// How long they waited for these nodes.
    pub delay_seconds: Histogram,
    /// Those that started later than planned.
    pub missed_planned_starts: Counter,
}

/// Metrics of rounds.
pub struct RoundMetrics {
    /// Rounds by their end.
    pub ends: CounterFamily,
    /// Duration of a round.
    pub seconds: Histogram,
    /// Duration of planning in a round.
    pub solve_seconds: Histogram,
    /// Solves by their status.
    pub solver_status: CounterFamily,
    /// Plans that the checker refused, by rule.
    pub refused_plans: CounterFamily,
}

/// Metrics of the store.
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
    /// Metrics of nodes.
    pub nodes: NodeMetrics,
    /// Metrics of malleable jobs.
    pub jobs: JobMetrics,
    /// Metrics of main jobs that started on nodes of malleable jobs.
    pub main: MainMetrics,
    /// Metrics of rounds.
    pub rounds: RoundMetrics,
    /// Metrics of the store.
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
    /// Counts a main job that started on nodes of malleable jobs.
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
        let rules: BTreeSet<CheckerRule> = violations.iter().map(Violation::rule).collect();
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
        let metrics = DaemonMetrics {
            registry: Mutex::new(Registry::with_prefix("infill")),
            nodes: NodeMetrics::default(),
            jobs: JobMetrics::default(),
            main: MainMetrics::default(),
            rounds: RoundMetrics::default(),
            store: StoreMetrics::default(),
            leading: Gauge::default(),
            standby: Gauge::default(),
        };
        metrics.register_all();
        metrics.init_zeros();
        metrics
    }
}

impl DaemonMetrics {
    fn register_all(&self) {
        let DaemonMetrics { registry, nodes, jobs, main, rounds, store, leading, standby } = self;
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register("gap_nodes", "Usable nodes that no job uses", nodes.gaps.clone());
        registry.register("held_nodes", "Nodes that infill uses", nodes.held.clone());
        registry.register("busy_nodes", "Nodes of the partition used by the main queue", nodes.busy.clone());
        let gpus = nodes.idle_beside_gpus.clone();
        let cpus = nodes.idle_beside_cpus.clone();
        registry.register("idle_beside_gpus", "GPUs idle on nodes that main jobs share", gpus);
        registry.register("idle_beside_cpus", "CPUs of these GPUs, or idle CPUs on nodes without GPUs", cpus);
        registry.register("jobs", "Malleable jobs by state", jobs.by_state.clone());
        let help = "From when infill had to leave their nodes until main jobs started there";
        registry.register("main_job_delay_seconds", help, main.delay_seconds.clone());
        let help = "Main jobs that started later than planned on nodes that infill was on";
        registry.register("missed_planned_starts", help, main.missed_planned_starts.clone());
        registry.register("rounds", "Rounds by outcome", rounds.ends.clone());
        registry.register("rescales", "Generations after a job's first", jobs.rescales.clone());
        registry.register("round_seconds", "Duration of a round", rounds.seconds.clone());
        registry.register("solve_seconds", "Duration of planning", rounds.solve_seconds.clone());
        registry.register("solver_status", "How solves ended", rounds.solver_status.clone());
        registry.register(
            "refused_plans",
            "Plans that the checker refused, by rule",
            rounds.refused_plans.clone(),
        );
        registry.register("slurm_actions", "Actions on Slurm by kind and outcome", jobs.actions.clone());
        registry.register("agent_events", "What agents reported", jobs.agent_events.clone());
        registry.register("breaker_open_nodes", "Nodes left alone after failures", nodes.kept_out.clone());
        registry.register("store_up", "Whether the store works", store.up.clone());
        registry.register("leading", "Whether this daemon leads", leading.clone());
        registry.register("standby", "Whether another daemon waits to take over", standby.clone());
        registry.register("lost_rows", "History that could not be stored", store.lost_rows.clone());
        let lengths = &jobs.lengths;
        let help = "Recently ended jobs whose length was predicted";
        registry.register("expected_jobs", help, lengths.jobs.clone());
        let help = "Recently ended jobs whose predicted length was right within a factor of two";
        registry.register("expected_within_2x_jobs", help, lengths.within_2x.clone());
        let help = "Recently ended jobs whose length was in its predicted interval from 10 to 90 %";
        registry.register("expected_in_interval_jobs", help, lengths.in_interval.clone());
        let help = "Recently ended jobs that counted as predictable";
        registry.register("expected_predictable_jobs", help, lengths.predictable.clone());
        registry.register("harvested_node_seconds", "Node-seconds that infill used", nodes.harvested.clone());
        registry.register(
            "gap_node_seconds",
            "Node-seconds left by the main queue",
            nodes.gap_seconds.clone(),
        );
        let help = "Node-seconds that malleable jobs held, by what they were used for";
        registry.register("job_node_seconds", help, nodes.time.clone());
    }

    fn init_zeros(&self) {
        let DaemonMetrics { jobs, rounds, store, .. } = self;
        for state in MalleableState::ALL {
            drop(jobs.by_state.get_or_create(&vec![("state", state.word())]));
        }
        self.nodes.add_node_time(None, &NodeTimeUsage::default());
        init_counters(&rounds.ends, "outcome", RoundEnd::ALL.iter().map(|end| end.word()));
        init_counters(&rounds.solver_status, "status", SolveStatusKind::ALL.iter().map(|kind| kind.word()));
        init_counters(&rounds.refused_plans, "rule", CheckerRule::ALL.iter().map(|rule| rule.word()));
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

/// Makes a counter report 0 for each of these words.
fn init_counters(counters: &CounterFamily, label: &'static str, words: impl Iterator<Item = &'static str>) {
    words.for_each(|word| drop(counters.get_or_create(&vec![(label, word)])));
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    #[test]
    fn the_dashboard_uses_only_existing_metrics() {
        let text = DaemonMetrics::default().encode_text();
        let dashboard = include_str!("../../../contrib/grafana/infill.json");
        let name = regex::Regex::new(r"infill_[a-z_]+").unwrap();
        let exprs = dashboard.lines().filter(|line| line.contains("\"expr\""));
        let used: Vec<&str> =
            exprs.flat_map(|line| name.find_iter(line)).map(|found| found.as_str()).collect();
        assert!(used.len() > 10, "{used:?}");
        for metric in used {
            assert!(
                text.contains(&format!("{metric}{{")) || text.contains(&format!("{metric} ")),
                "{metric}\n{text}"
            );
        }
    }

    #[test]
    fn a_refused_plan_counts_once_for_each_rule_that_it_breaks() {
        let metrics = DaemonMetrics::default();
        let violations = [
            Violation::UnknownJob { job: JobId(1) },
            Violation::Unsorted,
            Violation::UnknownJob { job: JobId(2) },
        ];
        metrics.rounds.count_refused(&violations);
        let text = metrics.encode_text();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("infill_refused_plans")).collect();
        assert_eq!(lines.len(), CheckerRule::ALL.len(), "{text}");
        let mut broken: Vec<&str> = lines.into_iter().filter(|line| !line.ends_with(" 0")).collect();
        broken.sort_unstable();
        let expected = [r#"{rule="known_job"} 1"#, r#"{rule="order"} 1"#];
        assert_eq!(broken, expected.map(|labels| format!("infill_refused_plans_total{labels}")));
    }

    /// What stands above the metrics.
    const PAGE_HEAD: &str = "\
# Metrics

<!-- Written by the tests of crates/daemon/src/metrics.rs. -->

The daemon serves these at `/metrics`, in the text format of OpenMetrics. `http.metrics` says who may read them. Counters
have the ending `_total` in queries, and histograms `_bucket`, `_sum` and `_count`. All label values are listed. Counters
start at a reported 0.

[contrib/prometheus](../../contrib/prometheus) has alerts on them, and [contrib/grafana](../../contrib/grafana) a dashboard.

| metric | type | labels | meaning |
|---|---|---|---|
";

    /// The longest list of labels in the table. Longer ones stand below it.
    const LABELS_WIDTH: usize = 120;

    /// The labels of a metric in a text of metrics, each with its values.
    fn labels_of(text: &str, name: &str) -> String {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        let label = regex::Regex::new(r#"([a-z]+)="([^"]*)""#).unwrap();
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with("_total{"))
        });
        for pair in samples.flat_map(|line| label.captures_iter(line)) {
            let value = pair[2].to_owned();
            match found.iter_mut().find(|(key, _)| *key == pair[1]) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => found.push((pair[1].to_owned(), vec![value])),
            }
        }
        let cells = found.iter_mut().map(|(key, values)| {
            values.sort();
            format!("`{key}`: {}", values.join(", "))
        });
        cells.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn the_page_of_metrics_has_them_all() {
        let text = DaemonMetrics::default().encode_text();
        let mut page = PAGE_HEAD.to_owned();
        let mut below = String::new();
        let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
        for (name, help) in helps.filter_map(|line| line.split_once(' ')) {
            let kind = text.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} ")));
            let mut labels = labels_of(&text, name);
            if labels.chars().count() > LABELS_WIDTH {
                let (label, values) = labels.split_once(": ").unwrap_or_default();
                let items: String = values.split(", ").map(|value| format!("- `{value}`\n")).collect();
                below += &format!("\n## Values of {label} of `{name}`\n\n{items}");
                labels = format!("{label}: see below");
            }
            page += &format!(
                "| `{name}` | {} | {labels} | {} |\n",
                kind.unwrap_or_default(),
                help.trim_end_matches('.')
            );
        }
        page += &below;
        assert!(page.contains("| `infill_jobs` | gauge | `state`: "), "{page}");
        assert!(page.contains("\n- `known_job`\n"), "{page}");
        let update = "cargo test -p infill-daemon page_of_metrics";
        infill_testkit::goldens::check_golden("docs/reference/metrics.md", &page, update);
    }
}
