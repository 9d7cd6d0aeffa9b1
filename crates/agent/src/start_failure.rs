//! A wing that can start nothing on its node: it says why, and whose fault it is, so that neither pays for
//! the other.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use infill_api::AgentRole;
use infill_model::{AgentEvent, FaultSource, JobId};

use super::args::{CommandArgs, WorkerArgs};
use super::daemon_link::{Backoff, DaemonLink, LinkConfig};
use super::runtime_dir::RuntimeDir;
use super::slurm_context::SlurmContext;

/// Time for the daemon to hear of it. Meanwhile the node is held for nothing.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest reason that is told.
const MAX_WHY_CHARS: usize = 300;

/// Why nothing can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFailure {
    blame: FaultSource,
    why: String,
}

/// Makes ready what every worker of a wing needs.
pub(crate) fn prepare_wing(args: &WorkerArgs, place: &SlurmContext) -> Result<RuntimeDir, StartFailure> {
    if let Some(dir) = &args.dir {
        enter_dir(dir, args.needs_dir)?;
    }
    RuntimeDir::create_for(place)
        .map_err(|error| StartFailure { blame: FaultSource::Node, why: error.to_string() })
}

/// Goes where the lead runs its command. A command that names no files there can do without.
fn enter_dir(dir: &Path, needed: bool) -> Result<(), StartFailure> {
    let Err(error) = std::env::set_current_dir(dir) else { return Ok(()) };
    let why = format!("the lead runs its command in {}, and here that fails: {error}", dir.display());
    if needed {
        return Err(StartFailure { blame: FaultSource::Job, why });
    }
    tracing::warn!(why, "going on where we are");
    Ok(())
}

impl StartFailure {
    /// Tells the daemon. Returns the exit code for the process.
    pub async fn report_failure(
        self,
        lead: JobId,
        common: &CommandArgs,
        place: SlurmContext,
    ) -> anyhow::Result<i32> {
        tracing::error!(why = self.why, blame = %self.blame, "nothing can be started on this node");
        let link = DaemonLink::new(LinkConfig {
            url: common.daemon_url()?,
            ca: common.daemon_ca(),
            job: place.job,
            node: place.node,
            role: AgentRole::Wing { lead },
            spec: None,
            identity: Box::new(common.slurm_identity()),
        })?;
        let why: String = self.why.chars().take(MAX_WHY_CHARS).collect();
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let mut backoff = Backoff::new();
        let event = AgentEvent::Unfit { blame: self.blame, why };
        while link.send_report(vec![event.clone()]).await.is_err() && Instant::now() < deadline {
            sleep(backoff.next_pause()).await;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_the_jobs_fault_if_it_is_needed() {
        let nowhere = Path::new("/no/such/place");
        assert_eq!(enter_dir(nowhere, false), Ok(()));
        let unfit = enter_dir(nowhere, true).unwrap_err();
        assert_eq!(unfit.blame, FaultSource::Job);
        assert!(unfit.why.contains("/no/such/place"), "{}", unfit.why);
    }
}
