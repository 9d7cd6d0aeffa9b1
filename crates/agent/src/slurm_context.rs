//! Where in Slurm the agent runs: job, node, and batch script or step.

use std::time::Duration;

use infill_model::clock::now;
use infill_model::{JobId, NodeName};

/// The agent's job, node and kind of process in Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlurmContext {
    /// Id of the Slurm job.
    pub job: JobId,
    /// Slurm's name of the node.
    pub node: NodeName,
    /// Whether this is a job step already, and not the batch script.
    pub in_step: bool,
}

impl SlurmContext {
    /// Reads the context from the environment; `None` outside a job.
    pub(crate) fn from_env(var: impl Fn(&str) -> Option<String>) -> Option<SlurmContext> {
        let job = JobId(var("SLURM_JOB_ID")?.parse().ok()?);
        let node = NodeName::new(var("SLURMD_NODENAME").or_else(|| var("HOSTNAME"))?);
        Some(SlurmContext { job, node, in_step: is_job_step(var("SLURM_STEP_ID").as_deref()) })
    }
}

/// The value of a variable of our environment; `None` if it is not set or not text.
pub(crate) fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The time that the job has left according to `SLURM_JOB_END_TIME`. Slurm sets this variable when the step
/// or batch script starts, and never corrects it. `None` if it is not set.
pub(crate) fn initial_time_left(var: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let end: i64 = var("SLURM_JOB_END_TIME")?.parse().ok()?;
    Some(Duration::from_secs(u64::try_from(end - now().0).unwrap_or(0)))
}

/// Whether this value of `SLURM_STEP_ID` belongs to a job step. Batch scripts and the like have ids at the
/// upper end of the range, or none.
pub(crate) fn is_job_step(id: Option<&str>) -> bool {
    id.and_then(|id| id.parse::<u32>().ok()).is_some_and(|id| id < 0xffff_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(vars: &[(&str, &str)]) -> Option<SlurmContext> {
        SlurmContext::from_env(|name| vars.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn steps_are_told_apart_from_batch_scripts() {
        let batch = context(&[("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "n1")]);
        assert_eq!(batch, Some(SlurmContext { job: JobId(7), node: "n1".into(), in_step: false }));
        let step = [("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "n1"), ("SLURM_STEP_ID", "0")];
        assert!(context(&step).unwrap().in_step);
        let odd = [("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "n1"), ("SLURM_STEP_ID", "4294967291")];
        assert!(!context(&odd).unwrap().in_step);
        assert_eq!(context(&[("HOSTNAME", "laptop")]), None);
    }
}
