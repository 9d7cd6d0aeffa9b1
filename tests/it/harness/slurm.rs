//! Settings of a test's own cluster: lines of slurm.conf, files beside it, accounting records.
//!
//! ```ignore
//! let slurm = Slurm::default()
//!     .set("PrivateData=jobs")
//!     .set("NodeName=n[1-2] Features=big")
//!     .waits("Prolog", 20)
//!     .sacctmgr("modify account research set GrpTRES=node=4");
//! let site = Site::on(&slurm, |settings| settings);
//! ```

use std::path::Path;

use super::cluster::NODES;

/// Slurm's own BatchStartTimeout, seconds.
const BATCH_START_SECS: u32 = 10;

/// GPUs of a node where they are lent.
pub const GPUS: usize = 4;

/// A version of the kernel's control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// Each controller has a tree of its own.
    One,
    /// One tree for all controllers.
    Two,
}

/// The cgroups with which `minicluster up --constrain-devices` keeps jobs from devices on this machine.
pub fn device_cgroups() -> Option<CgroupVersion> {
    let top = Path::new("/sys/fs/cgroup");
    let controllers = std::fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
    if top.join("devices/devices.list").is_file() {
        makes_cgroups_in(&top.join("devices")).then_some(CgroupVersion::One)
    } else {
        let is_whole = controllers.split_whitespace().any(|name| name == "memory");
        (is_whole && makes_cgroups_in(top)).then_some(CgroupVersion::Two)
    }
}

fn makes_cgroups_in(folder: &Path) -> bool {
    let probe = folder.join(format!("infill-has-{}", std::process::id()));
    std::fs::create_dir(&probe).is_ok() && std::fs::remove_dir(&probe).is_ok()
}

/// The options for making a cluster: see `minicluster --help`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slurm {
    nodes: usize,
    options: Vec<String>,
    files: Vec<(String, String)>,
    kept: bool,
}

impl Default for Slurm {
    fn default() -> Slurm {
        Slurm { nodes: NODES, options: Vec::new(), files: Vec::new(), kept: false }
    }
}

impl Slurm {
    /// Keeps the cluster for other tests with the same needs.
    pub fn kept(self) -> Slurm {
        Slurm { kept: true, ..self }
    }

    /// Whether the cluster stays after its test.
    pub fn is_kept(&self) -> bool {
        self.kept || self.is_usual()
    }

    /// Whether it has the settings of most tests.
    pub fn is_usual(&self) -> bool {
        *self == Slurm::default()
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes
    }

    /// Sets another number of nodes.
    pub fn nodes(self, nodes: usize) -> Slurm {
        Slurm { nodes, ..self }
    }

    /// Adds a line of slurm.conf: `minicluster up --set LINE`.
    pub fn set(mut self, line: &str) -> Slurm {
        self.options.extend(["--set".to_owned(), line.to_owned()]);
        self
    }

    /// Adds an executable file with this text as /etc/slurm/NAME.
    pub fn file(mut self, name: &str, text: &str) -> Slurm {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Runs `sacctmgr -i WORDS`, once the accounts exist.
    pub fn sacctmgr(mut self, words: &str) -> Slurm {
        self.options.extend(["--sacctmgr".to_owned(), words.to_owned()]);
        self
    }

    /// Adds a program that does nothing for this many seconds: `Prolog`, `Epilog`, `PrologSlurmctld`, …
    pub fn waits(self, key: &str, secs: u32) -> Slurm {
        let name = key.to_lowercase();
        let script = format!("#!/bin/sh\nexec sleep {secs}\n");
        // slurmctld takes a batch script for lost that does not appear within this time.
        let patience = format!("BatchStartTimeout={}", BATCH_START_SECS + 2 * secs);
        self.file(&name, &script).set(&format!("{key}=/etc/slurm/{name}")).set(&patience)
    }

    /// Uses Slurm's own authentication instead of MUNGE.
    pub fn without_munge(self) -> Slurm {
        self.set("AuthType=auth/slurm").set("CredType=cred/slurm").set("AuthInfo=use_client_ids")
    }

    /// Gives nodes GPUs, which jobs share, and a plug-in that lends them.
    pub fn lends_gpus(mut self) -> Slurm {
        self.options.extend(["--gpus".to_owned(), GPUS.to_string()]);
        self
    }

    /// Gives nodes GPUs, and jobs whole nodes: one number for all nodes, or one for each (`4,4,2,0`).
    pub fn node_gpus(mut self, list: &str) -> Slurm {
        self.options.extend(["--node-gpus".to_owned(), list.to_owned()]);
        self
    }

    /// Jobs can open only their own GPUs: see [`device_cgroups`].
    pub fn constrains_devices(mut self) -> Slurm {
        self.options.push("--constrain-devices".to_owned());
        self
    }

    /// Knows nothing of infill.
    pub fn untouched(mut self) -> Slurm {
        self.options.push("--bare".to_owned());
        self
    }

    /// Makes the last of these nodes nodes without GPUs.
    pub fn cpu_nodes(mut self, count: usize) -> Slurm {
        self.options.extend(["--cpu-nodes".to_owned(), count.to_string()]);
        self
    }

    /// Nodes that are idle for `secs` are switched off (their slurmd is killed), and booted when Slurm wants
    /// them.
    pub fn saves_power(self, secs: u32) -> Slurm {
        self.set("SuspendProgram=/opt/infill/slurm/minicluster/etc/suspend")
            .set("ResumeProgram=/opt/infill/slurm/minicluster/etc/resume")
            .set(&format!("SuspendTime={secs}"))
            .set("SuspendTimeout=5")
            .set("ResumeTimeout=40")
    }

    /// The options of `minicluster up`; the files are written into `dir` for it.
    pub fn words(&self, dir: &Path, release: String) -> Vec<String> {
        let own = |word: &str| word.to_owned();
        let mut words = vec![own("--nodes"), self.nodes.to_string(), own("--release"), release];
        words.extend(self.options.iter().cloned());
        for (name, text) in &self.files {
            let path = dir.join(name);
            std::fs::create_dir_all(dir).expect("cannot make a directory for a cluster's files");
            std::fs::write(&path, text).expect("cannot write a file for a cluster");
            words.extend([own("--file"), format!("{name}={}", path.display())]);
        }
        words
    }
}
