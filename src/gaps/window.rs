//! When the main queue wants each node back: planned starts of pending jobs, and reservations.

use std::collections::BTreeMap;

use crate::model::{Job, NodeName, Snapshot, UnixTime, WindowCause, WindowEnd};

/// The earliest known claim on each node.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    ends: BTreeMap<NodeName, (UnixTime, WindowCause)>,
    ongoing: BTreeMap<NodeName, String>,
}

impl Windows {
    /// Reads the claims of the main queue out of `snapshot`.
    pub(super) fn of(snapshot: &Snapshot, partition: &str, now: UnixTime) -> Self {
        let mut windows = Windows::default();
        for job in snapshot.jobs.iter().filter(|j| claims_nodes(j, partition)) {
            // A planned start in the past means that the job wants its nodes now: the window has ended.
            let Some(start) = job.start_time else { continue };
            for node in &job.scheduled_nodes {
                windows.claim(node, start, WindowCause::PlannedJob(job.id));
            }
        }
        for reservation in snapshot.reservations.iter().filter(|r| r.end_time > now) {
            for node in &reservation.nodes {
                if reservation.start_time <= now {
                    windows.ongoing.insert(node.clone(), reservation.name.clone());
                } else {
                    let cause = WindowCause::Reservation(reservation.name.clone());
                    windows.claim(node, reservation.start_time, cause);
                }
            }
        }
        windows
    }

    /// The end of the node's window.
    pub(super) fn end(&self, node: &NodeName) -> WindowEnd {
        match self.ends.get(node) {
            Some((at, cause)) => WindowEnd::Known { at: *at, cause: cause.clone() },
            None => WindowEnd::Unknown,
        }
    }

    /// The reservation that covers the node now.
    pub(super) fn ongoing(&self, node: &NodeName) -> Option<&str> {
        self.ongoing.get(node).map(String::as_str)
    }

    fn claim(&mut self, node: &NodeName, at: UnixTime, cause: WindowCause) {
        match self.ends.get(node) {
            Some((earlier, _)) if *earlier <= at => {}
            _ => {
                self.ends.insert(node.clone(), (at, cause));
            }
        }
    }
}

/// Whether the job is a pending one of the main queue. A job that waits in our partition and in others counts: it may
/// start in one of those.
fn claims_nodes(job: &Job, partition: &str) -> bool {
    job.state.is_pending() && !job.held && job.partition.split(',').any(|p| p.trim() != partition)
}
