//! From what a rate of a job is known.

use crate::words;

words! {
    /// From what the rate of a job with one of its execution plans on so many nodes of a type is known.
    pub enum RateSource {
        /// It ran so.
        Measured = "measured",
        /// It ran with this plan on other numbers of nodes of this type.
        OtherSizes = "other_sizes",
        /// Its owner declares a curve.
        Declared = "declared",
        /// The program ran with other plans on nodes of this type.
        OtherPlans = "other_plans",
        /// The program ran on nodes of other types; how types compare follows from all that the site
        /// measured.
        OtherTypes = "other_types",
        /// Another user's program of the same name ran with this plan.
        OtherUsers = "other_users",
        /// It never ran: so it was estimated beforehand, from profiles of its parts.
        Estimated = "estimated",
    }
}
