//! What every HTTP client of the daemon is built from: the agents', and the command line's.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, redirect};

use infill_model::error_causes::error_chain;

/// Longest file of authorities that is read: a system's whole store has a quarter of that.
const MAX_CA_BYTES: u64 = 1024 * 1024;

/// Why the authorities of `agent.ca` are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The file cannot be read.
    #[error("agent.ca: cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It has no certificate.
    #[error("agent.ca: {path}: expected certificates in PEM")]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
}

/// What an HTTP client for the daemon is built from: it speaks to nobody else, and through nobody else. With
/// `ca`, a PEM file, it believes certificates of those authorities alone, else of those that the system
/// trusts.
///
/// # Errors
/// When `ca` cannot be read, or has no certificate.
pub fn http_client(connect_timeout: Duration, ca: Option<&Path>) -> Result<ClientBuilder, CaError> {
    let client = base_builder(connect_timeout);
    match ca {
        None => Ok(client),
        Some(path) => Ok(client.tls_certs_only(read_authorities(path)?)),
    }
}

/// The client of an agent. Where the authorities are not to be had it believes nobody: a mistake in a file
/// must end no job, and the daemon is away for this agent until the job starts again.
///
/// # Errors
/// When there can be no client at all.
pub(crate) fn build_agent_client(connect_timeout: Duration, ca: Option<&Path>) -> Result<Client, String> {
    let build = |client: ClientBuilder| client.build().map_err(|e| error_chain(&e));
    match http_client(connect_timeout, ca).map_err(|e| error_chain(&e)).and_then(build) {
        Err(why) if ca.is_some() => {
            tracing::error!(
                why,
                "the daemon's certificate cannot be checked on this node; going on without a daemon"
            );
            build(base_builder(connect_timeout).tls_certs_only([]))
        }
        client => client,
    }
}

fn base_builder(connect_timeout: Duration) -> ClientBuilder {
    install_crypto();
    // The daemon is on the cluster's own network, and secrets go to nobody else.
    let client = Client::builder().no_proxy().redirect(redirect::Policy::none());
    client.connect_timeout(connect_timeout)
}

fn read_authorities(path: &Path) -> Result<Vec<Certificate>, CaError> {
    let failed = |source| CaError::Read { path: path.to_owned(), source };
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_CA_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_CA_BYTES {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let found = Certificate::from_pem_bundle(&text).unwrap_or_default();
    match found.is_empty() {
        true => Err(CaError::NoCertificate { path: path.to_owned() }),
        false => Ok(found),
    }
}

/// TLS needs a process-wide provider. Installing it twice is refused, and harmless.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authorities_an_agent_has_a_client_that_believes_nobody() {
        let second = Duration::from_secs(1);
        assert!(build_agent_client(second, Some(Path::new("/no/such/file"))).is_ok());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        // Base64, and no certificate.
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(http_client(second, Some(&path)).unwrap().build().is_err());
        assert!(build_agent_client(second, Some(&path)).is_ok());
    }

    #[test]
    fn authorities_that_are_not_to_be_had_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let said = || http_client(Duration::from_secs(1), Some(&path)).map(drop).unwrap_err().to_string();
        assert_eq!(said(), format!("agent.ca: cannot read {}", path.display()));
        for text in ["", "no PEM", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                said(),
                format!("agent.ca: {}: expected certificates in PEM", path.display()),
                "{text}"
            );
        }
    }
}
