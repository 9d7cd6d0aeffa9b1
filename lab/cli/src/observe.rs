//! What infill would have harvested while a main queue was observed, by shadow jobs. They exist only in the
//! simulation, and infill's own planner plans them.

use std::fmt;
use std::num::NonZeroU32;

use serde::Serialize;

use infill_api::SCHEMA_VERSION;
use infill_model::{CurvePoint, ScalingCurve, config::Config, duration::format_duration, trace::NamedCurve};
use infill_sim::{
    PolicyName, PolicyScore, SimulationSetup,
    job::{ChangeAccounting, CheckpointCosts},
    queue::MainQueue,
    run_simulation,
    supply::{JobSupply, SampleWorth, SupplyError},
};

pub use infill_sim::queue::QueueObserver;

/// Exponents e of the built-in curves: n nodes make n^e times the samples of one. Data-parallel training
/// scales like the first within a rack, and like the second over slow networks.
const EXPONENTS: [(&str, f64); 2] = [("scales-well", 0.95), ("scales-less", 0.8)];

/// Seconds that a shadow job needs to save, and between two of its checkpoints.
const SAVE_SECS: f64 = 2.0;
const CHECKPOINT_SECS: f64 = 600.0;

/// Shadow jobs.
#[derive(Clone, Debug)]
pub struct ShadowJobs {
    /// Their number.
    pub count: NonZeroU32,
    /// Their smallest and largest number of nodes.
    pub sizes: (u32, u32),
    /// Their curves, in turn.
    pub curves: Vec<NamedCurve>,
}

impl ShadowJobs {
    /// Jobs of 1 to `max` nodes with the built-in curves.
    pub fn built_in(count: NonZeroU32, max: u32) -> ShadowJobs {
        let curves = EXPONENTS.iter().filter_map(|(name, exponent)| {
            let points =
                std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(|n| *n <= max.max(1));
            let points =
                points.map(|nodes| CurvePoint { nodes, rate: 100.0 * f64::from(nodes).powf(*exponent) });
            let curve = ScalingCurve::new(points.collect()).ok()?;
            Some(NamedCurve { name: (*name).to_owned(), curve })
        });
        ShadowJobs { count, sizes: (1, max.max(1)), curves: curves.collect() }
    }
}

/// What was observed, and what infill would have made of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservationReport {
    /// [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Seconds from the first to the last look at Slurm.
    pub observed_secs: f64,
    /// Nodes that were observed.
    pub nodes: usize,
    /// Node-hours that the main queue did not use.
    pub idle_node_hours: f64,
    /// Of these, node-hours that shadow jobs would have held.
    pub held_node_hours: f64,
    /// The number of shadow jobs, and their largest size.
    pub shadow_jobs: u32,
    /// The largest number of nodes of one of them.
    pub max_nodes: u32,
    /// How often they would have changed their size.
    pub rescales: u64,
    /// Main jobs that started.
    pub main_jobs: u64,
    /// Main jobs that would have found a node held although Slurm had planned their start in time.
    pub late_main_jobs: u64,
    /// Main jobs that would have preempted a shadow job, because Slurm had not planned their start.
    pub preempting_main_jobs: u64,
    /// The longest time for which one of them would have waited, seconds.
    pub longest_wait_secs: f64,
}

/// Plans the shadow jobs on everything that was observed. Takes seconds for a day of a large machine.
///
/// # Errors
/// If there are no curves.
pub fn report_observation(
    observer: &QueueObserver,
    jobs: &ShadowJobs,
    config: &Config,
) -> Result<ObservationReport, SupplyError> {
    let queue = observer.recorded_queue();
    let supply =
        JobSupply::endless_jobs(jobs.count.get(), &jobs.curves, jobs.sizes, SampleWorth::NodeSecond)?;
    let setup = SimulationSetup {
        queue: MainQueue::Observed(queue),
        supply,
        costs: config.planner.costs,
        accounting: ChangeAccounting::default(),
        warm_secs: 0.0,
        checkpoints: CheckpointCosts {
            save_secs: SAVE_SECS,
            interval_secs: CHECKPOINT_SECS,
            grace_secs: config.agent.preempt_leave_secs,
        },
        leave_secs: config.gaps.leave_secs,
        save_shared: 0.0,
        noise: 0.0,
        seed: 1,
        most_secs: None,
        timeline_nodes: 0,
    };
    let nodes = setup.queue.node_names().len();
    let score = run_simulation(&setup, PolicyName::InfillKnown.build_policy(config), &mut |_| ());
    Ok(ObservationReport::from_score(&score, observer.observed_secs(), nodes, jobs))
}

impl ObservationReport {
    fn from_score(score: &PolicyScore, secs: i64, nodes: usize, jobs: &ShadowJobs) -> ObservationReport {
        ObservationReport {
            schema: SCHEMA_VERSION,
            observed_secs: secs as f64,
            nodes,
            idle_node_hours: score.idle_node_secs / 3600.0,
            held_node_hours: score.held_node_secs / 3600.0,
            shadow_jobs: jobs.count.get(),
            max_nodes: jobs.sizes.1,
            rescales: score.rescales,
            main_jobs: score.preempted.jobs,
            late_main_jobs: score.preempted.late,
            preempting_main_jobs: score.preempted.unforeseen,
            longest_wait_secs: score.preempted.longest_secs,
        }
    }
}

/// As people read it, in four lines.
impl fmt::Display for ObservationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.observed_secs / 3600.0;
        let mean_idle = if hours > 0.0 { self.idle_node_hours / hours } else { 0.0 };
        let share =
            if self.idle_node_hours > 0.0 { self.held_node_hours / self.idle_node_hours } else { 0.0 };
        writeln!(
            f,
            "observed  {}, {} nodes, {mean_idle:.1} of them idle on average ({:.1} %)",
            format_duration(self.observed_secs),
            self.nodes,
            100.0 * mean_idle / self.nodes.max(1) as f64
        )?;
        writeln!(
            f,
            "harvest   {:.2} of {:.2} idle node-hours ({:.0} %), by {} shadow jobs of 1 to {} nodes, in {} rescales",
            self.held_node_hours,
            self.idle_node_hours,
            100.0 * share,
            self.shadow_jobs,
            self.max_nodes,
            self.rescales
        )?;
        writeln!(
            f,
            "main jobs {} started; {} would have preempted a shadow job, {} would have been late though planned",
            self.main_jobs, self.preempting_main_jobs, self.late_main_jobs
        )?;
        write!(f, "wait      at most {:.0} s for a shadow job to leave", self.longest_wait_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, Job, JobId, Node, NodeName, NodeState, NodeType, Snapshot, UnixTime};

    /// Four nodes. The first `busy` ones have a main job.
    fn snapshot(at: i64, busy: usize) -> Snapshot {
        let names = ["n1", "n2", "n3", "n4"].map(NodeName::new);
        let nodes = names.iter().enumerate().map(|(i, name)| Node {
            state: NodeState::from_words([if i < busy { "ALLOCATED" } else { "IDLE" }]),
            partitions: vec!["main".to_owned()],
            ..Node::new(name.clone(), NodeType::new("a"))
        });
        let mut jobs = Vec::new();
        for (id, name) in (1..).zip(&names[..busy]) {
            let mut job = Job::new(JobId(id), "main", BaseState::Running);
            job.nodes = vec![name.clone()];
            jobs.push(job);
        }
        let mut snapshot =
            Snapshot { taken_at: UnixTime(at), nodes: nodes.collect(), jobs, ..Snapshot::default() };
        snapshot.backfill.complete = true;
        snapshot
    }

    #[test]
    fn shadow_jobs_use_the_idle_nodes_and_leave_for_main_jobs() {
        let mut observer = QueueObserver::new([]);
        for (at, busy) in [(0, 2), (1800, 2), (3600, 3), (5400, 2), (7200, 2)] {
            observer.record_snapshot(&snapshot(at, busy));
        }
        let jobs = ShadowJobs::built_in(NonZeroU32::new(2).unwrap(), 4);
        let report = report_observation(&observer, &jobs, &Config::default()).unwrap();
        assert_eq!((report.nodes, report.observed_secs), (4, 7200.0));
        assert!((report.idle_node_hours - 3.5).abs() < 1e-6, "{report:?}");
        assert!(report.held_node_hours > 0.9 * report.idle_node_hours, "{report:?}");
        assert_eq!((report.late_main_jobs, report.preempting_main_jobs), (0, 1), "{report:?}");
        assert!(report.longest_wait_secs > 0.0 && report.longest_wait_secs < 30.0, "{report:?}");
        let text = report.to_string();
        assert!(
            text.starts_with("observed  2:00:00, 4 nodes, 1.8 of them idle on average (43.8 %)"),
            "{text}"
        );
    }
}
