//! `infill stop-all`: takes all malleable jobs off their nodes, also where the daemon is dead, hangs or
//! cannot be reached.

use std::time::Duration;

use super::command::run_within;
use super::session::CliSession;
use infill_api::{BodyProof, ControlRequest, routes};
use infill_model::config::Config;
use infill_model::{ControlState, lead_from_wing_name};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    output,
};

/// Time for the daemon to accept the order.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for each of Slurm's commands. They wait for a slurmctld that is busy.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Most jobs in one of Slurm's commands.
const MAX_IDS: usize = 100;

/// Options of `infill stop-all`.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(after_help = "\
Without --now, the daemon is asked to drain first. If it accepts within 5 seconds, its jobs save and leave as long as they \
need, and nothing else is done. Otherwise Slurm's own commands are run:

  1. The malleable partition is set down, so that no job starts.
  2. Jobs that run are requeued. Slurm sends them SIGTERM. Their agents let
     them save, for agent.preempt_leave_secs.
  3. Wings are cancelled.

To undo: scontrol update PartitionName=infill State=UP.

Root, SlurmUser and Slurm's Administrators may set a partition down. An Operator may not. Then jobs are requeued held, and those \
that wait are held, so that they cannot start. The command that releases them is printed. A daemon that runs may still start \
other jobs.

Exit codes: 0 done, 1 a command failed, 2 wrong usage.")]
pub struct StopAllArgs {
    /// Do not ask the daemon, and run Slurm's commands at once
    #[arg(long)]
    now: bool,
    /// Print Slurm's commands, and run none that changes anything
    #[arg(long)]
    dry_run: bool,
}

/// The jobs of the malleable partition that hold nodes.
#[derive(Debug, Default, PartialEq)]
struct HoldingJobs {
    /// Jobs to requeue.
    leads: Vec<String>,
    /// Jobs that wait and are not held, so that Slurm may start them.
    waiting: Vec<String>,
    /// Wings to cancel, also those that wait.
    wings: Vec<String>,
}

impl HoldingJobs {
    /// Reads the output of `squeue -o '%A|%T|%Q|%j'`.
    fn from_squeue(text: &str) -> HoldingJobs {
        let mut found = HoldingJobs::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.splitn(4, '|').collect();
            let [id, state, priority, name] = fields[..] else { continue };
            let id = id.trim().to_owned();
            match state {
                _ if lead_from_wing_name(name.trim()).is_some() => found.wings.push(id),
                // Slurm holds a job by the priority 0.
                "PENDING" if priority.trim() == "0" => {}
                "PENDING" => found.waiting.push(id),
                "COMPLETING" => {}
                _ => found.leads.push(id),
            }
        }
        found
    }

    /// The commands that take these jobs off their nodes. Where the partition is closed, jobs are not held:
    /// the daemon respects a hold that is not its own, and would leave them held.
    fn commands(&self, is_closed: bool) -> Vec<Vec<String>> {
        let verb = if is_closed { "requeue" } else { "requeuehold" };
        let mut requeues = scontrol_on(verb, &self.leads);
        if !is_closed {
            requeues.extend(scontrol_on("hold", &self.waiting));
        }
        let cancels = self
            .wings
            .chunks(MAX_IDS)
            .map(|ids| std::iter::once("scancel".to_owned()).chain(ids.iter().cloned()).collect());
        requeues.into_iter().chain(cancels).collect()
    }

    /// How to undo a stop, in words.
    fn way_back(&self, partition: &str, is_closed: bool) -> String {
        if is_closed {
            return format!(
                "No job of partition {partition} starts until \
                 scontrol update PartitionName={partition} State=UP"
            );
        }
        let held: Vec<String> = self.leads.iter().chain(&self.waiting).cloned().collect();
        let release: Vec<String> =
            scontrol_on("release", &held).iter().map(|words| words.join(" ")).collect();
        let release = if release.is_empty() { "nothing".to_owned() } else { release.join("; ") };
        format!(
            "Partition {partition} may still be up: only root, SlurmUser and Slurm's Administrators may set it \
             down. The jobs are held. To undo: {release}"
        )
    }
}

/// `scontrol VERB` on these jobs.
fn scontrol_on(verb: &str, ids: &[String]) -> Vec<Vec<String>> {
    let words = |ids: &[String]| vec!["scontrol".to_owned(), verb.to_owned(), ids.join(",")];
    ids.chunks(MAX_IDS).map(words).collect()
}

/// Stops all malleable jobs.
pub async fn run(args: StopAllArgs, session: &CliSession) -> CommandResult {
    if !args.now && !args.dry_run {
        match tokio::time::timeout(DAEMON_TIMEOUT, drain_daemon(session)).await {
            Ok(Ok(())) => {
                output::print_text(
                    "the daemon drains: all malleable jobs save and leave. If some do not, run infill stop-all --now",
                )?;
                return Ok(ProgramExit::Ok.code());
            }
            Ok(Err(failure)) => eprintln!("infill: the daemon does not drain: {failure}"),
            Err(_) => eprintln!("infill: the daemon gave no answer in {} s", DAEMON_TIMEOUT.as_secs()),
        }
    }
    let partition = partition_name(session);
    let close =
        ["scontrol", "update", &format!("PartitionName={partition}"), "State=DOWN"].map(str::to_owned);
    let is_closed = run_step(&close, args.dry_run).await;
    let mut failed = !is_closed;
    let list = ["squeue", "-h", "-p", &partition, "-o", "%A|%T|%Q|%j"].map(str::to_owned);
    let jobs = match run_slurm(&list).await {
        Ok(text) => HoldingJobs::from_squeue(&text),
        Err(why) => return Err(ProgramExit::Failed.caused_by(anyhow::anyhow!("{why}"))),
    };
    for command in jobs.commands(is_closed) {
        failed |= !run_step(&command, args.dry_run).await;
    }
    if args.dry_run {
        return Ok(ProgramExit::Ok.code());
    }
    let way_back = jobs.way_back(&partition, is_closed);
    if failed {
        let what = format!("not all commands succeeded: see above. {way_back}");
        return Err(ProgramExit::Failed.caused_by(anyhow::anyhow!(what)));
    }
    output::print_text(&format!(
        "{} requeued, {} cancelled. {way_back}",
        output::counted_noun(jobs.leads.len() as u64, "job"),
        output::counted_noun(jobs.wings.len() as u64, "wing")
    ))?;
    Ok(ProgramExit::Ok.code())
}

async fn drain_daemon(session: &CliSession) -> Result<(), CommandFailure> {
    let client = session.daemon_client()?;
    let request = ControlRequest { proof: BodyProof::default(), control: ControlState::Draining };
    client.send_order("control", routes::CONTROL, &request).await?;
    Ok(())
}

/// The malleable partition. The default if the configuration cannot be read: this command must not fail
/// because of a mistake in a file.
fn partition_name(session: &CliSession) -> String {
    let config = session.load_config().unwrap_or_else(|e| {
        eprintln!("infill: {e}");
        Config::default()
    });
    config.slurm.partition
}

/// Prints a command and runs it, unless this is a dry run. Returns whether it succeeded.
async fn run_step(command: &[String], dry_run: bool) -> bool {
    eprintln!("{}", command.join(" "));
    if dry_run {
        return true;
    }
    match run_slurm(command).await {
        Ok(_) => true,
        Err(why) => {
            eprintln!("infill: {why}");
            false
        }
    }
}

/// Runs one of Slurm's commands. Returns its output, or why it failed.
async fn run_slurm(command: &[String]) -> Result<String, String> {
    let Some((program, args)) = command.split_first() else { return Err("empty".to_owned()) };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run_within(COMMAND_TIMEOUT, program, &args).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{JobId, wing_name};

    #[test]
    fn leads_are_requeued_and_wings_cancelled() {
        let wing = wing_name(JobId(7));
        let text = format!(
            "7|RUNNING|100|train|2\n8|PENDING|0|train\n9|RUNNING|100|{wing}\n10|PENDING|100|{wing}\n\
             11|COMPLETING|100|x\n12|PENDING|100|train\nbroken\n"
        );
        let jobs = HoldingJobs::from_squeue(&text);
        let joined = |commands: Vec<Vec<String>>| -> Vec<String> {
            commands.iter().map(|words| words.join(" ")).collect()
        };
        assert_eq!(joined(jobs.commands(true)), ["scontrol requeue 7", "scancel 9 10"]);
        let unclosed = ["scontrol requeuehold 7", "scontrol hold 12", "scancel 9 10"];
        assert_eq!(joined(jobs.commands(false)), unclosed);
        assert!(jobs.way_back("infill", true).ends_with("PartitionName=infill State=UP"));
        assert!(jobs.way_back("infill", false).ends_with("To undo: scontrol release 7,12"));
    }

    #[test]
    fn long_lists_are_split() {
        let text: String = (1..=250).map(|id| format!("{id}|RUNNING|100|train\n")).collect();
        let lengths: Vec<usize> = HoldingJobs::from_squeue(&text)
            .commands(true)
            .iter()
            .map(|words| words[2].split(',').count())
            .collect();
        assert_eq!(lengths, [100, 100, 50]);
    }
}
