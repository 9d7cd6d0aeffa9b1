//! How often the kernel killed processes of our cgroup because memory ran out.
//!
//! What it kills so prints nothing, and ends as after any SIGKILL. But the kernel counts: in `memory.events` of
//! a cgroup v2 (`oom_kill` and `oom_group_kill`, those of all cgroups below included), or in
//! `memory.oom_control` of a cgroup v1 (`oom_kill`, since Linux 4.13). The command is in the cgroup of its agent,
//! or below.

use std::path::{Component, Path, PathBuf};

use infill_model::JobId;

/// The counter of the nearest cgroup that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kills {
    file: PathBuf,
    /// Whether all processes of that cgroup belong to our Slurm job.
    is_own: bool,
    /// What it said at the last look but one, and at the last.
    looks: [u64; 2],
}

impl Kills {
    /// The counter for the processes of this job's agent. `None` where the kernel keeps none.
    pub fn here(job: JobId) -> Option<Kills> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
        Kills::find(&read("cgroup")?, &read("mountinfo")?, job)
    }

    /// The counter for a process whose files `cgroup` and `mountinfo` in `/proc` say this.
    pub fn find(cgroups: &str, mounts: &str, job: JobId) -> Option<Kills> {
        let (path, version) = memory_cgroup(cgroups)?;
        let (top, below) = mounts.lines().find_map(|line| mounted(line, version, path))?;
        let name = format!("job_{job}");
        let mut dir = below.as_path();
        loop {
            let is_own = dir.components().any(|part| part.as_os_str() == name.as_str());
            let mut kills = Kills { file: top.join(dir).join(version.file()), is_own, looks: [0; 2] };
            if let Some(count) = kills.count() {
                kills.looks = [count; 2];
                return Some(kills);
            }
            dir = dir.parent()?;
        }
    }

    fn count(&self) -> Option<u64> {
        count_in(&std::fs::read_to_string(&self.file).ok()?)
    }

    /// Notes what the counter says now. What it said at the last look but one is forgotten.
    pub fn look(&mut self) {
        self.looks = [self.looks[1], self.count().unwrap_or(self.looks[1])];
    }

    /// Whether the kernel has killed a process of the command since the last look but one. `by_sigkill`: one of
    /// those that we started ended so. Without that a kill counts only if the cgroup is the job's own: a launcher
    /// whose worker was killed returns a code of its own.
    pub fn tell_of_command(&self, by_sigkill: bool) -> bool {
        (by_sigkill || self.is_own) && self.count().is_some_and(|count| count > self.looks[0])
    }
}

/// The versions of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn file(self) -> &'static str {
        match self {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        }
    }
}

/// The path of the cgroup whose memory controller a process has. Where both versions are there, the controller
/// belongs to one of them: v1, if a line names it.
fn memory_cgroup(cgroups: &str) -> Option<(&Path, Version)> {
    let mut lines = cgroups.lines();
    let fields = lines.clone().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = fields.into_iter().find(|(names, _)| names.split(',').any(|name| name == "memory"));
    if let Some((_, path)) = v1 {
        return Some((Path::new(path), Version::One));
    }
    let v2 = lines.find_map(|line| line.strip_prefix("0::"))?;
    Some((Path::new(v2), Version::Two))
}

/// Where a line of `mountinfo` says that this cgroup is: the mount point, and the path below it.
fn mounted(line: &str, version: Version, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let (place, what) = line.split_once(" - ")?;
    let mut what = what.split(' ');
    let (kind, options) = (what.next()?, what.nth(1)?);
    let is_it = match version {
        Version::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        Version::Two => kind == "cgroup2",
    };
    let mut place = place.split(' ').skip(3);
    let (root, top) = (place.next()?, place.next()?);
    let below = path.strip_prefix(root).ok()?;
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    (is_it && is_plain).then(|| (PathBuf::from(top), below.to_owned()))
}

/// Kills by the text of a counter; `None` where it has none.
fn count_in(text: &str) -> Option<u64> {
    let value = |line: &str| match line.split_once(' ')? {
        ("oom_kill" | "oom_group_kill", number) => number.trim().parse::<u64>().ok(),
        _ => None,
    };
    text.lines().filter_map(value).reduce(u64::saturating_add)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder that looks like the cgroups of version 2 to the agent of job 17.
    pub(crate) struct Fake {
        top: tempfile::TempDir,
    }

    const STEP: &str = "system.slice/slurmstepd.scope/job_17/step_0/user/task_0";

    impl Fake {
        pub(crate) fn new() -> Fake {
            let top = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(top.path().join(STEP)).unwrap();
            Fake { top }
        }

        /// Has a counter at `dir` say so many kills.
        pub(crate) fn say(&self, dir: &str, count: u64) -> PathBuf {
            let file = self.top.path().join(dir).join("memory.events");
            std::fs::write(&file, format!("low 0\nmax 9\noom 3\noom_kill {count}\noom_group_kill 0\n"))
                .unwrap();
            file
        }

        pub(crate) fn kills(&self, job: u32) -> Option<Kills> {
            let mounts = format!(
                "31 23 0:28 / /elsewhere rw - tmpfs tmpfs rw\n\
                 35 31 0:32 / {} rw,relatime shared:9 - cgroup2 cgroup rw,nsdelegate\n",
                self.top.path().display()
            );
            Kills::find(&format!("0::/{STEP}\n"), &mounts, JobId(job))
        }
    }

    #[test]
    fn the_nearest_cgroup_with_a_counter_is_found() {
        let fake = Fake::new();
        assert_eq!(fake.kills(17), None, "the controller is off");
        fake.say("system.slice", 4);
        let shared = fake.kills(17).unwrap();
        assert!(shared.file.ends_with("system.slice/memory.events") && !shared.is_own, "{shared:?}");
        let file = fake.say("system.slice/slurmstepd.scope/job_17", 0);
        let own = Kills { file, is_own: true, looks: [0; 2] };
        assert_eq!(fake.kills(17), Some(own));
        assert!(!fake.kills(1).unwrap().is_own, "a job that runs within another's");
    }

    #[test]
    fn version_one_has_a_tree_for_memory() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("uid_1000/job_17/step_0/task_0");
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("memory.oom_control");
        std::fs::write(&file, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n").unwrap();
        let cgroups = "9:name=systemd:/\n4:cpu,memory:/slurm/uid_1000/job_17/step_0/task_0\n0::/\n";
        let mounts = format!(
            "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             35 31 0:32 /slurm {} rw - cgroup cgroup rw,cpu,memory\n",
            top.path().display()
        );
        let found = Kills::find(cgroups, &mounts, JobId(17));
        assert_eq!(found, Some(Kills { file: file.clone(), is_own: true, looks: [2; 2] }));
        std::fs::write(file, "oom_kill_disable 0\nunder_oom 0\n").unwrap();
        assert_eq!(Kills::find(cgroups, &mounts, JobId(17)), None, "an old kernel counts none");
    }

    #[test]
    fn what_makes_no_sense_has_no_counter() {
        let fake = Fake::new();
        fake.say("", 1);
        let mounts = format!("35 31 0:32 / {} rw - cgroup2 cgroup rw\n", fake.top.path().display());
        assert!(Kills::find("0::/a/b\n", &mounts, JobId(17)).is_some());
        for (cgroups, mounts) in [
            ("", mounts.as_str()),
            ("0::/../a\n", &mounts),
            ("3:memory:/a\n", &mounts),
            ("0::/a\n", ""),
            ("0::/a\n", "35 31 - cgroup2\n"),
        ] {
            assert_eq!(Kills::find(cgroups, mounts, JobId(17)), None, "{cgroups}{mounts}");
        }
        for text in ["", "oom_kill", "oom_kill many", "oom 7"] {
            assert_eq!(count_in(text), None, "{text}");
        }
        assert_eq!(count_in("oom_kill 3\noom_group_kill 1\n"), Some(4));
    }

    #[test]
    fn a_kill_long_ago_is_forgotten_and_another_jobs_needs_more_than_a_count() {
        let fake = Fake::new();
        let job = "system.slice/slurmstepd.scope/job_17";
        fake.say(job, 1);
        let (mut own, mut shared) = (fake.kills(17).unwrap(), fake.kills(9).unwrap());
        assert!(!own.tell_of_command(true));
        let file = fake.say(job, 2);
        assert!(own.tell_of_command(false) && own.tell_of_command(true));
        assert!(shared.tell_of_command(true) && !shared.tell_of_command(false));
        own.look();
        assert!(own.tell_of_command(false), "it was a moment ago");
        own.look();
        assert!(!own.tell_of_command(true));
        std::fs::remove_file(file).unwrap();
        shared.look();
        assert!(!shared.tell_of_command(true), "the cgroup is gone");
    }
}
