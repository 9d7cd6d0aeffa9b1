//! Where malleable jobs come from: a list, an endless supply, or a search that submits the next jobs when
//! some have ended.

mod search;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job::{SimJob, Submitted};
use infill_model::{
    JobId, ScalingCurve,
    trace::{NamedCurve, WorkloadJob},
};
pub use search::{Halving, Nas};

/// Ids of malleable jobs begin here: a log's own are smaller.
const FIRST_ID: u32 = 1_000_000_000;

/// What a sample is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// The same in all jobs.
    Sample,
    /// As much of a node-second as it takes at the job's smallest size: jobs count in different units.
    NodeSecond,
}

/// A job to be submitted.
#[derive(Clone, Debug)]
pub struct Order {
    /// Name.
    pub name: String,
    /// Jobs that run the same program share a profile of this name.
    pub program: String,
    /// True throughput.
    pub curve: Arc<ScalingCurve>,
    /// Smallest and largest size.
    pub sizes: (u32, u32),
    /// Samples to be made; infinite for a job that never ends.
    pub samples: f64,
    /// Weight of the job.
    pub weight: f64,
    /// Its owner, if anybody knows.
    pub user: Option<String>,
}

/// All malleable jobs of a simulation.
#[derive(Clone, Debug)]
pub struct Supply {
    source: Source,
    worth: Worth,
    /// Orders by time, s since the start.
    due: BTreeMap<i64, Vec<Order>>,
    start: i64,
    ids: u32,
}

#[derive(Clone, Debug)]
enum Source {
    Fixed,
    Halving(Halving),
    Nas(Nas),
}

/// Why a workload cannot be simulated.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SupplyError {
    /// A job names a curve that no file has.
    #[error("job {job} needs the curve {curve:?}; there are {known}")]
    UnknownCurve {
        /// The job.
        job: String,
        /// The curve.
        curve: String,
        /// What there is.
        known: String,
    },
    /// No curve at all.
    #[error("no curve is known: name a file of curves")]
    NoCurve,
}

impl Supply {
    /// `jobs` jobs that never end, submitted at once, with the curves in turn.
    pub fn endless(
        jobs: u32,
        curves: &[NamedCurve],
        sizes: (u32, u32),
        worth: Worth,
    ) -> Result<Supply, SupplyError> {
        if curves.is_empty() {
            return Err(SupplyError::NoCurve);
        }
        let order = |(k, c): (u32, &NamedCurve)| Order {
            name: format!("{}-{}", c.name, k + 1),
            program: c.name.clone(),
            curve: Arc::new(c.curve.clone()),
            sizes,
            samples: f64::INFINITY,
            weight: 1.0,
            user: None,
        };
        let orders = (0..jobs).zip(curves.iter().cycle()).map(order).collect();
        Ok(Supply::of(Source::Fixed, BTreeMap::from([(0, orders)]), worth))
    }

    /// The jobs of a list.
    pub fn list(jobs: &[WorkloadJob], curves: &[NamedCurve], worth: Worth) -> Result<Supply, SupplyError> {
        let mut due: BTreeMap<i64, Vec<Order>> = BTreeMap::new();
        for job in jobs {
            let curve =
                curves.iter().find(|c| c.name == job.curve).ok_or_else(|| SupplyError::UnknownCurve {
                    job: job.name.clone(),
                    curve: job.curve.clone(),
                    known: curves.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", "),
                })?;
            due.entry(job.submit_secs).or_default().push(Order {
                name: job.name.clone(),
                program: job.curve.clone(),
                curve: Arc::new(curve.curve.clone()),
                sizes: (job.min_nodes, job.max_nodes),
                samples: job.samples,
                weight: job.weight,
                user: job.user.clone(),
            });
        }
        Ok(Supply::of(Source::Fixed, due, worth))
    }

    /// A search for hyper-parameters.
    pub fn halving(mut search: Halving, worth: Worth) -> Result<Supply, SupplyError> {
        let first = Supply::some(search.first())?;
        Ok(Supply::of(Source::Halving(search), BTreeMap::from([(0, first)]), worth))
    }

    /// A search for architectures.
    pub fn nas(mut search: Nas, worth: Worth) -> Result<Supply, SupplyError> {
        let first = Supply::some(search.first())?;
        Ok(Supply::of(Source::Nas(search), BTreeMap::from([(0, first)]), worth))
    }

    fn some(orders: Vec<Order>) -> Result<Vec<Order>, SupplyError> {
        if orders.is_empty() { Err(SupplyError::NoCurve) } else { Ok(orders) }
    }

    fn of(source: Source, due: BTreeMap<i64, Vec<Order>>, worth: Worth) -> Supply {
        Supply { source, worth, due, start: 0, ids: FIRST_ID }
    }

    /// The same supply for a log that starts at this moment.
    pub(super) fn starting_at(&self, start: i64) -> Supply {
        Supply { start, ..self.clone() }
    }

    /// When the next job is submitted.
    pub(super) fn next(&self) -> Option<i64> {
        self.due.keys().next().map(|at| self.start.saturating_add(*at))
    }

    /// The jobs that are submitted now.
    pub(super) fn submit(&mut self, now: i64) -> Vec<SimJob> {
        let later = self.due.split_off(&(now - self.start + 1));
        let orders = std::mem::replace(&mut self.due, later).into_values().flatten();
        let (mut jobs, worth) = (Vec::new(), self.worth);
        for order in orders {
            self.ids += 1;
            let mut job = SimJob::new(JobId(self.ids), &order.program, order.curve, order.sizes, now);
            let Submitted { curve, min_nodes, .. } = &job.submitted;
            let unit = curve.rate(*min_nodes) / f64::from(*min_nodes);
            let per_sample = if worth == Worth::NodeSecond && unit > 0.0 { 1.0 / unit } else { 1.0 };
            (job.submitted.name, job.submitted.budget) = (order.name, order.samples);
            job.submitted.weight = order.weight * per_sample;
            job.submitted.user = order.user;
            jobs.push(job);
        }
        jobs
    }

    /// Takes note of a job's end, which may bring new ones in the same second.
    pub(super) fn ended(&mut self, job: &SimJob, now: i64) {
        let new = match &mut self.source {
            Source::Fixed => Vec::new(),
            Source::Halving(search) => search.ended(&job.submitted.name),
            Source::Nas(search) => search.ended(),
        };
        if !new.is_empty() {
            self.due.entry(now - self.start).or_default().extend(new);
        }
    }
}
