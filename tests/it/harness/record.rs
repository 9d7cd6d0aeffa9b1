//! The records of a suite run for its summary: how long each test had a cluster, and how late main jobs
//! started. Rows go to the folder in `INFILL_TEST_RECORD`. Without it, nothing is recorded.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use super::pool::test_name;

/// Rows of [`cluster_text`]: the test, then the fields of [`ClusterUse`].
const CLUSTERS: &str = "clusters.tsv";

/// Rows of [`delay`]: test, job, seconds.
pub const DELAYS: &str = "delays.tsv";

/// The folder of this run.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("INFILL_TEST_RECORD").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// One test's use of a cluster.
pub struct ClusterUse {
    /// From getting the cluster until it was restored, seconds.
    pub held_secs: f64,
    /// Wait for the cluster, seconds.
    pub waited_secs: f64,
    /// Time to start it, seconds; 0 if it was up already.
    pub made_secs: f64,
    /// Time to restore or end it, seconds.
    pub restored_secs: f64,
    /// Commands that were run inside.
    pub commands: u32,
}

/// Records a test's use of a cluster.
pub fn cluster(used: &ClusterUse) {
    let secs = [used.held_secs, used.waited_secs, used.made_secs, used.restored_secs];
    let secs = secs.map(|secs| format!("{secs:.2}")).join("\t");
    append(CLUSTERS, &[&test_name(), &secs, &used.commands]);
}

/// Records how late a main job started, seconds.
pub fn delay(job: u32, secs: f64) {
    append(DELAYS, &[&test_name(), &job, &format_args!("{secs:.3}")]);
}

fn append(file: &str, fields: &[&dyn Display]) {
    let Some(folder) = folder() else { return };
    let fields: Vec<String> = fields.iter().map(|field| field.to_string()).collect();
    let path = folder.join(file);
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    // One call, so that rows of concurrent tests do not mix.
    let written = opened.and_then(|mut file| file.write_all(format!("{}\n", fields.join("\t")).as_bytes()));
    written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
