//! When the main queue wants each node back: planned starts of pending jobs, and reservations.

use super::NodeOccupancy;
use super::preemption_handover::PreemptionHandover;
use infill_model::{Job, Reservation, UnixTime, WindowCause, WindowEnd};

/// Who wants a node.
#[derive(Clone, Copy, Debug)]
enum WindowClaim<'a> {
    Job(&'a Job),
    Reservation(&'a Reservation),
}

/// The earliest known claim on each node, by its place in the snapshot.
#[derive(Clone, Debug)]
pub(super) struct NodeWindows<'a> {
    ends: Vec<Option<(UnixTime, WindowClaim<'a>)>>,
    ongoing: Vec<Option<&'a Reservation>>,
}

impl<'a> NodeWindows<'a> {
    /// Reads the claims of the main queue out of a snapshot.
    pub(super) fn from_snapshot(occupancy: &NodeOccupancy<'a>, now: UnixTime) -> Self {
        let snapshot = occupancy.snapshot();
        let places = occupancy.node_index();
        let count = snapshot.nodes.len();
        let mut windows = NodeWindows { ends: vec![None; count], ongoing: vec![None; count] };
        let mut taking = PreemptionHandover::from_snapshot(occupancy, now);
        for job in snapshot.jobs.iter().filter(|j| j.waits_in_main_queue(occupancy.partition())) {
            let Some(start) = job.start_time else { continue };
            // A planned start in the past means that the job wants its nodes now: the window has ended. But
            // if Slurm is about to give it others, these stay open.
            if start <= now && taking.serves_job(job) {
                continue;
            }
            for at in job.scheduled_nodes.iter().filter_map(|n| places.index_of(n)) {
                windows.add_claim(at, start, WindowClaim::Job(job));
            }
        }
        for reservation in snapshot.reservations.iter().filter(|r| r.end_time > now) {
            for at in reservation.nodes.iter().filter_map(|n| places.index_of(n)) {
                if reservation.start_time > now {
                    windows.add_claim(at, reservation.start_time, WindowClaim::Reservation(reservation));
                } else if let Some(ongoing) = windows.ongoing.get_mut(at) {
                    *ongoing = Some(reservation);
                }
            }
        }
        windows
    }

    /// The end of the window of the node at this place.
    pub(super) fn window_end(&self, at: usize) -> WindowEnd {
        let (moment, cause) = match self.ends.get(at).copied().flatten() {
            Some((moment, WindowClaim::Job(job))) => (moment, WindowCause::PlannedJob(job.id)),
            Some((moment, WindowClaim::Reservation(r))) => (moment, WindowCause::Reservation(r.name.clone())),
            None => return WindowEnd::Unknown,
        };
        WindowEnd::Known { at: moment, cause }
    }

    /// The reservation that covers the node at this place now.
    pub(super) fn ongoing_reservation(&self, at: usize) -> Option<&'a Reservation> {
        self.ongoing.get(at).copied().flatten()
    }

    fn add_claim(&mut self, at: usize, moment: UnixTime, claim: WindowClaim<'a>) {
        if let Some(end) = self.ends.get_mut(at)
            && end.is_none_or(|(earlier, _)| moment < earlier)
        {
            *end = Some((moment, claim));
        }
    }
}
