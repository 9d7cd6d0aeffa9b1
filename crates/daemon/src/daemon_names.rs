//! By which names this daemon is reached: a credential that is for another one proves nothing here, for
//! somebody has passed it on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use infill_api::{
    addresses::{host_and_port, this_host},
    daemon_urls,
};
use infill_model::config::Config;

/// Longest name that is looked at, with its port.
const MAX_NAME_BYTES: usize = 300;

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct DaemonNames {
    /// `HOST` or `HOST:PORT`, in lower case.
    given: Vec<String>,
    /// The host's own, in lower case.
    host: Option<String>,
    /// The port on which we listen.
    port: Option<u16>,
}

impl DaemonNames {
    /// Those that the configuration names, and this host's.
    pub(crate) fn new(config: &Config) -> DaemonNames {
        let port = config.daemon.listen.parse::<SocketAddr>().ok().map(|address| address.port());
        let mut given: Vec<String> =
            config.daemon.names.iter().map(|name| name.to_ascii_lowercase()).collect();
        // Of several, one is another daemon's.
        if let [url] = &daemon_urls(&config.agent.url)[..] {
            given.extend(host_and_port(url));
        }
        DaemonNames { given, host: this_host().map(|host| host.to_ascii_lowercase()), port }
    }

    /// Whether `to`, as `HOST:PORT`, is this daemon.
    pub(crate) fn is_own(&self, to: &str) -> bool {
        let to = to.to_ascii_lowercase();
        let Some((host, port)) = to.rsplit_once(':').filter(|_| to.len() <= MAX_NAME_BYTES) else {
            return false;
        };
        if self.given.iter().any(|name| *name == to || name == host) {
            return true;
        }
        port.parse().ok() == self.port && (self.is_host_name(host) || is_local_address(host))
    }

    /// Whether this is the host's name, with or without its domain.
    fn is_host_name(&self, name: &str) -> bool {
        let Some(own) = &self.host else { return name == "localhost" };
        let short = |full: &str| full.split('.').next().unwrap_or_default().to_owned();
        // Where one of them has no domain, it is the same machine's.
        let alike = short(own) == short(name) && (own == &short(own) || name == short(name));
        name == "localhost" || own == name || alike
    }
}

/// Whether this is an address of this machine.
fn is_local_address(host: &str) -> bool {
    let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() else { return false };
    address.is_loopback() || interface_addresses().contains(&address)
}

/// The addresses of this machine's network interfaces; none where the kernel does not tell.
fn interface_addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs fills the pointer with a list of its own, which is read before it is freed; an
    // address is read as what its family says that it is.
    unsafe {
        if libc::getifaddrs(&mut list) != 0 {
            return found;
        }
        let mut entry = list;
        while let Some(one) = entry.as_ref() {
            match one.ifa_addr.as_ref().map(|address| i32::from(address.sa_family)) {
                Some(libc::AF_INET) => {
                    let address = one.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    found.push(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into());
                }
                Some(libc::AF_INET6) => {
                    let address = one.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    found.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
                }
                _ => {}
            }
            entry = one.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(url: &str, given: &[&str]) -> DaemonNames {
        let mut config = Config::default();
        config.agent.url = url.to_owned();
        config.daemon.listen = "0.0.0.0:6810".to_owned();
        config.daemon.names = given.iter().map(|name| (*name).to_owned()).collect();
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
    fn the_one_url_that_agents_are_told_is_ours() {
        assert!(names("http://virtual:80", &[]).is_own("virtual:80"));
        assert!(!names("http://virtual:80,http://other:80", &[]).is_own("virtual:80"));
    }

    #[test]
    fn this_machine_has_addresses() {
        assert!(interface_addresses().iter().any(IpAddr::is_loopback), "{:?}", interface_addresses());
    }
}
