//! Where a malleable job is in its life, in a word.

use crate::words;

words! {
    /// Where a malleable job is in its life, in a word.
    pub enum MalleableState {
        /// Waits, held, for nodes.
        Queued = "queued",
        /// Its lead was sent to a node, and has not come to `infill run` yet.
        Launching = "launching",
        /// Its lead is there; nothing runs until the first nodes are here.
        Starting = "starting",
        /// Its command runs.
        Running = "running",
        /// Its command saves and stops, to go on with other nodes.
        Rescaling = "rescaling",
        /// Its command changes its members while it stays alive.
        Regrouping = "regrouping",
        /// Its lead goes back to the queue.
        Parking = "parking",
        /// Its command has ended; its agents leave.
        Ending = "ending",
        /// Its Slurm job has ended.
        Ended = "ended",
    }
}
