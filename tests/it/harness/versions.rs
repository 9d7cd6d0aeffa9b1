//! The program of the version before, and what an upgrade of the package does: a new file takes the old
//! one's name.

use std::path::{Path, PathBuf};

use infill_testkit::skips::skip_test;

use super::Site;

/// Names the program of the version before. `tests/run.sh --all` builds it from the commit that
/// `tests/neighbour.txt` names.
const OLD_BIN: &str = "INFILL_OLD_BIN";

/// Where the cluster then has its program, as seen inside.
const INSTALLED: &str = "/scratch/bin/infill";

/// Which of the two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The one before.
    Older,
    /// The one under test.
    Present,
}

/// A cluster whose program is replaced.
#[derive(Debug)]
pub struct Versions<'s> {
    site: &'s Site,
    older: PathBuf,
}

/// The program of the version before; skips the test where there is none.
pub fn older() -> Option<PathBuf> {
    let path = std::env::var_os(OLD_BIN).filter(|path| !path.is_empty()).map(PathBuf::from);
    if path.is_none() {
        skip_test(&format!("{OLD_BIN} does not name the program of the version before"));
    }
    path
}

impl<'s> Versions<'s> {
    /// Gives the cluster this version, in a file of its own. The cluster gets its usual program back in the
    /// end.
    pub fn of(site: &'s Site, older: PathBuf, first: Version) -> Versions<'s> {
        let versions = Versions { site, older };
        std::fs::create_dir_all(site.scratch().join("bin")).expect("cannot make a folder in /scratch");
        versions.install(first);
        site.must("root", &["ln", "-sfn", INSTALLED, "/usr/local/bin/infill"]);
        versions
    }

    /// Replaces the program as packages do. What runs goes on running the file that it was started from.
    pub fn install(&self, version: Version) {
        let program = match version {
            Version::Older => self.older.as_path(),
            Version::Present => Path::new(env!("CARGO_BIN_EXE_infill")),
        };
        let new = self.site.scratch().join("bin/new");
        // They are large: a link is enough, where both are on one file system.
        let made = std::fs::hard_link(program, &new).or_else(|_| std::fs::copy(program, &new).map(|_| ()));
        made.unwrap_or_else(|e| panic!("{} as {}: {e}", program.display(), new.display()));
        std::fs::rename(&new, self.site.scratch().join("bin/infill")).expect("cannot replace the program");
    }

    /// Stops the daemon, replaces the program, and starts the daemon.
    pub fn upgrade_daemon(&self, version: Version) {
        assert_eq!(self.site.stop_daemon(), Some(0), "the daemon stops when it is told to");
        self.install(version);
        self.site.start();
    }
}

impl Drop for Versions<'_> {
    fn drop(&mut self) {
        let usual = ["ln", "-sfn", "/opt/infill-bin/infill", "/usr/local/bin/infill"];
        self.site.exec("root", &usual);
    }
}
