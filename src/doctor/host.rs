//! Checks of this machine: clocks, versions, disk, addresses. The functions are pure.

use std::net::IpAddr;

use super::finding::Finding;
use infill_api::addresses::can_be_overheard;
use infill_model::{UnixTime, UserId};

/// Clocks that differ by more seconds are a warning: windows are wrong by the difference.
const CLOCK_WARN_SECS: f64 = 5.0;
/// Clocks that differ by more seconds are an error. MUNGE credentials are valid for 300 s, and a difference
/// of a large part of that breaks them.
const CLOCK_ERROR_SECS: f64 = 120.0;
/// Less free space, in KiB, is a warning. A store grows by megabytes a day on a big site.
const DISK_WARN_KIB: u64 = 1024 * 1024;
/// Less free space, in KiB, is an error: a checkpoint of the write-ahead log may fail.
const DISK_ERROR_KIB: u64 = 50 * 1024;
/// The first release of Slurm that infill works with. In earlier ones, a job that leaves within the grace
/// time of its preemption becomes FAILED instead of queued again.
const MIN_SLURM_RELEASE: (u32, u32) = (24, 5);

/// Compares Slurm's clock with this machine's.
pub fn check_clock(slurm: UnixTime, here: UnixTime) -> Finding {
    let skew = here.secs_since(slurm);
    let fix = "run NTP or chrony on both machines";
    match skew.abs() {
        s if s > CLOCK_ERROR_SECS => {
            Finding::error("clock", format!("this machine's clock is {skew:+} s off slurmctld's"), fix)
        }
        s if s > CLOCK_WARN_SECS => {
            Finding::warn("clock", format!("this machine's clock is {skew:+} s off slurmctld's"), fix)
        }
        _ => Finding::ok("clock", "this machine and slurmctld agree on the time"),
    }
}

/// Checks Slurm's release, such as `24.11.5`. `rest` is the REST version in use.
pub fn check_slurm_version(slurm: &str, rest: &str) -> Finding {
    let mut numbers = slurm.split(['.', '-']).map(|n| n.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) >= MIN_SLURM_RELEASE => {
            Finding::ok("rest", format!("Slurm {slurm} answers by REST {rest}"))
        }
        (Some(_), Some(_)) => Finding::error(
            "rest",
            format!(
                "Slurm is {slurm}: a job that leaves while Slurm preempts it fails, and is not queued again"
            ),
            "use Slurm 24.05 or newer",
        ),
        _ => Finding::warn(
            "rest",
            format!("Slurm's version is {slurm:?} (REST {rest}): infill needs 24.05 or newer"),
            "see scontrol --version",
        ),
    }
}

/// Compares the daemon's version with this program's.
pub fn check_versions(daemon: &str, ours: &str) -> Option<Finding> {
    if daemon == ours {
        return None;
    }
    Some(Finding::warn(
        "version",
        format!("the daemon is infill {daemon}, but this command is infill {ours}"),
        "install the same version on all machines and restart the daemon",
    ))
}

/// Compares the user id of the daemon with that of its user on this host: MUNGE identifies users by their
/// ids.
pub fn check_same_user(daemon: Option<UserId>, here: Option<UserId>) -> Option<Finding> {
    let daemon = daemon?;
    let here = here?;
    if daemon == here || daemon.0 == 0 {
        return None;
    }
    Some(Finding::warn(
        "user",
        format!("the user infill has the id {here} here, but the daemon that answers runs as {daemon}"),
        "give the user the same id on all hosts (with a file in /etc/sysusers.d, or usermod -u), and chown its files \
         in /var/lib/infill",
    ))
}

/// The free KiB in the output of `df -Pk PATH`.
pub fn parse_df(text: &str) -> Option<u64> {
    text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

/// Checks the free space where the store is.
pub fn check_disk(free_kib: u64, dir: &str) -> Finding {
    let free = format!("{} MiB free in {dir}", free_kib / 1024);
    let fix = "free some space, or lower daemon.keep_days";
    match free_kib {
        k if k < DISK_ERROR_KIB => Finding::error("store", free, fix),
        k if k < DISK_WARN_KIB => Finding::warn("store", free, fix),
        _ => Finding::ok("store", free),
    }
}

/// Checks whether compute nodes can reach the daemon. `listen` is the address that it binds, `url_addresses`
/// are the addresses of the host in `agent.url`. `nodes_elsewhere`: whether compute nodes are other machines;
/// `None` if Slurm does not say.
pub fn check_reachable(
    listen: IpAddr,
    url: &str,
    url_addresses: &[IpAddr],
    nodes_elsewhere: Option<bool>,
) -> Vec<Finding> {
    if url_addresses.is_empty() {
        let what = format!("the host in agent.url ({url}) has no address");
        return vec![Finding::error("url", what, "use a host that all nodes can resolve")];
    }
    let mut findings = Vec::new();
    let is_local = listen.is_loopback() || url_addresses.iter().all(IpAddr::is_loopback);
    if nodes_elsewhere.is_none() && is_local {
        findings.push(Finding::warn(
            "url",
            format!(
                "agent.url is {url} and daemon.listen is on {listen}: only this machine reaches the daemon"
            ),
            "set both to an address on the cluster's network, unless all nodes are on this machine",
        ));
    }
    let nodes_elsewhere = nodes_elsewhere.unwrap_or(false);
    if nodes_elsewhere && url_addresses.iter().all(IpAddr::is_loopback) {
        findings.push(Finding::error(
            "url",
            format!("agent.url is {url}: on a compute node this is the node itself"),
            "set agent.url to this machine's name on the cluster's network",
        ));
    }
    if nodes_elsewhere && listen.is_loopback() {
        findings.push(Finding::error(
            "url",
            format!("daemon.listen is on {listen}: compute nodes cannot reach it"),
            "set daemon.listen to an address on the cluster's network (or 0.0.0.0) and open the port for the nodes",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("url", format!("agents find the daemon at {url}")));
    }
    findings
}

/// Checks whether agents can prove who they are to daemons at these URLs. Without MUNGE they have only Slurm
/// tokens, which they never send in plain text.
pub fn check_token_secrecy(has_munge: bool, urls: &[String]) -> Option<Finding> {
    if has_munge {
        return None;
    }
    let plain = urls.iter().find(|url| can_be_overheard(url))?;
    Some(Finding::error(
        "tls",
        format!(
            "there is no MUNGE, and agents send no Slurm token to {plain}: others could read it on the way"
        ),
        "set daemon.tls_cert, daemon.tls_key and an agent.url that begins with https://",
    ))
}

/// The host and the port of an `http(s)` URL.
pub fn host_and_port(url: &str) -> Option<(String, u16)> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    Some((host, url.port_or_known_default()?))
}

/// The directory of the file in a `sqlite:` URL. `None` for other URLs.
pub fn store_dir(database_url: &str) -> Option<std::path::PathBuf> {
    let path = database_url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.split('?').next().unwrap_or(path);
    let dir = std::path::Path::new(path).parent()?;
    Some(if dir.as_os_str().is_empty() { std::path::PathBuf::from(".") } else { dir.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingLevel;

    #[test]
    fn clocks() {
        let level = |skew: i64| check_clock(UnixTime(1000), UnixTime(1000 + skew)).level;
        assert_eq!(
            [0, 5, -6, 121].map(level),
            [FindingLevel::Ok, FindingLevel::Ok, FindingLevel::Warn, FindingLevel::Error]
        );
    }

    #[test]
    fn without_munge_agents_need_tls() {
        let found = |has_munge, url: &str| check_token_secrecy(has_munge, &[url.to_owned()]);
        assert!(found(true, "http://ctl:1").is_none() && found(false, "https://ctl:1").is_none());
        assert!(found(false, "http://127.0.0.1:1").is_none());
        let found = found(false, "http://ctl:1").unwrap();
        assert!(
            found.level == FindingLevel::Error && format!("{found:?}").contains("daemon.tls_cert"),
            "{found:?}"
        );
    }

    #[test]
    fn the_daemons_user_has_one_id() {
        let of =
            |daemon: Option<u32>, here: Option<u32>| check_same_user(daemon.map(UserId), here.map(UserId));
        for (daemon, here) in [(None, Some(7)), (Some(7), None), (Some(7), Some(7)), (Some(0), Some(7))] {
            assert!(of(daemon, here).is_none(), "{daemon:?} {here:?}");
        }
        let found = of(Some(8), Some(7)).unwrap();
        assert!(found.level == FindingLevel::Warn && format!("{found:?}").contains("the id 7"));
    }

    #[test]
    fn slurms_release() {
        let level = |slurm| check_slurm_version(slurm, "v0.0.42").level;
        assert_eq!(["24.05.0", "24.11.5", "26.05.0-0rc1"].map(level), [FindingLevel::Ok; 3]);
        assert_eq!(
            ["23.11.10", "24.04.9", "x", ""].map(level),
            [FindingLevel::Error, FindingLevel::Error, FindingLevel::Warn, FindingLevel::Warn]
        );
        assert!(check_versions("0.1.0", "0.1.0").is_none() && check_versions("0.1.0", "0.2.0").is_some());
    }

    #[test]
    fn free_space() {
        let df = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n\
                  /dev/vda1         65792556 13231340  49186608      22% /\n";
        assert_eq!(parse_df(df), Some(49_186_608));
        assert_eq!(parse_df("df: /nope: No such file or directory"), None);
        let level = |kib| check_disk(kib, "/var/lib/infill").level;
        assert_eq!(
            [49_186_608, 100_000, 10].map(level),
            [FindingLevel::Ok, FindingLevel::Warn, FindingLevel::Error]
        );
    }

    #[test]
    fn addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let count = |listen, addresses: &[IpAddr], elsewhere| {
            let found = check_reachable(ip(listen), "http://ctl:6810", addresses, elsewhere);
            found.iter().filter(|f| f.level == FindingLevel::Error).count()
        };
        assert_eq!(count("127.0.0.1", &[ip("127.0.0.1")], Some(false)), 0);
        assert_eq!(count("127.0.0.1", &[ip("::1")], Some(true)), 2);
        assert_eq!(count("0.0.0.0", &[ip("10.0.0.1")], Some(true)), 0);
        assert_eq!(count("0.0.0.0", &[], Some(true)), 1);
        let unknown = check_reachable(ip("0.0.0.0"), "http://ctl:6810", &[ip("127.0.0.1")], None);
        assert_eq!(unknown.iter().map(|f| f.level).collect::<Vec<_>>(), [FindingLevel::Warn]);
        assert_eq!(host_and_port("http://[::1]:6810/"), Some(("::1".to_owned(), 6810)));
        assert_eq!(host_and_port("https://ctl"), Some(("ctl".to_owned(), 443)));
        assert_eq!(host_and_port("ctl:6810"), None);
    }

    #[test]
    fn where_the_store_is() {
        let dir = |url| store_dir(url).map(|d| d.display().to_string());
        assert_eq!(dir("sqlite:/var/lib/infill/infill.db").as_deref(), Some("/var/lib/infill"));
        assert_eq!(dir("sqlite:///srv/a.db?mode=rwc").as_deref(), Some("/srv"));
        assert_eq!(dir("sqlite:a.db").as_deref(), Some("."));
        assert_eq!(dir("postgres://db/infill"), None);
    }
}
