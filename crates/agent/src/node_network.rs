//! The TCP ports of this node, and its network interface that other nodes reach, as gloo and NCCL want it
//! named.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

/// The port that is reported for a node without a free port: PyTorch's default.
const FALLBACK_PORT: u16 = 29500;

/// How long the name of our own node may take to resolve.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Variables that choose the interface of gloo and of NCCL, with what goes before the interface's name. NCCL
/// takes a bare name for a prefix of names.
const VARIABLES: [(&str, &str); 2] = [("GLOO_SOCKET_IFNAME", ""), ("NCCL_SOCKET_IFNAME", "=")];

/// Whether a program listens at this TCP port of this node.
pub(crate) fn is_taken(port: u16) -> bool {
    let bound = std::net::TcpListener::bind(("0.0.0.0", port));
    bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

/// A TCP port that is free on this node now.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind(("0.0.0.0", 0))
        .and_then(|listener| listener.local_addr())
        .map_or(FALLBACK_PORT, |address| address.port())
}

/// The interface with the node's address, as the daemon knows it; `None` if no interface has it.
pub(crate) async fn interface_of(address: &str) -> Option<String> {
    let literal = address.parse::<IpAddr>().ok();
    let addresses: BTreeSet<IpAddr> = match literal {
        Some(address) => BTreeSet::from([address]),
        None => {
            let found = timeout(RESOLVE_TIMEOUT, lookup_host((address, 0))).await.ok()?.ok()?;
            // A node often knows its own name as 127.0.0.1, where no other node reaches it.
            found.map(|found| found.ip()).filter(|ip| !ip.is_loopback()).collect()
        }
    };
    let found = own_addresses().into_iter().find(|(_, own)| addresses.contains(own));
    found.map(|(name, _)| name)
}

/// The variables that name the interface, except for those that the user sets.
pub(crate) fn interface_variables(
    interface: Option<&str>,
    is_set: impl Fn(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let Some(interface) = interface else { return Vec::new() };
    let ours = VARIABLES.into_iter().filter(|(name, _)| !is_set(name));
    ours.map(|(name, prefix)| (name, format!("{prefix}{interface}"))).collect()
}

/// The addresses of this machine with their interfaces.
fn own_addresses() -> Vec<(String, IpAddr)> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs writes a list to `first`, which we free below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is valid until it is freed, and ends with a null pointer.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: addresses of the list are null or valid, with the length of their family.
        if let Some(address) = unsafe { ip_address(entry.ifa_addr) } {
            // SAFETY: names of the list are strings that end with a zero byte.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            all.push((name.to_string_lossy().into_owned(), address));
        }
    }
    // SAFETY: getifaddrs has made the list, and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    all
}

/// The IP address in a socket address; `None` for other families.
///
/// # Safety
/// The pointer must be null, or point to a socket address with the length of its family.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family.
    let family = i32::from(unsafe { (*address).sa_family });
    if family == libc::AF_INET {
        // SAFETY: an address of this family has this type. It may not be aligned for it.
        let found = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
        return Some(Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr)).into());
    }
    if family == libc::AF_INET6 {
        // SAFETY: as above.
        let found = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
        return Some(Ipv6Addr::from(found.sin6_addr.s6_addr).into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_interface_with_the_nodes_address_is_found() {
        assert_eq!(interface_of("127.0.0.1").await.as_deref(), Some("lo"));
        assert_eq!(interface_of("192.0.2.1").await, None, "nobody's address");
        assert_eq!(interface_of("localhost").await, None, "a name that means this machine alone");
        for (name, address) in own_addresses() {
            assert!(!name.is_empty() && !address.is_unspecified());
            if !address.is_loopback() {
                assert!(interface_of(&address.to_string()).await.is_some(), "{address}");
            }
        }
    }

    #[test]
    fn the_users_choice_of_an_interface_wins() {
        let named = |set: &str| interface_variables(Some("ib0"), |name| name == set);
        let ours = [("GLOO_SOCKET_IFNAME", "ib0".to_owned()), ("NCCL_SOCKET_IFNAME", "=ib0".to_owned())];
        assert_eq!(named(""), ours);
        assert_eq!(named("NCCL_SOCKET_IFNAME"), ours[..1]);
        assert_eq!(interface_variables(None, |_| false), []);
    }
}
