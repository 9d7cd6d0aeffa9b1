//! The activity of a job on its nodes.

/// The activity of a job on its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobActivity {
    /// It makes steps.
    Steps,
    /// It makes steps at a size that is being measured.
    Probing,
    /// It starts, or changes because the planner wants it.
    Changing,
    /// It starts or changes because Slurm has taken nodes, or some were lost.
    Recovering,
}
