//! `infill rehearse`: tries on this machine whether a command can be a malleable job. It needs neither Slurm
//! nor a daemon.

use clap::Args;

use infill_agent::RehearseArgs;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// The end of the help text.
const ABOUT_REHEARSALS: &str = "\
The command runs on each of --sizes in turn. It gets the signal once it has trained for --train-secs. It must then save, \
exit with code 0, and go on at the next size where it was.

It reads and writes its own checkpoint, so let it write into a directory of its own. All processes run on this machine, and \
all of them see all of its GPUs.

Exit code: 0 if nothing would go wrong, 1 if something would or the rehearsal was interrupted, 2 for wrong usage.

`--json` prints `runs` and `findings`; a finding has a `kind`, `is_fault` and a `text`.";

/// Flags of `infill rehearse`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "infill rehearse [OPTIONS] [--] <COMMAND> [ARGUMENTS]...",
    after_help = ABOUT_REHEARSALS
)]
pub struct RehearseCommand {
    #[command(flatten)]
    args: RehearseArgs,
}

impl RehearseCommand {
    /// The training command with its arguments.
    pub fn command_words(&self) -> &[String] {
        &self.args.common.command
    }
}

/// Runs `infill rehearse`.
pub async fn run(command: RehearseCommand) -> CommandResult {
    let prints_json = command.args.json;
    let signal = command.args.common.signal.to_string();
    let rehearsal = infill_agent::rehearse(command.args).await?;
    if prints_json {
        output::print_json(&rehearsal)?;
    } else {
        output::print_text(&rehearsal.lines(&signal).join("\n"))?;
    }
    Ok(if rehearsal.is_sound() { ProgramExit::Ok.code() } else { ProgramExit::Failed.code() })
}
