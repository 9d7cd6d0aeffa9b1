//! Measures how long a job held nodes and how long it waited for them.

/// A job's waits and turns since its submission.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HoldingHistory {
    /// Seconds for which it was in the queue, with nodes or without.
    pub present_secs: f64,
    /// Node-seconds held.
    pub node_secs: f64,
    /// How often it began to hold nodes after it had held none.
    pub turns: u64,
    /// Seconds from its submission to its first node; `None` until then.
    pub first_wait_secs: Option<f64>,
    /// Seconds of its longest stretch without nodes, including the present one.
    pub longest_wait_secs: f64,
    /// Seconds of all stretches without nodes.
    pub waited_secs: f64,
    /// Seconds of the present stretch without nodes.
    open_wait_secs: f64,
}

impl HoldingHistory {
    /// Records that the job held `nodes` nodes for `secs` seconds. A stretch of 0 s does not count: a job
    /// that loses its nodes and gets others in the same second continues its turn.
    pub fn record_stretch(&mut self, secs: f64, nodes: u32) {
        if secs <= 0.0 {
            return;
        }
        if nodes == 0 {
            self.open_wait_secs += secs;
            self.waited_secs += secs;
            self.longest_wait_secs = self.longest_wait_secs.max(self.open_wait_secs);
        } else {
            self.turns += u64::from(self.turns == 0 || self.open_wait_secs > 0.0);
            self.first_wait_secs.get_or_insert(self.waited_secs);
            self.open_wait_secs = 0.0;
        }
        self.present_secs += secs;
        self.node_secs += secs * f64::from(nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(stretches: &[(f64, u32)]) -> HoldingHistory {
        let mut holding = HoldingHistory::default();
        stretches.iter().for_each(|(secs, nodes)| holding.record_stretch(*secs, *nodes));
        holding
    }

    #[test]
    fn turns_and_waits_follow_from_the_stretches() {
        // Waits 10 s in two looks, has nodes for 25 s, waits 7 s, has nodes for 5 s, and waits to the end.
        let of = after(&[(4.0, 0), (6.0, 0), (20.0, 2), (5.0, 3), (7.0, 0), (5.0, 1), (3.0, 0)]);
        let expected = HoldingHistory {
            present_secs: 50.0,
            node_secs: 60.0,
            turns: 2,
            first_wait_secs: Some(10.0),
            longest_wait_secs: 10.0,
            waited_secs: 20.0,
            open_wait_secs: 3.0,
        };
        assert_eq!(of, expected);
    }

    #[test]
    fn a_job_that_starts_at_once_has_not_waited() {
        let of = after(&[(5.0, 1)]);
        assert_eq!((of.turns, of.first_wait_secs, of.longest_wait_secs), (1, Some(0.0), 0.0));
    }

    #[test]
    fn the_present_wait_counts_and_a_job_that_never_started_has_no_first_wait() {
        let of = after(&[(5.0, 0), (40.0, 0)]);
        assert_eq!((of.turns, of.first_wait_secs, of.longest_wait_secs), (0, None, 45.0));
        let of = after(&[(5.0, 0), (1.0, 1), (40.0, 0)]);
        assert_eq!((of.first_wait_secs, of.longest_wait_secs, of.waited_secs), (Some(5.0), 40.0, 45.0));
    }

    #[test]
    fn a_moment_without_nodes_is_not_a_wait() {
        let of = after(&[(5.0, 2), (0.0, 0), (5.0, 1)]);
        assert_eq!((of.turns, of.waited_secs, of.node_secs), (1, 0.0, 15.0));
    }
}
