//! What the daemon may do: the configured mode, and the current order of an administrator.

use crate::words;

words! {
    /// Operating mode of the daemon.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum DaemonMode {
        /// It observes and plans, and changes nothing.
        Observe = "observe",
        /// It carries out plans.
        Act = "act",
    }
}

words! {
    /// The current order of an administrator, kept over restarts.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum ControlState {
        /// The daemon works as its mode says.
        #[default]
        Normal = "normal",
        /// The daemon starts nothing and grows nothing. Running jobs continue and still leave in time.
        Paused = "paused",
        /// All malleable jobs save and are parked.
        Draining = "draining",
    }
}

words! {
    /// What the site lends to malleable jobs.
    #[derive(Default)]
    pub enum LendingMode {
        /// Whole nodes without main jobs.
        #[default]
        Nodes = "nodes",
        /// GPUs without main jobs, each with its share of the node's CPUs and memory.
        Gpus = "gpus",
    }
}

words! {
    /// Who may read the daemon's data.
    pub enum ReadAccess {
        /// Anyone who proves their identity.
        Proof = "proof",
        /// Anyone who can reach the port.
        Open = "open",
    }
}

words! {
    /// Who may read `/metrics`.
    #[derive(Default)]
    pub enum MetricsAccess {
        /// Anyone who can reach the port.
        #[default]
        Open = "open",
        /// Programs on the daemon's own host.
        Loopback = "loopback",
        /// No one.
        Closed = "closed",
    }
}
