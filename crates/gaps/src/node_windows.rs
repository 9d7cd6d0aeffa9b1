//! When the main queue wants each node back: planned starts of pending jobs, and reservations.

use super::NodeOccupancy;
use super::array_claims;
use super::preemption_handover::PreemptionHandover;
use infill_model::{Job, Reservation, UnixTime, WindowCause, WindowEnd};

/// Most main job arrays whose further tasks are placed. Each costs a pass over the nodes.
const MAX_PLANNED_ARRAYS: usize = 100;

/// The main queue's claim on a node.
#[derive(Clone, Copy, Debug)]
enum WindowClaim<'a> {
    Job(&'a Job),
    Reservation(&'a Reservation),
}

/// The earliest known claim on each node, by its index in the snapshot.
#[derive(Clone, Debug)]
pub(super) struct NodeWindows<'a> {
    ends: Vec<Option<(UnixTime, WindowClaim<'a>)>>,
    /// The reservation that covers each node now.
    ongoing: Vec<Option<&'a Reservation>>,
}

impl<'a> NodeWindows<'a> {
    /// Collects the claims of the main queue from a snapshot.
    pub(super) fn from_snapshot(occupancy: &NodeOccupancy<'a>, now: UnixTime) -> Self {
        let snapshot = occupancy.snapshot();
        let node_index = occupancy.node_index();
        let count = snapshot.nodes.len();
        let mut windows = NodeWindows { ends: vec![None; count], ongoing: vec![None; count] };
        let mut handover = PreemptionHandover::from_snapshot(occupancy, now);
        for job in snapshot.jobs.iter().filter(|j| j.waits_in_main_queue(occupancy.partition())) {
            let Some(start) = job.start_time else { continue };
            // A planned start in the past means that the job wants its nodes now, and the window has ended.
            // But if Slurm is about to give it other nodes, these stay open.
            if start <= now && handover.serves_job(job) {
                continue;
            }
            for index in job.scheduled_nodes.iter().filter_map(|n| node_index.index_of(n)) {
                windows.add_claim(index, start, WindowClaim::Job(job));
            }
        }
        for reservation in snapshot.reservations.iter().filter(|r| r.end_time > now) {
            for index in reservation.nodes.iter().filter_map(|n| node_index.index_of(n)) {
                if reservation.start_time > now {
                    windows.add_claim(index, reservation.start_time, WindowClaim::Reservation(reservation));
                } else if let Some(ongoing) = windows.ongoing.get_mut(index) {
                    *ongoing = Some(reservation);
                }
            }
        }
        windows.add_array_claims(occupancy, now);
        windows
    }

    /// Adds the claims of further tasks of main job arrays, the earliest first. A start in the past adds
    /// none: Slurm is taking the nodes back by itself then.
    fn add_array_claims(&mut self, occupancy: &NodeOccupancy<'a>, now: UnixTime) {
        let jobs = occupancy.snapshot().jobs.iter();
        let waiting =
            jobs.filter(|j| j.unsplit_tasks().is_some() && j.waits_in_main_queue(occupancy.partition()));
        let mut planned: Vec<(UnixTime, &Job)> =
            waiting.filter_map(|job| Some((job.start_time.filter(|at| *at > now)?, job))).collect();
        planned.sort_by_key(|(start, job)| (*start, job.id));
        planned.truncate(MAX_PLANNED_ARRAYS);
        for (start, job) in planned {
            let claimed_at = |index: usize| self.ends.get(index).copied().flatten().map(|(moment, _)| moment);
            for index in array_claims::nodes_of_further_tasks(job, start, occupancy, claimed_at) {
                self.add_claim(index, start, WindowClaim::Job(job));
            }
        }
    }

    /// The end of the window of the node with this index.
    pub(super) fn window_end(&self, index: usize) -> WindowEnd {
        let (moment, cause) = match self.ends.get(index).copied().flatten() {
            Some((moment, WindowClaim::Job(job))) => (moment, WindowCause::PlannedJob(job.id)),
            Some((moment, WindowClaim::Reservation(r))) => (moment, WindowCause::Reservation(r.name.clone())),
            None => return WindowEnd::Unknown,
        };
        WindowEnd::Known { at: moment, cause }
    }

    /// The reservation that covers the node with this index now.
    pub(super) fn ongoing_reservation(&self, index: usize) -> Option<&'a Reservation> {
        self.ongoing.get(index).copied().flatten()
    }

    fn add_claim(&mut self, index: usize, moment: UnixTime, claim: WindowClaim<'a>) {
        if let Some(end) = self.ends.get_mut(index)
            && end.is_none_or(|(earlier, _)| moment < earlier)
        {
            *end = Some((moment, claim));
        }
    }
}
