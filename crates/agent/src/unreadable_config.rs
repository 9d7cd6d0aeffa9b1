//! A node whose configuration cannot be read. A job that was started there waits in the queue, held, and
//! does not fail.

use infill_model::JobId;

use super::args::RunArgs;
use super::slurm_context::SlurmContext;
use super::slurm_programs::SlurmPrograms;
use super::time_limit;

/// A URL at which no daemon can listen: port 0.
const UNREACHABLE_URL: &str = "http://127.0.0.1:0";

/// What happens to a job whose agent does not know where the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigFailureAction {
    /// It is a main job, and trains on its own nodes.
    Alone,
    /// It goes back to the queue, and waits there until the daemon starts it again.
    Held,
    /// `infill run` fails, because there is no batch script that could start again.
    Failed,
}

impl ConfigFailureAction {
    /// The action for `infill run` with these arguments in this context. `in_script`: whether it runs in a
    /// batch script.
    pub fn for_job(args: &RunArgs, context: &SlurmContext, in_script: bool) -> ConfigFailureAction {
        if args.spec.extend.is_some() {
            ConfigFailureAction::Alone
        } else if in_script && !args.in_step && !context.in_step {
            ConfigFailureAction::Held
        } else {
            ConfigFailureAction::Failed
        }
    }
}

/// Changes the arguments so that the job trains without infill, and logs the reason.
pub(crate) fn args_without_daemon(mut args: RunArgs, error: &anyhow::Error) -> RunArgs {
    tracing::warn!("{error:#}: this job trains on its own nodes, without infill");
    args.common.url = Some(UNREACHABLE_URL.to_owned());
    args
}

/// Asks Slurm to requeue our job, held, until that ends this process. The daemon starts the job again, with
/// growing pauses.
pub(crate) async fn requeue_held(job: JobId, programs: SlurmPrograms, error: &anyhow::Error) {
    tracing::error!(
        "{error:#}: this job waits in the queue until that is fixed on the node; it keeps its checkpoints"
    );
    time_limit::requeue_job(programs, job, true).await;
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use infill_testkit::write_script;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn only_batch_scripts_that_can_start_again_are_held_and_main_jobs_train_alone() {
        let becomes = |flags: &str, in_step, in_script| {
            let words = ["run"].into_iter().chain(flags.split_whitespace()).chain(["--", "true"]);
            let context = SlurmContext { job: JobId(7), node: "n1".into(), in_step };
            ConfigFailureAction::for_job(&Flags::parse_from(words).args, &context, in_script)
        };
        assert_eq!(becomes("", false, true), ConfigFailureAction::Held);
        assert_eq!(becomes("", false, false), ConfigFailureAction::Failed);
        assert_eq!(becomes("", true, true), ConfigFailureAction::Failed);
        assert_eq!(becomes("--in-step", true, true), ConfigFailureAction::Failed);
        for (in_step, in_script) in [(false, true), (true, true), (false, false)] {
            assert_eq!(becomes("--extend=1-4", in_step, in_script), ConfigFailureAction::Alone);
        }
    }

    #[tokio::test]
    async fn the_job_is_requeued_held() {
        let dir = tempfile::tempdir().unwrap();
        let call_log = dir.path().join("calls");
        let scontrol =
            write_script(dir.path().join("scontrol"), &format!("echo \"$@\" >>{}", call_log.display()));
        let programs = SlurmPrograms { scontrol, ..SlurmPrograms::default() };
        let task = tokio::spawn(async move {
            requeue_held(JobId(7), programs, &anyhow::anyhow!("cannot read the configuration")).await;
        });
        let calls = || std::fs::read_to_string(&call_log).unwrap_or_default();
        while calls().is_empty() {
            assert!(!task.is_finished(), "it waits until the requeue ends it");
            infill_testkit::clock::wait_real_time().await;
        }
        assert_eq!(calls().lines().next(), Some("requeuehold 7"));
        task.abort();
    }
}
