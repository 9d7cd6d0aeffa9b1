//! What infill would harvest while a main queue is observed, by shadow jobs. They exist only in the
//! simulation, and infill's own planner plans them.

mod page;
mod periods;
mod report;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use infill_model::{
    CurvePoint, NodeName, ScalingCurve, Snapshot, UnixTime, config::Config, trace::NamedCurve,
};
use infill_sim::{
    DelayRecord, LiveSimulation, LiveSums, PolicyName, SimulationSetup,
    job::{ChangeAccounting, CheckpointCosts},
    queue::{MainQueue, QueueObserver},
    supply::{JobSupply, SampleWorth, SupplyError},
};

pub use infill_sim::queue::ObservedNodes;
pub use periods::PeriodSums;
pub use report::{ObservationReport, ShadowDelay};

use periods::{DAY_SECS, HOUR_SECS, PeriodHistory};

/// Exponents e of the built-in curves: n nodes make n^e times the samples of one. Data-parallel training
/// scales like the first within a rack, and like the second over slow networks.
const EXPONENTS: [(&str, f64); 2] = [("scales-well", 0.95), ("scales-less", 0.8)];

/// Seconds that a shadow job needs to save, and between two of its checkpoints.
const SAVE_SECS: f64 = 2.0;
const CHECKPOINT_SECS: f64 = 600.0;

/// Time without an answer from Slurm after which nothing is known about the time between. If looks are rare,
/// it is this number of looks.
const BLIND_TIME: Duration = Duration::from_secs(600);
const BLIND_LOOKS: u32 = 3;

/// Most hours and days whose sums are kept.
const MAX_HOURS: usize = 24 * 31;
const MAX_DAYS: usize = 400;

/// Most main jobs that found a node held whose details are kept.
const MAX_RECENT: usize = 200;

/// Number of nodes in the picture of the page.
const SHOWN_NODES: u32 = 64;

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

    fn supply(&self) -> Result<JobSupply, SupplyError> {
        JobSupply::endless_jobs(self.count.get(), &self.curves, self.sizes, SampleWorth::NodeSecond)
    }
}

/// The simulation of the shadow jobs, and the last sums that were read from it.
struct ShadowCluster {
    simulation: LiveSimulation,
    /// The names of the nodes, by number.
    nodes: Vec<NodeName>,
    /// The first look, s.
    began: i64,
    /// How far the simulation is, s, with its sums then.
    reached: i64,
    sums: LiveSums,
}

/// An observation that goes on. It keeps sums by hour and by day, and no recording.
pub struct SiteObservation {
    observer: QueueObserver,
    jobs: ShadowJobs,
    config: Config,
    /// `None` before the first look.
    shadow: Option<ShadowCluster>,
    hours: PeriodHistory,
    days: PeriodHistory,
    total: PeriodSums,
    /// The last main jobs that found a node held, the oldest first.
    recent: VecDeque<ShadowDelay>,
    /// The first and the last look, s.
    span: Option<(i64, i64)>,
    /// Seconds between two looks from which on nothing is known.
    longest_look_secs: i64,
    blind_secs: f64,
}

impl SiteObservation {
    /// An observation of these nodes, before the first look. `every` is the time between two looks.
    ///
    /// # Errors
    /// If there are no curves.
    pub fn new(
        nodes: ObservedNodes,
        jobs: ShadowJobs,
        every: Duration,
        config: &Config,
    ) -> Result<SiteObservation, SupplyError> {
        jobs.supply()?;
        Ok(SiteObservation {
            observer: QueueObserver::new(nodes),
            jobs,
            config: config.clone(),
            shadow: None,
            hours: PeriodHistory::new(HOUR_SECS, MAX_HOURS),
            days: PeriodHistory::new(DAY_SECS, MAX_DAYS),
            total: PeriodSums::default(),
            recent: VecDeque::new(),
            span: None,
            longest_look_secs: every.saturating_mul(BLIND_LOOKS).max(BLIND_TIME).as_secs() as i64,
            blind_secs: 0.0,
        })
    }

    /// Number of nodes that are observed.
    pub fn node_count(&self) -> usize {
        self.observer.node_names().len()
    }

    /// Takes in a look at Slurm, and lets infill's planner plan the shadow jobs up to it. Shadow jobs begin
    /// again after a long time without a look, and when a node is new.
    ///
    /// # Errors
    /// If there are no curves.
    pub fn record_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), SupplyError> {
        let at = snapshot.taken_at.0;
        let last = self.span.map(|(_, last)| last);
        if last.is_some_and(|last| at <= last) {
            return Ok(());
        }
        if let Some(last) = last.filter(|last| at - last > self.longest_look_secs) {
            self.blind_secs += (at - last) as f64;
            self.start_again();
        }
        self.observer.record_snapshot(snapshot);
        if self.shadow.as_ref().is_some_and(|shadow| shadow.nodes.len() != self.node_count()) {
            self.advance_shadow(at);
            self.start_again();
            self.observer.record_snapshot(snapshot);
        }
        self.span = Some((self.span.map_or(at, |(first, _)| first), at));
        if self.shadow.is_none() {
            let simulation = self.new_simulation()?;
            let nodes = self.observer.node_names().to_vec();
            let sums = LiveSums::default();
            self.shadow = Some(ShadowCluster { simulation, nodes, began: at, reached: at, sums });
        }
        let moments = self.observer.take_moments();
        if let Some(shadow) = &mut self.shadow {
            shadow.simulation.add_moments(moments);
        }
        self.advance_shadow(at);
        Ok(())
    }

    fn start_again(&mut self) {
        self.observer.restart();
        self.shadow = None;
    }

    fn new_simulation(&self) -> Result<LiveSimulation, SupplyError> {
        let setup = SimulationSetup {
            queue: MainQueue::Observed(self.observer.empty_queue()),
            supply: self.jobs.supply()?,
            costs: self.config.planner.costs,
            accounting: ChangeAccounting::default(),
            warm_secs: 0.0,
            checkpoints: CheckpointCosts {
                save_secs: SAVE_SECS,
                interval_secs: CHECKPOINT_SECS,
                grace_secs: self.config.agent.preempt_leave_secs,
            },
            leave_secs: self.config.gaps.leave_secs,
            save_shared: 0.0,
            noise: 0.0,
            seed: 1,
            most_secs: None,
            timeline_nodes: SHOWN_NODES,
        };
        Ok(LiveSimulation::new(setup, PolicyName::InfillKnown.build_policy(&self.config)))
    }

    /// Advances the simulation to `end`, and adds what happened to the hours and days in which it did.
    fn advance_shadow(&mut self, end: i64) {
        let Some(mut shadow) = self.shadow.take() else { return };
        while shadow.reached < end {
            let hour_ends = (shadow.reached.div_euclid(HOUR_SECS) + 1).saturating_mul(HOUR_SECS);
            let until = hour_ends.min(end);
            shadow.simulation.advance_to(until);
            self.add_stretch(&mut shadow, until);
        }
        self.shadow = Some(shadow);
    }

    /// Adds what the simulation made of the time until now.
    fn add_stretch(&mut self, shadow: &mut ShadowCluster, until: i64) {
        let sums = shadow.simulation.sums();
        let mut stretch = PeriodSums::between(&shadow.sums, &sums, shadow.reached, until);
        for record in shadow.simulation.take_delays() {
            stretch.add_delay(named_delay(shadow, &record));
            self.recent.push_back(named_delay(shadow, &record));
        }
        while self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
        self.hours.add_stretch(&stretch);
        self.days.add_stretch(&stretch);
        self.total.add_stretch(&stretch);
        shadow.reached = until;
        shadow.sums = sums;
    }
}

fn named_delay(shadow: &ShadowCluster, record: &DelayRecord) -> ShadowDelay {
    let unknown = || record.holder.to_string();
    ShadowDelay {
        at: UnixTime(record.at),
        node: shadow.nodes.get(record.node as usize).cloned().unwrap_or_else(|| NodeName::new("")),
        main_job: record.job,
        shadow_job: shadow.simulation.job_name(record.holder).map_or_else(unknown, str::to_owned),
        planned: record.planned,
        wait_secs: record.secs,
    }
}

#[cfg(test)]
mod tests;
