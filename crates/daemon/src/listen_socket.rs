//! The port of the HTTP API. Where systemd has bound it (`infill.socket`), it stays bound while the daemon
//! restarts: what is sent meanwhile waits for an answer, and nobody else can listen there. Else the daemon
//! binds it itself.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context as _;
use listenfd::ListenFd;

/// The sockets that systemd has passed to this process.
pub struct PassedSockets(ListenFd);

/// Takes them, and their variables off the environment: to be called before there are threads.
pub fn take_passed_sockets() -> PassedSockets {
    PassedSockets(ListenFd::from_env())
}

/// The listener at `listen` (ADDRESS:PORT): the one that was passed, or a new one.
///
/// # Errors
/// When it cannot be bound, or what was passed is not the one socket that listens there.
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
            let listener = passed.take_tcp_listener(0).context("systemd passes no TCP socket")?;
            let listener = listener.context("systemd passes no TCP socket")?;
            check_address(&listener, listen)?;
            listener
        }
        count => anyhow::bail!("systemd passes {count} sockets: expected the one of infill.socket"),
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Refuses a socket that listens elsewhere: agents would look for the daemon in vain.
fn check_address(listener: &TcpListener, listen: &str) -> anyhow::Result<()> {
    let address = listener.local_addr().context("systemd passes a socket without an address")?;
    let expected: SocketAddr = listen.parse().with_context(|| format!("daemon.listen = {listen:?}"))?;
    anyhow::ensure!(
        address == expected,
        "systemd listens on {address}, and daemon.listen says {expected}; infill.socket follows daemon.listen \
         after: systemctl daemon-reload && systemctl stop infill.socket && systemctl restart infill"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_systemd_the_daemon_binds_the_port_itself() {
        let none = || PassedSockets(ListenFd::empty());
        let listener = open_listener("127.0.0.1:0", none()).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let e = open_listener(&address, none()).await.unwrap_err();
        assert!(format!("{e:#}").starts_with(&format!("cannot listen on {address}: ")), "{e:#}");
    }

    #[test]
    fn a_socket_that_listens_elsewhere_is_refused_with_both_addresses() {
        let passed = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = passed.local_addr().unwrap().to_string();
        assert!(check_address(&passed, &address).is_ok());
        let said = check_address(&passed, "127.0.0.1:1").unwrap_err().to_string();
        for part in [address.as_str(), "127.0.0.1:1", "daemon.listen", "systemctl daemon-reload"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
