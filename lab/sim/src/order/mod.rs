//! Compares queue orders: one queue of jobs of fixed size on a closed machine.
//!
//! Each job comes with the distribution of its length that was known at its submission, and runs on any units
//! of the machine. If an order stops a job, that job needs some seconds of work more. Decisions are made when
//! a job arrives or ends, and every five minutes while jobs wait.

mod engine;
mod live_job;
mod rules;

use infill_advisor::length::LengthDistribution;

pub use engine::simulate_order;

/// A job of fixed size.
#[derive(Clone, Debug, PartialEq)]
pub struct RigidJob {
    /// When it arrives, seconds.
    pub at: f64,
    /// How long it runs, seconds.
    pub secs: f64,
    /// Number of units of the machine that it needs.
    pub size: u32,
    /// The predicted distribution of its length.
    pub lengths: LengthDistribution,
    /// Whether the prediction is for the job itself, and not only for all jobs of the site.
    pub known: bool,
}

/// An order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// First come, first served. A job that fits may overtake others. Stops no jobs.
    Fcfs,
    /// Least attained service first.
    Las,
    /// Least attained service in three levels (Tiresias: 3,250, 7,200 and 18,000 unit-seconds), and first
    /// come, first served within a level.
    TwoDLas,
    /// Smallest remaining service first, with known lengths.
    SrptOracle,
    /// Smallest remaining service first by the predicted median, corrected for jobs that exceed it.
    SrptPredicted,
    /// A-SRPT: by the end of each job on a virtual machine that serves the smallest remaining service first.
    /// Stops no jobs.
    ASrpt,
    /// AITurbo's vote: the sum of the ranks by attained service and by predicted service.
    Borda,
    /// By the Gittins index: the best ratio of the chance to end soon to the service that this takes.
    Gittins,
}

impl QueueOrder {
    /// All orders, with their names.
    pub const ALL: [(&str, QueueOrder); 8] = [
        ("fcfs", QueueOrder::Fcfs),
        ("las", QueueOrder::Las),
        ("2d-las", QueueOrder::TwoDLas),
        ("srpt-oracle", QueueOrder::SrptOracle),
        ("srpt-predicted", QueueOrder::SrptPredicted),
        ("a-srpt", QueueOrder::ASrpt),
        ("borda", QueueOrder::Borda),
        ("gittins", QueueOrder::Gittins),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        QueueOrder::ALL.iter().find(|(_, order)| *order == self).map_or("", |(name, _)| name)
    }

    /// Whether it may stop a job to run another.
    fn stops_jobs(self) -> bool {
        !matches!(self, QueueOrder::Fcfs | QueueOrder::ASrpt)
    }
}

impl std::fmt::Display for QueueOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for QueueOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = QueueOrder::ALL.iter().find(|(name, _)| *name == text).map(|(_, order)| *order);
        let names: Vec<&str> = QueueOrder::ALL.iter().map(|(name, _)| *name).collect();
        found.ok_or_else(|| format!("{text:?} is not an order; expected one of {}", names.join(", ")))
    }
}

/// The results of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderOutcome {
    /// The order.
    pub order: QueueOrder,
    /// Seconds from submission to end, by job.
    pub jct_secs: Vec<f64>,
    /// Number of times that jobs were stopped.
    pub stops: u64,
    /// When the last job ended, from the first submission, seconds.
    pub makespan_secs: f64,
}

impl OrderOutcome {
    /// Mean completion time, seconds.
    pub fn jct_mean(&self) -> f64 {
        self.jct_secs.iter().sum::<f64>() / self.jct_secs.len().max(1) as f64
    }

    /// The completion time that a share of the jobs stays below, seconds.
    pub fn jct_at(&self, share: f64) -> f64 {
        let mut sorted = self.jct_secs.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
        let at = share * last as f64;
        let below = sorted[at.floor() as usize];
        let above = sorted[at.ceil() as usize];
        below + (above - below) * (at - at.floor())
    }

    /// Average number of stops per job.
    pub fn stops_per_job(&self) -> f64 {
        self.stops as f64 / self.jct_secs.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(at: f64, secs: f64, size: u32, median: f64) -> RigidJob {
        let lengths = LengthDistribution::from_logs(vec![median.ln(); 4]).unwrap();
        RigidJob { at, secs, size, lengths, known: true }
    }

    fn jct(jobs: &[RigidJob], order: QueueOrder) -> (Vec<f64>, u64) {
        let done = simulate_order(jobs, 4, order, 10.0, &mut |_| ());
        (done.jct_secs.iter().map(|s| s.round()).collect(), done.stops)
    }

    /// A long job has the whole machine when a short one arrives.
    #[test]
    fn each_order_gives_the_machine_to_its_first_job() {
        let jobs = [job(0.0, 10_000.0, 4, 9_000.0), job(100.0, 500.0, 4, 400.0)];
        assert_eq!(jct(&jobs, QueueOrder::Fcfs), (vec![10_000.0, 10_400.0], 0));
        assert_eq!(jct(&jobs, QueueOrder::SrptOracle), (vec![10_510.0, 500.0], 1));
        assert_eq!(jct(&jobs, QueueOrder::SrptPredicted), (vec![10_510.0, 500.0], 1));
        assert_eq!(jct(&jobs, QueueOrder::Gittins), (vec![10_510.0, 500.0], 1));
        assert!(jct(&jobs, QueueOrder::Las).1 >= 1, "a job without service goes first, until it has as much");
        assert_eq!(jct(&jobs, QueueOrder::ASrpt), (vec![10_000.0, 10_400.0], 0));
    }

    #[test]
    fn a_job_that_exceeds_its_prediction_does_not_block_others() {
        // The first job is predicted to take 100 s, and takes 100 times as long.
        let jobs = [job(0.0, 10_000.0, 4, 100.0), job(1_000.0, 500.0, 4, 450.0)];
        let (times, _) = jct(&jobs, QueueOrder::SrptPredicted);
        assert!(times[1] < 900.0, "{times:?}");
    }

    #[test]
    fn jobs_run_beside_each_other_and_no_order_loses_one() {
        let jobs: Vec<RigidJob> = (0..60)
            .map(|i| job(f64::from(i) * 7.0, 50.0 + f64::from(i * 37 % 400), 1 + i % 4, 200.0))
            .collect();
        for (name, order) in QueueOrder::ALL {
            let done = simulate_order(&jobs, 4, order, 10.0, &mut |_| ());
            assert!(done.jct_secs.iter().zip(&jobs).all(|(jct, job)| *jct >= job.secs - 1e-6), "{name}");
            assert_eq!((name.parse(), order.name()), (Ok(order), name));
            let work: f64 = jobs.iter().map(|j| j.secs * f64::from(j.size)).sum();
            assert!(done.makespan_secs * 4.0 >= work, "{name}");
        }
        assert!("sjf".parse::<QueueOrder>().is_err());
    }
}
