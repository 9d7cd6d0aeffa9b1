//! The port of the HTTP API.
//!
//! Where systemd has bound it (`infill.socket`), it stays bound while the daemon restarts. Requests wait
//! meanwhile, and no other program can listen there. Without systemd the daemon binds the port itself.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context as _;
use listenfd::ListenFd;

/// The sockets that systemd has passed to this process.
pub struct PassedSockets(ListenFd);

/// Takes the sockets, and removes their variables from the environment. Call it before any thread starts.
pub fn take_passed_sockets() -> PassedSockets {
    PassedSockets(ListenFd::from_env())
}

/// The listener at `listen` (ADDRESS:PORT): the socket that systemd passed, or a new one.
///
/// # Errors
/// When the port cannot be bound, or when systemd passed anything but one socket that listens there.
pub(crate) async fn open_listener(
    listen: &str,
    PassedSockets(mut passed): PassedSockets,
) -> anyhow::Result<TcpListener> {
    let listener = match passed.len() {
        0 => {
            let bound = tokio::net::TcpListener::bind(listen).await;
            bound.with_context(|| format!("cannot listen on {listen}"))?.into_std()?
        }
        1 => {
            let listener = passed.take_tcp_listener(0).context("systemd passes a socket that is not TCP")?;
            let listener = listener.context("systemd passes a socket that is not TCP")?;
            check_address(&listener, listen)?;
            listener
        }
        count => anyhow::bail!("systemd passes {count} sockets: expected the one of infill.socket"),
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Refuses a socket that listens elsewhere, because agents would not find the daemon.
fn check_address(listener: &TcpListener, listen: &str) -> anyhow::Result<()> {
    let address = listener.local_addr().context("systemd passes a socket without an address")?;
    let expected: SocketAddr = listen.parse().with_context(|| format!("daemon.listen = {listen:?}"))?;
    anyhow::ensure!(
        address == expected,
        "systemd listens on {address}, but daemon.listen is {expected}; to make infill.socket follow it, run: \
         systemctl daemon-reload && systemctl stop infill.socket && systemctl restart infill"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_systemd_the_daemon_binds_the_port_itself() {
        let listener = open_listener("127.0.0.1:0", PassedSockets(ListenFd::empty())).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let e = open_listener(&address, PassedSockets(ListenFd::empty())).await.unwrap_err();
        assert!(format!("{e:#}").starts_with(&format!("cannot listen on {address}: ")), "{e:#}");
    }

    #[test]
    fn a_socket_that_listens_elsewhere_is_refused_with_both_addresses() {
        let passed = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = passed.local_addr().unwrap().to_string();
        assert!(check_address(&passed, &address).is_ok());
        let message = check_address(&passed, "127.0.0.1:1").unwrap_err().to_string();
        for part in [address.as_str(), "127.0.0.1:1", "daemon.listen", "systemctl daemon-reload"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
