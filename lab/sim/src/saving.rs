//! Simulates jobs that save at the same time through one file system.

use super::job::SimJob;
use super::queue::NodeIx;

/// A save with less work than this left is done, s: sums of seconds are not exact.
const DONE_TOLERANCE_SECS: f64 = 1e-6;

/// One job that saves to leave nodes.
#[derive(Clone, Debug)]
pub(super) struct PendingSave {
    /// The job as it was when it began.
    pub job: SimJob,
    /// The nodes that it leaves.
    pub nodes: Vec<NodeIx>,
    /// When it began, s.
    pub began: f64,
    /// Seconds that it still takes, if no other job saves.
    left_secs: f64,
}

/// All saves in progress. While k jobs save, each has 1 / (1 + c (k − 1)) of the speed that it has alone.
#[derive(Clone, Debug)]
pub(super) struct ConcurrentSaves {
    /// This is c: 0 if jobs do not slow each other down, 1 if they share one pipe.
    shared: f64,
    now: f64,
    under_way: Vec<PendingSave>,
}

impl ConcurrentSaves {
    /// No saves yet, at the time `now`, s.
    pub fn new(shared: f64, now: f64) -> Self {
        ConcurrentSaves { shared: shared.clamp(0.0, 1.0), now, under_way: Vec::new() }
    }

    /// Whether jobs slow each other down at all.
    pub fn is_shared(&self) -> bool {
        self.shared > 0.0
    }

    /// Begins a save that takes `secs` seconds if no other job saves.
    pub fn begin_save(&mut self, job: SimJob, nodes: Vec<NodeIx>, secs: f64) {
        self.under_way.push(PendingSave { job, nodes, began: self.now, left_secs: secs.max(0.0) });
    }

    /// When the next save is done, if no other begins.
    pub fn next_completion(&self) -> Option<f64> {
        let least = self.under_way.iter().map(|save| save.left_secs).reduce(f64::min)?;
        Some(self.now + least * self.slowdown())
    }

    /// Advances to `at`. Returns the saves that are done, each with its moment.
    pub fn advance_to(&mut self, at: f64) -> Vec<(PendingSave, f64)> {
        let mut done = Vec::new();
        while let Some(next) = self.next_completion().filter(|next| *next <= at + DONE_TOLERANCE_SECS) {
            self.progress_to(next);
            let finished = self.under_way.extract_if(.., |save| save.left_secs <= DONE_TOLERANCE_SECS);
            done.extend(finished.map(|save| (save, next)));
        }
        self.progress_to(at.max(self.now));
        done
    }

    /// Seconds that leaving each of these nodes takes in total, if no other save begins.
    pub fn forecast_leaving(&self) -> Vec<(NodeIx, f64)> {
        let done = self.clone().advance_to(f64::INFINITY);
        let mut secs: Vec<(f64, NodeIx, f64)> = Vec::new();
        for (save, at) in &done {
            secs.extend(save.nodes.iter().map(|node| (save.began, *node, at - save.began)));
        }
        // The last save counts for a node that was left twice.
        secs.sort_by(|a, b| a.0.total_cmp(&b.0));
        secs.into_iter().map(|(_, node, secs)| (node, secs)).collect()
    }

    fn slowdown(&self) -> f64 {
        1.0 + self.shared * self.under_way.len().saturating_sub(1) as f64
    }

    fn progress_to(&mut self, at: f64) {
        if at.is_finite() {
            let done_secs = (at - self.now) / self.slowdown();
            for save in &mut self.under_way {
                save.left_secs -= done_secs;
            }
            self.now = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{JobId, ScalingCurve};
    use std::sync::Arc;

    /// The moments at which saves are done, from the moment each begins and the seconds that it takes alone.
    fn done(shared: f64, saves: &[(f64, f64)]) -> Vec<f64> {
        let curve = Arc::new(ScalingCurve::parse("1:10").unwrap());
        let mut saving = ConcurrentSaves::new(shared, 0.0);
        let mut ends = vec![0.0; saves.len()];
        let mut note = |done: Vec<(PendingSave, f64)>| {
            done.iter().for_each(|(save, at)| ends[save.nodes[0] as usize] = at.round());
        };
        for (node, (began, secs)) in (0..).zip(saves) {
            note(saving.advance_to(*began));
            saving.begin_save(SimJob::new(JobId(1), "x", curve.clone(), (1, 1), 0), vec![node], *secs);
        }
        let forecast = saving.forecast_leaving();
        note(saving.advance_to(1e6));
        for (node, secs) in forecast {
            assert_eq!(saves[node as usize].0 + secs.round(), ends[node as usize], "as forecast");
        }
        ends
    }

    #[test]
    fn saves_that_share_a_pipe_take_as_long_as_in_a_row() {
        assert_eq!(done(0.0, &[(0.0, 10.0), (0.0, 20.0)]), [10.0, 20.0]);
        assert_eq!(done(1.0, &[(0.0, 10.0), (0.0, 20.0)]), [20.0, 30.0]);
        assert_eq!(done(0.5, &[(0.0, 10.0), (0.0, 20.0)]), [15.0, 25.0]);
        assert_eq!(done(1.0, &[(0.0, 10.0), (5.0, 10.0), (100.0, 10.0)]), [15.0, 20.0, 110.0]);
        assert_eq!(done(1.0, &[(0.0, 10.0); 20]), [200.0; 20]);
    }
}
