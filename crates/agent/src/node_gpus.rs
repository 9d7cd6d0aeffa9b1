//! The GPUs of a node that the job has for itself: how many its steps ask for.
//!
//! Slurm gives a job on a whole node all GPUs of that node, but its steps get only those that the job has
//! requested. So a job that says nothing about GPUs would train on none.

use std::time::Duration;

use super::slurm_context::SlurmContext;
use super::slurm_programs::{SlurmPrograms, run_program};
use infill_model::MOST_GPUS_A_NODE;

/// The variable in which Slurm says how many GPUs there are: for a batch script those of its job on this
/// node, requested or not, and for a step those that the step may use.
pub(crate) const GPUS_ON_NODE_VARIABLE: &str = "SLURM_GPUS_ON_NODE";

/// Carries the number of GPUs that the job holds on this node into its step.
pub(crate) const HELD_VARIABLE: &str = "INFILL_GPUS_HELD";

/// Variables with which an owner chooses the GPUs of steps.
const OWN_CHOICE_VARIABLES: [&str; 5] =
    ["SLURM_STEP_GRES", "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK"];

/// Fields of `scontrol show job` with what a job has requested.
const REQUEST_FIELDS: [&str; 4] = ["TresPerJob=", "TresPerNode=", "TresPerSocket=", "TresPerTask="];

/// How long Slurm has to answer. If it does not, the job counts as one that has requested nothing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Lines of a wing's script: they keep the number of GPUs that the wing holds for its step.
pub(crate) const WING_LINES: &str = "export INFILL_GPUS_HELD=\"$SLURM_GPUS_ON_NODE\"\n";

/// The option of `srun` in a wing's script for all GPUs of its node, if it has any.
const ALL_GPUS_OPTION: &str = "${SLURM_GPUS_ON_NODE:+\"--gres=gpu:$SLURM_GPUS_ON_NODE\"}";

/// Whether a request such as `gpu:a100:2` or `gres/gpu:0` says how many GPUs there shall be.
pub(crate) fn names_gpus(request: &str) -> bool {
    request.split(',').any(|item| {
        let item = item.trim_start_matches("gres/").trim_start_matches("gres:");
        item.strip_prefix("gpu").is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '=']))
    })
}

/// The number of GPUs that the job's own step should ask for: all that the job has here. `None` if there are
/// none, or if the owner has chosen. `extends`: whether wings extend a main job.
pub(crate) async fn step_gpus(
    extends: bool,
    context: &SlurmContext,
    programs: &SlurmPrograms,
    var: impl Fn(&str) -> Option<String>,
) -> Option<u32> {
    let gpus = gpus_in(&var, GPUS_ON_NODE_VARIABLE)?;
    let chosen = OWN_CHOICE_VARIABLES.iter().any(|name| var(name).is_some());
    if chosen || !takes_all_gpus(extends, var) {
        return None;
    }
    let job = context.job.to_string();
    let words = ["--oneliner", "show", "job", &job];
    match run_program(&programs.scontrol, &words, "", ANSWER_TIMEOUT).await {
        Ok(text) if requests_gpus(&text) => None,
        Ok(_) => Some(gpus),
        Err(error) => {
            tracing::warn!(%error, gpus, "cannot ask Slurm which GPUs the job has requested: using all");
            Some(gpus)
        }
    }
}

/// The option, for a shell, with which a wing on a whole node has the GPUs that the lead's own step has: all
/// of its node, or as many. All members of a generation need the same number of processes. `None` if the
/// step has no GPU.
pub(crate) fn wing_option(var: impl Fn(&str) -> Option<String>) -> Option<String> {
    let ours = gpus_in(&var, GPUS_ON_NODE_VARIABLE)?;
    let held = gpus_in(&var, HELD_VARIABLE).unwrap_or(0);
    Some(if ours < held { format!("--gres=gpu:{ours}") } else { ALL_GPUS_OPTION.to_owned() })
}

/// Whether the job takes all GPUs of its nodes by default. The nodes of a main job may differ. So a main job
/// on several nodes takes only the GPUs that it requests.
fn takes_all_gpus(extends: bool, var: impl Fn(&str) -> Option<String>) -> bool {
    !extends || var("SLURM_JOB_NUM_NODES").is_none_or(|nodes| nodes == "1")
}

/// Whether a job in the output of `scontrol show job` has requested GPUs, or none.
fn requests_gpus(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.any(|word| REQUEST_FIELDS.iter().any(|field| word.strip_prefix(field).is_some_and(names_gpus)))
}

/// The number of GPUs in a variable; `None` if it is not set, 0 or not credible.
pub(crate) fn gpus_in(var: impl Fn(&str) -> Option<String>, name: &str) -> Option<u32> {
    var(name)?.trim().parse().ok().filter(|gpus| (1..=MOST_GPUS_A_NODE).contains(gpus))
}

#[cfg(test)]
mod tests {
    use infill_model::JobId;
    use infill_testkit::write_script;

    use super::*;

    /// The GPUs that the step asks for. `job`: the output of `scontrol show job`.
    async fn asks(extends: bool, variables: &[(&str, &str)], job: &str) -> Option<u32> {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = write_script(dir.path().join("scontrol"), &format!("echo '{job}'"));
        let programs = SlurmPrograms { scontrol, ..SlurmPrograms::default() };
        let context = SlurmContext { job: JobId(7), node: "n1".into(), in_step: false };
        let var = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        step_gpus(extends, &context, &programs, var).await
    }

    #[tokio::test]
    async fn a_job_that_says_nothing_gets_all_gpus_of_its_node() {
        const FOUR: (&str, &str) = (GPUS_ON_NODE_VARIABLE, "4");
        assert_eq!(asks(false, &[FOUR], "JobId=7 TresPerNode=gres/nvme:1").await, Some(4));
        assert_eq!(asks(false, &[], "JobId=7").await, None, "the node has none");
        assert_eq!(asks(false, &[(GPUS_ON_NODE_VARIABLE, "99999")], "JobId=7").await, None);
        for request in
            ["TresPerNode=gres/gpu:2", "TresPerNode=gres/gpu:0", "TresPerJob=gres/nvme:1,gres/gpu=4"]
        {
            assert_eq!(
                asks(false, &[FOUR], &format!("JobId=7 {request} Comment=x")).await,
                None,
                "{request}"
            );
        }
        for name in OWN_CHOICE_VARIABLES {
            assert_eq!(asks(false, &[FOUR, (name, "none")], "JobId=7").await, None, "{name}");
        }
        let two_nodes = [FOUR, ("SLURM_JOB_NUM_NODES", "2")];
        assert_eq!(asks(true, &two_nodes, "JobId=7").await, None);
        assert_eq!(asks(true, &[FOUR, ("SLURM_JOB_NUM_NODES", "1")], "JobId=7").await, Some(4));
    }

    #[tokio::test]
    async fn without_an_answer_of_slurm_the_step_gets_all() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = write_script(dir.path().join("scontrol"), "exit 1");
        let programs = SlurmPrograms { scontrol, ..SlurmPrograms::default() };
        let context = SlurmContext { job: JobId(7), node: "n1".into(), in_step: false };
        let var = |name: &str| (name == GPUS_ON_NODE_VARIABLE).then(|| "2".to_owned());
        assert_eq!(step_gpus(false, &context, &programs, var).await, Some(2));
    }

    #[test]
    fn wings_have_as_many_gpus_as_the_lead() {
        let option = |ours: &str, held: &str| {
            wing_option(|name| match name {
                GPUS_ON_NODE_VARIABLE => Some(ours.to_owned()),
                _ => Some(held.to_owned()),
            })
        };
        assert_eq!(option("4", "4").as_deref(), Some(ALL_GPUS_OPTION));
        assert_eq!(option("1", "4").as_deref(), Some("--gres=gpu:1"), "by --gpus-per-task, say");
        assert_eq!(option("", "4"), None, "it has requested none");
        assert_eq!(option("4", "").as_deref(), Some(ALL_GPUS_OPTION));
    }

    #[test]
    fn requests_for_gpus_are_told_from_others() {
        for request in ["gpu", "gpu:2", "gres/gpu:a100:2", "gres:gpu=1", "nvme:1,gpu:0"] {
            assert!(names_gpus(request), "{request}");
        }
        for request in ["", "none", "nvme:1", "gpufs:1", "shard:2"] {
            assert!(!names_gpus(request), "{request}");
        }
    }
}
