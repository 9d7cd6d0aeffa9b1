//! The description of a generated site: `tests/sites/NAME.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::harness::cluster::repository;
use crate::harness::{Settings, Slurm, slurm::GPUS};

/// A site's description.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    /// What is special about the site, in one line.
    pub about: String,
    /// Compute nodes, of two processors each.
    #[serde(default = "eight")]
    pub nodes: usize,
    /// Lines of slurm.conf: `minicluster up --set`.
    #[serde(default)]
    set: Vec<String>,
    /// `sacctmgr -i` with these words, run once the accounts exist.
    #[serde(default)]
    sacctmgr: Vec<String>,
    /// Files beside slurm.conf.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Seconds that the prolog takes.
    #[serde(default)]
    pub prolog_secs: u32,
    /// Seconds that the epilog takes.
    #[serde(default)]
    pub epilog_secs: u32,
    /// Whether MUNGE authenticates, instead of Slurm itself.
    #[serde(default = "yes")]
    munge: bool,
    /// Seconds without work after which nodes are switched off.
    power_secs: Option<u32>,
    /// A separate account for malleable jobs.
    own_account: Option<String>,
    /// Changes of infill.toml, as `"section.key" = value`.
    #[serde(default)]
    infill: BTreeMap<String, toml::Value>,
    /// Partitions of the main queue.
    #[serde(default = "main")]
    pub partitions: Vec<String>,
    /// Whether main jobs share nodes. They then ask for processors instead of nodes.
    #[serde(default)]
    pub shared: bool,
    /// Whether GPUs are lent. Main jobs then have one GPU for each task, and share nodes.
    #[serde(default)]
    pub gpus: bool,
    /// Options of sbatch for main jobs.
    #[serde(default)]
    pub main_options: Vec<String>,
    /// Options of sbatch for malleable jobs, in turn.
    #[serde(default)]
    pub job_options: Vec<String>,
    /// Whether the malleable jobs stay alive when their size changes.
    #[serde(default)]
    pub live: bool,
}

fn eight() -> usize {
    8
}

fn yes() -> bool {
    true
}

fn main() -> Vec<String> {
    vec!["main".to_owned()]
}

fn dir() -> PathBuf {
    repository().join("tests/sites")
}

/// All sites, by name.
pub fn names() -> Vec<String> {
    let entries = std::fs::read_dir(dir()).expect("tests/sites is there");
    let paths = entries.map(|e| e.expect("an entry").path());
    let toml = paths.filter(|p| p.extension().is_some_and(|e| e == "toml"));
    let mut names: Vec<String> = toml.filter_map(|p| Some(p.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

impl Spec {
    /// Reads a site's file.
    pub fn read(name: &str) -> Spec {
        let path = dir().join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("no site {name} ({e}); there are {}", names().join(", ")));
        let spec: Spec = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Spec { name: name.to_owned(), ..spec }
    }

    /// The cluster.
    pub fn slurm(&self) -> Slurm {
        let mut slurm = Slurm::default().nodes(self.nodes);
        if self.prolog_secs > 0 {
            slurm = slurm.waits("Prolog", self.prolog_secs);
        }
        slurm = match self.epilog_secs {
            // As `infill doctor` advises.
            0 => slurm.set("Epilog=/bin/true"),
            secs => slurm.waits("Epilog", secs),
        };
        if self.gpus {
            slurm = slurm.lends_gpus();
        }
        if !self.munge {
            slurm = slurm.without_munge();
        }
        if let Some(secs) = self.power_secs {
            slurm = slurm.saves_power(secs);
        }
        if let Some(account) = &self.own_account {
            let plugin = include_str!("../../../slurm/job_submit.lua");
            let ours = plugin.replace("local ACCOUNT = nil", &format!("local ACCOUNT = \"{account}\""));
            slurm = slurm.file("infill.lua", &ours);
            if !self.files.contains_key("job_submit.lua") {
                slurm = slurm.file("job_submit.lua", &ours);
            }
        }
        slurm = self.files.iter().fold(slurm, |slurm, (name, text)| slurm.file(name, text));
        slurm = self.set.iter().fold(slurm, |slurm, line| slurm.set(line));
        self.sacctmgr.iter().fold(slurm, |slurm, words| slurm.sacctmgr(words))
    }

    /// Commands that the administrator runs once the cluster is up.
    pub fn accounting(&self) -> Option<Vec<&str>> {
        let account = self.own_account.as_deref()?;
        let script = "/opt/infill/slurm/accounting.sh";
        Some(vec!["bash", script, "--main-qos", "main", "--account", "research", "--own-account", account])
    }

    /// The text of infill.toml.
    pub fn settings(&self, port: u16, agents_port: u16) -> Settings {
        let settings = Settings::quick(port).set("agent.url", format!("http://127.0.0.1:{agents_port}"));
        let settings = if self.gpus { settings.set("gaps.lend", "gpus") } else { settings };
        self.infill.iter().fold(settings, |settings, (key, value)| settings.set(key, value.clone()))
    }

    /// The unit that the main queue uses: nodes; or GPUs or processors, where jobs share nodes.
    pub fn units(&self) -> usize {
        match (self.gpus, self.shared) {
            (true, _) => self.nodes * GPUS,
            (false, true) => self.nodes * 2,
            (false, false) => self.nodes,
        }
    }
}
