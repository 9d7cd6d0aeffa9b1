//! Checks whether slurmctld runs infill's job_submit plug-in.
//!
//! JobSubmitPlugins=lua does not prove it, since the site may use its own job_submit.lua. So the check tries
//! a submission that only infill's plug-in refuses. With `--test-only` it leaves no job behind.

use crate::doctor::finding::Finding;
use infill_model::LendingMode;

/// The start of the plug-in's refusal of sizes that count something that it does not lend.
const OTHER_LENDING_PREFIX: &str = "infill: cannot read";

/// The start of the plug-in's refusal of a wrong size.
const REFUSAL_PREFIX: &str = "infill: bad number of nodes";

const PLUGIN_FIX: &str = "set JobSubmitPlugins=lua with infill's job_submit.lua beside slurm.conf, or call it from \
                    your own (slurm/README.md); until then users write sbatch -H -N1 --comment=infill:nodes=1-8";

/// The arguments of the trial `sbatch`, with a size that no job has. `lends_cpus`: parts of nodes without
/// GPUs are lent too.
pub fn trial_arguments(partition: &str, lend: LendingMode, lends_cpus: bool) -> [&str; 7] {
    let bad_size = match lend {
        LendingMode::Nodes => "--comment=infill:nodes=0",
        LendingMode::Gpus if lends_cpus => "--comment=infill:cpus=0",
        LendingMode::Gpus => "--comment=infill:gpus=0",
    };
    ["--test-only", "--partition", partition, "-N1", bad_size, "--wrap", "true"]
}

/// Checks the answer to that `sbatch`. `plugins` is the setting JobSubmitPlugins.
pub fn check_plugin(answer: &Result<String, String>, plugins: &str) -> Finding {
    match answer {
        Err(message) if message.contains(REFUSAL_PREFIX) => {
            Finding::ok("plugin", "slurmctld runs infill's job_submit plug-in")
        }
        Err(message) if message.contains(OTHER_LENDING_PREFIX) => Finding::error(
            "plugin",
            "LEND and CPUS of infill's job_submit plug-in differ from gaps.lend and nodes.cpus",
            "set LEND and CPUS in job_submit.lua to the values of gaps.lend and nodes.cpus in infill.toml, and run \
             `scontrol reconfigure`",
        ),
        Ok(_) => Finding::warn(
            "plugin",
            format!(
                "slurmctld does not run infill's job_submit plug-in (JobSubmitPlugins is {plugins}): `sbatch -p \
                 infill --nodes=1-8` does not work"
            ),
            PLUGIN_FIX,
        ),
        // Something else refused the submission.
        Err(message) => Finding::warn(
            "plugin",
            format!("not checked whether slurmctld runs infill's job_submit plug-in: {message}"),
            PLUGIN_FIX,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_refusal_proves_that_the_plugin_runs() {
        let finding = |answer: Result<&str, &str>| {
            check_plugin(&answer.map(str::to_owned).map_err(str::to_owned), "lua").what
        };
        let refused = "sbatch --test-only: infill: bad number of nodes '0': sizes are 1 to 10000";
        assert_eq!(finding(Err(refused)), "slurmctld runs infill's job_submit plug-in");
        let other = "sbatch: error: infill: cannot read 'gpus=0' in the comment; expected infill:nodes=SIZES";
        assert!(finding(Err(other)).ends_with("differ from gaps.lend and nodes.cpus"));
        assert!(finding(Ok("Job 7 to start at 2026-01-01")).starts_with("slurmctld does not run infill's"));
        assert!(
            finding(Err("sbatch: error: invalid partition")).ends_with("sbatch: error: invalid partition")
        );
    }
}
