//! TLS of the HTTP API: the certificate and its key, read from their files when the daemon begins, and again
//! when they change, as when a certificate is renewed. Connections that are open stay as they are.

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

/// How often it is looked whether the files have changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Longest file that is read: chains have a few kilobytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Permissions of those who are neither the owner nor of the group.
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
    /// The key is no secret.
    #[error("daemon.tls_key: {path} can be read or written by every user: run chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// A file has not what it should.
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

/// Reads what the configuration names, and drops it.
///
/// # Errors
/// When a file cannot be read, has no certificate or no key, or both do not belong together; and when others
/// than owner and group may read the key.
pub fn check_tls(config: &DaemonConfig) -> Result<(), TlsError> {
    TlsFiles::from_config(config).map(drop)
}

/// The files, when they were changed last, and what was in them.
pub(crate) struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    now: Mutex<(FileStamps, Arc<ServerConfig>)>,
}

/// When both files were changed, their sizes and numbers.
type FileStamps = [Option<(SystemTime, u64, u64)>; 2];

impl TlsFiles {
    /// What the configuration says; `None` for plain HTTP.
    ///
    /// # Errors
    /// As [`check`].
    pub fn from_config(config: &DaemonConfig) -> Result<Option<Arc<TlsFiles>>, TlsError> {
        let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else { return Ok(None) };
        let changed = file_stamps(cert, key);
        let now = Mutex::new((changed, Arc::new(load_config(cert, key)?)));
        Ok(Some(Arc::new(TlsFiles { cert: cert.clone(), key: key.clone(), now })))
    }

    /// For the next connection.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.lock_current().1.clone()
    }

    /// Reads the files again if they have changed. While they are wrong what was read before stays; says so
    /// once a change.
    pub fn reload_if_changed(&self) {
        let changed = file_stamps(&self.cert, &self.key);
        if changed == self.lock_current().0 {
            return;
        }
        match load_config(&self.cert, &self.key) {
            Ok(config) => {
                *self.lock_current() = (changed, Arc::new(config));
                tracing::info!(cert = %self.cert.display(), "the certificate was read again");
            }
            Err(e) => {
                self.lock_current().0 = changed;
                tracing::error!("the certificate is not replaced: {}", error_chain(&e));
            }
        }
    }

    /// Everything is replaced at once: a thread that panicked leaves it whole.
    fn lock_current(&self) -> MutexGuard<'_, (FileStamps, Arc<ServerConfig>)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the files for as long as the daemon runs.
pub(crate) async fn watch_files(tls: Option<Arc<TlsFiles>>) {
    let Some(tls) = tls else { return std::future::pending().await };
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let tls = tls.clone();
        // A look that panicked changes nothing.
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
    let private = read_key(key)?;
    let wrong = |e: rustls::Error| TlsError::Wrong {
        key: "daemon.tls_cert",
        path: cert.to_owned(),
        what: format!("{e} (its key is {})", key.display()),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(wrong)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let key = "daemon.tls_cert";
    let wrong = |what: String| TlsError::Wrong { key, path: path.to_owned(), what };
    let (text, _) = read_file(path, key)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|e| wrong(format!("expected certificates in PEM: {e}")))?;
    match chain.is_empty() {
        true => Err(wrong("expected a certificate in PEM".to_owned())),
        false => Ok(chain),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = "daemon.tls_key";
    let (text, mode) = read_file(path, key)?;
    if mode & OTHERS_MODE != 0 {
        return Err(TlsError::Open { path: path.to_owned() });
    }
    // What the parser says could quote the file.
    let what = || "expected a private key in PEM, without a passphrase".to_owned();
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Wrong {
        key,
        path: path.to_owned(),
        what: what(),
    })
}

/// A file's bytes and permissions, both of the same file.
fn read_file(path: &Path, key: &'static str) -> Result<(Vec<u8>, u32), TlsError> {
    let failed = |source| TlsError::Read { key, path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(failed(std::io::ErrorKind::FileTooLarge.into())),
        false => Ok((bytes, mode)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use infill_testkit::certificates::{CertificateAuthority, CertificateFiles, LOCALHOST_NAMES};

    use super::*;

    fn of(CertificateFiles { cert, key }: &CertificateFiles) -> Result<Option<Arc<TlsFiles>>, String> {
        let tls_cert = Some(cert.clone());
        let tls_key = Some(key.clone());
        let config = DaemonConfig { tls_cert, tls_key, ..DaemonConfig::default() };
        TlsFiles::from_config(&config).map_err(|e| error_chain(&e))
    }

    fn allow(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_wrong_with_the_files_is_said_and_nothing_of_the_key() {
        assert!(TlsFiles::from_config(&DaemonConfig::default()).unwrap().is_none());
        let dir = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::new(dir.path());
        let one = authority.issue_certificate("one", LOCALHOST_NAMES);
        let other = authority.issue_certificate("other", LOCALHOST_NAMES);
        assert!(of(&one).unwrap().is_some());
        allow(&one.key, 0o640);
        assert!(of(&one).is_ok(), "a group may have it");
        let said = |certified: &CertificateFiles| of(certified).err().unwrap();
        for mode in [0o644, 0o602] {
            allow(&one.key, mode);
            assert!(said(&one).contains("run chmod 600"), "{mode:o}: {}", said(&one));
        }
        allow(&one.key, 0o600);
        let mixed = CertificateFiles { cert: one.cert.clone(), key: other.key };
        assert!(said(&mixed).starts_with("daemon.tls_cert: "), "{}", said(&mixed));
        let missing = CertificateFiles { cert: dir.path().join("none.pem"), key: one.key.clone() };
        assert!(said(&missing).starts_with("daemon.tls_cert: cannot read "), "{}", said(&missing));
        std::fs::write(&one.key, "hunter2").unwrap();
        let text = said(&one);
        assert!(text.contains("expected a private key in PEM") && !text.contains("hunter2"), "{text}");
        std::fs::write(&one.cert, vec![b'x'; 2 * MAX_FILE_BYTES as usize]).unwrap();
        assert!(said(&one).contains("cannot read"), "{}", said(&one));
    }

    #[test]
    fn a_renewed_certificate_is_read_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::new(dir.path());
        let files = authority.issue_certificate("one", LOCALHOST_NAMES);
        let tls = of(&files).unwrap().unwrap();
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
