//! The CPUs of a worker that has a part of its node. Some sites bind jobs to their CPUs (cgroups,
//! task/affinity), and there is nothing to do there. Elsewhere the agent and everything that it starts keep
//! to the CPUs that Slurm gave it. The others belong to other people's jobs.

use std::mem;
use std::time::Duration;

use super::slurm_context::SlurmContext;
use super::slurm_programs::{SlurmPrograms, run_program};
use infill_model::{NodeName, hostlist};

/// How long Slurm has to answer. It is short because someone waits for the worker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The variable in which Slurm says how many CPUs the job has here.
const CPUS_VARIABLE: &str = "SLURM_CPUS_ON_NODE";

/// Binds this process, and everything that it starts from now on, to the CPUs of its job. Returns how many
/// these are; `None` if the job does not have just a part of its node, or Slurm does not answer.
pub(crate) async fn keep_to_share(
    context: &SlurmContext,
    programs: &SlurmPrograms,
    var: impl Fn(&str) -> Option<String>,
) -> Option<u32> {
    let given = cpus_given(var)?;
    let job = context.job.to_string();
    let args = ["--oneliner", "--details", "show", "job", &job];
    match run_program(&programs.scontrol, &args, "", ANSWER_TIMEOUT).await {
        Ok(text) if has_exclusive_node(&text) => return None,
        Ok(text) => match cpu_ids(&text, &context.node) {
            Some(ids) if ids.len() == given as usize => bind_threads(&ids),
            ids => tracing::warn!(given, ?ids, "cannot understand which CPUs Slurm gave us: using any"),
        },
        Err(error) => {
            tracing::warn!(%error, "cannot ask Slurm for our CPUs: using any of the node's");
            return None;
        }
    }
    Some(given)
}

/// How many CPUs Slurm gave us; `None` if these are all CPUs of the machine.
fn cpus_given(var: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let given = var(CPUS_VARIABLE)?.parse().ok().filter(|cpus| *cpus > 0)?;
    let all = std::thread::available_parallelism().map_or(1, usize::from).max(allowed_cpus().len());
    (usize::try_from(given).ok()? < all).then_some(given)
}

/// Whether the job has its node for itself, although a site may count only the node's cores. Slurm 26.05
/// shows this by `Exclusive`. Earlier releases show it by `OverSubscribe=NO`, which since then all jobs have.
fn has_exclusive_node(text: &str) -> bool {
    if let Some(exclusive) = job_field(text, "Exclusive") {
        return exclusive != "NO";
    }
    job_field(text, "OverSubscribe").is_none_or(|oversubscribe| oversubscribe == "NO")
}

/// The value of a field in the output of `scontrol show job`.
fn job_field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The numbers of the job's CPUs on this node, from `scontrol --details show job`.
fn cpu_ids(text: &str, node: &NodeName) -> Option<Vec<usize>> {
    let mut here = false;
    for word in text.split_whitespace() {
        if let Some(list) = word.strip_prefix("Nodes=") {
            here = hostlist::expand_hostlist(list).is_ok_and(|nodes| nodes.contains(node));
        } else if let Some(list) = word.strip_prefix("CPU_IDs=").filter(|_| here) {
            return parse_number_list(list);
        }
    }
    None
}

/// Parses a list such as `0-3,8`.
fn parse_number_list(list: &str) -> Option<Vec<usize>> {
    let most = libc::CPU_SETSIZE as usize;
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().ok()?;
        let last: usize = last.parse().ok()?;
        if last >= most {
            return None;
        }
        all.extend(first..=last);
    }
    (!all.is_empty() && all.len() <= most).then_some(all)
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a set of zeroes is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set is ours and has the length that we state.
    let status = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &raw mut set) };
    if status != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the numbers are below the size of a set.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect()
}

/// Binds all threads of this process to the CPUs `ids`. Slurm numbers CPUs in its own way. If the machine has
/// fewer CPUs, or does not let us use these, the process may use any.
fn bind_threads(ids: &[usize]) {
    // SAFETY: a set of zeroes is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    let may_be_used = allowed_cpus();
    let ours: Vec<usize> = ids.iter().copied().filter(|id| may_be_used.contains(id)).collect();
    if ours.is_empty() || may_be_used.len() <= ours.len() || !is_counted_by_core() {
        return;
    }
    // SAFETY: the numbers are below the size of a set.
    ours.iter().for_each(|id| unsafe { libc::CPU_SET(*id, &mut set) });
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads.filter_map(|t| t.file_name().to_string_lossy().parse::<i32>().ok()) {
        // SAFETY: the set is ours and has the length that we state. For a thread that has ended meanwhile,
        // the call returns an error.
        unsafe { libc::sched_setaffinity(thread, mem::size_of_val(&set), &raw const set) };
    }
    tracing::debug!(cpus = ?ours, "keeping to our CPUs");
}

/// Whether the machine numbers CPUs as Slurm does, with the threads of a core next to each other. If it
/// numbers the first threads of all cores first, the CPUs of two jobs would be threads of the same cores.
fn is_counted_by_core() -> bool {
    let siblings = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    siblings.is_ok_and(|list| {
        parse_number_list(list.trim()).is_some_and(|all| all.iter().copied().eq(0..all.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpus_of_a_job_are_read_for_its_node() {
        let ids = |text: &str| cpu_ids(text, &NodeName::new("n2"));
        let one = "JobId=7 NumCPUs=6   Nodes=n2 CPU_IDs=0-3,8,10 Mem=4000 GRES=gpu:a100:1(IDX:2) Comment=x";
        assert_eq!(ids(one), Some(vec![0, 1, 2, 3, 8, 10]));
        assert_eq!(ids("Nodes=n1 CPU_IDs=0 Mem=1 Nodes=n[2-3] CPU_IDs=4-5 Mem=1"), Some(vec![4, 5]));
        assert_eq!(ids("NodeList=n2 CPU_IDs=1"), None, "before any node");
        for nonsense in
            ["Nodes=n1 CPU_IDs=0", "Nodes=n2 CPU_IDs=a", "Nodes=n2 CPU_IDs=0-99999999", "Nodes=n2", ""]
        {
            assert_eq!(ids(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_job_with_a_whole_node_is_not_bound() {
        for (text, whole) in [
            ("OverSubscribe=NO Contiguous=0", true),
            ("OverSubscribe=OK", false),
            ("OverSubscribe=NO Exclusive=NO", false),
            ("OverSubscribe=NO Exclusive=NODE", true),
            ("OverSubscribe=NO Exclusive=USER", true),
            ("", true),
        ] {
            assert_eq!(has_exclusive_node(text), whole, "{text}");
        }
        let given = |value: &str| cpus_given(|name| (name == CPUS_VARIABLE).then(|| value.to_owned()));
        assert_eq!([given("100000"), given("0"), given("x"), given("")], [None; 4]);
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(given("1"), (all > 1).then_some(1));
    }
}
