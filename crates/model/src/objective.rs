//! What the planner strives for.

use crate::words;

words! {
    /// What the planner strives for.
    #[derive(Default)]
    pub enum Objective {
        /// That as many samples as can be are made: jobs of one share count alike.
        #[default]
        Throughput = "throughput",
        /// That jobs end soon after they were submitted: who has the best chance to end soon counts most.
        Completion = "completion",
    }
}
