//! The state of a job between its submission and its end.

/// A job that has arrived and has not ended.
#[derive(Clone, Debug)]
pub(crate) struct LiveJob {
    /// Its index among the jobs.
    pub job: usize,
    /// Seconds that it still has to run.
    pub left_secs: f64,
    /// Seconds that it has run.
    pub done_secs: f64,
    /// Whether it runs now.
    pub runs: bool,
}
