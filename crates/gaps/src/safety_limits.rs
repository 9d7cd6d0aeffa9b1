//! The administrator's limits on the nodes of malleable jobs: allowed nodes, blackouts, a maximum number.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use infill_model::config::SafetyConfig;
use infill_model::{BlackoutSpan, Gap, GapRefusal, GapSet, NodeName, UnixTime, WindowCause, WindowEnd};

/// The name that a blackout has as a reservation.
const BLACKOUT_NAME: &str = "blackout";

/// Limits of the section `[safety]`, and the blackout that is on or comes next.
#[derive(Clone, Debug, Default)]
pub struct SafetyLimits {
    /// The only hosts that may be used; `None` for all.
    allowed: Option<FxHashSet<NodeName>>,
    /// Most nodes (or places) that malleable jobs have together; `None` for no limit.
    max_nodes: Option<u32>,
    /// The blackout that is on or comes next.
    blackout: Option<BlackoutSpan>,
}

impl SafetyLimits {
    /// The limits of a configuration, without a blackout.
    pub fn from_config(config: &SafetyConfig) -> SafetyLimits {
        SafetyLimits {
            allowed: config.allowed_nodes().map(|nodes| nodes.into_iter().collect()),
            max_nodes: Some(config.max_nodes).filter(|max| *max > 0),
            blackout: None,
        }
    }

    /// Sets the blackout that is on, or that comes next.
    pub fn set_blackout(&mut self, blackout: Option<BlackoutSpan>) {
        self.blackout = blackout;
    }

    /// Shortens the windows of nodes that must be left: by an earlier end, which has its reason. Nodes that
    /// are not allowed must be left at once. Nodes without a holder are refused instead.
    pub(super) fn shorten_windows(&self, found: &mut GapSet, now: UnixTime) {
        if self.allowed.is_none() && self.blackout.is_none() {
            return;
        }
        found.refuse_gaps(|gap| self.refusal(gap, now).filter(|_| gap.holder.is_none()));
        for gap in &mut found.gaps {
            if self.refusal(gap, now).is_some() {
                end_window(gap, now);
            } else if let Some(span) = self.blackout {
                end_window(gap, span.from);
            }
        }
    }

    /// Why a node may not be used now, even if a job holds it.
    fn refusal(&self, gap: &Gap, now: UnixTime) -> Option<GapRefusal> {
        if let Some(span) = self.blackout.filter(|span| span.from <= now) {
            return Some(GapRefusal::Blackout { until: span.to });
        }
        let is_allowed = self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&gap.node.host()));
        (!is_allowed).then_some(GapRefusal::NotAllowed)
    }

    /// Refuses free nodes beyond the maximum: those that end first. Where jobs hold more than the maximum,
    /// the held nodes that end first must be left at once.
    pub(super) fn keep_maximum(&self, found: &mut GapSet, now: UnixTime) {
        let Some(max) = self.max_nodes else { return };
        let mut ranked: Vec<(bool, Reverse<UnixTime>, NodeName)> = found
            .gaps
            .iter()
            .map(|gap| (gap.holder.is_none(), Reverse(gap.usable_until), gap.node.clone()))
            .collect();
        ranked.sort_unstable();
        let beyond: FxHashSet<NodeName> =
            ranked.into_iter().skip(max as usize).map(|(_, _, node)| node).collect();
        found.refuse_gaps(|gap| {
            let is_refused = gap.holder.is_none() && beyond.contains(&gap.node);
            is_refused.then_some(GapRefusal::AboveNodeLimit { max })
        });
        for gap in found.gaps.iter_mut().filter(|gap| beyond.contains(&gap.node)) {
            end_window(gap, now);
            gap.vacate_by = Some(now);
        }
    }
}

/// Lets a window end at `at`, unless it ends earlier.
fn end_window(gap: &mut Gap, at: UnixTime) {
    let is_later = match &gap.end {
        WindowEnd::Known { at: end, .. } => *end > at,
        WindowEnd::Unknown => true,
    };
    if is_later {
        gap.end = WindowEnd::Known { at, cause: WindowCause::Reservation(BLACKOUT_NAME.to_owned()) };
        gap.usable_until = gap.usable_until.min(at);
        gap.expected_secs = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{JobId, NodeType};

    const NOW: UnixTime = UnixTime(1_000_000);

    fn gap(name: &str, lasts: f64, holder: Option<u32>) -> Gap {
        Gap {
            node: NodeName::new(name),
            node_type: NodeType::new("a"),
            since: NOW,
            end: WindowEnd::Unknown,
            vacate_by: None,
            usable_until: NOW.plus_secs(lasts),
            expected_secs: lasts,
            holder: holder.map(JobId),
            share: None,
        }
    }

    fn found(gaps: &[(&str, f64, Option<u32>)]) -> GapSet {
        let gaps = gaps.iter().map(|(name, lasts, holder)| gap(name, *lasts, *holder)).collect();
        GapSet { gaps, ..GapSet::default() }
    }

    /// Each gap with the seconds for which it may be used, then each refused node.
    fn summary(found: &GapSet) -> Vec<String> {
        let gaps = found.gaps.iter().map(|g| format!("{} {}", g.node, g.usable_until.secs_since(NOW)));
        gaps.chain(found.refused.iter().map(|(node, why)| format!("{node}: {why}"))).collect()
    }

    #[test]
    fn only_allowed_nodes_are_used_and_others_are_left_at_once() {
        let config = SafetyConfig { nodes: "n[1-2]".to_owned(), ..SafetyConfig::default() };
        let mut found = found(&[("n1", 600.0, None), ("n3", 600.0, None), ("n4", 600.0, Some(7))]);
        SafetyLimits::from_config(&config).shorten_windows(&mut found, NOW);
        let refused = "n3: not among the nodes that infill may use (safety.nodes)";
        assert_eq!(summary(&found), ["n1 600", "n4 0", refused]);
    }

    #[test]
    fn windows_end_where_a_blackout_begins() {
        let mut limits = SafetyLimits::default();
        let span = |from| Some(BlackoutSpan { from: NOW.plus_secs(from), to: NOW.plus_secs(3600.0) });
        limits.set_blackout(span(300.0));
        let mut before = found(&[("n1", 100.0, None), ("n2", 600.0, None), ("n3", 600.0, Some(7))]);
        limits.shorten_windows(&mut before, NOW);
        assert_eq!(summary(&before), ["n1 100", "n2 300", "n3 300"]);
        limits.set_blackout(span(-60.0));
        let mut within = found(&[("n1", 100.0, None), ("n3", 600.0, Some(7))]);
        limits.shorten_windows(&mut within, NOW);
        let refused = "n1: not used until 1970-01-12T14:46:40Z: this is a blackout (safety.blackouts)";
        assert_eq!(summary(&within), ["n3 0", refused]);
    }

    #[test]
    fn jobs_have_at_most_the_maximum() {
        let config = SafetyConfig { max_nodes: 2, ..SafetyConfig::default() };
        let limits = SafetyLimits::from_config(&config);
        let mut some = found(&[("n1", 100.0, None), ("n2", 600.0, None), ("n3", 60.0, Some(7))]);
        limits.keep_maximum(&mut some, NOW);
        let refused = "n1: not used: malleable jobs have at most 2 nodes (safety.max_nodes)";
        assert_eq!(summary(&some), ["n2 600", "n3 60", refused]);
        let mut many = found(&[("n1", 100.0, Some(7)), ("n2", 600.0, Some(7)), ("n3", 60.0, Some(8))]);
        limits.keep_maximum(&mut many, NOW);
        assert_eq!(summary(&many), ["n1 100", "n2 600", "n3 0"]);
    }
}
