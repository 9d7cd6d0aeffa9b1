//! What a job does on its nodes.

/// What a job does on its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobActivity {
    /// It makes steps.
    Steps,
    /// It makes steps at a size that is being tried.
    Probing,
    /// It starts, or changes as the planner wants.
    Changing,
    /// The same because Slurm has taken nodes, or some were lost.
    Recovering,
}
