//! Checks how Slurm keeps the processes of jobs together, from the output of `scontrol show config`.

use super::list_contains;
use super::slurm_conf::SlurmConf;
use crate::doctor::finding::Finding;

/// Checks ProctrackType, TaskPlugin and the version of cgroups. `has_version_2`: this machine has one tree of
/// cgroups for all controllers.
pub fn check_cgroups(conf: &SlurmConf, has_version_2: bool) -> Finding {
    let track = conf.get("ProctrackType");
    let uses_tasks = list_contains(conf.get("TaskPlugin"), "task/cgroup");
    match track {
        "proctrack/pgid" => Finding::warn(
            "cgroup",
            "ProctrackType is proctrack/pgid: Slurm does not end processes that leave their process group, and main jobs \
             find them on their nodes",
            "set ProctrackType=proctrack/cgroup in slurm.conf",
        ),
        _ if track != "proctrack/cgroup" && !uses_tasks => {
            Finding::ok("cgroup", "Slurm uses no cgroups for jobs; infill's tests run this way")
        }
        _ => match conf.get("CgroupPlugin") {
            "cgroup/v1" => tested(),
            "cgroup/v2" => untested(),
            _ if has_version_2 => untested(),
            _ => tested(),
        },
    }
}

fn tested() -> Finding {
    Finding::ok(
        "cgroup",
        "Slurm uses cgroups of version 1; infill's tests cover task/cgroup with ConstrainDevices",
    )
}

fn untested() -> Finding {
    Finding::warn(
        "cgroup",
        "Slurm uses cgroups of version 2, with which infill's own tests have not been run",
        "try a job on the canary nodes first (docs/deploy/pilot.md): it must grow, shrink and leave no process behind",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingLevel;

    #[test]
    fn what_is_tested_is_said() {
        let check = |text: &str, has_version_2| {
            let found = check_cgroups(&SlurmConf::parse(text), has_version_2);
            (found.level, found.what.contains("version 2"))
        };
        let cgroup =
            "ProctrackType = proctrack/cgroup\nTaskPlugin = task/affinity,task/cgroup\nCgroupPlugin = ";
        assert_eq!(check("ProctrackType = proctrack/linuxproc\n", true), (FindingLevel::Ok, false));
        assert_eq!(check("ProctrackType = proctrack/pgid\n", true), (FindingLevel::Warn, false));
        assert_eq!(check(&format!("{cgroup}cgroup/v1\n"), true), (FindingLevel::Ok, false));
        assert_eq!(check(&format!("{cgroup}autodetect\n"), false), (FindingLevel::Ok, false));
        assert_eq!(check(&format!("{cgroup}autodetect\n"), true), (FindingLevel::Warn, true));
        assert_eq!(check(&format!("{cgroup}cgroup/v2\n"), false), (FindingLevel::Warn, true));
    }
}
