//! Runs the checks: asks Slurm, MUNGE, the daemon and this machine, and passes the answers to the pure
//! checks.

use std::net::IpAddr;
use std::path::Path;

use super::finding::{Finding, FindingLevel};
use super::host;
use super::site::accounting::{self, PreemptionSource};
use super::site::{cgroups, limits, partition, plugin, programs, slurm_conf::SlurmConf};
use crate::client::{ClientError, DaemonClient};
use crate::command;
use infill_agent::identity::SlurmIdentity;
use infill_api::{DaemonStatus, routes};
use infill_model::{LendingMode, Snapshot, clock, config::Config, error_causes};
use infill_slurm::{SlurmApi, SlurmError, identity::uid_of, rest::RestSlurm};

/// This file exists where one tree of cgroups serves all controllers.
const CGROUPS: &str = "/sys/fs/cgroup/cgroup.controllers";

/// The user that the packages create for the daemon.
const DAEMON_USER: &str = "infill";

/// Runs all checks that need a configuration. `url` is the daemon's URL for this command, `ca` is `agent.ca`.
pub async fn run_checks(config: &Config, url: &str, ca: Option<&Path>) -> Vec<Finding> {
    let (mut findings, snapshot) = check_rest(config).await;
    let scontrol = config.slurm.scontrol.to_string_lossy();
    findings.extend(check_rights(config).await);
    findings.extend(check_site(config, &scontrol).await);
    if config.gaps.lend == LendingMode::Gpus {
        let nodes = snapshot.iter().flat_map(|s| &s.nodes);
        let ours = nodes.filter(|n| n.partitions.contains(&config.slurm.partition));
        findings.extend(partition::check_slices(ours.map(|n| n.has.gpus.only_type())));
    }
    let munge = check_munge().await;
    findings.extend(host::check_token_secrecy(
        munge.level == FindingLevel::Ok,
        &infill_api::daemon_urls(&config.agent.url),
    ));
    findings.push(munge);
    findings.extend(check_tls(config));
    findings.extend(check_secrets(config));
    // A problem with the password is among the secrets.
    if let Ok(url) = config.store.connection_url() {
        findings.extend(check_store(&url).await);
    }
    findings.extend(check_addresses(config, snapshot.as_ref()).await);
    findings.extend(check_daemon(url, ca, &config.agent.daemon_user).await);
    findings
}

/// Checks the files with secrets that the configuration names.
fn check_secrets(config: &Config) -> Option<Finding> {
    let password = &config.store.password_file;
    let url = &config.notify.url_file;
    let has_secret = !password.as_os_str().is_empty() || !url.as_os_str().is_empty();
    match config.check_secrets() {
        Ok(()) if has_secret => Some(Finding::ok("secrets", "only the daemon can read them")),
        Ok(()) => None,
        Err(e) if e.is_others_secret() => Some(unchecked_finding("secrets", error_causes::error_chain(&e))),
        Err(e) => {
            let fix =
                "the file must have one line, and only the daemon's user or group may be able to read it";
            Some(Finding::error("secrets", error_causes::error_chain(&e), fix))
        }
    }
}

/// Checks slurmrestd, the nodes of the partition and Slurm's clock. The snapshot is `None` if it cannot be
/// read.
async fn check_rest(config: &Config) -> (Vec<Finding>, Option<Snapshot>) {
    let rest = &config.slurm.rest;
    let slurm = match RestSlurm::new(&config.slurm) {
        Ok(slurm) => slurm,
        Err(error) => return (vec![rest_failure(&error, rest)], None),
    };
    let mut findings = match slurm.rest_endpoint().await {
        Ok(endpoint) => vec![host::check_slurm_version(&endpoint.slurm_version, &endpoint.rest_version)],
        Err(error) => return (vec![rest_failure(&error, rest)], None),
    };
    let snapshot = match slurm.read_snapshot().await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            findings.push(rest_failure(&error, rest));
            return (findings, None);
        }
    };
    findings.push(host::check_clock(snapshot.taken_at, clock::now()));
    let ours = snapshot.nodes.iter().filter(|n| n.partitions.contains(&config.slurm.partition)).count();
    if ours == 0 {
        let what = format!("slurmrestd shows no node in partition {}", config.slurm.partition);
        findings.push(Finding::error("rest", what, "check that slurm.partition is right and has nodes"));
    }
    (findings, Some(snapshot))
}

fn rest_failure(error: &SlurmError, rest: &str) -> Finding {
    let fix = match error {
        SlurmError::Denied { .. } if rest.starts_with("unix:") => {
            "run slurmrestd and `infill doctor` as the user of the daemon"
        }
        SlurmError::Denied { .. } => {
            "renew the token in slurm.token_file, and set slurm.token_user to its user"
        }
        _ => "start slurmrestd (contrib/systemd/infill-slurmrestd.service), or correct slurm.rest",
    };
    Finding::error("rest", format!("{rest}: {error}"), fix)
}

/// Checks whether the daemon's user is a Slurm Operator.
async fn check_rights(config: &Config) -> Vec<Finding> {
    let user = match &config.slurm.token_user {
        Some(user) => user.clone(),
        None => match command::run_command("id", &["-un"], "").await {
            Ok(name) => name.trim().to_owned(),
            Err(why) => return vec![unchecked_finding("rights", why)],
        },
    };
    let args = ["-nP", "show", "user", &user, "format=user,adminlevel"];
    vec![match command::run_command("sacctmgr", &args, "").await {
        Ok(text) => accounting::check_admin_rights(&text, &user),
        Err(why) => unchecked_finding("rights", why),
    }]
}

/// Checks slurm.conf, partitions, QOSes and limits.
async fn check_site(config: &Config, scontrol: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let conf =
        command::run_command(scontrol, &["show", "config"], "").await.map(|text| SlurmConf::parse(&text));
    match &conf {
        Ok(conf) => {
            findings.extend(conf.check_settings());
            findings.extend(conf.check_job_count(config.slurm.max_wings));
            findings.extend(programs::check_programs(conf, config));
            findings.push(cgroups::check_cgroups(conf, Path::new(CGROUPS).exists()));
            let trial =
                plugin::trial_arguments(&config.slurm.partition, config.gaps.lend, config.nodes.cpus > 0);
            findings.push(plugin::check_plugin(
                &command::run_command("sbatch", &trial, "").await,
                conf.submit_plugins(),
            ));
        }
        Err(why) => findings.push(unchecked_finding("preempt", why)),
    }
    let name = &config.slurm.partition;
    let partitions = match command::run_command(scontrol, &["-o", "show", "partition"], "").await {
        Ok(text) => Some(partition::parse_partitions(&text)),
        Err(why) => {
            findings.push(unchecked_finding("partition", why));
            None
        }
    };
    let qos = partition::qos_of(partitions.as_deref().unwrap_or(&[]), name, &config.slurm.qos);
    findings.extend(
        partitions.iter().flat_map(|all| partition::check_partition(all, name, &qos, config.gaps.lend)),
    );
    let lends_parts = config.gaps.lend == LendingMode::Gpus;
    if lends_parts && conf.as_ref().is_ok_and(SlurmConf::gives_all_memory) {
        let on_cpus = config.nodes.cpus > 0;
        findings.extend(partitions.iter().flat_map(|all| partition::check_memory(all, name, on_cpus)));
    }
    let site_secs = conf.as_ref().map_or(0, SlurmConf::exempt_secs);
    match command::run_command("sacctmgr", &["-nP", "show", "qos", accounting::QOS_FIELDS], "").await {
        Ok(text) => {
            let preemption = match &conf {
                Ok(conf) if conf.preempts_by_partition() => PreemptionSource::ByPartition,
                conf => PreemptionSource::ByQos {
                    cluster_requeues: conf.as_ref().is_ok_and(SlurmConf::requeues_preempted),
                },
            };
            if preemption == PreemptionSource::ByPartition {
                findings.extend(partitions.iter().flat_map(|all| partition::check_preemption(all, name)));
            }
            let all = accounting::parse_qos(&text);
            findings.extend(accounting::check_qos(&all, &qos, preemption));
            findings.extend(accounting::check_exempt_time(&all, &qos, site_secs));
        }
        Err(why) => {
            findings.push(unchecked_finding("qos", why));
            findings.extend(accounting::check_exempt_time(&[], &qos, site_secs));
        }
    }
    findings.extend(check_shared_limits(scontrol, &qos).await);
    findings
}

/// Checks the limits that malleable and main jobs share.
async fn check_shared_limits(scontrol: &str, qos: &str) -> Vec<Finding> {
    let associations =
        command::run_command("sacctmgr", &["-nP", "show", "assoc", limits::ASSOCIATION_FIELDS], "").await;
    let manager = command::run_command(scontrol, &["-o", "show", "assoc_mgr", "flags=assoc"], "").await;
    match (associations, manager) {
        (Ok(associations), Ok(manager)) => limits::check_limits(&associations, &manager, qos),
        (Err(why), _) | (_, Err(why)) => vec![unchecked_finding("limits", why)],
    }
}

/// Checks that a credential made on this machine can be read on it.
async fn check_munge() -> Finding {
    match make_and_read_credential().await {
        Ok(()) => Finding::ok("munge", "credentials can be made and read here"),
        Err(why) => Finding::error(
            "munge",
            why,
            "install and start munged with the cluster's key; with it agents and administrators prove who they are",
        ),
    }
}

async fn make_and_read_credential() -> Result<(), String> {
    let credential = command::run_command("munge", &[], "infill").await?;
    let text = command::run_command("unmunge", &[], &credential).await?;
    if text.trim_end().ends_with("infill") { Ok(()) } else { Err("unmunge lost the payload".to_owned()) }
}

/// Checks whether the certificate and its key can be used. `None` if the configuration has none.
fn check_tls(config: &Config) -> Option<Finding> {
    config.daemon.tls_cert.as_ref()?;
    Some(match infill_daemon::tls::check_tls(&config.daemon) {
        Ok(()) => Finding::ok("tls", "the certificate and its key can be read and belong together"),
        Err(e) => Finding::error(
            "tls",
            error_causes::error_chain(&e),
            "run this as the daemon's user; the daemon does not start without the certificate and its key",
        ),
    })
}

/// Checks whether the store can be used, and how much free space it has.
async fn check_store(database_url: &str) -> Vec<Finding> {
    if database_url.starts_with("postgres") {
        return vec![match infill_store::postgres_version(database_url).await {
            Ok(version) => Finding::ok("store", format!("PostgreSQL {version} answers")),
            Err(e) => Finding::error("store", e.to_string(), "see store.database_url and PostgreSQL's log"),
        }];
    }
    let Some(dir) = host::store_dir(database_url) else {
        let what = "store.database_url is neither sqlite:/path/file.db nor postgres://host/database";
        return vec![Finding::error("store", what, "correct the URL")];
    };
    let shown = dir.display().to_string();
    let mut findings = vec![check_writable(&dir, &shown)];
    match command::run_command("df", &["-Pk", &shown], "").await.map(|text| host::parse_df(&text)) {
        Ok(Some(free)) => findings.push(host::check_disk(free, &shown)),
        Ok(None) => findings.push(unchecked_finding("store", "df printed no free space")),
        Err(why) => findings.push(unchecked_finding("store", why)),
    }
    findings
}

/// Checks whether the directory can be written to: SQLite makes further files beside its own.
fn check_writable(dir: &Path, shown: &str) -> Finding {
    let trial = dir.join(format!(".infill-doctor-{}", std::process::id()));
    let written = std::fs::write(&trial, b"").and_then(|()| std::fs::remove_file(&trial));
    match written {
        Ok(()) => Finding::ok("store", format!("{shown} can be written to")),
        Err(e) => Finding::error(
            "store",
            format!("{shown} cannot be written to: {e}"),
            "create it for the daemon's user, and run `infill doctor` as that user",
        ),
    }
}

/// Checks whether agents can reach the daemons.
async fn check_addresses(config: &Config, snapshot: Option<&Snapshot>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for url in infill_api::daemon_urls(&config.agent.url) {
        findings.extend(check_address(config, &url, snapshot).await);
    }
    if findings.is_empty() {
        findings.push(Finding::error("url", "agent.url is empty", "write http://HOST:PORT"));
    }
    findings
}

/// Checks whether agents can reach the daemon at `url`.
async fn check_address(config: &Config, url: &str, snapshot: Option<&Snapshot>) -> Vec<Finding> {
    let Some((name, port)) = host::host_and_port(url) else {
        let what = format!("agent.url is not a URL: {url}");
        return vec![Finding::error("url", what, "write http://HOST:PORT")];
    };
    let ours = resolve_host(&name, port).await;
    let in_partition =
        snapshot.iter().flat_map(|s| &s.nodes).find(|n| n.partitions.contains(&config.slurm.partition));
    // One node stands for all: a cluster on one machine has all its nodes on loopback.
    let nodes_elsewhere = match in_partition {
        Some(node) => Some(!resolve_host(&node.address, port).await.iter().all(IpAddr::is_loopback)),
        None => None,
    };
    match config.daemon.listen.parse::<std::net::SocketAddr>() {
        Ok(listen) => host::check_reachable(listen.ip(), url, &ours, nodes_elsewhere),
        Err(e) => vec![Finding::error("url", format!("daemon.listen: {e}"), "write ADDRESS:PORT")],
    }
}

/// The addresses of a host; empty if it cannot be resolved.
async fn resolve_host(name: &str, port: u16) -> Vec<IpAddr> {
    match tokio::net::lookup_host((name, port)).await {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Checks whether the daemon answers, its version and its user, and reports the problems that it has.
async fn check_daemon(url: &str, ca: Option<&Path>, daemon_user: &str) -> Vec<Finding> {
    let identity = SlurmIdentity::trusting_user(daemon_user.to_owned());
    let status: Result<DaemonStatus, ClientError> = match DaemonClient::new(url, identity, ca) {
        Ok(client) => client.get(routes::STATUS).await,
        Err(error) => Err(error),
    };
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            let text = error.to_string();
            let first_line = text.lines().next().unwrap_or_default().to_owned();
            let fix = match &error {
                ClientError::Impostor { .. } => {
                    "see which program listens there (ss -ltnp); upgrade the daemon if it is older"
                }
                _ => "systemctl start infill",
            };
            return vec![Finding::warn("daemon", first_line, fix)];
        }
    };
    let mut findings = vec![Finding::ok("daemon", format!("infill {} answers at {url}", status.version))];
    findings.extend(host::check_versions(&status.version, env!("CARGO_PKG_VERSION")));
    findings.extend(host::check_same_user(status.runs_as, uid_of(DAEMON_USER).await));
    findings.extend(
        status
            .problems
            .iter()
            .map(|p| Finding::warn("daemon", p.clone(), "see the daemon's log: journalctl -u infill")),
    );
    findings
}

fn unchecked_finding(check: &'static str, why: impl std::fmt::Display) -> Finding {
    Finding::warn(check, format!("not checked: {why}"), "run `infill doctor` where Slurm's commands work")
}
