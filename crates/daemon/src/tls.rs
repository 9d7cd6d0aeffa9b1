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
const LOOK: Duration = Duration::from_secs(3);

/// Longest file that is read: chains have a few kilobytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Permissions of those who are neither the owner nor of the group.
const OTHERS: u32 = 0o007;

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
pub fn check(config: &DaemonConfig) -> Result<(), TlsError> {
    Tls::of(config).map(drop)
}

/// The files, when they were changed last, and what was in them.
pub(crate) struct Tls {
    cert: PathBuf,
    key: PathBuf,
    now: Mutex<(Changed, Arc<ServerConfig>)>,
}

/// When both files were changed, their sizes and numbers.
type Changed = [Option<(SystemTime, u64, u64)>; 2];

impl Tls {
    /// What the configuration says; `None` for plain HTTP.
    ///
    /// # Errors
    /// As [`check`].
    pub fn of(config: &DaemonConfig) -> Result<Option<Arc<Tls>>, TlsError> {
        let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else { return Ok(None) };
        let changed = changed(cert, key);
        let now = Mutex::new((changed, Arc::new(load(cert, key)?)));
        Ok(Some(Arc::new(Tls { cert: cert.clone(), key: key.clone(), now })))
    }

    /// For the next connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.now().1.clone()
    }

    /// Reads the files again if they have changed. While they are wrong what was read before stays; says so
    /// once a change.
    pub fn look(&self) {
        let changed = changed(&self.cert, &self.key);
        if changed == self.now().0 {
            return;
        }
        match load(&self.cert, &self.key) {
            Ok(config) => {
                *self.now() = (changed, Arc::new(config));
                tracing::info!(cert = %self.cert.display(), "the certificate was read again");
            }
            Err(e) => {
                self.now().0 = changed;
                tracing::error!("the certificate is not replaced: {}", error_chain(&e));
            }
        }
    }

    /// Everything is replaced at once: a thread that panicked leaves it whole.
    fn now(&self) -> MutexGuard<'_, (Changed, Arc<ServerConfig>)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the files for as long as the daemon runs.
pub(crate) async fn keep(tls: Option<Arc<Tls>>) {
    let Some(tls) = tls else { return std::future::pending().await };
    loop {
        tokio::time::sleep(LOOK).await;
        let tls = tls.clone();
        // A look that panicked changes nothing.
        let _ = tokio::task::spawn_blocking(move || tls.look()).await;
    }
}

fn changed(cert: &Path, key: &Path) -> Changed {
    [cert, key].map(|path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len(), found.ino()))
    })
}

fn load(cert: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = chain_in(cert)?;
    let private = key_in(key)?;
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

fn chain_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let key = "daemon.tls_cert";
    let wrong = |what: String| TlsError::Wrong { key, path: path.to_owned(), what };
    let (text, _) = read(path, key)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|e| wrong(format!("expected certificates in PEM: {e}")))?;
    match chain.is_empty() {
        true => Err(wrong("expected a certificate in PEM".to_owned())),
        false => Ok(chain),
    }
}

fn key_in(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = "daemon.tls_key";
    let (text, mode) = read(path, key)?;
    if mode & OTHERS != 0 {
        return Err(TlsError::Open { path: path.to_owned() });
    }
    // What the parser says could quote the file.
    let what = || "expected a private key in PEM, without a passphrase".to_owned();
    let wrong = |_| TlsError::Wrong { key, path: path.to_owned(), what: what() };
    PrivateKeyDer::from_pem_slice(&text).map_err(wrong)
}

/// A file's bytes and permissions, both of the same file.
fn read(path: &Path, key: &'static str) -> Result<(Vec<u8>, u32), TlsError> {
    let failed = |source| TlsError::Read { key, path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(failed(std::io::ErrorKind::FileTooLarge.into())),
        false => Ok((bytes, mode)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use infill_testkit::certificates::{Authority, Certified, HERE};

    use super::*;

    fn of(Certified { cert, key }: &Certified) -> Result<Option<Arc<Tls>>, String> {
        let (tls_cert, tls_key) = (Some(cert.clone()), Some(key.clone()));
        let config = DaemonConfig { tls_cert, tls_key, ..DaemonConfig::default() };
        Tls::of(&config).map_err(|e| error_chain(&e))
    }

    fn allow(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_wrong_with_the_files_is_said_and_nothing_of_the_key() {
        assert!(Tls::of(&DaemonConfig::default()).unwrap().is_none());
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path());
        let (one, other) = (authority.certify("one", HERE), authority.certify("other", HERE));
        assert!(of(&one).unwrap().is_some());
        allow(&one.key, 0o640);
        assert!(of(&one).is_ok(), "a group may have it");
        let said = |certified: &Certified| of(certified).err().unwrap();
        for mode in [0o644, 0o602] {
            allow(&one.key, mode);
            assert!(said(&one).contains("run chmod 600"), "{mode:o}: {}", said(&one));
        }
        allow(&one.key, 0o600);
        let mixed = Certified { cert: one.cert.clone(), key: other.key };
        assert!(said(&mixed).starts_with("daemon.tls_cert: "), "{}", said(&mixed));
        let missing = Certified { cert: dir.path().join("none.pem"), key: one.key.clone() };
        assert!(said(&missing).starts_with("daemon.tls_cert: cannot read "), "{}", said(&missing));
        std::fs::write(&one.key, "hunter2").unwrap();
        let text = said(&one);
        assert!(text.contains("expected a private key in PEM") && !text.contains("hunter2"), "{text}");
        std::fs::write(&one.cert, vec![b'x'; 2 * MAX_BYTES as usize]).unwrap();
        assert!(said(&one).contains("cannot read"), "{}", said(&one));
    }

    #[test]
    fn a_renewed_certificate_is_read_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path());
        let files = authority.certify("one", HERE);
        let tls = of(&files).unwrap().unwrap();
        let first = tls.current();
        tls.look();
        assert!(Arc::ptr_eq(&first, &tls.current()), "nothing has changed");
        let renewed = authority.certify("renewed", HERE);
        std::fs::rename(&renewed.cert, &files.cert).unwrap();
        tls.look();
        assert!(Arc::ptr_eq(&first, &tls.current()), "its key has not come yet");
        std::fs::rename(&renewed.key, &files.key).unwrap();
        tls.look();
        let second = tls.current();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(&files.cert, "").unwrap();
        tls.look();
        assert!(Arc::ptr_eq(&second, &tls.current()), "what was read before stays");
    }
}
