//! What the daemon may do: the mode of the configuration, and an administrator's passing order.

use crate::words;

words! {
    /// Operating mode of the daemon.
    pub enum DaemonMode {
        /// Look and plan, touch nothing.
        Observe = "observe",
        /// Carry plans out.
        Act = "act",
    }
}

words! {
    /// A passing order of an administrator, kept over restarts.
    #[derive(Default)]
    pub enum ControlState {
        /// Work as the mode says.
        #[default]
        Normal = "normal",
        /// Start nothing and grow nothing; what runs, runs on and still leaves in time.
        Paused = "paused",
        /// Save and park everything.
        Draining = "draining",
    }
}

words! {
    /// What the site lends to malleable jobs.
    #[derive(Default)]
    pub enum LendingMode {
        /// Nodes on which no main job is.
        #[default]
        Nodes = "nodes",
        /// GPUs that no main job has, each with its share of the node's CPUs and memory.
        Gpus = "gpus",
    }
}

words! {
    /// Who may read what the daemon shows.
    pub enum ReadAccess {
        /// Whoever proves who they are.
        Proof = "proof",
        /// Whoever reaches the port.
        Open = "open",
    }
}

words! {
    /// Who may read `/metrics`.
    #[derive(Default)]
    pub enum MetricsAccess {
        /// Whoever reaches the port.
        #[default]
        Open = "open",
        /// Programs on the daemon's own machine.
        Loopback = "loopback",
        /// Nobody.
        Closed = "closed",
    }
}
