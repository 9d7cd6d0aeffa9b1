//! Whether slurmctld runs infill's job_submit plug-in.
//!
//! JobSubmitPlugins=lua alone does not tell: the site's own job_submit.lua may lie there. So a submission is
//! tried that only infill's plug-in refuses; with `--test-only` it leaves no job behind.

use crate::doctor::finding::Finding;
use infill_model::LendingMode;

/// How the plug-in refuses sizes of what it does not lend.
const OTHER_LENDING_PREFIX: &str = "infill: cannot read";

/// How the plug-in's refusals begin.
const REFUSAL_PREFIX: &str = "infill: bad number of nodes";

const PLUGIN_FIX: &str = "set JobSubmitPlugins=lua with infill's job_submit.lua beside slurm.conf, or call it from \
                    your own (slurm/README.md); until then users write sbatch -H -N1 --comment=infill:nodes=1-8";

/// The arguments of the sbatch that tells, with a size that no job has. `lends_cpus`: parts of nodes without
/// GPUs, too.
pub fn trial_arguments(partition: &str, lend: LendingMode, lends_cpus: bool) -> [&str; 7] {
    let bad_size = match lend {
        LendingMode::Nodes => "--comment=infill:nodes=0",
        LendingMode::Gpus if lends_cpus => "--comment=infill:cpus=0",
        LendingMode::Gpus => "--comment=infill:gpus=0",
    };
    ["--test-only", "--partition", partition, "-N1", bad_size, "--wrap", "true"]
}

/// Judges what that sbatch said; `plugins`: the setting JobSubmitPlugins.
pub fn check_plugin(answer: &Result<String, String>, plugins: &str) -> Finding {
    match answer {
        Err(said) if said.contains(REFUSAL_PREFIX) => {
            Finding::ok("plugin", "slurmctld runs infill's job_submit plug-in")
        }
        Err(said) if said.contains(OTHER_LENDING_PREFIX) => Finding::error(
            "plugin",
            "infill's job_submit plug-in lends something else than gaps.lend and nodes.cpus say",
            "set LEND and CPUS in job_submit.lua to what gaps.lend and nodes.cpus are in infill.toml, and `scontrol \
             reconfigure`",
        ),
        Ok(_) => Finding::warn(
            "plugin",
            format!(
                "slurmctld does not run infill's job_submit plug-in (JobSubmitPlugins is {plugins}): `sbatch -p \
                 infill --nodes=1-8` does not work"
            ),
            PLUGIN_FIX,
        ),
        // It was refused before, or for another reason.
        Err(said) => Finding::warn(
            "plugin",
            format!("it does not show whether slurmctld runs infill's job_submit plug-in: {said}"),
            PLUGIN_FIX,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_refusal_proves_that_the_plugin_runs() {
        let told = |answer: Result<&str, &str>| {
            check_plugin(&answer.map(str::to_owned).map_err(str::to_owned), "lua").what
        };
        let refused = "sbatch --test-only: infill: bad number of nodes '0': sizes are 1 to 10000";
        assert_eq!(told(Err(refused)), "slurmctld runs infill's job_submit plug-in");
        let other = "sbatch: error: infill: cannot read 'gpus=0' in the comment; expected infill:nodes=SIZES";
        assert!(told(Err(other)).ends_with("lends something else than gaps.lend and nodes.cpus say"));
        assert!(told(Ok("Job 7 to start at 2026-01-01")).starts_with("slurmctld does not run infill's"));
        assert!(told(Err("sbatch: error: invalid partition")).ends_with("sbatch: error: invalid partition"));
    }
}
