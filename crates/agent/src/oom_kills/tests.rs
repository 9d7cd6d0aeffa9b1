//! Tests of the counter with directories that look like cgroups.

use super::*;

/// A directory that looks like the cgroups of version 2 to the agent of job 17.
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

    /// Sets the counter at `dir` to `count` kills.
    pub(crate) fn say(&self, dir: &str, count: u64) -> PathBuf {
        let file = self.top.path().join(dir).join("memory.events");
        std::fs::write(&file, format!("low 0\nmax 9\noom 3\noom_kill {count}\noom_group_kill 0\n")).unwrap();
        file
    }

    pub(crate) fn kills(&self, job: u32) -> Option<OomKillCounter> {
        let mounts = format!(
            "31 23 0:28 / /elsewhere rw - tmpfs tmpfs rw\n\
             35 31 0:32 / {} rw,relatime shared:9 - cgroup2 cgroup rw,nsdelegate\n",
            self.top.path().display()
        );
        OomKillCounter::from_proc_files(&format!("0::/{STEP}\n"), &mounts, JobId(job))
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
    let own = OomKillCounter { file, is_own: true, counts: [0; 2] };
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
    let found = OomKillCounter::from_proc_files(cgroups, &mounts, JobId(17));
    assert_eq!(found, Some(OomKillCounter { file: file.clone(), is_own: true, counts: [2; 2] }));
    std::fs::write(file, "oom_kill_disable 0\nunder_oom 0\n").unwrap();
    assert_eq!(
        OomKillCounter::from_proc_files(cgroups, &mounts, JobId(17)),
        None,
        "an old kernel counts none"
    );
}

#[test]
fn files_that_make_no_sense_give_no_counter() {
    let fake = Fake::new();
    fake.say("", 1);
    let mounts = format!("35 31 0:32 / {} rw - cgroup2 cgroup rw\n", fake.top.path().display());
    assert!(OomKillCounter::from_proc_files("0::/a/b\n", &mounts, JobId(17)).is_some());
    for (cgroups, mounts) in [
        ("", mounts.as_str()),
        ("0::/../a\n", &mounts),
        ("3:memory:/a\n", &mounts),
        ("0::/a\n", ""),
        ("0::/a\n", "35 31 - cgroup2\n"),
    ] {
        assert_eq!(OomKillCounter::from_proc_files(cgroups, mounts, JobId(17)), None, "{cgroups}{mounts}");
    }
    for text in ["", "oom_kill", "oom_kill many", "oom 7"] {
        assert_eq!(parse_kill_count(text), None, "{text}");
    }
    assert_eq!(parse_kill_count("oom_kill 3\noom_group_kill 1\n"), Some(4));
}

#[test]
fn a_kill_long_ago_is_forgotten_and_another_jobs_needs_more_than_a_count() {
    let fake = Fake::new();
    let job = "system.slice/slurmstepd.scope/job_17";
    fake.say(job, 1);
    let mut own = fake.kills(17).unwrap();
    let mut shared = fake.kills(9).unwrap();
    assert!(!own.killed_command(true));
    let file = fake.say(job, 2);
    assert!(own.killed_command(false) && own.killed_command(true));
    assert!(shared.killed_command(true) && !shared.killed_command(false));
    own.record_count();
    assert!(own.killed_command(false), "it was a moment ago");
    own.record_count();
    assert!(!own.killed_command(true));
    std::fs::remove_file(file).unwrap();
    shared.record_count();
    assert!(!shared.killed_command(true), "the cgroup is gone");
}
