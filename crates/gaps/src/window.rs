//! When the main queue wants each node back: planned starts of pending jobs, and reservations.

use super::Occupancy;
use super::taking::Taking;
use infill_model::{Job, Reservation, UnixTime, WindowCause, WindowEnd};

/// Who wants a node.
#[derive(Clone, Copy, Debug)]
enum Claim<'a> {
    Job(&'a Job),
    Reservation(&'a Reservation),
}

/// The earliest known claim on each node, by its place in the snapshot.
#[derive(Clone, Debug)]
pub(super) struct Windows<'a> {
    ends: Vec<Option<(UnixTime, Claim<'a>)>>,
    ongoing: Vec<Option<&'a Reservation>>,
}

impl<'a> Windows<'a> {
    /// Reads the claims of the main queue out of a snapshot.
    pub(super) fn of(occupancy: &Occupancy<'a>, now: UnixTime) -> Self {
        let (snapshot, places) = (occupancy.snapshot(), occupancy.places());
        let count = snapshot.nodes.len();
        let mut windows = Windows { ends: vec![None; count], ongoing: vec![None; count] };
        let mut taking = Taking::of(occupancy, now);
        for job in snapshot.jobs.iter().filter(|j| j.waits_in_main_queue(occupancy.partition())) {
            let Some(start) = job.start_time else { continue };
            // A planned start in the past means that the job wants its nodes now: the window has ended. But
            // if Slurm is about to give it others, these stay open.
            if start <= now && taking.serves(job) {
                continue;
            }
            for at in job.scheduled_nodes.iter().filter_map(|n| places.of_node(n)) {
                windows.claim(at, start, Claim::Job(job));
            }
        }
        for reservation in snapshot.reservations.iter().filter(|r| r.end_time > now) {
            for at in reservation.nodes.iter().filter_map(|n| places.of_node(n)) {
                if reservation.start_time > now {
                    windows.claim(at, reservation.start_time, Claim::Reservation(reservation));
                } else if let Some(ongoing) = windows.ongoing.get_mut(at) {
                    *ongoing = Some(reservation);
                }
            }
        }
        windows
    }

    /// The end of the window of the node at this place.
    pub(super) fn end(&self, at: usize) -> WindowEnd {
        let (moment, cause) = match self.ends.get(at).copied().flatten() {
            Some((moment, Claim::Job(job))) => (moment, WindowCause::PlannedJob(job.id)),
            Some((moment, Claim::Reservation(r))) => (moment, WindowCause::Reservation(r.name.clone())),
            None => return WindowEnd::Unknown,
        };
        WindowEnd::Known { at: moment, cause }
    }

    /// The reservation that covers the node at this place now.
    pub(super) fn ongoing(&self, at: usize) -> Option<&'a Reservation> {
        self.ongoing.get(at).copied().flatten()
    }

    fn claim(&mut self, at: usize, moment: UnixTime, claim: Claim<'a>) {
        if let Some(end) = self.ends.get_mut(at)
            && end.is_none_or(|(earlier, _)| moment < earlier)
        {
            *end = Some((moment, claim));
        }
    }
}
