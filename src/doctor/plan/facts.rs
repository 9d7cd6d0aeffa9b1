//! What Slurm, the files and this machine say about a site, as far as a plan needs it.

use std::collections::BTreeMap;

use super::choices::ShareChoice;
use crate::doctor::site::accounting::QosRecord;
use crate::doctor::site::list_contains;
use crate::doctor::site::partition::PartitionSettings;
use crate::doctor::site::slurm_conf::SlurmConf;
use infill_model::config::Config;
use infill_model::hostlist::compress_nodes;
use infill_model::{DaemonMode, NodeName};

/// The name of infill's QOS, partition, system user and account.
pub const OURS: &str = "infill";

/// The file with infill's lines, beside slurm.conf.
const OUR_FILE: &str = "slurm.conf.infill";

/// The facts about a site. `None` stands for what could not be read.
pub struct SiteFacts {
    /// The settings in effect.
    pub conf: Option<SlurmConf>,
    /// All partitions.
    pub partitions: Option<Vec<PartitionSettings>>,
    /// Slurm's accounting.
    pub accounting: AccountingFacts,
    /// The texts of Slurm's configuration files.
    pub files: ConfigFiles,
    /// This machine.
    pub host: HostFacts,
    /// The compute nodes.
    pub nodes: NodeFacts,
    /// infill's daemon.
    pub daemon: DaemonFacts,
    /// What could not be read, a sentence each.
    pub unread: Vec<String>,
}

/// What `sacctmgr` and `sacct` say.
#[derive(Default)]
pub struct AccountingFacts {
    /// All QOSes.
    pub qoses: Option<Vec<QosRecord>>,
    /// Accounts and users, with the QOSes that are set for them and not inherited.
    pub associations: Option<Vec<AccountRecord>>,
    /// The admin level of user infill; empty if Slurm does not know the user.
    pub admin_level: Option<String>,
    /// Limits of accounts and users, such as `account physics: GrpTRES=node=4`.
    pub limits: Vec<String>,
    /// Names of reservations.
    pub reservations: Vec<String>,
    /// Whether a malleable job has run.
    pub had_jobs: Option<bool>,
    /// Other clusters of the slurmdbd that have infill's account or its QOS.
    pub other_clusters: Option<Vec<String>>,
    /// Accounts that the plan has made for malleable jobs, by their descriptions.
    pub own_accounts: Vec<String>,
}

/// An account, or a user in an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    /// The account.
    pub account: String,
    /// The user; empty for the account itself.
    pub user: String,
    /// QOSes that are set here, joined by commas.
    pub qoses: String,
}

/// Configuration files, by path. A file that is missing or cannot be read is not among them.
#[derive(Default)]
pub struct ConfigFiles {
    /// slurm.conf and what it includes, slurm.conf.infill, and the Lua files of job submission.
    pub texts: BTreeMap<String, String>,
    /// The folder of slurm.conf.
    pub folder: String,
}

/// This machine.
#[derive(Default)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// The name of the first controller.
    pub controller: String,
    /// The names of the backup controllers.
    pub backups: Vec<String>,
    /// Whether systemd manages services here.
    pub has_systemd: bool,
    /// Whether the units of infill are installed.
    pub has_units: bool,
    /// The path of slurmrestd.
    pub slurmrestd: Option<String>,
    /// The uid of user infill.
    pub infill_uid: Option<u32>,
    /// A uid that no user has here.
    pub free_uid: u32,
    /// Whether Slurm's plug-in for job_submit.lua is installed.
    pub has_lua: Option<bool>,
}

/// The compute nodes.
#[derive(Default)]
pub struct NodeFacts {
    /// The first nodes that work.
    pub first: Vec<NodeName>,
    /// Whether they are other machines.
    pub elsewhere: Option<bool>,
    /// A GPU's share of a node: CPUs, and memory in MiB.
    pub gpu_share: Option<GpuShare>,
}

/// What comes with a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuShare {
    /// CPUs.
    pub cpus: u64,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// infill's daemon and its configuration.
#[derive(Default)]
pub struct DaemonFacts {
    /// The path of infill.toml.
    pub path: String,
    /// Its text; `None` if there is no such file.
    pub text: Option<String>,
    /// What it says.
    pub config: Config,
    /// The mode of the daemon that answers.
    pub mode: Option<DaemonMode>,
    /// Whether an order to pause or drain is in force.
    pub is_stopped: bool,
}

impl SiteFacts {
    /// A setting of slurm.conf in effect; empty if it is not set or not known.
    pub fn setting(&self, key: &str) -> &str {
        self.conf.as_ref().map_or("", |conf| conf.get(key))
    }

    /// Whether infill acts on all nodes: the canary nodes have proved good.
    pub fn is_wide(&self) -> bool {
        let config = &self.daemon.config;
        let acts = config.daemon.mode == DaemonMode::Act || self.daemon.mode == Some(DaemonMode::Act);
        acts && config.safety.nodes.is_empty()
    }

    /// The first nodes that infill uses, unless somebody chooses others. A plan that is followed step by step
    /// keeps them, although other nodes may fail meanwhile. Empty if infill acts on all, or no node works.
    pub fn usual_canary(&self) -> String {
        match self.daemon.config.safety.nodes.as_str() {
            "" if self.is_wide() => String::new(),
            "" => compress_nodes(&self.nodes.first),
            nodes => nodes.to_owned(),
        }
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> &str {
        self.setting("ClusterName")
    }

    /// Where slurmctld runs, in words.
    pub fn controller(&self) -> String {
        let controller = &self.host.controller;
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        if controller.is_empty() || short(controller) == short(&self.host.name) {
            return "this machine".to_owned();
        }
        controller.clone()
    }

    /// All hosts of the cluster, in words.
    pub fn every_host(&self) -> &'static str {
        if self.nodes.elsewhere == Some(false) { "this machine" } else { "every host" }
    }

    /// Whether nodes are other machines, or may be.
    pub fn has_other_machines(&self) -> bool {
        self.nodes.elsewhere != Some(false)
    }

    /// Whether nodes get their slurm.conf from slurmctld.
    pub fn is_configless(&self) -> bool {
        self.setting("SlurmctldParameters").contains("enable_configless")
    }

    /// A partition's settings.
    pub fn partition(&self, name: &str) -> Option<&PartitionSettings> {
        self.partitions.iter().flatten().find(|p| p.get("PartitionName").is_some_and(|n| n == name))
    }

    /// The path of a file beside slurm.conf.
    pub fn beside(&self, name: &str) -> String {
        format!("{}/{name}", self.files.folder)
    }

    /// The text of a file beside slurm.conf.
    pub fn text_beside(&self, name: &str) -> Option<&str> {
        self.files.texts.get(&self.beside(name)).map(String::as_str)
    }

    /// Whether slurm.conf.infill sets this key.
    pub fn our_file_sets(&self, key: &str) -> bool {
        let text = self.text_beside(OUR_FILE).unwrap_or_default();
        text.lines().any(|line| is_setting(line, key))
    }

    /// Slurm's configuration files that have such a line, besides slurm.conf.infill.
    pub fn files_with(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<&str> {
        let ours = self.beside(OUR_FILE);
        let is_scanned = |path: &str| path != ours && !path.ends_with(".lua");
        let texts = self.files.texts.iter().filter(|(path, _)| is_scanned(path));
        let found = texts.filter(|(_, text)| text.lines().any(&is_wanted));
        found.map(|(path, _)| path.as_str()).collect()
    }

    /// Slurm's configuration files that set this key, besides slurm.conf.infill.
    pub fn files_with_key(&self, key: &str) -> Vec<&str> {
        self.files_with(|line| is_setting(line, key))
    }

    /// Lines of Slurm's configuration files that set this key beside others, each behind its file's name.
    pub fn lines_that_mix(&self, key: &str) -> Vec<String> {
        let ours = self.beside(OUR_FILE);
        let texts = self.files.texts.iter().filter(|(path, _)| **path != ours && !path.ends_with(".lua"));
        let lines = texts.flat_map(|(path, text)| text.lines().map(move |line| (path, line)));
        let mixed = lines.filter(|(_, line)| is_mixed(line, key));
        mixed.map(|(path, line)| format!("{path}: {}", line.trim())).collect()
    }

    /// What a site of this kind should read about sharing nodes.
    pub fn sharing_note(&self, share: ShareChoice) -> Option<String> {
        let is_shared = |p: &PartitionSettings| {
            p.get("OverSubscribe").is_some_and(|v| v == "NO") && p.get("Exclusive").is_none_or(|v| v == "NO")
        };
        let whole_nodes = self.setting("SelectType") == "select/linear";
        let main =
            self.partitions.iter().flatten().filter(|p| p.get("PartitionName").is_none_or(|n| n != OURS));
        if share == ShareChoice::Gpus || whole_nodes || !main.into_iter().any(is_shared) {
            return None;
        }
        Some("Jobs share nodes here, so whole idle nodes may be rare: see the page before you keep `--share exclusive`.".to_owned())
    }
}

/// Whether a line of slurm.conf sets this key.
fn is_setting(line: &str, key: &str) -> bool {
    matches!(setting_keys(line)[..], [only] if only.eq_ignore_ascii_case(key))
}

/// Whether a line of slurm.conf sets this key for the whole cluster, and something else. A line that goes on
/// below counts, too.
fn is_mixed(line: &str, key: &str) -> bool {
    let keys = setting_keys(line);
    let goes_on = line.trim_end().ends_with('\\');
    let has = |wanted: &str| keys.iter().any(|k| k.eq_ignore_ascii_case(wanted));
    has(key) && !has("PartitionName") && (keys.len() > 1 || goes_on)
}

/// The keys that a line of slurm.conf sets.
pub fn setting_keys(line: &str) -> Vec<&str> {
    let mut keys = Vec::new();
    let mut before = "";
    for word in line.split('#').next().unwrap_or_default().split_whitespace() {
        match word.split_once('=') {
            Some(("", _)) => keys.push(before),
            Some((key, _)) => keys.push(key),
            None => {}
        }
        before = word;
    }
    keys
}

/// The files that slurm.conf includes, as paths.
pub fn included_files(text: &str, folder: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let (word, name) = line.trim().split_once(char::is_whitespace)?;
        word.eq_ignore_ascii_case("include").then(|| name.trim())
    });
    names
        .map(|name| if name.starts_with('/') { name.to_owned() } else { format!("{folder}/{name}") })
        .collect()
}

/// Parses `sacctmgr -nP show assoc format=account,user,qos wopl`.
pub fn parse_accounts(text: &str) -> Vec<AccountRecord> {
    let records = text.lines().filter_map(|line| {
        let [account, user, qoses] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        Some(AccountRecord { account: account.to_owned(), user: user.to_owned(), qoses: qoses.to_owned() })
    });
    records.collect()
}

/// Parses `sacctmgr -nP show assoc format=cluster,account,qos wopl`. Returns the clusters besides `here` that
/// use infill.
pub fn parse_other_clusters(text: &str, here: &str) -> Vec<String> {
    let mut clusters: Vec<String> = Vec::new();
    for line in text.lines() {
        let [cluster, account, qoses] = line.split('|').collect::<Vec<_>>()[..] else { continue };
        let uses = account == OURS || list_contains(qoses, OURS);
        if uses && cluster != here && !clusters.iter().any(|known| known == cluster) {
            clusters.push(cluster.to_owned());
        }
    }
    clusters
}

/// Parses `sacctmgr -nP show account format=account,descr,org`. Returns the accounts that were made for
/// malleable jobs.
pub fn parse_own_accounts(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.split_once('|'));
    let made = lines.filter(|(_, words)| words.eq_ignore_ascii_case("malleable|infill"));
    made.map(|(account, _)| account.to_owned()).collect()
}

/// Parses the limits in `sacctmgr -nP show assoc format=account,user,grptres,grpjobs,maxjobs,… wopl`.
pub fn parse_limits(text: &str, names: &[&str]) -> Vec<String> {
    let mut limits = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [account, user, values @ ..] = &fields[..] else { continue };
        let who = if user.is_empty() {
            format!("account {account}")
        } else {
            format!("user {user} in account {account}")
        };
        let set = names.iter().zip(values).filter(|(_, value)| !value.is_empty());
        limits.extend(set.map(|(name, value)| format!("{who}: {name}={value}")));
    }
    limits
}

/// The smallest share of a GPU, from the lines of `scontrol -o show node`.
pub fn parse_gpu_share(text: &str) -> Option<GpuShare> {
    let shares = text.lines().filter_map(|line| {
        let find = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key));
        let gpus: u64 = find("Gres=")?.split(',').filter_map(gpu_count).sum();
        let cpus = find("CPUTot=")?.parse::<u64>().ok()?.checked_div(gpus)?;
        let memory_mib = find("RealMemory=")?.parse::<u64>().ok()?.checked_div(gpus)?;
        (cpus > 0 && memory_mib > 0).then_some(GpuShare { cpus, memory_mib })
    });
    shares.reduce(|a, b| GpuShare { cpus: a.cpus.min(b.cpus), memory_mib: a.memory_mib.min(b.memory_mib) })
}

/// The number in `gpu:a100:4(S:0-1)` or `gpu:4`.
fn gpu_count(gres: &str) -> Option<u64> {
    let gpus = gres.split('(').next()?.strip_prefix("gpu:")?;
    gpus.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_found_wherever_they_are() {
        let text = "ClusterName=c\ninclude a.conf\nInclude  /etc/b.conf\n# include c.conf\n";
        assert_eq!(included_files(text, "/etc/slurm"), ["/etc/slurm/a.conf", "/etc/b.conf"]);
    }

    #[test]
    fn a_gpu_has_the_smallest_share_of_any_node() {
        let nodes = "NodeName=n1 CPUTot=64 Gres=gpu:a100:4(S:0-1) RealMemory=400000 x\n\
                     NodeName=n2 CPUTot=16 Gres=gpu:2 RealMemory=300000\nNodeName=n3 CPUTot=8 Gres=(null) RealMemory=1\n\
                     NodeName=n4 CPUTot=2 Gres=gpu:4 RealMemory=1\n";
        assert_eq!(parse_gpu_share(nodes), Some(GpuShare { cpus: 8, memory_mib: 100_000 }));
        assert_eq!(parse_gpu_share("NodeName=n3 CPUTot=8 Gres=(null) RealMemory=1\n"), None);
    }

    #[test]
    fn a_line_with_several_settings_is_not_one_setting() {
        assert!(is_setting("  preempttype = preempt/qos  # why=so", "PreemptType"));
        assert!(!is_setting("#PreemptType=preempt/qos", "PreemptType"));
        let both = "PreemptType=preempt/qos PreemptMode = REQUEUE";
        assert_eq!(setting_keys(both), ["PreemptType", "PreemptMode"]);
        for key in ["PreemptType", "PreemptMode"] {
            assert!(!is_setting(both, key) && is_mixed(both, key), "{key}");
        }
        assert!(!is_mixed("PartitionName=main Nodes=ALL PreemptMode=OFF", "PreemptMode"));
        assert!(is_mixed("PreemptMode=REQUEUE \\", "PreemptMode"));
        assert!(!is_mixed("#infill# PreemptType=a PreemptMode=b", "PreemptType"));
    }

    #[test]
    fn other_clusters_are_those_that_use_infill() {
        let text = "big|root|normal,infill\neast|infill|\nwest|physics|normal,infill\nwest|root|infill\nnorth|root|normal\n";
        assert_eq!(parse_other_clusters(text, "big"), ["east", "west"]);
    }

    #[test]
    fn accounts_of_the_plan_are_known_by_their_words() {
        let text = "harvest|malleable|infill\nresearch|science|infill\ninfill|infill|infill\n";
        assert_eq!(parse_own_accounts(text), ["harvest"]);
    }

    #[test]
    fn limits_say_whose_they_are() {
        let text = "root|||\nphysics||node=4|\nphysics|ann||7\nodd\n";
        assert_eq!(
            parse_limits(text, &["GrpTRES", "MaxJobs"]),
            ["account physics: GrpTRES=node=4", "user ann in account physics: MaxJobs=7"]
        );
    }
}
