//! The CPUs of a worker that has a part of its node. Where the site binds jobs to theirs (cgroups,
//! task/affinity), there is nothing to do; elsewhere the agent keeps to as many as Slurm gave it, and so does
//! all that it starts: neighbours are other people's.

use std::mem;
use std::time::Duration;

use super::slurm_context::SlurmContext;
use super::slurm_programs::{SlurmPrograms, run_program};
use infill_model::{NodeName, hostlist};

/// Somebody waits for the worker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The variable in which Slurm says how many there are.
const CPUS_VARIABLE: &str = "SLURM_CPUS_ON_NODE";

/// Keeps this process, and all that it starts from now on, to the CPUs of its job, if that has a part of its
/// node: says how many these are.
pub(crate) async fn keep_to_share(
    place: &SlurmContext,
    programs: &SlurmPrograms,
    var: impl Fn(&str) -> Option<String>,
) -> Option<u32> {
    let given = cpus_given(var)?;
    let job = place.job.to_string();
    let args = ["--oneliner", "--details", "show", "job", &job];
    match run_program(&programs.scontrol, &args, "", ANSWER_TIMEOUT).await {
        Ok(text) if has_exclusive_node(&text) => return None,
        Ok(text) => match cpu_ids(&text, &place.node) {
            Some(ids) if ids.len() == given as usize => bind_threads(&ids),
            ids => tracing::warn!(given, ?ids, "Slurm's words for our CPUs are not understood: using any"),
        },
        Err(error) => {
            tracing::warn!(%error, "cannot ask Slurm for our CPUs: using any of the node's");
            return None;
        }
    }
    Some(given)
}

/// How many CPUs Slurm gave us; `None` where these are all that the machine has.
fn cpus_given(var: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let given = var(CPUS_VARIABLE)?.parse().ok().filter(|cpus| *cpus > 0)?;
    let all = std::thread::available_parallelism().map_or(1, usize::from).max(allowed_cpus().len());
    (usize::try_from(given).ok()? < all).then_some(given)
}

/// Whether the job has its node for itself, of which a site may count only the cores. Slurm 26.05 says it by
/// `Exclusive`, and before by `OverSubscribe=NO`, which all of its jobs have since.
fn has_exclusive_node(text: &str) -> bool {
    let value =
        |key: &str| text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    match (value("Exclusive"), value("OverSubscribe")) {
        (Some(exclusive), _) => exclusive != "NO",
        (None, Some(oversubscribe)) => oversubscribe == "NO",
        (None, None) => true,
    }
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

/// `0-3,8`.
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
    // SAFETY: the set is ours and as long as is said.
    let got = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &raw mut set) };
    // SAFETY: the numbers are below the size of a set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    if got == 0 { (0..libc::CPU_SETSIZE as usize).filter(is_set).collect() } else { Vec::new() }
}

/// Binds all threads of this process. Slurm numbers CPUs in its own way: where the machine has fewer, or does
/// not let us, any will do.
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
        // SAFETY: the set is ours and as long as is said. A thread that has ended meanwhile is an error.
        unsafe { libc::sched_setaffinity(thread, mem::size_of_val(&set), &raw const set) };
    }
    tracing::debug!(cpus = ?ours, "keeping to our CPUs");
}

/// Whether the machine counts CPUs as Slurm does, the threads of a core together. Where it counts all first
/// threads first, two jobs' CPUs would be threads of the same cores.
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
    fn what_slurm_says_of_a_jobs_cpus() {
        let said = |text: &str| cpu_ids(text, &NodeName::new("n2"));
        let one = "JobId=7 NumCPUs=6   Nodes=n2 CPU_IDs=0-3,8,10 Mem=4000 GRES=gpu:a100:1(IDX:2) Comment=x";
        assert_eq!(said(one), Some(vec![0, 1, 2, 3, 8, 10]));
        assert_eq!(said("Nodes=n1 CPU_IDs=0 Mem=1 Nodes=n[2-3] CPU_IDs=4-5 Mem=1"), Some(vec![4, 5]));
        assert_eq!(said("NodeList=n2 CPU_IDs=1"), None, "before any node");
        for nonsense in
            ["Nodes=n1 CPU_IDs=0", "Nodes=n2 CPU_IDs=a", "Nodes=n2 CPU_IDs=0-99999999", "Nodes=n2", ""]
        {
            assert_eq!(said(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_whole_node_is_no_part() {
        for (said, whole) in [
            ("OverSubscribe=NO Contiguous=0", true),
            ("OverSubscribe=OK", false),
            ("OverSubscribe=NO Exclusive=NO", false),
            ("OverSubscribe=NO Exclusive=NODE", true),
            ("OverSubscribe=NO Exclusive=USER", true),
            ("", true),
        ] {
            assert_eq!(has_exclusive_node(said), whole, "{said}");
        }
        let given = |value: &str| cpus_given(|name| (name == CPUS_VARIABLE).then(|| value.to_owned()));
        assert_eq!([given("100000"), given("0"), given("x"), given("")], [None; 4]);
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(given("1"), (all > 1).then_some(1));
    }
}
