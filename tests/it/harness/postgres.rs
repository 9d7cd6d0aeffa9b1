//! A separate PostgreSQL server in a given directory. It is reached only by a Unix socket, and ends when
//! dropped.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Seconds until a server must accept connections, and until it must have ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// The user `nobody`, who runs the server, because PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;

/// A server that runs, or is stopped for a while.
#[derive(Debug)]
pub struct Postgres {
    dir: PathBuf,
    child: Option<Child>,
}

impl Postgres {
    /// Makes a database cluster in the empty directory `dir`, which others may see under another path, and
    /// starts its server. The superuser is called `infill`.
    pub fn start(dir: &Path) -> Postgres {
        std::fs::create_dir_all(dir).expect("cannot make PostgreSQL's directory");
        if is_root() {
            chown(dir, Some(NOBODY), Some(NOBODY)).expect("cannot give PostgreSQL its directory");
        }
        let mut server = Postgres { dir: dir.to_owned(), child: None };
        let made = server
            .program("initdb")
            .args(["--username=infill", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"])
            .arg(dir.join("data"))
            .output()
            .expect("cannot run initdb");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.revive();
        server
    }

    /// The URL of its database, for a client that sees its directory as `dir`.
    pub fn url(&self, dir: &str) -> String {
        format!("postgres:///postgres?host={dir}&user=infill")
    }

    /// Starts the server again.
    pub fn revive(&mut self) {
        assert!(self.child.is_none(), "PostgreSQL runs already");
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("log"));
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.dir.join("data")).arg("-k").arg(&self.dir);
        command.args(["-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "max_connections=40"]);
        command.stderr(log.expect("cannot make PostgreSQL's log"));
        // SAFETY: prctl is async-signal-safe and only marks the child, which is to end with the thread that
        // began it.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        self.child = Some(command.spawn().expect("cannot start PostgreSQL"));
        let end = Instant::now() + PATIENCE;
        while !self.answers() {
            assert!(Instant::now() < end, "PostgreSQL does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn answers(&self) -> bool {
        self.psql("").output().is_ok_and(|o| o.status.success())
    }

    /// The output of one SQL statement.
    pub fn ask(&self, sql: &str) -> String {
        let output = self.psql(sql).stdout(Stdio::piped()).output().expect("cannot run psql");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn psql(&self, sql: &str) -> Command {
        let mut command = self.program("psql");
        command.args(["-qAt", "-U", "infill", "-d", "postgres", "-c", sql, "-h"]).arg(&self.dir);
        command
    }

    /// Ends the server as a crash would, with all its connections.
    pub fn crash(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        signal(&child, libc::SIGQUIT);
        let end = Instant::now() + PATIENCE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// A program of PostgreSQL, to be run as a permitted user.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(binary(name));
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.crash();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: kill only takes numbers; the child is ours and has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

fn binary(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| {
        panic!(
            "these tests start a PostgreSQL server and find no {name}: install Debian's package postgresql"
        )
    })
}

/// Where Debian keeps the programs of a server. Elsewhere they are in PATH.
fn find(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|v| v.path().join("bin").join(name)).filter(|p| p.exists()).max();
    let path = std::env::var_os("PATH").unwrap_or_default();
    newest.or_else(|| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.exists()))
}
