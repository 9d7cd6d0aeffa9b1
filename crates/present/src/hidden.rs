//! Says what Slurm's `PrivateData` hides from a reader.

use super::output;
use infill_api::HiddenCounts;

/// The hidden jobs and nodes in a line. `None` if nothing is hidden.
pub fn describe_hidden(hidden: &HiddenCounts) -> Option<String> {
    let nodes: u32 = hidden.nodes.values().sum();
    let jobs = (hidden.jobs > 0).then(|| {
        let on = output::counted_noun(u64::from(hidden.job_nodes), "node");
        format!("{} of other users on {on}", output::counted_noun(u64::from(hidden.jobs), "job"))
    });
    let nodes = (nodes > 0).then(|| output::counted_noun(u64::from(nodes), "node"));
    let all: Vec<String> = jobs.into_iter().chain(nodes).collect();
    (!all.is_empty()).then(|| format!("not shown (Slurm's PrivateData): {}", all.join("; ")))
}
