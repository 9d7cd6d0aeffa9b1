//! The goal of planning.

use crate::words;

words! {
    /// The goal of planning.
    #[derive(Default)]
    pub enum PlanningObjective {
        /// Equal progress of users' jobs: the user with the smallest usage comes next.
        Throughput = "throughput",
        /// Early completion of jobs: the job with the least remaining work comes next, if that is known.
        #[default]
        Completion = "completion",
    }
}
