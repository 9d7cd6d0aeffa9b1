//! A simulation beside a main queue that is still being observed: its time follows the last look at it.

use std::borrow::Cow;

use super::engine::{SimulationEngine, SimulationSetup};
use super::main_delays::DelayRecord;
use super::policy::AllocationPolicy;
use super::queue::{MainQueue, ObservedMoment};
use super::score::{MainQueueDelays, NodeSpan};
use infill_model::JobId;

/// Sums from the start of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveSums {
    /// Node-seconds that the main queue did not use.
    pub idle_node_secs: f64,
    /// Node-seconds that malleable jobs held.
    pub held_node_secs: f64,
    /// Rescales of all jobs, preemptions included.
    pub rescales: u64,
    /// Delays of main jobs.
    pub delays: MainQueueDelays,
}

/// A simulation that is continued with each look at the main queue. Its memory does not grow with time: what
/// was replayed is forgotten.
pub struct LiveSimulation {
    engine: SimulationEngine<'static>,
}

impl LiveSimulation {
    /// A simulation that begins with the queue of this setup, which must be [`MainQueue::Observed`].
    pub fn new(setup: SimulationSetup, policy: Box<dyn AllocationPolicy>) -> LiveSimulation {
        let mut engine = SimulationEngine::new(Cow::Owned(setup), policy);
        engine.delays = Some(Vec::new());
        LiveSimulation { engine }
    }

    /// Adds what was observed since the last call, in the order of time.
    pub fn add_moments(&mut self, moments: Vec<ObservedMoment>) {
        if let MainQueue::Observed(queue) = &mut self.engine.queue {
            queue.append(moments);
        }
    }

    /// Goes on to this moment. What happens in that very second comes with the next call.
    pub fn advance_to(&mut self, end: i64) {
        let start = self.engine.now();
        while let Some(at) = self.engine.next_event().filter(|at| *at < end) {
            self.engine.step_to(at.max(start));
        }
        if end > self.engine.now() {
            self.engine.advance_to(end);
        }
    }

    /// The sums so far.
    pub fn sums(&self) -> LiveSums {
        let score = self.engine.score();
        LiveSums {
            idle_node_secs: score.idle_node_secs,
            held_node_secs: score.held_node_secs,
            rescales: self.engine.rescales(),
            delays: score.preempted,
        }
    }

    /// The main jobs that found a node held since the last call.
    pub fn take_delays(&mut self) -> Vec<DelayRecord> {
        self.engine.delays.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The name of a malleable job.
    pub fn job_name(&self, job: JobId) -> Option<&str> {
        self.engine.job_name(job)
    }

    /// Who was on the first nodes.
    pub fn timeline(&self) -> Vec<NodeSpan> {
        self.engine.timeline()
    }
}
