//! The environment that the command gets: its place in the generation, in the variables of the usual
//! launchers.
//!
//! To the command, lead and wings look like one Slurm job with one step. So the `SLURM_*` variables describe
//! such a job: programs read them to find their peers (Lightning, JAX) or to name their files.

use std::borrow::Cow;
use std::path::Path;

use infill_model::{GenerationMember, JobId, NodeName};

use super::args::CommandArgs;
use super::command::EnvVariable;
use super::exec_plans::ExecPlans;
use super::node_network::interface_variables;
use super::step::KEPT_CPUS_PER_TASK;

/// The part of the environment that is the same for all generations and local ranks.
#[derive(Clone, Debug)]
pub(crate) struct CommandEnvironment<'a> {
    /// The lead's job id, which stands for the malleable job.
    pub lead: JobId,
    /// Processes that infill starts on each node.
    pub local_ranks: u32,
    /// Processes that launchers shall start on each node; `None` leaves them their own default.
    pub launched_ranks: Option<u32>,
    /// Processes that train on each node, no matter what starts them.
    pub ranks_a_node: u32,
    /// Path of the progress socket.
    pub progress: &'a Path,
    /// Path of the socket at which the command's processes talk with the agent, if there is one.
    pub control: Option<&'a Path>,
    /// `SLURM_CPUS_PER_TASK` of the batch script.
    pub cpus_per_task: Option<String>,
    /// Number of threads that all processes on this node may start together; `None` for no limit.
    pub threads: Option<u32>,
    /// The network interface at which other nodes reach us, if it is known.
    pub interface: Option<String>,
    /// `TORCHELASTIC_SIGNALS_TO_HANDLE` of the user.
    pub elastic_signals: Option<String>,
    /// Name of the rescale signal, without SIG.
    pub signal: String,
    /// The execution plans of the command, if the user names any.
    pub plans: Option<&'a ExecPlans>,
}

impl<'a> CommandEnvironment<'a> {
    /// The environment that follows from the flags alone; the other fields are `None`.
    pub fn from_args(common: &'a CommandArgs, lead: JobId, progress: &'a Path) -> Self {
        CommandEnvironment {
            lead,
            local_ranks: common.started_ranks(),
            launched_ranks: common.launched_ranks(),
            ranks_a_node: common.ranks_per_node(),
            progress,
            control: None,
            cpus_per_task: None,
            threads: None,
            interface: None,
            elastic_signals: None,
            signal: common.signal.to_string(),
            plans: common.plans.as_ref(),
        }
    }
}

impl CommandEnvironment<'_> {
    /// The variables for one local rank.
    pub fn rank_variables(&self, member: &GenerationMember, local: u32) -> Vec<EnvVariable> {
        let plan = self.plans.and_then(|plans| plans.plan_named(&member.exec_plan));
        let ranks = member.world.saturating_mul(self.ranks_a_node);
        // The plan's variables come first, so that they cannot replace ours.
        let mut all = plan.map_or_else(Vec::new, |plan| plan.env_variables(ranks));
        let own = self.own_variables(member, local).into_iter();
        all.extend(own.map(|(name, value)| (Cow::Borrowed(name), value)));
        all
    }

    /// The variables that do not depend on the contents of a plan.
    fn own_variables(&self, member: &GenerationMember, local: u32) -> Vec<(&'static str, String)> {
        let mut all = self.launcher_variables(member, local);
        all.extend(self.torchrun_variables(member));
        all.extend(self.slurm_variables(member, local));
        all.extend([
            ("INFILL_GENERATION", member.generation.to_string()),
            ("INFILL_PLAN", member.exec_plan.clone()),
            ("INFILL_SIGNAL", self.signal.clone()),
            ("INFILL_PROGRESS", self.progress.display().to_string()),
            ("INFILL_JOB_ID", self.lead.to_string()),
            // The number of generations before this one; the first has number 1.
            ("INFILL_RESCALES", member.generation.saturating_sub(1).to_string()),
        ]);
        let ranks = self.launched_ranks.unwrap_or(self.local_ranks).max(1);
        let threads = self.threads.map(|cpus| (cpus / ranks).max(1));
        all.extend(threads.map(|threads| ("OMP_NUM_THREADS", threads.to_string())));
        let is_set = |name: &str| std::env::var_os(name).is_some();
        all.extend(interface_variables(self.interface.as_deref(), is_set));
        // Without a meeting, no message would give the processes their place, and they would wait forever.
        let control = self.control.filter(|_| member.meeting.is_some());
        all.extend(control.map(|path| ("INFILL_CONTROL", path.display().to_string())));
        all
    }

    /// The variables that `torch.distributed`, and programs that are made for it, read.
    fn launcher_variables(&self, member: &GenerationMember, local: u32) -> Vec<(&'static str, String)> {
        vec![
            ("RANK", self.global_rank(member, local).to_string()),
            ("LOCAL_RANK", local.to_string()),
            ("WORLD_SIZE", self.world_size(member).to_string()),
            ("LOCAL_WORLD_SIZE", self.local_ranks.to_string()),
            ("NODE_RANK", member.rank.to_string()),
            ("GROUP_RANK", member.rank.to_string()),
            ("MASTER_ADDR", member.master_addr.clone()),
            ("MASTER_PORT", member.master_port.to_string()),
        ]
    }

    /// Defaults of torchrun's flags, for a static rendezvous.
    fn torchrun_variables(&self, member: &GenerationMember) -> Vec<(&'static str, String)> {
        // Only with this variable does torchrun pass the rescale signal on instead of dying of it. Earlier
        // releases die, but their workers get the signal from us.
        let mut signals =
            self.elastic_signals.clone().unwrap_or_else(|| "SIGTERM,SIGINT,SIGHUP,SIGQUIT".to_owned());
        let ours = format!("SIG{}", self.signal);
        if !signals.split(',').any(|name| name == ours) {
            signals = format!("{signals},{ours}");
        }
        let mut all = vec![
            ("PET_NNODES", member.world.to_string()),
            ("PET_NODE_RANK", member.rank.to_string()),
            ("PET_MASTER_ADDR", member.master_addr.clone()),
            ("PET_MASTER_PORT", member.master_port.to_string()),
            ("PET_RDZV_ID", format!("infill-{}-{}", self.lead, member.generation)),
            ("TORCHELASTIC_SIGNALS_TO_HANDLE", signals),
        ];
        all.extend(self.launched_ranks.map(|ranks| ("PET_NPROC_PER_NODE", ranks.to_string())));
        all
    }

    /// The variables of a Slurm job with one step over all nodes of the generation. Each member counts as a
    /// node, even if several are on one host, because each sees only its own GPU, as number 0.
    fn slurm_variables(&self, member: &GenerationMember, local: u32) -> Vec<(&'static str, String)> {
        let nodes = member.hosts().iter().map(NodeName::as_str).collect::<Vec<_>>().join(",");
        let tasks = self.world_size(member).to_string();
        let node_count = member.world.to_string();
        let layout = match member.world {
            1 => self.local_ranks.to_string(),
            n => format!("{}(x{n})", self.local_ranks),
        };
        let mut all = vec![
            ("SLURM_JOB_ID", self.lead.to_string()),
            ("SLURM_JOBID", self.lead.to_string()),
            ("SLURM_PROCID", self.global_rank(member, local).to_string()),
            ("SLURM_LOCALID", local.to_string()),
            ("SLURM_NODEID", member.rank.to_string()),
        ];
        all.extend(
            ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"].map(|name| (name, tasks.clone())),
        );
        all.extend(
            ["SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"]
                .map(|name| (name, node_count.clone())),
        );
        all.extend(
            ["SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"].map(|name| (name, nodes.clone())),
        );
        all.extend(["SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"].map(|name| (name, layout.clone())));
        all.push(("SLURM_NTASKS_PER_NODE", self.local_ranks.to_string()));
        all.extend(self.cpus_per_task.clone().map(|cpus| ("SLURM_CPUS_PER_TASK", cpus)));
        all
    }

    /// The rank of a process among all processes of the generation. `local`: its rank on this node.
    pub fn global_rank(&self, member: &GenerationMember, local: u32) -> u32 {
        member.rank.saturating_mul(self.local_ranks).saturating_add(local)
    }

    fn world_size(&self, member: &GenerationMember) -> u32 {
        member.world.saturating_mul(self.local_ranks)
    }
}

/// The user's `SLURM_CPUS_PER_TASK`, which did not pass through `srun`.
pub(crate) fn kept_cpus_per_task() -> Option<String> {
    std::env::var(KEPT_CPUS_PER_TASK).ok()
}

/// How many threads the command may start; `None` for no limit. `cpus`: the CPUs of its share of the node, if
/// it has only a share. Without a limit, each of several processes would start a thread for each CPU. The
/// user's `OMP_NUM_THREADS` wins.
pub(crate) fn omp_threads(cpus: Option<u32>, common: &CommandArgs) -> Option<u32> {
    let all = std::thread::available_parallelism().ok().and_then(|all| u32::try_from(all.get()).ok());
    let shared_by_ranks = all.filter(|_| common.local_ranks() > 1);
    cpus.or(shared_by_ranks).filter(|_| std::env::var_os("OMP_NUM_THREADS").is_none())
}

#[cfg(test)]
mod tests {
    use infill_model::GenerationRendezvous;

    use super::*;

    #[test]
    fn members_on_one_host_are_nodes_of_their_own() {
        let member = GenerationMember {
            generation: 1,
            rank: 1,
            world: 3,
            master_addr: "n1".to_owned(),
            master_port: 4000,
            nodes: vec!["n1:0".into(), "n1:3".into(), "n2:1".into()],
            exec_plan: "default".to_owned(),
            meeting: None,
        };
        let environment = CommandEnvironment {
            lead: JobId(12),
            local_ranks: 1,
            launched_ranks: None,
            ranks_a_node: 1,
            progress: Path::new("/run/p"),
            control: None,
            cpus_per_task: None,
            threads: Some(5),
            interface: None,
            elastic_signals: None,
            plans: None,
            signal: "USR1".to_owned(),
        };
        let all = environment.rank_variables(&member, 0);
        let value = |name| all.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        let names =
            ["LOCAL_RANK", "RANK", "PET_NNODES", "SLURM_NNODES", "SLURM_LOCALID", "SLURM_JOB_NODELIST"];
        assert_eq!(names.map(value), ["0", "1", "3", "3", "0", "n1,n1,n2"].map(Some));
        assert_eq!(value("OMP_NUM_THREADS"), Some("5"));
    }

    /// infill starts the launcher once on each node, and the launcher starts four processes.
    #[test]
    fn a_launcher_is_one_task_of_its_node_and_gets_the_number_to_start() {
        let member = GenerationMember {
            generation: 1,
            rank: 1,
            world: 2,
            master_addr: "n1".to_owned(),
            master_port: 4000,
            nodes: vec!["n1".into(), "n2".into()],
            exec_plan: "default".to_owned(),
            meeting: None,
        };
        let environment = CommandEnvironment {
            lead: JobId(12),
            local_ranks: 1,
            launched_ranks: Some(4),
            ranks_a_node: 4,
            progress: Path::new("/run/p"),
            control: None,
            cpus_per_task: None,
            threads: Some(8),
            interface: None,
            elastic_signals: None,
            plans: None,
            signal: "USR1".to_owned(),
        };
        let all = environment.rank_variables(&member, 0);
        let value = |name| all.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        let names =
            ["PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_NNODES", "SLURM_NTASKS", "RANK", "OMP_NUM_THREADS"];
        assert_eq!(names.map(value), ["4", "1", "2", "2", "1", "2"].map(Some));
    }

    #[test]
    fn all_variables_of_the_second_process_of_the_second_node() {
        let member = GenerationMember {
            generation: 3,
            rank: 1,
            world: 2,
            master_addr: "n1".to_owned(),
            master_port: 4000,
            nodes: vec!["n1".into(), "n7".into()],
            exec_plan: "default".to_owned(),
            meeting: Some(GenerationRendezvous::default()),
        };
        let environment = CommandEnvironment {
            lead: JobId(12),
            local_ranks: 4,
            launched_ranks: Some(4),
            ranks_a_node: 4,
            progress: Path::new("/run/p"),
            control: Some(Path::new("/run/c")),
            cpus_per_task: Some("8".to_owned()),
            threads: None,
            interface: None,
            elastic_signals: None,
            plans: None,
            signal: "USR1".to_owned(),
        };
        let text: Vec<String> = environment
            .rank_variables(&member, 1)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        RANK=5
        LOCAL_RANK=1
        WORLD_SIZE=8
        LOCAL_WORLD_SIZE=4
        NODE_RANK=1
        GROUP_RANK=1
        MASTER_ADDR=n1
        MASTER_PORT=4000
        PET_NNODES=2
        PET_NODE_RANK=1
        PET_MASTER_ADDR=n1
        PET_MASTER_PORT=4000
        PET_RDZV_ID=infill-12-3
        TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1
        PET_NPROC_PER_NODE=4
        SLURM_JOB_ID=12
        SLURM_JOBID=12
        SLURM_PROCID=5
        SLURM_LOCALID=1
        SLURM_NODEID=1
        SLURM_NTASKS=8
        SLURM_NPROCS=8
        SLURM_STEP_NUM_TASKS=8
        SLURM_NNODES=2
        SLURM_JOB_NUM_NODES=2
        SLURM_STEP_NUM_NODES=2
        SLURM_NODELIST=n1,n7
        SLURM_JOB_NODELIST=n1,n7
        SLURM_STEP_NODELIST=n1,n7
        SLURM_TASKS_PER_NODE=4(x2)
        SLURM_STEP_TASKS_PER_NODE=4(x2)
        SLURM_NTASKS_PER_NODE=4
        SLURM_CPUS_PER_TASK=8
        INFILL_GENERATION=3
        INFILL_PLAN=default
        INFILL_SIGNAL=USR1
        INFILL_PROGRESS=/run/p
        INFILL_JOB_ID=12
        INFILL_RESCALES=2
        INFILL_CONTROL=/run/c
        ");
    }
}
