//! The names and addresses of this daemon.
//!
//! A credential that was made for another daemon proves nothing here, because someone may have passed it on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use infill_api::{
    addresses::{host_and_port, this_host},
    daemon_urls,
};
use infill_model::config::Config;

/// Longest name that is accepted, with its port, bytes.
const MAX_NAME_BYTES: usize = 300;

/// All names that agents and command lines may use to address this daemon.
#[derive(Clone, Debug)]
pub(crate) struct DaemonNames {
    /// Names from the configuration: `HOST` or `HOST:PORT`, in lower case.
    configured: Vec<String>,
    /// The name of this host, in lower case.
    host: Option<String>,
    /// The port on which the daemon listens.
    port: Option<u16>,
}

impl DaemonNames {
    /// The names in the configuration, and the name of this host.
    pub(crate) fn new(config: &Config) -> DaemonNames {
        let port = config.daemon.listen.parse::<SocketAddr>().ok().map(|address| address.port());
        let mut configured: Vec<String> =
            config.daemon.names.iter().map(|name| name.to_ascii_lowercase()).collect();
        // Where there are several URLs, some of them are another daemon's.
        if let [url] = &daemon_urls(&config.agent.url)[..] {
            configured.extend(host_and_port(url));
        }
        DaemonNames { configured, host: this_host().map(|host| host.to_ascii_lowercase()), port }
    }

    /// Whether `to`, as `HOST:PORT`, means this daemon.
    pub(crate) fn is_own(&self, to: &str) -> bool {
        let to = to.to_ascii_lowercase();
        let Some((host, port)) = to.rsplit_once(':').filter(|_| to.len() <= MAX_NAME_BYTES) else {
            return false;
        };
        if self.configured.iter().any(|name| *name == to || name == host) {
            return true;
        }
        port.parse().ok() == self.port && (self.is_host_name(host) || is_local_address(host))
    }

    /// Whether this is the host's name, with or without its domain.
    fn is_host_name(&self, name: &str) -> bool {
        let Some(own) = &self.host else { return name == "localhost" };
        // Where one of the names has no domain, the other one's domain does not matter.
        let is_without_domain = !own.contains('.') || !name.contains('.');
        let is_same_host = first_label(own) == first_label(name) && is_without_domain;
        name == "localhost" || own == name || is_same_host
    }
}

/// A host's name without its domain.
fn first_label(name: &str) -> &str {
    name.split_once('.').map_or(name, |(label, _)| label)
}

/// Whether this is an address of this machine.
fn is_local_address(host: &str) -> bool {
    let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() else { return false };
    address.is_loopback() || interface_addresses().contains(&address)
}

/// The addresses of this machine's network interfaces; empty where the kernel does not list them.
fn interface_addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs sets the pointer to a list that it allocates, which is read before it is freed. Each
    // address is read as the type that its family names.
    unsafe {
        if libc::getifaddrs(&mut list) != 0 {
            return found;
        }
        let mut entry = list;
        while let Some(interface) = entry.as_ref() {
            match interface.ifa_addr.as_ref().map(|address| i32::from(address.sa_family)) {
                Some(libc::AF_INET) => {
                    let address = interface.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    found.push(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into());
                }
                Some(libc::AF_INET6) => {
                    let address = interface.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    found.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
                }
                _ => {}
            }
            entry = interface.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(url: &str, configured: &[&str]) -> DaemonNames {
        let mut config = Config::default();
        config.agent.url = url.to_owned();
        config.daemon.listen = "0.0.0.0:6810".to_owned();
        config.daemon.names = configured.iter().map(|name| (*name).to_owned()).collect();
        DaemonNames { host: Some("ctl1.cluster".to_owned()), ..DaemonNames::new(&config) }
    }

    #[test]
    fn own_names_and_addresses_with_the_own_port_are_ours() {
        let names = names("http://ctl1:6810,http://ctl2:6810", &["Infill.Example:443", "alias"]);
        for ours in [
            "ctl1:6810",
            "CTL1.cluster:6810",
            "localhost:6810",
            "127.0.0.1:6810",
            "[::1]:6810",
            "infill.example:443",
            "alias:1",
        ] {
            assert!(names.is_own(ours), "{ours}");
        }
        for other in [
            "ctl2:6810",
            "ctl1:6811",
            "ctl1",
            "ctl1.elsewhere:6810",
            "infill.example:6810",
            "192.0.2.7:6810",
            "",
            ":6810",
            "ctl1:6810 x",
        ] {
            assert!(!names.is_own(other), "{other}");
        }
    }

    #[test]
    fn the_only_url_of_the_agents_is_ours() {
        assert!(names("http://virtual:80", &[]).is_own("virtual:80"));
        assert!(!names("http://virtual:80,http://other:80", &[]).is_own("virtual:80"));
    }

    #[test]
    fn this_machine_has_addresses() {
        assert!(interface_addresses().iter().any(IpAddr::is_loopback), "{:?}", interface_addresses());
    }
}
