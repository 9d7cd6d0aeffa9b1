//! What the planner strives for.

use crate::words;

words! {
    /// What the planner strives for.
    #[derive(Default)]
    pub enum PlanningObjective {
        /// That the jobs of a user come as far as one another: who has had least comes next.
        Throughput = "throughput",
        /// That jobs end soon after they were submitted: who has the least work ahead comes next, where that
        /// is known.
        #[default]
        Completion = "completion",
    }
}
