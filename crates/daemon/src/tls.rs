//! TLS of the HTTP API.
//!
//! The certificate and its key are read from their files when the daemon starts. They are read again when the
//! files change, for example when a certificate is renewed. Open connections stay as they are.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use infill_model::config::DaemonConfig;
use infill_model::error_causes::error_chain;

/// How often the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Longest file that is read. A certificate chain has a few kilobytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Permission bits of users who are neither the owner nor in the group.
const OTHERS_MODE: u32 = 0o007;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{key}: cannot read {path}")]
    Read {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Every user can read or write the key.
    #[error("daemon.tls_key: {path} can be read or written by every user: run chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// A file has the wrong content.
    #[error("{key}: {path}: {what}")]
    Wrong {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: String,
    },
}

/// Checks the certificate and the key that the configuration names.
///
/// # Errors
/// When a file cannot be read, when it contains no certificate or no key, when the two do not belong
/// together, and when users outside the key's owner and group may read or write the key.
pub fn check_tls(config: &DaemonConfig) -> Result<(), TlsError> {
    TlsFiles::from_config(config).map(drop)
}

/// The files of the certificate and the key, and what was read from them.
pub(crate) struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    loaded: Mutex<LoadedFiles>,
}

struct LoadedFiles {
    /// The stamps of the files at the last attempt to load them.
    stamps: FileStamps,
    config: Arc<ServerConfig>,
}

/// When each file was changed, its size and its inode; `None` where it does not exist.
type FileStamps = [Option<(SystemTime, u64, u64)>; 2];

impl TlsFiles {
    /// Loads the files that the configuration names; `None` for plain HTTP.
    ///
    /// # Errors
    /// As [`check_tls`].
    pub fn from_config(config: &DaemonConfig) -> Result<Option<Arc<TlsFiles>>, TlsError> {
        let Some(cert) = config.tls_cert.clone() else { return Ok(None) };
        let Some(key) = config.tls_key.clone() else { return Ok(None) };
        let stamps = file_stamps(&cert, &key);
        let config = Arc::new(load_config(&cert, &key)?);
        Ok(Some(Arc::new(TlsFiles { cert, key, loaded: Mutex::new(LoadedFiles { stamps, config }) })))
    }

    /// The configuration for the next connection.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.lock_loaded().config.clone()
    }

    /// Reads the files again if they have changed. If they are wrong, the last valid certificate stays in
    /// use, and an error is logged once per change.
    pub fn reload_if_changed(&self) {
        let stamps = file_stamps(&self.cert, &self.key);
        if stamps == self.lock_loaded().stamps {
            return;
        }
        match load_config(&self.cert, &self.key) {
            Ok(config) => {
                *self.lock_loaded() = LoadedFiles { stamps, config: Arc::new(config) };
                tracing::info!(cert = %self.cert.display(), "the certificate was read again");
            }
            Err(e) => {
                self.lock_loaded().stamps = stamps;
                tracing::error!("the certificate is not replaced: {}", error_chain(&e));
            }
        }
    }

    /// Values are replaced at once, so a thread that panicked leaves them consistent.
    fn lock_loaded(&self) -> MutexGuard<'_, LoadedFiles> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the files for changes. Never returns.
pub(crate) async fn watch_files(tls: Option<Arc<TlsFiles>>) {
    let Some(tls) = tls else { return std::future::pending().await };
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let tls = tls.clone();
        // A check that panicked changes nothing.
        let _ = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await;
    }
}

fn file_stamps(cert: &Path, key: &Path) -> FileStamps {
    [cert, key].map(|path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len(), found.ino()))
    })
}

fn load_config(cert: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = read_chain(cert)?;
    let private_key = read_key(key)?;
    server_config(chain, private_key)
        .map_err(|e| wrong_certificate(cert, format!("{e} (its key is {})", key.display())))
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    private_key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, private_key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn wrong_certificate(path: &Path, what: String) -> TlsError {
    TlsError::Wrong { key: "daemon.tls_cert", path: path.to_owned(), what }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (text, _) = read_file(path, "daemon.tls_cert")?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|e| wrong_certificate(path, format!("expected certificates in PEM: {e}")))?;
    if chain.is_empty() {
        return Err(wrong_certificate(path, "expected a certificate in PEM".to_owned()));
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = "daemon.tls_key";
    let (text, mode) = read_file(path, key)?;
    if mode & OTHERS_MODE != 0 {
        return Err(TlsError::Open { path: path.to_owned() });
    }
    // The parser's error is left out, because it could quote the key.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Wrong {
        key,
        path: path.to_owned(),
        what: "expected a private key in PEM, without a passphrase".to_owned(),
    })
}

/// A file's bytes and permissions, from one open file.
fn read_file(path: &Path, key: &'static str) -> Result<(Vec<u8>, u32), TlsError> {
    read_bounded(path).map_err(|source| TlsError::Read { key, path: path.to_owned(), source })
}

fn read_bounded(path: &Path) -> std::io::Result<(Vec<u8>, u32)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok((bytes, mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use infill_testkit::certificates::{CertificateAuthority, CertificateFiles, LOCALHOST_NAMES};

    use super::*;

    fn load(files: &CertificateFiles) -> Result<Option<Arc<TlsFiles>>, String> {
        let config = DaemonConfig {
            tls_cert: Some(files.cert.clone()),
            tls_key: Some(files.key.clone()),
            ..DaemonConfig::default()
        };
        TlsFiles::from_config(&config).map_err(|e| error_chain(&e))
    }

    fn load_error(files: &CertificateFiles) -> String {
        load(files).err().unwrap()
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn errors_name_the_file_and_quote_nothing_of_the_key() {
        assert!(TlsFiles::from_config(&DaemonConfig::default()).unwrap().is_none());
        let dir = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::new(dir.path());
        let one = authority.issue_certificate("one", LOCALHOST_NAMES);
        let other = authority.issue_certificate("other", LOCALHOST_NAMES);
        assert!(load(&one).unwrap().is_some());
        set_mode(&one.key, 0o640);
        assert!(load(&one).is_ok(), "a group may have it");
        for mode in [0o644, 0o602] {
            set_mode(&one.key, mode);
            assert!(load_error(&one).contains("run chmod 600"), "{mode:o}: {}", load_error(&one));
        }
        set_mode(&one.key, 0o600);
        let mixed = CertificateFiles { cert: one.cert.clone(), key: other.key };
        assert!(load_error(&mixed).starts_with("daemon.tls_cert: "), "{}", load_error(&mixed));
        let missing = CertificateFiles { cert: dir.path().join("none.pem"), key: one.key.clone() };
        assert!(
            load_error(&missing).starts_with("daemon.tls_cert: cannot read "),
            "{}",
            load_error(&missing)
        );
        std::fs::write(&one.key, "hunter2").unwrap();
        let text = load_error(&one);
        assert!(text.contains("expected a private key in PEM") && !text.contains("hunter2"), "{text}");
        std::fs::write(&one.cert, vec![b'x'; 2 * MAX_FILE_BYTES as usize]).unwrap();
        assert!(load_error(&one).contains("cannot read"), "{}", load_error(&one));
    }

    #[test]
    fn a_renewed_certificate_is_read_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::new(dir.path());
        let files = authority.issue_certificate("one", LOCALHOST_NAMES);
        let tls = load(&files).unwrap().unwrap();
        let first = tls.server_config();
        tls.reload_if_changed();
        assert!(Arc::ptr_eq(&first, &tls.server_config()), "nothing has changed");
        let renewed = authority.issue_certificate("renewed", LOCALHOST_NAMES);
        std::fs::rename(&renewed.cert, &files.cert).unwrap();
        tls.reload_if_changed();
        assert!(Arc::ptr_eq(&first, &tls.server_config()), "its key has not come yet");
        std::fs::rename(&renewed.key, &files.key).unwrap();
        tls.reload_if_changed();
        let second = tls.server_config();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(&files.cert, "").unwrap();
        tls.reload_if_changed();
        assert!(Arc::ptr_eq(&second, &tls.server_config()), "what was read before stays");
    }
}
