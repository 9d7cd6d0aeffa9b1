//! Converts a job log of shared nodes so that each GPU counts as a node.
//!
//! Then GPUs that are idle beside other jobs show as gaps. CPUs and memory are ignored: a GPU counts as
//! usable whenever no job has it.

use std::collections::BTreeMap;

use infill_model::NodeName;
use infill_model::trace::{JobLog, LoggedJob};

/// Most GPUs of all jobs together.
const MAX_PLACES: u64 = 50_000_000;

/// Why a log cannot be counted in GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpusError {
    /// The log shows no job with GPUs.
    #[error("no job of the log has GPUs: expected the column AllocTRES with gres/gpu=N")]
    NoGpus,
    /// The jobs have too many GPUs. Even a short log can contain such numbers.
    #[error("the jobs of the log have more than {MAX_PLACES} GPUs together")]
    TooMany,
}

/// The log with GPUs instead of nodes: `n1:0` to `n1:3` for a node with four. A node has as many GPUs as its
/// jobs ever have at once, and at least `per_node`. A job's GPUs are spread evenly over its nodes, because
/// accounting has only their total. Each node gives the free GPUs with the lowest numbers. Jobs without GPUs
/// are left out.
///
/// # Errors
/// If no job has GPUs, or if all jobs together have too many.
pub fn by_gpu(log: &JobLog, per_node: Option<u32>) -> Result<JobLog, GpusError> {
    if log.jobs.iter().filter_map(gpu_count).map(u64::from).sum::<u64>() > MAX_PLACES {
        return Err(GpusError::TooMany);
    }
    let with_gpus =
        log.jobs.iter().filter_map(|job| Some(LoggedJob { nodes: gpu_count(job)?, ..job.clone() }));
    let mut jobs: Vec<LoggedJob> = with_gpus.collect();
    if jobs.is_empty() {
        return Err(GpusError::NoGpus);
    }
    let left_out = log.left_out + log.jobs.len() - jobs.len();
    let mut nodes = GpuOccupancy::default();
    for event in events_in_order(&jobs) {
        match event {
            JobEvent::End(job) => nodes.end_job(job),
            JobEvent::Start(job) => jobs[job].node_list = nodes.start_job(job, &jobs[job]),
        }
    }
    let least_per_node = u64::from(per_node.unwrap_or(0));
    let total: u64 = nodes.users.values().map(|gpus| (gpus.len() as u64).max(least_per_node)).sum();
    let nodes_total = u32::try_from(total).ok().filter(|n| *n > 0);
    Ok(JobLog { jobs, nodes_total, left_out, ..log.clone() })
}

/// The number of GPUs of a job; `None` if it has none, or if the log does not say.
fn gpu_count(job: &LoggedJob) -> Option<u32> {
    job.gpus.filter(|gpus| *gpus > 0)
}

/// The start or end of a job, with its index in the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum JobEvent {
    End(usize),
    Start(usize),
}

/// All starts and ends by time. In the same second, ends come before starts.
fn events_in_order(jobs: &[LoggedJob]) -> Vec<JobEvent> {
    let mut events: Vec<(i64, JobEvent)> = Vec::with_capacity(2 * jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        events.push((job.end, JobEvent::End(index)));
        events.push((job.start, JobEvent::Start(index)));
    }
    events.sort_unstable();
    events.into_iter().map(|(_, event)| event).collect()
}

/// The jobs on the GPUs of each node.
#[derive(Default)]
struct GpuOccupancy {
    /// The job on each GPU.
    users: BTreeMap<NodeName, Vec<Option<usize>>>,
    /// The GPUs of each running job.
    held: BTreeMap<usize, Vec<(NodeName, usize)>>,
}

impl GpuOccupancy {
    /// Assigns GPUs to a job and returns their names; none if the log does not show the job's nodes.
    fn start_job(&mut self, job: usize, logged: &LoggedJob) -> Vec<NodeName> {
        let count = logged.node_list.len();
        let mut assigned = Vec::new();
        for (at, node) in logged.node_list.iter().enumerate() {
            let share = logged.nodes as usize / count + usize::from(at < logged.nodes as usize % count);
            let users = self.users.entry(node.clone()).or_default();
            for _ in 0..share {
                let free = users.iter().position(Option::is_none).unwrap_or(users.len());
                match users.get_mut(free) {
                    Some(user) => *user = Some(job),
                    None => users.push(Some(job)),
                }
                assigned.push((node.clone(), free));
            }
        }
        let names = assigned.iter().map(|(node, gpu)| NodeName::new(format!("{node}:{gpu}"))).collect();
        self.held.insert(job, assigned);
        names
    }

    fn end_job(&mut self, job: usize) {
        for (node, gpu) in self.held.remove(&job).unwrap_or_default() {
            if let Some(user) = self.users.get_mut(&node).and_then(|users| users.get_mut(gpu)) {
                *user = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    /// Parses lines of `START..END GPUS NODE,NODE`; `-` stands for unknown GPUs or nodes.
    fn log(lines: &str) -> JobLog {
        let jobs = lines.trim().lines().enumerate().map(|(at, line)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once("..").unwrap();
            let start = start.parse().unwrap();
            let end = end.parse().unwrap();
            let names = words[2].split(',').filter(|n| *n != "-").map(NodeName::new);
            let node_list: Vec<NodeName> = names.collect();
            LoggedJob {
                id: JobId(at as u32 + 1),
                name: String::new(),
                user: String::new(),
                account: String::new(),
                partition: String::new(),
                submit: start,
                start,
                end,
                limit_secs: None,
                nodes: node_list.len().max(1) as u32,
                node_list,
                gpus: words[1].parse().ok(),
                state: String::new(),
            }
        });
        JobLog { jobs: jobs.collect(), ..JobLog::default() }
    }

    fn said(log: &JobLog) -> Vec<String> {
        let names = |j: &LoggedJob| j.node_list.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ");
        log.jobs.iter().map(|j| format!("{} {}", j.nodes, names(j)).trim_end().to_owned()).collect()
    }

    #[test]
    fn jobs_of_one_node_get_gpus_of_their_own() {
        let found = by_gpu(&log("0..10 2 a\n5..20 1 a\n10..20 3 a,b\n11..12 - b\n12..13 0 b"), None).unwrap();
        assert_eq!(said(&found), ["2 a:0 a:1", "1 a:2", "3 a:0 a:1 b:0"]);
        assert_eq!((found.nodes_total, found.left_out), (Some(4), 2));
    }

    #[test]
    fn a_node_has_at_least_the_given_number() {
        assert_eq!(by_gpu(&log("0..10 2 a\n0..10 5 b"), Some(4)).unwrap().nodes_total, Some(9));
    }

    #[test]
    fn without_nodes_they_are_only_counted() {
        let found = by_gpu(&log("0..10 2 -\n5..20 7 -"), None).unwrap();
        assert_eq!((said(&found), found.nodes_total), (vec!["2".to_owned(), "7".to_owned()], None));
    }

    #[test]
    fn logs_without_gpus_or_with_too_many_are_refused() {
        assert_eq!(by_gpu(&log("0..10 - a\n0..10 0 b"), None), Err(GpusError::NoGpus));
        assert_eq!(by_gpu(&log("0..9 30000000 a\n0..9 30000000 a"), None), Err(GpusError::TooMany));
    }
}
