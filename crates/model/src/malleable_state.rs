//! The phase of a malleable job's life, in a word.

use crate::words;

words! {
    /// The phase of a malleable job's life, in a word.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum MalleableState {
        /// It waits for nodes, held in Slurm.
        Queued = "queued",
        /// Its lead was released to a node but has not started `infill run` yet.
        Launching = "launching",
        /// Its lead runs, but no command runs until the first nodes are ready.
        Starting = "starting",
        /// Its command runs.
        Running = "running",
        /// Its command saves and stops, to continue on other nodes.
        Rescaling = "rescaling",
        /// Its command changes its members while it stays alive.
        Regrouping = "regrouping",
        /// Its lead returns to the queue.
        Parking = "parking",
        /// Its command has ended; its agents leave.
        Ending = "ending",
        /// Its Slurm job has ended.
        Ended = "ended",
    }
}
