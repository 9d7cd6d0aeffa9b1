//! Counts how often the kernel killed processes of our cgroup because memory ran out.
//!
//! Such a process prints nothing, and ends as after any SIGKILL. But the kernel counts its kills. A cgroup v2
//! has `memory.events` with `oom_kill` and `oom_group_kill`, which include all cgroups below. A cgroup v1 has
//! `memory.oom_control` with `oom_kill`, since Linux 4.13. The command is in the cgroup of its agent, or
//! below.

use std::path::{Component, Path, PathBuf};

use infill_model::JobId;

/// The counter of the nearest cgroup that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OomKillCounter {
    file: PathBuf,
    /// Whether all processes of that cgroup belong to our Slurm job.
    is_own: bool,
    /// The last two counts that were recorded, the older first.
    counts: [u64; 2],
}

impl OomKillCounter {
    /// The counter for the processes of this job's agent. `None` if the kernel keeps no count.
    pub fn for_job(job: JobId) -> Option<OomKillCounter> {
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        OomKillCounter::from_proc_files(&cgroups, &mounts, job)
    }

    /// The counter for a process whose files `cgroup` and `mountinfo` in `/proc` have these contents.
    pub fn from_proc_files(cgroups: &str, mounts: &str, job: JobId) -> Option<OomKillCounter> {
        let (path, version) = memory_cgroup(cgroups)?;
        let (top, below) = mounts.lines().find_map(|line| parse_mount(line, version, path))?;
        let name = format!("job_{job}");
        let mut dir = below.as_path();
        loop {
            let is_own = dir.components().any(|part| part.as_os_str() == name.as_str());
            let mut kills =
                OomKillCounter { file: top.join(dir).join(version.counter_file()), is_own, counts: [0; 2] };
            if let Some(count) = kills.read_count() {
                kills.counts = [count; 2];
                return Some(kills);
            }
            dir = dir.parent()?;
        }
    }

    fn read_count(&self) -> Option<u64> {
        parse_kill_count(&std::fs::read_to_string(&self.file).ok()?)
    }

    /// Records the present count, and forgets the older of the two recorded ones.
    pub fn record_count(&mut self) {
        let last = self.counts[1];
        self.counts = [last, self.read_count().unwrap_or(last)];
    }

    /// Whether the kernel has killed a process of the command since the older of the two recorded counts.
    /// `by_sigkill`: whether a process that we started died of SIGKILL. Otherwise a kill counts only if the
    /// cgroup is the job's own: a launcher whose worker was killed returns a code of its own.
    pub fn killed_command(&self, by_sigkill: bool) -> bool {
        (by_sigkill || self.is_own) && self.read_count().is_some_and(|count| count > self.counts[0])
    }
}

/// The versions of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

impl CgroupVersion {
    fn counter_file(self) -> &'static str {
        match self {
            CgroupVersion::One => "memory.oom_control",
            CgroupVersion::Two => "memory.events",
        }
    }
}

/// The path of the cgroup whose memory controller a process has. If both versions are mounted, the controller
/// belongs to only one: v1, if a line names it.
fn memory_cgroup(cgroups: &str) -> Option<(&Path, CgroupVersion)> {
    let mut lines = cgroups.lines();
    let fields = lines.clone().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = fields.into_iter().find(|(names, _)| names.split(',').any(|name| name == "memory"));
    if let Some((_, path)) = v1 {
        return Some((Path::new(path), CgroupVersion::One));
    }
    let v2 = lines.find_map(|line| line.strip_prefix("0::"))?;
    Some((Path::new(v2), CgroupVersion::Two))
}

/// Where this cgroup is according to a line of `mountinfo`: the mount point, and the path below it.
fn parse_mount(line: &str, version: CgroupVersion, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let (location, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let kind = file_system.next()?;
    let options = file_system.nth(1)?;
    let has_memory = match version {
        CgroupVersion::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        CgroupVersion::Two => kind == "cgroup2",
    };
    let mut location = location.split(' ').skip(3);
    let root = location.next()?;
    let mount_point = location.next()?;
    let below = path.strip_prefix(root).ok()?;
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    (has_memory && is_plain).then(|| (PathBuf::from(mount_point), below.to_owned()))
}

/// The number of kills in the text of a counter; `None` if it has none.
fn parse_kill_count(text: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| match line.split_once(' ')? {
            ("oom_kill" | "oom_group_kill", number) => number.trim().parse::<u64>().ok(),
            _ => None,
        })
        .reduce(u64::saturating_add)
}

#[cfg(test)]
pub(crate) mod tests;
