//! Job arrays in the malleable partition. Each task becomes a malleable job once it has a record of its own.
//!
//! Slurm keeps pending tasks in one record, which infill must not start: Slurm would start all of them on one
//! node. Only as many tasks get records as may start soon, so that a large array costs neither Slurm nor the
//! planner more than a few jobs.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{ArrayPart, CommentOptions, Job, JobId, Snapshot, UserId, dependency, lead_of_wing};

/// Fewest waiting tasks with records of their own that a user's arrays have together, if they have as many.
const FEWEST_READY_TASKS: usize = 4;

/// Most waiting tasks with records of their own that a user's arrays have together. Each round refills them.
const MOST_READY_TASKS: usize = 64;

/// Most arrays whose tasks get records in one round.
const MOST_SPLITS_A_ROUND: usize = 8;

/// Tasks of one array that are to get records of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySplit {
    /// The array's id.
    pub array: JobId,
    /// Its tasks, ascending.
    pub tasks: Vec<u32>,
}

/// The tasks of all arrays in this partition that are to get records now, in the order of submission.
pub fn due_splits(snapshot: &Snapshot, partition: &str) -> Vec<ArraySplit> {
    let nodes = snapshot.nodes.iter().filter(|n| n.partitions.iter().any(|p| p == partition)).count();
    let most_ready = nodes.clamp(FEWEST_READY_TASKS, MOST_READY_TASKS);
    let mut ready: BTreeMap<UserId, usize> = BTreeMap::new();
    let mut active: BTreeMap<JobId, usize> = BTreeMap::new();
    let ours = || snapshot.jobs.iter().filter(|job| job.partition == partition && !job.state.is_ended());
    for job in ours() {
        let Some(ArrayPart::Task { array, .. }) = job.array else { continue };
        *active.entry(array).or_default() += 1;
        if job.state.is_pending() {
            *ready.entry(job.user_id).or_default() += 1;
        }
    }
    let mut splits = Vec::new();
    for job in ours() {
        let Some(unsplit) = job.unsplit_tasks().filter(|_| may_start(job, snapshot)) else { continue };
        let limit = unsplit.limit.map_or(usize::MAX, |limit| limit as usize);
        let room_in_array = limit.saturating_sub(active.get(&unsplit.array).copied().unwrap_or(0));
        let ready = ready.entry(job.user_id).or_default();
        let count = room_in_array.min(most_ready.saturating_sub(*ready));
        let tasks: Vec<u32> = unsplit.tasks.iter().copied().take(count).collect();
        if tasks.is_empty() {
            continue;
        }
        *ready += tasks.len();
        splits.push(ArraySplit { array: unsplit.array, tasks });
        if splits.len() == MOST_SPLITS_A_ROUND {
            break;
        }
    }
    splits
}

/// Whether the tasks of this record may start, as far as its owner, an administrator and other jobs decide.
fn may_start(job: &Job, snapshot: &Snapshot) -> bool {
    let is_held = job.is_held_by_admin() || job.held && CommentOptions::from_job(job).held;
    let begins_later = job.asks.begin.is_some_and(|begin| begin > snapshot.taken_at);
    let is_lead = lead_of_wing(job).is_none();
    is_lead && !is_held && !begins_later && dependency::unmet_dependency(job, snapshot).is_none()
}

/// The waiting tasks for which their array has no room: as many others run or come first as `%N` allows.
pub(super) fn tasks_beyond_limit(snapshot: &Snapshot, partition: &str) -> BTreeSet<JobId> {
    let mut limited: BTreeMap<JobId, LimitedArray> = BTreeMap::new();
    for job in snapshot.jobs.iter().filter(|job| job.partition == partition && !job.state.is_ended()) {
        let Some(ArrayPart::Task { array, task, limit: Some(limit) }) = job.array else { continue };
        let tasks = limited.entry(array).or_default();
        tasks.limit = limit as usize;
        if job.state.is_pending() {
            tasks.waiting.push((task, job.id));
        } else {
            tasks.running += 1;
        }
    }
    let beyond = limited.into_values().flat_map(|mut tasks| {
        tasks.waiting.sort_unstable();
        let room = tasks.limit.saturating_sub(tasks.running);
        tasks.waiting.into_iter().skip(room).map(|(_, job)| job)
    });
    beyond.collect()
}

/// An array with a limit for tasks at a time.
#[derive(Default)]
struct LimitedArray {
    limit: usize,
    running: usize,
    /// Task and job of each that waits.
    waiting: Vec<(u32, JobId)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, JobState, Node, NodeName, NodeType, UnixTime};

    fn array(id: u32, user: u32, text: &str, limit: u32) -> Job {
        Job {
            user_id: UserId(user),
            held: true,
            admin_comment: "infill:nodes=1".to_owned(),
            array: ArrayPart::from_record(id, None, text, limit),
            ..Job::new(JobId(id), "infill", BaseState::Pending)
        }
    }

    fn task(id: u32, array_id: u32, number: u32, limit: u32, state: BaseState) -> Job {
        Job {
            id: JobId(id),
            state: JobState::from_base(state),
            array: ArrayPart::from_record(array_id, Some(number), "", limit),
            ..array(array_id, 1, "", limit)
        }
    }

    fn snapshot(nodes: u32, jobs: Vec<Job>) -> Snapshot {
        let nodes = (1..=nodes).map(|n| Node {
            partitions: vec!["infill".to_owned()],
            ..Node::new(NodeName::new(format!("n{n}")), NodeType::new("cpu2"))
        });
        Snapshot { taken_at: UnixTime(1000), nodes: nodes.collect(), jobs, ..Snapshot::default() }
    }

    fn due(nodes: u32, jobs: Vec<Job>) -> Vec<String> {
        let splits = due_splits(&snapshot(nodes, jobs), "infill");
        splits.iter().map(|split| format!("{}_{:?}", split.array, split.tasks)).collect()
    }

    #[test]
    fn as_many_tasks_get_records_as_may_start_soon() {
        assert_eq!(due(6, vec![array(7, 1, "0-99", 0)]), ["7_[0, 1, 2, 3, 4, 5]"]);
        assert_eq!(due(1, vec![array(7, 1, "0-99", 0)]), ["7_[0, 1, 2, 3]"], "a small machine");
        let many = due_splits(&snapshot(1000, vec![array(7, 1, "0-999", 0)]), "infill");
        assert_eq!(many[0].tasks.len(), 64, "a large machine");
        let waiting = task(8, 7, 0, 0, BaseState::Pending);
        let running = task(9, 7, 1, 0, BaseState::Running);
        let ended = task(10, 7, 2, 0, BaseState::Completed);
        assert_eq!(due(6, vec![array(7, 1, "3-99", 0), waiting, running, ended]), ["7_[3, 4, 5, 6, 7]"]);
    }

    #[test]
    fn a_users_arrays_share_the_room_and_others_have_their_own() {
        let jobs = vec![array(7, 1, "0-2", 0), array(10, 1, "0-9", 0), array(30, 2, "5-6", 0)];
        assert_eq!(due(4, jobs), ["7_[0, 1, 2]", "10_[0]", "30_[5, 6]"]);
        let jobs = (0..20).map(|i| array(7 + i, i, "0-9", 0)).collect();
        assert_eq!(due(4, jobs).len(), 8, "the rest waits for the next round");
    }

    #[test]
    fn the_limit_of_an_array_counts_tasks_that_have_begun() {
        let running = task(8, 7, 0, 3, BaseState::Running);
        assert_eq!(due(8, vec![array(7, 1, "1-9", 3), running.clone()]), ["7_[1, 2]"]);
        let full = vec![array(7, 1, "3-9", 1), running];
        assert_eq!(due(8, full), [""; 0]);
    }

    #[test]
    fn an_array_that_must_wait_stays_whole() {
        let mut held = array(7, 1, "0-9", 0);
        held.state_reason = "JobHeldAdmin".to_owned();
        let mut by_owner = array(8, 1, "0-9", 0);
        by_owner.admin_comment = "infill:nodes=1;held=owner".to_owned();
        let mut later = array(9, 1, "0-9", 0);
        later.asks.begin = Some(UnixTime(1001));
        let mut depends = array(10, 1, "0-9", 0);
        depends.asks.dependency = "afterok:6(unfulfilled)".to_owned();
        let first = Job::new(JobId(6), "infill", BaseState::Running);
        let elsewhere = Job { partition: "main".to_owned(), ..array(11, 1, "0-9", 0) };
        assert_eq!(due(4, vec![held, by_owner, later, depends, first, elsewhere]), [""; 0]);
    }

    #[test]
    fn the_first_waiting_tasks_may_start_up_to_the_limit() {
        let jobs = vec![
            task(8, 7, 0, 3, BaseState::Running),
            task(12, 7, 1, 3, BaseState::Pending),
            task(11, 7, 2, 3, BaseState::Pending),
            task(10, 7, 4, 3, BaseState::Pending),
            task(13, 9, 4, 0, BaseState::Pending),
        ];
        assert_eq!(tasks_beyond_limit(&snapshot(4, jobs), "infill"), BTreeSet::from([JobId(10)]));
    }
}
