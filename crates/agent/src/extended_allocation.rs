//! The own nodes of a job of the main queue that wings extend.
//!
//! The agent on the first node runs the command there, and has `srun` run it on the others, in the job's own
//! allocation. For these nodes it does not need the daemon. If the job has several nodes of its own, no
//! process of the command stays alive over a change of size.
//!
//! `srun` passes the rescale signal on. On SIGTERM it kills the processes that it has started, and slurmstepd
//! does so when `srun` is gone (tried out on 24.11).

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio::time::interval;

use infill_model::{GenerationMember, NodeName, hostlist};

use super::args::{CommandArgs, RunArgs};
use super::command::{LaunchSpec, RemoteLauncher, RunningCommand};
use super::environment::{CommandEnvironment, kept_cpus_per_task, omp_threads};
use super::executable;
use super::oom_kills::OomKillCounter;
use super::output::OutputForwarder;
use super::progress::{self, ProgressTally};
use super::runtime_dir::RuntimeDir;
use super::signals::{AgentSignal, listen_for_signals};
use super::slurm_context::{SlurmContext, env_variable};
use super::step::SHARE_VARIABLES;

/// The variable that carries the membership of the second node to all other nodes, as JSON.
const MEMBER_VARIABLE: &str = "INFILL_MEMBER";

/// Options of `srun` for one task on each of the other nodes: when the command fails on one, it ends on all.
const SRUN_OPTIONS: [&str; 7] = [
    "--overlap",
    "--no-kill",
    "--kill-on-bad-exit=1",
    "--wait=0",
    "--ntasks-per-node=1",
    "--cpu-bind=none",
    "--input=none",
];

/// How often the other nodes report progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Most own nodes of a job.
const MAX_OWN_NODES: usize = 4096;

/// Runs the command on one of the further nodes of a main job; infill starts it itself
#[derive(Args, Clone, Debug)]
pub struct OwnNodeArgs {
    /// How the command is run.
    #[command(flatten)]
    pub common: CommandArgs,
}

/// The nodes of the job in which we are, ours first; empty if no wings shall extend it.
///
/// # Errors
/// When wings cannot extend this job, or Slurm's variables cannot be read.
pub(crate) fn own_nodes(
    args: &RunArgs,
    context: &SlurmContext,
    malleable: Option<&str>,
    var: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Vec<NodeName>> {
    if args.spec.extend.is_none() {
        return Ok(Vec::new());
    }
    let partition = var("SLURM_JOB_PARTITION");
    if let Some(partition) = partition.filter(|p| Some(p.as_str()) == malleable) {
        bail!("--extend is for jobs of the main queue; in partition {partition} use --nodes");
    }
    let list = var("SLURM_JOB_NODELIST").context("SLURM_JOB_NODELIST is not set")?;
    let all = hostlist::expand_hostlist(&list).with_context(|| format!("SLURM_JOB_NODELIST={list:?}"))?;
    if all.len() > MAX_OWN_NODES {
        bail!("--extend is for jobs of at most {MAX_OWN_NODES} nodes, and this one has {}", all.len());
    }
    if all.len() > 1 && ![libc::SIGUSR1, libc::SIGUSR2].contains(&args.common.signal.0) {
        bail!("--extend needs --signal USR1 or USR2 if a job has several nodes: srun passes on only these");
    }
    let ours = std::iter::once(context.node.clone());
    Ok(ours.chain(all.into_iter().filter(|n| *n != context.node)).collect())
}

/// The program that runs the command on the job's further nodes; `None` if there are none.
pub(crate) fn remote_launcher(
    own: &[NodeName],
    member: &GenerationMember,
    common: &CommandArgs,
) -> Option<RemoteLauncher> {
    let others = own.get(1..).unwrap_or_default();
    if others.is_empty() {
        return None;
    }
    let count = others.len();
    let mut words = vec!["srun".to_owned()];
    words.extend(SRUN_OPTIONS.map(str::to_owned));
    words.extend([
        format!("--nodes={count}"),
        format!("--ntasks={count}"),
        format!("--nodelist={}", hostlist::compress_nodes(others)),
        "--job-name=infill-own".to_owned(),
    ]);
    let program =
        executable::program_path().map_or_else(|_| "infill".to_owned(), |p| p.display().to_string());
    words.extend([program, "own-node".to_owned()]);
    words.extend(common.to_worker_args());
    let first = GenerationMember { rank: 1, ..member.clone() };
    // If this cannot be written, the other nodes cannot read it, and the command fails on all nodes.
    let member = serde_json::to_string(&first).unwrap_or_default();
    Some(RemoteLauncher {
        words,
        variables: vec![(MEMBER_VARIABLE.into(), member)],
        without: SHARE_VARIABLES.to_vec(),
    })
}

/// `infill own-node`: runs the command on this node until it ends. Returns the exit code for the process. It
/// is 0 if the command was asked to save and exit, because its own code is then not a failure.
///
/// # Errors
/// When it is not started as `infill` starts it, or the private directory or its sockets cannot be made.
pub async fn run_own_node(args: OwnNodeArgs) -> anyhow::Result<i32> {
    let context = SlurmContext::from_env(env_variable).context("infill own-node must run in a job step")?;
    let member = read_member(env_variable)?;
    let mut common = args.common;
    common.settle_ranks(&member);
    let common = &common;
    let home = RuntimeDir::create_for(&context).context("cannot make the private directory")?;
    home.clear_previous_run();
    let socket = home.progress_socket();
    let tally = ProgressTally::new();
    let listener = progress::open_progress_socket(&socket).context("cannot open the progress socket")?;
    tokio::spawn(progress::receive_datagrams(listener, tally.clone()));
    let mut signals = listen_for_signals().context("cannot listen for signals")?;
    let environment = CommandEnvironment {
        cpus_per_task: kept_cpus_per_task(),
        threads: omp_threads(None, common),
        elastic_signals: env_variable("TORCHELASTIC_SIGNALS_TO_HANDLE"),
        ..CommandEnvironment::from_args(common, context.job, &socket)
    };
    let output = OutputForwarder::to_own_streams(!common.no_prefix).context("cannot write to our output")?;
    let launch = LaunchSpec {
        words: common.command_for_plan(&member.exec_plan),
        ranks: (0..common.started_ranks())
            .map(|local| {
                (environment.global_rank(&member, local), environment.rank_variables(&member, local))
            })
            .collect(),
        remote: None,
        mark: format!("{}.{}.{}", home.path().display(), member.generation, std::process::id()),
        signal: common.signal.0,
        output: output.clone(),
        regex: common.progress_regex.clone(),
        tally: tally.clone(),
        kills: OomKillCounter::for_job(context.job),
    };
    let mut running = RunningCommand::start(common.container.wrap_launch(launch, home.path()));
    let mut reports = interval(REPORT_INTERVAL);
    let ended = loop {
        tokio::select! {
            ended = running.wait_for_end() => break ended,
            _ = reports.tick() => {
                if let Some((message, _)) = tally.take() {
                    output.send_progress(&message).await;
                }
            }
            Some(signal) = signals.recv() => {
                if signal == AgentSignal::Leave || signal == AgentSignal::User(common.signal.0) {
                    running.stop(common.grace_period());
                }
            }
        }
    };
    if let Some((message, _)) = tally.take() {
        output.send_progress(&message).await;
    }
    if ended.failed_unasked && tally.ran_out_of_memory() {
        output.report_out_of_memory().await;
    }
    home.remove();
    if ended.exit.asked && ended.exit.code != 0 {
        tracing::warn!(code = ended.exit.code, "the command failed after it was asked to save and exit");
    }
    Ok(if ended.exit.asked { 0 } else { ended.exit.code })
}

/// Our membership: its rank is the rank of the second node plus our node's number in the step.
fn read_member(var: impl Fn(&str) -> Option<String>) -> anyhow::Result<GenerationMember> {
    let text = var(MEMBER_VARIABLE).with_context(|| format!("{MEMBER_VARIABLE} is not set"))?;
    let member: GenerationMember =
        serde_json::from_str(&text).with_context(|| format!("reading {MEMBER_VARIABLE}"))?;
    let node = var("SLURM_NODEID").context("SLURM_NODEID is not set")?;
    let node: u32 = node.parse().with_context(|| format!("SLURM_NODEID={node:?}"))?;
    Ok(GenerationMember { rank: member.rank.saturating_add(node), ..member })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_other_nodes_finds_its_rank() {
        let text = r#"{"generation":2,"rank":1,"world":6,"master_addr":"n1","master_port":4000,
            "nodes":["n1","n2","n3","n4","n7","n8"],"exec_plan":"default"}"#;
        let member_of = |node: &str| {
            read_member(|name: &str| match name {
                MEMBER_VARIABLE => Some(text.to_owned()),
                _ => Some(node.to_owned()),
            })
        };
        assert_eq!(["0", "2"].map(|node| member_of(node).unwrap().rank), [1, 3]);
        assert!(member_of("x").is_err());
        assert!(read_member(|_| None).is_err());
    }
}
