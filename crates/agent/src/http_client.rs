//! What every HTTP client of the daemon is built from: the agents', and the command line's.

use std::time::Duration;

/// What an HTTP client for the daemon is built from: it speaks to nobody else, and through nobody else.
pub fn http_client(connect_timeout: Duration) -> reqwest::ClientBuilder {
    install_crypto();
    // The daemon is on the cluster's own network, and secrets go to nobody else.
    reqwest::Client::builder().no_proxy().connect_timeout(connect_timeout)
}

/// TLS needs a process-wide provider. Installing it twice is refused, and harmless.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
