//! How often the kernel killed processes of our cgroup because memory ran out.
//!
//! What it kills so prints nothing, and ends as after any SIGKILL. But the kernel counts: in `memory.events`
//! of a cgroup v2 (`oom_kill` and `oom_group_kill`, those of all cgroups below included), or in
//! `memory.oom_control` of a cgroup v1 (`oom_kill`, since Linux 4.13). The command is in the cgroup of its
//! agent, or below.

use std::path::{Component, Path, PathBuf};

use infill_model::JobId;

/// The counter of the nearest cgroup that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OomKillCounter {
    file: PathBuf,
    /// Whether all processes of that cgroup belong to our Slurm job.
    is_own: bool,
    /// What it said at the last look but one, and at the last.
    looks: [u64; 2],
}

impl OomKillCounter {
    /// The counter for the processes of this job's agent. `None` where the kernel keeps none.
    pub fn for_job(job: JobId) -> Option<OomKillCounter> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
        OomKillCounter::from_proc_files(&read("cgroup")?, &read("mountinfo")?, job)
    }

    /// The counter for a process whose files `cgroup` and `mountinfo` in `/proc` say this.
    pub fn from_proc_files(cgroups: &str, mounts: &str, job: JobId) -> Option<OomKillCounter> {
        let (path, version) = memory_cgroup(cgroups)?;
        let (top, below) = mounts.lines().find_map(|line| parse_mount(line, version, path))?;
        let name = format!("job_{job}");
        let mut dir = below.as_path();
        loop {
            let is_own = dir.components().any(|part| part.as_os_str() == name.as_str());
            let mut kills =
                OomKillCounter { file: top.join(dir).join(version.counter_file()), is_own, looks: [0; 2] };
            if let Some(count) = kills.read_count() {
                kills.looks = [count; 2];
                return Some(kills);
            }
            dir = dir.parent()?;
        }
    }

    fn read_count(&self) -> Option<u64> {
        parse_kill_count(&std::fs::read_to_string(&self.file).ok()?)
    }

    /// Notes what the counter says now. What it said at the last look but one is forgotten.
    pub fn record_count(&mut self) {
        self.looks = [self.looks[1], self.read_count().unwrap_or(self.looks[1])];
    }

    /// Whether the kernel has killed a process of the command since the last look but one. `by_sigkill`: one
    /// of those that we started ended so. Without that a kill counts only if the cgroup is the job's own: a
    /// launcher whose worker was killed returns a code of its own.
    pub fn killed_command(&self, by_sigkill: bool) -> bool {
        (by_sigkill || self.is_own) && self.read_count().is_some_and(|count| count > self.looks[0])
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

/// The path of the cgroup whose memory controller a process has. Where both versions are there, the
/// controller belongs to one of them: v1, if a line names it.
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

/// Where a line of `mountinfo` says that this cgroup is: the mount point, and the path below it.
fn parse_mount(line: &str, version: CgroupVersion, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let (place, what) = line.split_once(" - ")?;
    let mut what = what.split(' ');
    let kind = what.next()?;
    let options = what.nth(1)?;
    let is_it = match version {
        CgroupVersion::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        CgroupVersion::Two => kind == "cgroup2",
    };
    let mut place = place.split(' ').skip(3);
    let root = place.next()?;
    let top = place.next()?;
    let below = path.strip_prefix(root).ok()?;
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    (is_it && is_plain).then(|| (PathBuf::from(top), below.to_owned()))
}

/// Kills by the text of a counter; `None` where it has none.
fn parse_kill_count(text: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line: &str| match line.split_once(' ')? {
            ("oom_kill" | "oom_group_kill", number) => number.trim().parse::<u64>().ok(),
            _ => None,
        })
        .reduce(u64::saturating_add)
}

#[cfg(test)]
pub(crate) mod tests;
