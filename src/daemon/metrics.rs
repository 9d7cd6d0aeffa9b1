//! Every metric, declared in one place. Label sets are closed; zeros are reported.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ledger::Kind;
use crate::generation::Effect;
use crate::model::{EventKind, MalleableState};

/// What [`Metrics::text`] is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One label with one word as value.
type Labels = Vec<(&'static str, &'static str)>;
type Counters = Family<Labels, Counter>;
type Seconds = Counter<f64, AtomicU64>;

/// Buckets for the duration of rounds and solves, seconds: from a small site to the outer deadline.
const SECONDS: [f64; 10] = [0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// All metrics of the daemon.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Usable nodes that nobody uses.
    pub gap_nodes: Gauge,
    /// Nodes that infill uses.
    pub held_nodes: Gauge,
    /// Nodes of the partition that a main job uses.
    pub busy_nodes: Gauge,
    /// Malleable jobs by state.
    pub jobs: Family<Labels, Gauge>,
    /// Rounds by outcome.
    pub rounds: Counters,
    /// Generations after a job's first.
    pub rescales: Counter,
    /// Duration of a round.
    pub round_seconds: Histogram,
    /// Duration of the planner's part.
    pub solve_seconds: Histogram,
    /// How solves ended.
    pub solver_status: Counters,
    /// Actions on Slurm.
    pub actions: Counters,
    /// What agents reported.
    pub agent_events: Counters,
    /// Nodes that the circuit breaker keeps out.
    pub breaker_open_nodes: Gauge,
    /// Whether the store works.
    pub store_up: Gauge,
    /// Whether this daemon leads (1) or stands by (0).
    pub leading: Gauge,
    /// Whether another daemon waits to take over.
    pub standby: Gauge,
    /// Rows of history that could not be stored.
    pub lost_rows: Counters,
    /// Node-seconds that infill used.
    pub harvested: Seconds,
    /// Node-seconds that the main queue left, used or not.
    pub gap_seconds: Seconds,
}

const OUTCOMES: [&str; 4] = ["acted", "observed", "doubtful", "failed"];
const STATUSES: [&str; 4] = ["optimal", "time_limit", "fallback", "trivial"];

/// The word for an agent's hello among the kinds of events.
pub const HELLO: &str = "hello";

const EFFECTS: [&str; 6] = ["launch", "hold", "requeue_hold", "set_limit", "shrink_wing", "cancel_wing"];

impl Default for Metrics {
    fn default() -> Self {
        let m = Metrics {
            registry: Mutex::new(Registry::with_prefix("infill")),
            gap_nodes: Gauge::default(),
            held_nodes: Gauge::default(),
            busy_nodes: Gauge::default(),
            jobs: Family::default(),
            rounds: Family::default(),
            rescales: Counter::default(),
            round_seconds: Histogram::new(SECONDS),
            solve_seconds: Histogram::new(SECONDS),
            solver_status: Family::default(),
            actions: Family::default(),
            agent_events: Family::default(),
            breaker_open_nodes: Gauge::default(),
            store_up: Gauge::default(),
            leading: Gauge::default(),
            standby: Gauge::default(),
            lost_rows: Family::default(),
            harvested: Counter::default(),
            gap_seconds: Counter::default(),
        };
        m.register();
        m.zeros();
        m
    }
}

impl Metrics {
    fn register(&self) {
        let mut r = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        r.register("gap_nodes", "Usable nodes that nobody uses", self.gap_nodes.clone());
        r.register("held_nodes", "Nodes that infill uses", self.held_nodes.clone());
        r.register("busy_nodes", "Nodes of the partition used by the main queue", self.busy_nodes.clone());
        r.register("jobs", "Malleable jobs by state", self.jobs.clone());
        r.register("rounds", "Rounds by outcome", self.rounds.clone());
        r.register("rescales", "Generations after a job's first", self.rescales.clone());
        r.register("round_seconds", "Duration of a round", self.round_seconds.clone());
        r.register("solve_seconds", "Duration of planning", self.solve_seconds.clone());
        r.register("solver_status", "How solves ended", self.solver_status.clone());
        r.register("slurm_actions", "Actions on Slurm by kind and outcome", self.actions.clone());
        r.register("agent_events", "What agents reported", self.agent_events.clone());
        r.register("breaker_open_nodes", "Nodes left alone after failures", self.breaker_open_nodes.clone());
        r.register("store_up", "Whether the store works", self.store_up.clone());
        r.register("leading", "Whether this daemon leads", self.leading.clone());
        r.register("standby", "Whether another daemon waits to take over", self.standby.clone());
        r.register("lost_rows", "History that could not be stored", self.lost_rows.clone());
        r.register("harvested_node_seconds", "Node-seconds that infill used", self.harvested.clone());
        r.register("gap_node_seconds", "Node-seconds left by the main queue", self.gap_seconds.clone());
    }

    fn zeros(&self) {
        MalleableState::ALL.iter().for_each(|s| drop(self.jobs.get_or_create(&vec![("state", s.word())])));
        OUTCOMES.iter().for_each(|s| drop(self.rounds.get_or_create(&vec![("outcome", *s)])));
        STATUSES.iter().for_each(|s| drop(self.solver_status.get_or_create(&vec![("status", *s)])));
        let events = EventKind::ALL.iter().map(|kind| kind.word()).chain([HELLO]);
        events.for_each(|s| drop(self.agent_events.get_or_create(&vec![("event", s)])));
        for kind in EFFECTS {
            for outcome in ["ok", "failed"] {
                drop(self.actions.get_or_create(&vec![("kind", kind), ("outcome", outcome)]));
            }
        }
        Kind::ALL.iter().for_each(|k| drop(self.lost_rows.get_or_create(&vec![("kind", k.word())])));
        self.store_up.set(1);
        self.leading.set(1);
    }

    /// Counts a round.
    pub fn round(&self, outcome: &'static str) {
        self.rounds.get_or_create(&vec![("outcome", outcome)]).inc();
    }

    /// Counts an action on Slurm.
    pub fn action(&self, effect: &Effect, outcome: &'static str) {
        let kind = match effect {
            Effect::Launch { .. } => "launch",
            Effect::Hold { .. } => "hold",
            Effect::RequeueHold { .. } => "requeue_hold",
            Effect::SetLimit { .. } => "set_limit",
            Effect::ShrinkWing { .. } => "shrink_wing",
            Effect::CancelWing { .. } => "cancel_wing",
        };
        self.actions.get_or_create(&vec![("kind", kind), ("outcome", outcome)]).inc();
    }

    /// All metrics in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_asks_only_for_what_there_is() {
        let text = Metrics::default().text();
        let dashboard = include_str!("../../contrib/grafana/infill.json");
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
}
