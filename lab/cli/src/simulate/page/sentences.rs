//! The results in sentences.

use crate::simulate::document::{PolicyRow, SimulationDocument};
use infill_present::{long_duration::LongDuration, output, phrases::percent};

/// The sentences, the most important first, about the policy that is shown.
pub(crate) fn page_sentences(document: &SimulationDocument, shown: &PolicyRow) -> Vec<String> {
    let mut all =
        vec![harvest_sentence(document, shown), main_queue_sentence(document, shown), work_sentence(shown)];
    all.extend(comparison_sentence(document, shown));
    // A number and its sign stay on one line.
    all.into_iter().map(|sentence| sentence.replace(" %", "\u{a0}%")).collect()
}

fn harvest_sentence(document: &SimulationDocument, shown: &PolicyRow) -> String {
    let subject = &document.subject;
    let unit = subject.unit.noun();
    format!(
        "On this log ({} {}, {}) {} would have harvested {} {unit}-hours: {} of the idle {unit}-time, {} of the \
         machine.",
        subject.nodes,
        subject.unit.plural(),
        LongDuration(subject.span_secs).to_text(),
        shown.policy,
        output::format_number(shown.held_node_secs / 3600.0),
        percent::sentence_percent(shown.harvest_ratio),
        percent::sentence_percent(shown.held_node_secs / (subject.span_secs * subject.nodes as f64).max(1.0)),
    )
}

fn main_queue_sentence(document: &SimulationDocument, shown: &PolicyRow) -> String {
    let delays = &shown.preempted;
    let delayed = delays.unforeseen + delays.late;
    // An idle log shows that nodes were taken, but not by how many jobs.
    let what =
        if document.subject.idle_log { "times that the main queue took nodes it" } else { "main jobs" };
    if delayed == 0 {
        return format!("None of the {} {what} would have found a node still held.", delays.jobs);
    }
    let late = match delays.late {
        0 => "never where the start had been planned for long enough".to_owned(),
        n => format!("{n} of them though the start had been planned for long enough"),
    };
    format!(
        "{delayed} of the {} {what} would have found a node still held, {late}; the longest wait would have been {:.0} s.",
        delays.jobs,
        delays.longest_secs.ceil(),
    )
}

fn work_sentence(shown: &PolicyRow) -> String {
    let loss = &shown.loss;
    format!(
        "Its jobs would have made {} samples, {} of what the bound makes; rescales would have cost {}, preemption {}, \
         probing {}.",
        output::format_number(shown.samples),
        percent::sentence_percent(shown.efficiency),
        percent::sentence_percent(loss.rescale),
        percent::sentence_percent(loss.preemption),
        percent::sentence_percent(loss.probing),
    )
}

fn comparison_sentence(document: &SimulationDocument, shown: &PolicyRow) -> Option<String> {
    let others = document.policies.iter().filter(|r| r.policy != shown.policy && r.policy != "bound");
    let others: Vec<String> =
        others.map(|r| format!("{} {}", r.policy, percent::sentence_percent(r.efficiency))).collect();
    (!others.is_empty()).then(|| format!("For comparison, efficiency of {}.", others.join(", ")))
}
