//! A wing that cannot start the command on its node. It reports the reason, and whether the node or the job
//! is at fault, so that the other is not blamed.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use infill_api::AgentRole;
use infill_model::{AgentEvent, FaultSource, JobId};

use super::args::{CommandArgs, WorkerArgs};
use super::daemon_link::{Backoff, DaemonLink, LinkConfig};
use super::node_setup::SetupFailure;
use super::outbox::EventBatch;
use super::runtime_dir::RuntimeDir;
use super::slurm_context::SlurmContext;

/// How long the report to the daemon may take. The node is held for nothing meanwhile.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest reason that is reported, characters.
const MAX_WHY_CHARS: usize = 300;

/// Why nothing can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFailure {
    blame: FaultSource,
    why: String,
}

/// Prepares what every worker of a wing needs: the lead's directory and the private directory.
pub(crate) fn prepare_wing(args: &WorkerArgs, context: &SlurmContext) -> Result<RuntimeDir, StartFailure> {
    if let Some(dir) = &args.dir {
        enter_dir(dir, args.needs_dir)?;
    }
    RuntimeDir::create_for(context)
        .map_err(|error| StartFailure { blame: FaultSource::Node, why: error.to_string() })
}

/// Changes to the directory in which the lead runs its command. A command that names no files there does not
/// need it.
fn enter_dir(dir: &Path, needed: bool) -> Result<(), StartFailure> {
    let Err(error) = std::env::set_current_dir(dir) else { return Ok(()) };
    let why = format!("cannot enter {}, the directory of the lead's command: {error}", dir.display());
    if needed {
        return Err(StartFailure { blame: FaultSource::Job, why });
    }
    tracing::warn!(why, "going on in the present directory");
    Ok(())
}

impl StartFailure {
    /// A command of `--on-node` that failed. It is the job's own, so that the node is not blamed.
    pub(crate) fn of_setup(failure: SetupFailure) -> StartFailure {
        StartFailure { blame: FaultSource::Job, why: failure.to_string() }
    }

    /// Reports the failure to the daemon. Returns the exit code for the process.
    pub async fn report_failure(
        self,
        lead: JobId,
        common: &CommandArgs,
        context: SlurmContext,
    ) -> anyhow::Result<i32> {
        tracing::error!(why = self.why, blame = %self.blame, "cannot start the command on this node");
        let link = DaemonLink::new(LinkConfig {
            url: common.daemon_url()?,
            ca: common.daemon_ca(),
            job: context.job,
            node: context.node,
            role: AgentRole::Wing { lead },
            spec: None,
            identity: Box::new(common.slurm_identity()),
        })?;
        let why: String = self.why.chars().take(MAX_WHY_CHARS).collect();
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let mut backoff = Backoff::new();
        let batch = EventBatch::first(vec![AgentEvent::Unfit { blame: self.blame, why }]);
        while link.send_report(batch.clone()).await.is_err() && Instant::now() < deadline {
            sleep(backoff.next_pause()).await;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_the_jobs_fault_if_it_is_needed() {
        let nowhere = Path::new("/no/such/place");
        assert_eq!(enter_dir(nowhere, false), Ok(()));
        let failure = enter_dir(nowhere, true).unwrap_err();
        assert_eq!(failure.blame, FaultSource::Job);
        assert!(failure.why.contains("/no/such/place"), "{}", failure.why);
    }
}
