//! Whether the command uses the GPUs that its job holds on this node. The owner does not see a GPU that stays
//! idle, so the log says so once.
//!
//! Where `nvidia-smi` exists, it shows which GPUs have a process. Elsewhere each process counts as the user
//! of one GPU that it may see.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::time::sleep;

use super::args::CommandArgs;
use super::daemon_link::DaemonLink;
use super::node_gpus::{GPUS_ON_NODE_VARIABLE, HELD_VARIABLE, gpus_in};
use super::program_search::is_in_path;
use super::slurm_programs::run_program;
use infill_model::GpuUse;

/// NVIDIA's program that shows which processes use which GPU.
const NVIDIA_SMI: &str = "nvidia-smi";

/// When the GPUs are looked at after a start of the command. Programs take a minute to import and to load
/// their data, so the second look decides.
const LOOKS_AFTER: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(120)];

/// How long `nvidia-smi` may take: some seconds on a node whose driver has to load first.
const SMI_TIMEOUT: Duration = Duration::from_secs(20);

/// The variable with the GPUs that CUDA shows a program.
const CUDA_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// The log warns once for each agent.
static WARNED: Once = Once::new();

/// How many GPUs the command can use, before it has used any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedUse {
    /// GPUs that Slurm has given to the job on this node.
    held: u32,
    /// GPUs that the command may see.
    visible: u32,
    /// Processes of the command on this node.
    processes: u32,
}

impl ExpectedUse {
    /// What the command can use of the GPUs that its job holds here; `None` if it holds none.
    pub fn new(common: &CommandArgs, var: impl Fn(&str) -> Option<String>) -> Option<ExpectedUse> {
        let of_step = gpus_in(&var, GPUS_ON_NODE_VARIABLE).unwrap_or(0);
        let held = gpus_in(&var, HELD_VARIABLE).unwrap_or(0).max(of_step);
        let visible = var(CUDA_DEVICES).map_or(of_step, |list| count_devices(&list)).min(held);
        (held > 0).then(|| ExpectedUse { held, visible, processes: common.local_ranks() })
    }

    /// One GPU for each process, as long as there are any.
    pub fn gpu_use(self) -> GpuUse {
        GpuUse { held: self.held, used: self.visible.min(self.processes) }
    }

    /// What the owner should know, and what to change; `None` if all GPUs are used.
    fn warning(self, used: u32) -> Option<String> {
        let ExpectedUse { held, visible, processes } = self;
        if used >= held {
            return None;
        }
        let why = if visible < held {
            format!("its processes see {visible}: leave out --gres and CUDA_VISIBLE_DEVICES to have all")
        } else if processes < visible {
            format!(
                "it starts {processes} for {visible} GPUs: --workers-per-node={visible} starts one for each"
            )
        } else {
            "each process should use the GPU with the number of its LOCAL_RANK".to_owned()
        };
        Some(format!("the job holds {held} GPUs on this node, and its processes use {used}; {why}"))
    }
}

/// The number of GPUs in `CUDA_VISIBLE_DEVICES`. CUDA ignores what follows an invalid entry.
fn count_devices(list: &str) -> u32 {
    let entries = list.split(',').map(str::trim);
    let valid = entries.take_while(|entry| {
        entry.starts_with("GPU-") || entry.starts_with("MIG-") || entry.parse::<u32>().is_ok()
    });
    u32::try_from(valid.count()).unwrap_or(u32::MAX)
}

/// Warns if the command of this generation leaves GPUs unused, and reports to the daemon what was seen.
pub(crate) async fn watch_use(expected: ExpectedUse, link: Arc<DaemonLink>, generation: u64) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let smi = is_in_path(&path, NVIDIA_SMI).then_some(Path::new(NVIDIA_SMI));
    let is_current = || link.running_generation() == Some(generation);
    let report = |seen| link.set_gpu_use(Some(seen));
    if let Some(warning) = unused_gpus(expected, smi, is_current, report).await {
        WARNED.call_once(|| tracing::warn!("{warning}"));
    }
}

/// The warning about unused GPUs, if the generation is still the current one. `report` gets what was seen.
async fn unused_gpus(
    expected: ExpectedUse,
    nvidia_smi: Option<&Path>,
    is_current: impl Fn() -> bool,
    report: impl Fn(GpuUse),
) -> Option<String> {
    let mut used = None;
    for (pause, smi) in LOOKS_AFTER.into_iter().zip(nvidia_smi.into_iter().cycle()) {
        sleep(pause).await;
        let seen = look(smi, expected).await;
        if !is_current() {
            return None;
        }
        let Some(seen) = seen else { break };
        report(GpuUse { held: expected.held, used: seen });
        used = Some(seen);
        if seen >= expected.held {
            return None;
        }
    }
    expected.warning(used.unwrap_or(expected.gpu_use().used))
}

/// The number of GPUs on which a process runs; `None` if that cannot be seen. Parts of GPUs (MIG) are shown
/// as the whole, so they cannot be counted.
async fn look(nvidia_smi: &Path, expected: ExpectedUse) -> Option<u32> {
    let has_parts = std::env::var(CUDA_DEVICES).is_ok_and(|list| list.contains("MIG-"));
    if has_parts {
        return None;
    }
    let query = ["--query-compute-apps=gpu_uuid", "--format=csv,noheader"];
    let text = run_program(nvidia_smi, &query, "", SMI_TIMEOUT).await.ok()?;
    Some(busy_gpus(&text).min(expected.held))
}

/// The number of different GPUs in the lines of `nvidia-smi`.
fn busy_gpus(text: &str) -> u32 {
    let gpus: BTreeSet<&str> = text.lines().map(str::trim).filter(|line| line.starts_with("GPU-")).collect();
    u32::try_from(gpus.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use infill_testkit::write_script;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        common: CommandArgs,
    }

    fn expected(line: &str, variables: &[(&str, &str)]) -> Option<ExpectedUse> {
        let common = Flags::parse_from(["infill"].into_iter().chain(line.split(' '))).common;
        ExpectedUse::new(&common, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn unused_gpus_are_reported_with_what_to_change() {
        const HELD: (&str, &str) = (HELD_VARIABLE, "4");
        const ALL: (&str, &str) = (GPUS_ON_NODE_VARIABLE, "4");
        let said = |line: &str, variables: &[(&str, &str)]| {
            let expected = expected(line, variables).unwrap();
            let used = expected.gpu_use();
            (used.to_string(), expected.warning(used.used).unwrap_or_default())
        };
        assert_eq!(expected("-- python t.py", &[]), None, "no GPU, nothing to say");
        assert_eq!(said("--workers-per-node=4 -- python t.py", &[HELD, ALL]), ("4/4".into(), String::new()));
        let (used, why) = said("-- python t.py", &[HELD, ALL]);
        assert_eq!(used, "1/4");
        assert!(why.contains("--workers-per-node=4 starts one for each"), "{why}");
        let (used, why) = said("--workers-per-node=2 -- python t.py", &[HELD, (GPUS_ON_NODE_VARIABLE, "2")]);
        assert_eq!(used, "2/4");
        assert!(why.contains("its processes see 2: leave out --gres"), "{why}");
        assert_eq!(said("-- python t.py", &[HELD]).0, "0/4", "none was requested");
        let (used, _) = said("--workers-per-node=4 -- python t.py", &[HELD, ALL, (CUDA_DEVICES, "0,1")]);
        assert_eq!(used, "2/4");
        let (used, _) = said("-- torchrun --nproc-per-node=4 t.py", &[HELD, ALL]);
        assert_eq!(used, "4/4", "the launcher starts them");
        let all = expected("--workers-per-node=4 -- python t.py", &[HELD, ALL]).unwrap();
        assert!(all.warning(1).unwrap().contains("LOCAL_RANK"), "all processes are on one GPU");
    }

    #[tokio::test]
    async fn where_nvidia_smi_exists_it_says_which_gpus_are_used() {
        let expected = expected("-- python t.py", &[(GPUS_ON_NODE_VARIABLE, "4")]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let script = "[ \"$1\" = --query-compute-apps=gpu_uuid ] && printf 'GPU-1\\nGPU-2\\nGPU-2\\n'";
        let smi = write_script(dir.path().join("nvidia-smi"), script);
        assert_eq!(look(&smi, expected).await, Some(2));
        let broken = write_script(dir.path().join("broken"), "echo 'Failed to initialize NVML'; exit 9");
        assert_eq!(look(&broken, expected).await, None);
        assert_eq!(look(&dir.path().join("missing"), expected).await, None);
        let one = ExpectedUse { held: 1, ..expected };
        assert_eq!(look(&smi, one).await, Some(1), "another job's GPU on a shared node");
    }

    #[tokio::test(start_paused = true)]
    async fn no_warning_is_about_a_command_that_no_longer_runs() {
        let expected = expected("-- python t.py", &[(GPUS_ON_NODE_VARIABLE, "4")]).unwrap();
        let missing = Path::new("/no/such/nvidia-smi");
        let warned = async |is_current: bool| {
            unused_gpus(expected, Some(missing), || is_current, |_| ()).await.is_some()
        };
        assert!(warned(true).await && !warned(false).await);
        assert!(unused_gpus(expected, None, || true, |_| ()).await.is_some(), "nothing to look with");
    }

    #[test]
    fn devices_are_counted_as_cuda_does() {
        for (list, want) in [
            ("0,1,2,3", 4),
            ("GPU-5f2,GPU-77a", 2),
            ("MIG-1", 1),
            ("", 0),
            ("-1", 0),
            ("0,-1,2", 1),
            ("NoDevFiles", 0),
        ] {
            assert_eq!(count_devices(list), want, "{list}");
        }
    }

    #[test]
    fn processes_on_one_gpu_use_one_gpu() {
        assert_eq!(busy_gpus("GPU-1\nGPU-1\n GPU-2 \n"), 2);
        assert_eq!(busy_gpus("No running processes found\n"), 0);
    }
}
