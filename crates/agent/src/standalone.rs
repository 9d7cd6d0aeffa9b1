//! `infill run` outside Slurm: runs the command once, alone, as worker 0 of 1.

use anyhow::Context;

use infill_model::{GenerationMember, JobId, NodeName};

use super::args::RunArgs;
use super::command::{LaunchSpec, RunningCommand};
use super::environment::CommandEnvironment;
use super::node_network::free_port;
use super::node_setup::prepare_node;
use super::output::OutputForwarder;
use super::progress::{self, ProgressTally};
use super::runtime_dir::RuntimeDir;
use super::signals::{AgentSignal, listen_for_signals};
use super::slurm_context::SlurmContext;
use super::slurm_programs::SlurmPrograms;

/// Runs the command, and returns its exit code. SIGTERM, SIGINT or the rescale signal asks it to save and
/// exit, and a second one kills it.
pub async fn run_standalone(args: &RunArgs) -> anyhow::Result<i32> {
    let common = &args.common;
    // Distinguishes the private directories of several runs on one machine.
    let job = JobId(std::process::id());
    let context = SlurmContext { job, node: NodeName::new("local"), in_step: false };
    let home = RuntimeDir::create_for(&context).context("cannot make the private directory")?;
    let mut signals = listen_for_signals().context("cannot listen for signals")?;
    if let Err(failure) = prepare_node(common, job, &context, SlurmPrograms::default(), &mut signals).await {
        home.remove();
        anyhow::bail!("{failure}");
    }
    let socket = home.progress_socket();
    let tally = ProgressTally::new();
    let listener = progress::open_progress_socket(&socket).context("cannot open the progress socket")?;
    tokio::spawn(progress::receive_datagrams(listener, tally.clone()));
    let member = GenerationMember {
        generation: 1,
        rank: 0,
        world: 1,
        master_addr: "127.0.0.1".to_owned(),
        master_port: free_port(),
        nodes: vec![NodeName::new("localhost")],
        exec_plan: common.first_plan(),
        meeting: None,
    };
    let environment = CommandEnvironment::from_args(common, JobId(0), &socket);
    let prefix = !common.no_prefix && common.started_ranks() > 1;
    let output = OutputForwarder::to_own_streams(prefix).context("cannot write to our output")?;
    let launch = LaunchSpec {
        words: common.command_for_plan(&member.exec_plan),
        ranks: (0..common.started_ranks())
            .map(|local| (local, environment.rank_variables(&member, local)))
            .collect(),
        remote: None,
        mark: home.path().display().to_string(),
        signal: common.signal.0,
        output,
        regex: None,
        tally,
        kills: None,
    };
    let mut running = RunningCommand::start(common.container.wrap_launch(launch, home.path()));
    let mut grace = common.grace_period();
    let ended = loop {
        tokio::select! {
            ended = running.wait_for_end() => break ended,
            Some(signal) = signals.recv() => {
                if signal == AgentSignal::Leave || signal == AgentSignal::User(common.signal.0) {
                    running.stop(grace);
                    grace = std::time::Duration::ZERO;
                }
            }
        }
    };
    home.remove();
    Ok(ended.exit.code)
}
