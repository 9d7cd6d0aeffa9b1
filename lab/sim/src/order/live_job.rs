//! Where a job is between its submission and its end.

/// A job that came and has not ended.
#[derive(Clone, Debug)]
pub(crate) struct LiveJob {
    /// Its place among the jobs.
    pub job: usize,
    /// Seconds that are left of it.
    pub left_secs: f64,
    /// Seconds that it has run.
    pub done_secs: f64,
    /// Whether it runs.
    pub runs: bool,
}
