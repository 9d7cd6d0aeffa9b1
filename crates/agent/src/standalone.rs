//! `infill run` outside Slurm: runs the command once, alone, as worker 0 of 1.

use anyhow::Context;

use infill_model::{GenerationMember, JobId, NodeName};

use super::args::RunArgs;
use super::command::{Launch, Running};
use super::environment::Surroundings;
use super::home::Home;
use super::link::free_port;
use super::output::Output;
use super::place::Place;
use super::progress::{self, Tally};
use super::signals::{Told, signals};

/// Runs the command; its exit code is ours. SIGTERM and SIGINT ask it to save and exit, a second one kills
/// it.
pub async fn run(args: &RunArgs) -> anyhow::Result<i32> {
    let common = &args.common;
    // Distinguishes the private directories of several runs on one machine.
    let place = Place { job: JobId(std::process::id()), node: NodeName::new("local"), in_step: false };
    let home = Home::make(&place).context("cannot make the private directory")?;
    let socket = home.socket();
    let tally = Tally::new();
    let listener = progress::open_socket(&socket).context("cannot open the progress socket")?;
    tokio::spawn(progress::listen(listener, tally.clone()));
    let mut told = signals().context("cannot listen for signals")?;
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
    let around = Surroundings::of(common, JobId(0), &socket);
    let prefix = !common.no_prefix && common.started_ranks() > 1;
    let output = Output::of_process(prefix).context("cannot write to our output")?;
    let mut running = Running::start(Launch {
        words: common.words_of(&member.exec_plan),
        ranks: (0..common.started_ranks()).map(|l| (l, around.variables(&member, l))).collect(),
        remote: None,
        mark: home.path().display().to_string(),
        signal: common.signal.0,
        output,
        regex: None,
        tally,
        kills: None,
    });
    let mut grace = common.grace();
    let ended = loop {
        tokio::select! {
            ended = running.ended() => break ended,
            Some(signal) = told.recv() => {
                if signal == Told::Leave || signal == Told::User(common.signal.0) {
                    running.stop(grace);
                    grace = std::time::Duration::ZERO;
                }
            }
        }
    };
    home.remove();
    Ok(ended.exit.code)
}
