//! The header of a log in the standard workload format: comments of the form `; Key: value`.

use std::num::NonZeroU32;

use infill_model::trace::MAX_NODES_A_MACHINE;

/// The values of the header. If a key occurs again, the first value counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SwfHeader {
    max_nodes: Option<u32>,
    max_procs: Option<u32>,
    /// Unix time of second 0.
    pub(super) epoch: Option<i64>,
    zone_name: Option<String>,
    zone_secs: Option<String>,
}

impl SwfHeader {
    /// Reads a comment, without its semicolon.
    pub(super) fn add_comment(&mut self, comment: &str) {
        let Some((key, value)) = comment.split_once(':') else { return };
        let key = key.trim().to_ascii_lowercase();
        let value = value.trim();
        match key.as_str() {
            "maxnodes" => self.max_nodes = self.max_nodes.or(leading_size(value)),
            "maxprocs" => self.max_procs = self.max_procs.or(leading_size(value)),
            // -1 and 0 mean unknown.
            "unixstarttime" => {
                self.epoch = self.epoch.or(leading_number(value).filter(|secs| *secs > 0));
            }
            "timezonestring" => set_once(&mut self.zone_name, value),
            "timezone" => set_once(&mut self.zone_secs, value),
            _ => {}
        }
    }

    /// Processors per node, rounded up. 1 if the header does not say, or the log counts nodes directly.
    pub(super) fn procs_per_node(&self, counts_nodes: bool) -> NonZeroU32 {
        let procs = match (self.max_procs, self.max_nodes) {
            (Some(procs), Some(nodes)) if !counts_nodes => procs.div_ceil(nodes),
            _ => 1,
        };
        NonZeroU32::new(procs).unwrap_or(NonZeroU32::MIN)
    }

    /// The nodes of the machine. If the header does not say, the nodes that its processors make.
    pub(super) fn nodes_total(&self, per_node: NonZeroU32) -> Option<u32> {
        self.max_nodes.or(self.max_procs.map(|procs| procs.div_ceil(per_node.get())))
    }

    /// The name of the time zone, else its seconds from UTC.
    pub(super) fn time_zone(self) -> Option<String> {
        self.zone_name.or(self.zone_secs)
    }
}

fn set_once(slot: &mut Option<String>, value: &str) {
    if slot.is_none() && !value.is_empty() {
        *slot = Some(value.to_owned());
    }
}

/// The number at the beginning of a value such as `1024 (one cabinet)`.
fn leading_number<T: std::str::FromStr>(value: &str) -> Option<T> {
    value.split_whitespace().next()?.parse().ok()
}

fn leading_size(value: &str) -> Option<u32> {
    leading_number(value).filter(|size| (1..=MAX_NODES_A_MACHINE).contains(size))
}
