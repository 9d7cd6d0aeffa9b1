//! The basis of a job's rate.

use crate::words;

words! {
    /// The basis of a job's rate with one execution plan on a number of nodes of a type.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum RateSource {
        /// The job ran exactly so.
        Measured = "measured",
        /// It ran with this plan on other numbers of nodes of this type.
        OtherSizes = "other_sizes",
        /// Its owner declares a curve.
        Declared = "declared",
        /// The program ran with other plans on nodes of this type.
        OtherPlans = "other_plans",
        /// The program ran on nodes of other types. All measurements of the site show how types compare.
        OtherTypes = "other_types",
        /// Another user's program of the same name ran with this plan.
        OtherUsers = "other_users",
        /// It never ran like this. The rate was estimated beforehand from profiles of its parts.
        Estimated = "estimated",
    }
}
