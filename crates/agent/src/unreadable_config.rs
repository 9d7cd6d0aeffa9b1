//! A node whose configuration cannot be read: a job waits there, held, and none fails for that.

use infill_model::JobId;

use super::args::RunArgs;
use super::slurm_context::SlurmContext;
use super::slurm_programs::SlurmPrograms;
use super::time_limit;

/// Where nobody listens, and nobody can: port 0.
const UNREACHABLE_URL: &str = "http://127.0.0.1:0";

/// What becomes of a job whose agent does not know where the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigFailureAction {
    /// It trains on its own nodes: it is one of the main queue.
    Alone,
    /// It goes back to the queue, and waits there until the daemon starts it again.
    Held,
    /// `infill run` fails: there is no batch script that could begin anew.
    Failed,
}

impl ConfigFailureAction {
    /// Of `infill run` with these arguments at this place; whether it is in a batch script.
    pub fn for_job(args: &RunArgs, place: &SlurmContext, in_script: bool) -> ConfigFailureAction {
        match (args.spec.extend.is_some(), in_script && !args.in_step && !place.in_step) {
            (true, _) => ConfigFailureAction::Alone,
            (false, true) => ConfigFailureAction::Held,
            (false, false) => ConfigFailureAction::Failed,
        }
    }
}

/// The arguments of a job that trains without infill.
pub(crate) fn args_without_daemon(mut args: RunArgs, error: &anyhow::Error) -> RunArgs {
    tracing::warn!("{error:#}: this job trains on its own nodes, without infill");
    args.common.url = Some(UNREACHABLE_URL.to_owned());
    args
}

/// Has Slurm requeue our job, held, until that ends us. The daemon starts it again, ever more rarely.
pub(crate) async fn requeue_held(job: JobId, programs: SlurmPrograms, error: &anyhow::Error) {
    tracing::error!(
        "{error:#}: this job waits in the queue until that is mended on the node; it keeps its checkpoints"
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
    fn only_what_can_begin_anew_is_held_and_main_jobs_are_left_alone() {
        let becomes = |flags: &str, in_step, in_script| {
            let words = ["run"].into_iter().chain(flags.split_whitespace()).chain(["--", "true"]);
            let place = SlurmContext { job: JobId(7), node: "n1".into(), in_step };
            ConfigFailureAction::for_job(&Flags::parse_from(words).args, &place, in_script)
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
        let asked = dir.path().join("asked");
        let scontrol =
            write_script(dir.path().join("scontrol"), &format!("echo \"$@\" >>{}", asked.display()));
        let programs = SlurmPrograms { scontrol, ..SlurmPrograms::default() };
        let task = tokio::spawn(async move {
            requeue_held(JobId(7), programs, &anyhow::anyhow!("cannot read the configuration")).await;
        });
        let said = || std::fs::read_to_string(&asked).unwrap_or_default();
        while said().is_empty() {
            assert!(!task.is_finished(), "it waits for its end");
            infill_testkit::clock::wait_real_time().await;
        }
        assert_eq!(said().lines().next(), Some("requeuehold 7"));
        task.abort();
    }
}
