//! Secrets in files of their own, which only the daemon's user can read, so that everybody may read the rest
//! of the configuration. systemd's `LoadCredential=` gives such files, too: name them by their path.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::ConfigError;

/// Longest secret, bytes.
const MOST_BYTES: u64 = 4096;

/// Rights of those who are neither the file's owner nor in its group.
const OTHER_USERS_MODE: u32 = 0o007;

/// The one line of a file that nobody else can read.
pub(super) fn read_secret(key: &'static str, path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::SecretUnreadable { key, path: path.to_owned(), source };
    let wrong = |what| ConfigError::Secret { key, path: path.to_owned(), what };
    // Whatever waits for a writer is no file.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(wrong("expected a file"));
    }
    let file = std::fs::OpenOptions::new().read(true).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & OTHER_USERS_MODE != 0 {
        return Err(wrong(
            "others may read or write it: expected mode 0600, or 0640 with the daemon's group",
        ));
    }
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(wrong("expected at most 4096 bytes"));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match line {
        "" => Err(wrong("it is empty")),
        line if line.contains(['\n', '\0']) => Err(wrong("expected one line")),
        line => Ok(line.to_owned()),
    }
}

/// Whether a path that must be absolute is not, as it is shown.
pub(super) fn not_absolute(path: &Path) -> Option<String> {
    (!path.as_os_str().is_empty() && !path.is_absolute()).then(|| format!("{:?}", PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NotifyConfig, StoreConfig};

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("infill-secrets-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn written(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_password_comes_from_its_file_and_into_the_url_as_it_is() {
        let dir = Folder::new("password");
        let password_file = written(dir.path(), "password", "p@ss/w? &\u{e4}\n", 0o640);
        let url = |database_url: &str| {
            let database_url = database_url.to_owned();
            StoreConfig { database_url, password_file: password_file.clone(), ..StoreConfig::default() }
                .connection_url()
        };
        let encoded = "p%40ss%2Fw%3F%20%26%C3%A4";
        assert_eq!(
            url("postgres://infill@db/infill").unwrap(),
            format!("postgres://infill@db/infill?password={encoded}")
        );
        let socket = "postgres:///infill?host=/run/postgresql";
        assert_eq!(url(socket).unwrap(), format!("{socket}&password={encoded}"));
        let plain = StoreConfig { database_url: socket.to_owned(), ..StoreConfig::default() };
        assert_eq!(plain.connection_url().unwrap(), socket, "without a file it stays as it is");
    }

    #[test]
    fn a_secret_that_others_may_read_or_that_is_none_is_refused_and_not_shown() {
        let dir = Folder::new("refused");
        let refused = |path: PathBuf| {
            let config = StoreConfig { password_file: path, ..StoreConfig::default() };
            let text = crate::error_causes::error_chain(&config.connection_url().unwrap_err());
            assert!(!text.contains("hunter2"), "{text}");
            text.replace(&dir.path().display().to_string(), "DIR")
        };
        let cases = [
            written(dir.path(), "open", "hunter2", 0o644),
            written(dir.path(), "writable", "hunter2", 0o602),
            written(dir.path(), "empty", "\n", 0o600),
            written(dir.path(), "lines", "hunter2\nhunter2\n", 0o600),
            written(dir.path(), "long", &"hunter2".repeat(1000), 0o600),
            dir.path().to_owned(),
            dir.path().join("none"),
        ];
        insta::assert_snapshot!(cases.map(refused).join("\n"), @"
        store.password_file: DIR/open: others may read or write it: expected mode 0600, or 0640 with the daemon's group
        store.password_file: DIR/writable: others may read or write it: expected mode 0600, or 0640 with the daemon's group
        store.password_file: DIR/empty: it is empty
        store.password_file: DIR/lines: expected one line
        store.password_file: DIR/long: expected at most 4096 bytes
        store.password_file: DIR: expected a file
        store.password_file: cannot read DIR/none: No such file or directory (os error 2)
        ");
    }

    #[test]
    fn an_address_comes_from_its_file() {
        let dir = Folder::new("address");
        let address = |text: &str, mode| {
            let url_file = written(dir.path(), "url", text, mode);
            NotifyConfig { url_file, ..NotifyConfig::default() }.notice_url()
        };
        assert_eq!(
            address("https://hooks.example/T0/hunter2\n", 0o400).unwrap(),
            "https://hooks.example/T0/hunter2"
        );
        let refused = address("ftp://hooks.example/hunter2\n", 0o400).unwrap_err().to_string();
        assert!(
            refused.contains("expected http://… or https://…") && !refused.contains("hunter2"),
            "{refused}"
        );
        assert!(address("https://hooks.example/T0/hunter2\n", 0o644).is_err());
    }
}
