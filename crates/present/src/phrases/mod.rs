//! Turns the numbers of the API into words, for the command line and the page.

mod array_tasks;
mod display_clock;
pub mod explain;
pub mod percent;
pub mod status_headline;

pub use array_tasks::resolve_task;
pub use display_clock::DisplayClock;
pub use infill_model::counted_noun;

use infill_api::{EndPrediction, IdleShare, NodeKind};
use infill_model::{GpuCounts, JobPlan, Resources, duration};

/// The word that users read for a kind of node.
pub fn node_kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Busy => "busy",
        NodeKind::Gap => "gap",
        NodeKind::Held => "held",
        NodeKind::Refused => "refused",
    }
}

/// The idle part of a node: `2 GPUs, 8 CPUs, 7.8 GiB`.
pub fn idle_share(idle: IdleShare) -> String {
    let IdleShare { gpus, cpus, memory_mib } = idle;
    let of_any_type = GpuCounts::from_counts([(String::new(), gpus)]);
    Resources { cpus, memory_mib, gpus: of_any_type }.to_string()
}

/// When a job ends: `40:00 at its present rate, most likely between 25:00 and 1:23:20 (well known)`. Eight of
/// ten such jobs end within the two times.
pub(crate) fn describe_end(ends: &EndPrediction) -> String {
    let [low, median, high] =
        [ends.low_secs, ends.median_secs, ends.high_secs].map(duration::format_duration);
    let quality = if ends.predictable { "well known" } else { "a rough guess" };
    format!("{median} at its present rate, most likely between {low} and {high} ({quality})")
}

/// The text, or `-` if it is empty: scripts that split a line at blanks need a word in each column.
pub fn text_or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Planned numbers of nodes: `4 until 22:30:00, 2 until 22:40:00`. Equal sizes in a row are joined.
pub fn describe_forecast(plan: &JobPlan, when: DisplayClock) -> String {
    let parts: Vec<String> = plan
        .forecast
        .chunk_by(|a, b| a.1 == b.1)
        .filter_map(|same| same.last())
        .map(|(end, nodes)| format!("{nodes} until {}", when.format_clock(*end)))
        .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}
