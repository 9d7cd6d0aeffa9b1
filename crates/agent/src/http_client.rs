//! Builds the HTTP clients that speak to the daemon: those of the agents and of the command line.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, redirect};

use infill_model::error_causes::error_chain;

/// Largest file of certificate authorities that is read. A system's whole store has a quarter of that.
const MAX_CA_BYTES: u64 = 1024 * 1024;

/// Why the certificate authorities of `agent.ca` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The file cannot be read.
    #[error("agent.ca: cannot read {path}")]
    Read {
        /// Path of the file, as `agent.ca` names it.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file contains no certificate.
    #[error("agent.ca: {path}: expected certificates in PEM")]
    NoCertificate {
        /// Path of the file, as `agent.ca` names it.
        path: PathBuf,
    },
}

/// Returns a builder of HTTP clients for the daemon. They follow no redirects and use no proxy. With `ca`, a
/// PEM file, they trust only certificates of the authorities in it, else of those that the system trusts.
///
/// # Errors
/// When `ca` cannot be read, or contains no certificate.
pub fn http_client(connect_timeout: Duration, ca: Option<&Path>) -> Result<ClientBuilder, CaError> {
    let client = base_builder(connect_timeout);
    match ca {
        // A minimal system trusts no authority. Plain HTTP must work there nevertheless.
        None if !system_has_authorities() => Ok(client.tls_certs_only([])),
        None => Ok(client),
        Some(path) => Ok(client.tls_certs_only(read_authorities(path)?)),
    }
}

/// Builds the client of an agent. If the authorities cannot be used, the client trusts no server, because a
/// mistake in a file must not end a job. The daemon then counts as away until the job starts again.
///
/// # Errors
/// When no client can be built at all.
pub(crate) fn build_agent_client(connect_timeout: Duration, ca: Option<&Path>) -> Result<Client, String> {
    match http_client(connect_timeout, ca).map_err(|e| error_chain(&e)).and_then(build_client) {
        Err(why) if ca.is_some() => {
            tracing::error!(
                why,
                "the daemon's certificate cannot be checked on this node; going on without a daemon"
            );
            build_client(base_builder(connect_timeout).tls_certs_only([]))
        }
        client => client,
    }
}

/// Builds the client, or returns the error with its causes.
fn build_client(builder: ClientBuilder) -> Result<Client, String> {
    builder.build().map_err(|e| error_chain(&e))
}

/// Whether this system has certificates of authorities. Without any, no client can be built that asks for
/// them.
fn system_has_authorities() -> bool {
    static HAS_AUTHORITIES: OnceLock<bool> = OnceLock::new();
    *HAS_AUTHORITIES.get_or_init(|| base_builder(Duration::from_secs(1)).build().is_ok())
}

fn base_builder(connect_timeout: Duration) -> ClientBuilder {
    install_crypto();
    // The daemon is on the cluster's own network, and secrets must not go anywhere else.
    let builder = Client::builder().no_proxy().redirect(redirect::Policy::none());
    builder.connect_timeout(connect_timeout)
}

fn read_authorities(path: &Path) -> Result<Vec<Certificate>, CaError> {
    let text = read_ca_file(path).map_err(|source| CaError::Read { path: path.to_owned(), source })?;
    let found = Certificate::from_pem_bundle(&text).unwrap_or_default();
    if found.is_empty() {
        return Err(CaError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}

/// Reads at most [`MAX_CA_BYTES`]; a larger file is an error.
fn read_ca_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_CA_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_CA_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Installs the process-wide cryptography provider that TLS needs. A second call does nothing.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authorities_an_agent_has_a_client_that_trusts_no_server() {
        let second = Duration::from_secs(1);
        assert!(build_agent_client(second, Some(Path::new("/no/such/file"))).is_ok());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        // This is Base64, but not a certificate.
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(http_client(second, Some(&path)).unwrap().build().is_err());
        assert!(build_agent_client(second, Some(&path)).is_ok());
    }

    #[test]
    fn an_error_names_the_file_of_authorities() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let message = || http_client(Duration::from_secs(1), Some(&path)).map(drop).unwrap_err().to_string();
        assert_eq!(message(), format!("agent.ca: cannot read {}", path.display()));
        for text in ["", "no PEM", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                message(),
                format!("agent.ca: {}: expected certificates in PEM", path.display()),
                "{text}"
            );
        }
    }
}
