//! Asks Slurm, this machine and the daemon, and reads the configuration files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::facts::{self, AccountingFacts, ConfigFiles, DaemonFacts, HostFacts, NodeFacts, OURS, SiteFacts};
use super::plugin::SITE_PLUGIN;
use crate::client::DaemonClient;
use crate::command;
use crate::doctor::site::slurm_conf::SlurmConf;
use crate::doctor::site::{accounting, partition};
use crate::session::CliSession;
use infill_agent::identity::SlurmIdentity;
use infill_api::{DaemonStatus, routes};
use infill_model::config::DEFAULT_PATH;
use infill_model::{ControlState, NodeName};
use infill_slurm::identity::uid_of;

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The most files that slurm.conf may include.
const MAX_INCLUDES: usize = 32;
/// The most controllers that are read: the first and its backups.
const MAX_CONTROLLERS: usize = 8;
/// The limits in which malleable and main jobs count together.
const LIMITS: [&str; 7] =
    ["GrpTRES", "GrpJobs", "GrpSubmitJobs", "GrpTRESRunMins", "MaxJobs", "MaxSubmitJobs", "MaxTRESPU"];
/// Uids of system users, from the last one: distributions give them out from there.
const SYSTEM_UIDS: std::ops::RangeInclusive<u32> = 900..=980;
/// Places of slurmrestd besides PATH.
const SBIN: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/opt/slurm/sbin"];

/// Answers, and what could not be had.
#[derive(Default)]
struct Inquiry {
    unread: Vec<String>,
}

impl Inquiry {
    async fn ask(&mut self, program: &str, args: &[&str]) -> Option<String> {
        match command::run_command(program, args, "").await {
            Ok(text) => Some(text),
            Err(why) => {
                self.unread.push(why.lines().next().unwrap_or_default().to_owned());
                None
            }
        }
    }
}

/// Asks for all facts about the site.
pub async fn ask_site(session: &CliSession) -> SiteFacts {
    let mut inquiry = Inquiry::default();
    let daemon = ask_daemon(session, &mut inquiry).await;
    let conf = inquiry.ask("scontrol", &["show", "config"]).await.map(|text| SlurmConf::parse(&text));
    let partitions = inquiry.ask("scontrol", &["-o", "show", "partition"]).await;
    let cluster = conf.as_ref().map(|conf| conf.get("ClusterName").to_owned()).unwrap_or_default();
    let accounting = ask_accounting(&mut inquiry, &cluster).await;
    let files = read_files(conf.as_ref(), &mut inquiry);
    let host = ask_host(conf.as_ref()).await;
    let nodes = ask_nodes(&mut inquiry).await;
    SiteFacts {
        conf,
        partitions: partitions.map(|text| partition::parse_partitions(&text)),
        accounting,
        files,
        host,
        nodes,
        daemon,
        unread: inquiry.unread,
    }
}

async fn ask_accounting(inquiry: &mut Inquiry, cluster: &str) -> AccountingFacts {
    let here = format!("cluster={cluster}");
    let limit_fields = format!("format=account,user,{}", LIMITS.join(",").to_lowercase());
    let qoses = inquiry.ask("sacctmgr", &["-nP", "show", "qos", accounting::QOS_FIELDS]).await;
    let words = ["-nP", "show", "assoc", &here, "format=account,user,qos", "wopl"];
    let associations = inquiry.ask("sacctmgr", &words).await;
    let words = ["-nP", "show", "assoc", &here, &limit_fields, "wopl"];
    let limits = inquiry.ask("sacctmgr", &words).await;
    let level = inquiry.ask("sacctmgr", &["-nP", "show", "user", OURS, "format=user,adminlevel"]).await;
    let reservations = inquiry.ask("scontrol", &["-o", "show", "reservation"]).await;
    let words = ["-nP", "show", "assoc", "format=cluster,account,qos", "wopl"];
    let clusters = inquiry.ask("sacctmgr", &words).await.filter(|_| !cluster.is_empty());
    let accounts =
        command::run_command("sacctmgr", &["-nP", "show", "account", "format=account,descr,org"], "");
    let own_accounts = accounts.await.unwrap_or_default();
    let words = ["-nPXa", "-r", OURS, "-S", "now-30days", "-E", "now", "--format=nodelist"];
    let ran = command::run_command("sacct", &words, "").await.ok();
    let level_of = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("infill|").map(str::to_owned));
        line.unwrap_or_default()
    };
    AccountingFacts {
        qoses: qoses.map(|text| accounting::parse_qos(&text)),
        associations: associations.map(|text| facts::parse_accounts(&text)),
        admin_level: level.map(level_of),
        limits: limits.map(|text| facts::parse_limits(&text, &LIMITS)).unwrap_or_default(),
        reservations: reservations.map(|text| words_after(&text, "ReservationName=")).unwrap_or_default(),
        had_jobs: ran.map(|text| text.lines().any(|nodes| !nodes.is_empty() && nodes != "None assigned")),
        other_clusters: clusters.map(|text| facts::parse_other_clusters(&text, cluster)),
        own_accounts: facts::parse_own_accounts(&own_accounts),
    }
}

/// The values of this word of `scontrol -o`.
fn words_after(text: &str, key: &str) -> Vec<String> {
    text.split_whitespace().filter_map(|word| word.strip_prefix(key)).map(str::to_owned).collect()
}

fn read_small_file(path: &Path) -> std::io::Result<String> {
    if std::fs::metadata(path)?.len() > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    // A comment in another encoding must not hide a file.
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn read_files(conf: Option<&SlurmConf>, inquiry: &mut Inquiry) -> ConfigFiles {
    let path = conf.map(|conf| conf.get("SLURM_CONF")).filter(|path| path.starts_with('/'));
    // slurmd of a configless node caches the file there.
    let path = path.filter(|path| !path.starts_with("/run/")).unwrap_or("/etc/slurm/slurm.conf");
    let folder = path.rsplit_once('/').map_or("/etc/slurm", |(folder, _)| folder).to_owned();
    let mut texts = BTreeMap::new();
    match read_small_file(Path::new(path)) {
        Ok(text) => {
            let included = facts::included_files(&text, &folder);
            let names = ["slurm.conf.infill", "job_submit.lua", "infill.lua", SITE_PLUGIN];
            let beside = names.map(|name| format!("{folder}/{name}"));
            for path in included.into_iter().take(MAX_INCLUDES).chain(beside) {
                if let Ok(text) = read_small_file(Path::new(&path)) {
                    texts.insert(path, text);
                }
            }
            texts.insert(path.to_owned(), text);
        }
        Err(e) => inquiry.unread.push(format!("{path}: {e}")),
    }
    ConfigFiles { texts, folder }
}

async fn ask_host(conf: Option<&SlurmConf>) -> HostFacts {
    let name = command::run_command("uname", &["-n"], "").await.unwrap_or_default().trim().to_owned();
    let setting = |key: &str| conf.map(|conf| conf.get(key)).unwrap_or_default();
    let controller_at = |number: usize| {
        let text = setting(&format!("SlurmctldHost[{number}]"));
        text.split('(').next().unwrap_or_default().to_owned()
    };
    let backups = (1..MAX_CONTROLLERS).map(controller_at).filter(|name| !name.is_empty());
    let libraries = Path::new(setting("PluginDir"));
    let units = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
    HostFacts {
        controller: controller_at(0),
        backups: backups.collect(),
        has_systemd: Path::new("/run/systemd/system").is_dir(),
        has_units: units.iter().any(|folder| Path::new(folder).join("infill.service").exists()),
        slurmrestd: find_program("slurmrestd"),
        infill_uid: uid_of(OURS).await.map(|uid| uid.0),
        free_uid: find_free_uid().await,
        has_lua: libraries.is_dir().then(|| libraries.join("job_submit_lua.so").exists()),
        name,
    }
}

fn find_program(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SBIN.map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file())?;
    Some(found.to_string_lossy().into_owned())
}

async fn find_free_uid() -> u32 {
    let last = *SYSTEM_UIDS.end();
    let taken = command::run_command("getent", &["passwd"], "").await.unwrap_or_default();
    let taken: Vec<u32> = taken.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect();
    SYSTEM_UIDS.rev().find(|uid| !taken.contains(uid)).unwrap_or(last)
}

async fn ask_nodes(inquiry: &mut Inquiry) -> NodeFacts {
    let Some(text) = inquiry.ask("scontrol", &["-o", "show", "node"]).await else {
        return NodeFacts::default();
    };
    let works = |line: &&str| {
        let state = line.split_whitespace().find_map(|word| word.strip_prefix("State=")).unwrap_or_default();
        !["DOWN", "DRAIN", "NOT_RESPONDING", "UNKNOWN", "FAIL"].iter().any(|bad| state.contains(bad))
    };
    let first: Vec<NodeName> = text
        .lines()
        .filter(works)
        .filter_map(|line| line.strip_prefix("NodeName=")?.split_whitespace().next())
        .take(2)
        .map(NodeName::new)
        .collect();
    let address = words_after(&text, "NodeAddr=").into_iter().next();
    let elsewhere = match &address {
        Some(address) => is_elsewhere(address).await,
        None => None,
    };
    NodeFacts { first, elsewhere, gpu_share: facts::parse_gpu_share(&text) }
}

/// Whether an address is another machine's. One node stands for all.
async fn is_elsewhere(address: &str) -> Option<bool> {
    let addresses: Vec<_> = tokio::net::lookup_host((address, 0)).await.ok()?.collect();
    Some(!addresses.iter().all(|address| address.ip().is_loopback()))
}

async fn ask_daemon(session: &CliSession, inquiry: &mut Inquiry) -> DaemonFacts {
    let path = session.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    let text = match read_small_file(&path) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => {
            inquiry.unread.push(format!("{}: {e}", path.display()));
            None
        }
    };
    let config = if text.is_some() { session.load_config() } else { Ok(Default::default()) };
    let config = config.unwrap_or_else(|e| {
        inquiry.unread.push(format!("{}: {e}; the plan takes the defaults", path.display()));
        Default::default()
    });
    let url = session.url.clone().unwrap_or_else(|| config.agent.url.clone());
    let identity = SlurmIdentity::trusting_user(config.agent.daemon_user.clone());
    let status: Option<DaemonStatus> = match DaemonClient::new(&url, identity, config.agent.ca.as_deref()) {
        Ok(client) => client.get(routes::STATUS).await.ok(),
        Err(_) => None,
    };
    let is_stopped = status.as_ref().is_some_and(|status| status.control != ControlState::Normal);
    let mode = status.map(|status| status.mode);
    DaemonFacts { path: path.to_string_lossy().into_owned(), text, config, mode, is_stopped }
}
