//! The results of a simulation of a closed machine.

/// The times of a job that ended, s since the simulation's start.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// Its name.
    pub name: String,
    /// When it was submitted.
    pub submitted: f64,
    /// When it first got GPUs.
    pub started: f64,
    /// When it ended.
    pub ended: f64,
}

impl JobOutcome {
    /// Job completion time: from its submission to its end, s.
    pub(crate) fn jct_secs(&self) -> f64 {
        self.ended - self.submitted
    }
}

/// The results of one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedOutcome {
    /// The policy's name.
    pub policy: String,
    /// Jobs that ended, in the order of their ends.
    pub jobs: Vec<JobOutcome>,
    /// Number of jobs in the workload.
    pub submitted: usize,
    /// Length of the simulation: until the last job ended, or until its time limit, s.
    pub makespan_secs: f64,
    /// How often jobs changed to other GPUs or another plan, without first starts.
    pub restarts: u64,
    /// Samples of all jobs, including those that did not end.
    pub samples: f64,
    /// GPU-seconds that jobs held.
    pub gpu_secs: f64,
    /// The same as a share of all GPU-seconds of the machine.
    pub gpu_use: f64,
}

impl ClosedOutcome {
    pub(super) fn new(policy: String) -> ClosedOutcome {
        ClosedOutcome {
            policy,
            jobs: Vec::new(),
            submitted: 0,
            makespan_secs: 0.0,
            restarts: 0,
            samples: 0.0,
            gpu_secs: 0.0,
            gpu_use: 0.0,
        }
    }

    pub(super) fn finish_at(&mut self, now: f64, gpus: u32, submitted: usize) {
        self.makespan_secs = now;
        self.submitted = submitted;
        self.gpu_use = self.gpu_secs / (f64::from(gpus) * now).max(f64::MIN_POSITIVE);
    }

    /// Job completion times, ascending, s.
    pub(crate) fn sorted_jcts(&self) -> Vec<f64> {
        let mut jcts: Vec<f64> = self.jobs.iter().map(JobOutcome::jct_secs).collect();
        jcts.sort_by(f64::total_cmp);
        jcts
    }

    /// Average completion time, s; 0 if no job ended.
    pub fn jct_mean(&self) -> f64 {
        mean(self.jobs.iter().map(JobOutcome::jct_secs))
    }

    /// Average time from submission to the first GPUs, of the jobs that ended, s.
    pub fn queue_mean(&self) -> f64 {
        mean(self.jobs.iter().map(|j| j.started - j.submitted))
    }

    /// The completion time that this share of the jobs does not exceed (nearest rank), s; 0 if no job ended.
    pub fn jct_at(&self, share: f64) -> f64 {
        let jcts = self.sorted_jcts();
        let rank = (share * jcts.len() as f64).ceil().max(1.0) as usize;
        jcts.get(rank - 1).copied().unwrap_or(0.0)
    }

    /// Samples a second of all jobs.
    pub fn throughput(&self) -> f64 {
        self.samples / self.makespan_secs.max(f64::MIN_POSITIVE)
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
