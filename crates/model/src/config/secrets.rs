//! Secrets in their own files, which only the daemon's user can read, so that everybody may read the rest of
//! the configuration. Files of systemd's `LoadCredential=` also work, by their path.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::ConfigError;

/// Size limit of a secret, in bytes.
const MOST_BYTES: u64 = 4096;

/// Mode bits of users who neither own the file nor are in its group.
const OTHER_USERS_MODE: u32 = 0o007;

/// A file that holds a secret, with the key that names it.
struct SecretFile<'a> {
    key: &'static str,
    path: &'a Path,
}

impl SecretFile<'_> {
    fn unreadable(&self, source: std::io::Error) -> ConfigError {
        ConfigError::SecretUnreadable { key: self.key, path: self.path.to_owned(), source }
    }

    fn wrong(&self, what: &'static str) -> ConfigError {
        ConfigError::Secret { key: self.key, path: self.path.to_owned(), what }
    }
}

/// Reads the only line of a file that other users cannot read.
///
/// # Errors
/// If the path is not a readable file, or other users may read or write it. Also if it does not have one line
/// of at most [`MOST_BYTES`].
pub(super) fn read_secret(key: &'static str, path: &Path) -> Result<String, ConfigError> {
    let secret = SecretFile { key, path };
    // Opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(|e| secret.unreadable(e))?;
    if !metadata.is_file() {
        return Err(secret.wrong("expected a file"));
    }
    let file = std::fs::OpenOptions::new().read(true).open(path).map_err(|e| secret.unreadable(e))?;
    let metadata = file.metadata().map_err(|e| secret.unreadable(e))?;
    if metadata.permissions().mode() & OTHER_USERS_MODE != 0 {
        return Err(
            secret.wrong("others may read or write it: expected mode 0600, or 0640 with the daemon's group")
        );
    }
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|e| secret.unreadable(e))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(secret.wrong("expected at most 4096 bytes"));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match line {
        "" => Err(secret.wrong("it is empty")),
        line if line.contains(['\n', '\0']) => Err(secret.wrong("expected one line")),
        line => Ok(line.to_owned()),
    }
}

/// Returns a path for a message if it is set and not absolute.
pub(super) fn not_absolute(path: &Path) -> Option<String> {
    let is_set = !path.as_os_str().is_empty();
    if is_set && !path.is_absolute() { Some(format!("{:?}", PathBuf::from(path))) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NotifyConfig, StoreConfig};

    /// A folder that is removed when the test ends.
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

    fn write_file(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_password_is_read_from_its_file_and_encoded_in_the_url() {
        let dir = Folder::new("password");
        let password_file = write_file(dir.path(), "password", "p@ss/w? &\u{e4}\n", 0o640);
        let with_password = |database_url: &str| {
            let database_url = database_url.to_owned();
            StoreConfig { database_url, password_file: password_file.clone(), ..StoreConfig::default() }
                .connection_url()
        };
        let encoded = "p%40ss%2Fw%3F%20%26%C3%A4";
        assert_eq!(
            with_password("postgres://infill@db/infill").unwrap(),
            format!("postgres://infill@db/infill?password={encoded}")
        );
        let socket = "postgres:///infill?host=/run/postgresql";
        assert_eq!(with_password(socket).unwrap(), format!("{socket}&password={encoded}"));
        let plain = StoreConfig { database_url: socket.to_owned(), ..StoreConfig::default() };
        assert_eq!(plain.connection_url().unwrap(), socket, "without a file the URL stays as it is");
    }

    #[test]
    fn a_secret_that_others_may_read_or_that_is_invalid_is_refused_and_not_shown() {
        let dir = Folder::new("refused");
        let refusal_of = |path: PathBuf| {
            let config = StoreConfig { password_file: path, ..StoreConfig::default() };
            let text = crate::error_causes::error_chain(&config.connection_url().unwrap_err());
            assert!(!text.contains("hunter2"), "{text}");
            text.replace(&dir.path().display().to_string(), "DIR")
        };
        let cases = [
            write_file(dir.path(), "open", "hunter2", 0o644),
            write_file(dir.path(), "writable", "hunter2", 0o602),
            write_file(dir.path(), "empty", "\n", 0o600),
            write_file(dir.path(), "lines", "hunter2\nhunter2\n", 0o600),
            write_file(dir.path(), "long", &"hunter2".repeat(1000), 0o600),
            dir.path().to_owned(),
            dir.path().join("none"),
        ];
        insta::assert_snapshot!(cases.map(refusal_of).join("\n"), @"
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
    fn a_url_is_read_from_its_file() {
        let dir = Folder::new("address");
        let read_url = |text: &str, mode| {
            let url_file = write_file(dir.path(), "url", text, mode);
            NotifyConfig { url_file, ..NotifyConfig::default() }.notice_url()
        };
        assert_eq!(
            read_url("https://hooks.example/T0/hunter2\n", 0o400).unwrap(),
            "https://hooks.example/T0/hunter2"
        );
        let refused = read_url("ftp://hooks.example/hunter2\n", 0o400).unwrap_err().to_string();
        assert!(
            refused.contains("expected http://… or https://…") && !refused.contains("hunter2"),
            "{refused}"
        );
        assert!(read_url("https://hooks.example/T0/hunter2\n", 0o644).is_err());
    }
}
