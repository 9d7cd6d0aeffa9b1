//! The sources of malleable jobs: a list, an endless supply, or a search that submits new jobs when earlier
//! ones have ended.

mod search;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job::{SimJob, SubmittedJob};
use infill_model::{
    JobId, ScalingCurve,
    trace::{NamedCurve, WorkloadJob},
};
pub use search::{ArchitectureSearch, HalvingSearch};

/// Ids of malleable jobs begin here. The ids of a log's jobs are smaller.
const FIRST_ID: u32 = 1_000_000_000;

/// What a sample is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleWorth {
    /// 1 in all jobs.
    Sample,
    /// The node-seconds that it takes at the job's smallest size. This makes jobs comparable that count
    /// samples in different units.
    NodeSecond,
}

/// A job that will be submitted.
#[derive(Clone, Debug)]
pub struct JobSubmission {
    /// Name of the job.
    pub name: String,
    /// The name of the profile that all jobs with the same program share.
    pub program: String,
    /// True throughput, samples a second.
    pub curve: Arc<ScalingCurve>,
    /// Smallest and largest size, nodes.
    pub sizes: (u32, u32),
    /// Samples to make; infinite for a job that never ends.
    pub samples: f64,
    /// Weight of the job.
    pub weight: f64,
    /// Its owner; `None` if unknown.
    pub user: Option<String>,
}

/// All malleable jobs of a simulation.
#[derive(Clone, Debug)]
pub struct JobSupply {
    source: SupplySource,
    worth: SampleWorth,
    /// Submissions by time, s since the start.
    due: BTreeMap<i64, Vec<JobSubmission>>,
    start: i64,
    ids: u32,
}

#[derive(Clone, Debug)]
enum SupplySource {
    Fixed,
    Halving(HalvingSearch),
    Nas(ArchitectureSearch),
}

/// Why a workload cannot be simulated.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SupplyError {
    /// A job names a curve that is in no file.
    #[error("job {job} needs the curve {curve:?}; there are {known}")]
    UnknownCurve {
        /// The job.
        job: String,
        /// The curve.
        curve: String,
        /// The names of the curves in the files.
        known: String,
    },
    /// There are no curves.
    #[error("no curve is known: name a file of curves")]
    NoCurve,
}

impl JobSupply {
    /// `jobs` jobs that never end, all submitted at the start, with the curves in turn.
    pub fn endless_jobs(
        jobs: u32,
        curves: &[NamedCurve],
        sizes: (u32, u32),
        worth: SampleWorth,
    ) -> Result<JobSupply, SupplyError> {
        if curves.is_empty() {
            return Err(SupplyError::NoCurve);
        }
        let submissions = (1..=jobs).zip(curves.iter().cycle()).map(|(number, curve)| JobSubmission {
            name: format!("{}-{number}", curve.name),
            program: curve.name.clone(),
            curve: Arc::new(curve.curve.clone()),
            sizes,
            samples: f64::INFINITY,
            weight: 1.0,
            user: None,
        });
        let due = BTreeMap::from([(0, submissions.collect())]);
        Ok(JobSupply::with_source(SupplySource::Fixed, due, worth))
    }

    /// The jobs of a list.
    pub fn from_list(
        jobs: &[WorkloadJob],
        curves: &[NamedCurve],
        worth: SampleWorth,
    ) -> Result<JobSupply, SupplyError> {
        let mut due: BTreeMap<i64, Vec<JobSubmission>> = BTreeMap::new();
        for job in jobs {
            let curve =
                curves.iter().find(|c| c.name == job.curve).ok_or_else(|| SupplyError::UnknownCurve {
                    job: job.name.clone(),
                    curve: job.curve.clone(),
                    known: curves.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", "),
                })?;
            due.entry(job.submit_secs).or_default().push(JobSubmission {
                name: job.name.clone(),
                program: job.curve.clone(),
                curve: Arc::new(curve.curve.clone()),
                sizes: (job.min_nodes, job.max_nodes),
                samples: job.samples,
                weight: job.weight,
                user: job.user.clone(),
            });
        }
        Ok(JobSupply::with_source(SupplySource::Fixed, due, worth))
    }

    /// A search for hyper-parameters.
    pub fn from_halving(mut search: HalvingSearch, worth: SampleWorth) -> Result<JobSupply, SupplyError> {
        let first = JobSupply::require_jobs(search.first_jobs())?;
        Ok(JobSupply::with_source(SupplySource::Halving(search), BTreeMap::from([(0, first)]), worth))
    }

    /// A search for architectures.
    pub fn from_nas(mut search: ArchitectureSearch, worth: SampleWorth) -> Result<JobSupply, SupplyError> {
        let first = JobSupply::require_jobs(search.first_jobs())?;
        Ok(JobSupply::with_source(SupplySource::Nas(search), BTreeMap::from([(0, first)]), worth))
    }

    fn require_jobs(submissions: Vec<JobSubmission>) -> Result<Vec<JobSubmission>, SupplyError> {
        if submissions.is_empty() { Err(SupplyError::NoCurve) } else { Ok(submissions) }
    }

    fn with_source(
        source: SupplySource,
        due: BTreeMap<i64, Vec<JobSubmission>>,
        worth: SampleWorth,
    ) -> JobSupply {
        JobSupply { source, worth, due, start: 0, ids: FIRST_ID }
    }

    /// The same supply for a log that starts at this moment.
    pub(super) fn starting_at(&self, start: i64) -> JobSupply {
        JobSupply { start, ..self.clone() }
    }

    /// When the next job is submitted.
    pub(super) fn next_submission(&self) -> Option<i64> {
        self.due.keys().next().map(|at| self.start.saturating_add(*at))
    }

    /// The jobs that are submitted now.
    pub(super) fn submit_due(&mut self, now: i64) -> Vec<SimJob> {
        let later = self.due.split_off(&(now - self.start + 1));
        let submissions = std::mem::replace(&mut self.due, later).into_values().flatten();
        let mut jobs = Vec::new();
        let worth = self.worth;
        for submission in submissions {
            self.ids += 1;
            let mut job =
                SimJob::new(JobId(self.ids), &submission.program, submission.curve, submission.sizes, now);
            let SubmittedJob { curve, min_nodes, .. } = &job.submitted;
            let unit = curve.rate(*min_nodes) / f64::from(*min_nodes);
            let per_sample = if worth == SampleWorth::NodeSecond && unit > 0.0 { 1.0 / unit } else { 1.0 };
            job.submitted.name = submission.name;
            job.submitted.budget = submission.samples;
            job.submitted.weight = submission.weight * per_sample;
            job.submitted.user = submission.user;
            jobs.push(job);
        }
        jobs
    }

    /// Records the end of a job. A search may then submit new jobs in the same second.
    pub(super) fn job_ended(&mut self, job: &SimJob, now: i64) {
        let new = match &mut self.source {
            SupplySource::Fixed => Vec::new(),
            SupplySource::Halving(search) => search.trial_ended(&job.submitted.name),
            SupplySource::Nas(search) => search.trial_ended(),
        };
        if !new.is_empty() {
            self.due.entry(now - self.start).or_default().extend(new);
        }
    }
}
