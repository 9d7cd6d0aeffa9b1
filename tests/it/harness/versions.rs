//! The previous version of the program, and the effect of upgrading the package: a new file takes the old
//! one's name.

use std::path::{Path, PathBuf};

use infill_testkit::skips::skip_test;

use super::Site;

/// Names the previous version of the program. `tests/run.sh --all` builds it from the commit in
/// `tests/neighbour.txt`.
const OLD_BIN: &str = "INFILL_OLD_BIN";

/// The path of the cluster's program inside the cluster.
const INSTALLED: &str = "/scratch/bin/infill";

/// One of the two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The previous one.
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

/// The previous version of the program. Skips the test where there is none.
pub fn older() -> Option<PathBuf> {
    let path = std::env::var_os(OLD_BIN).filter(|path| !path.is_empty()).map(PathBuf::from);
    if path.is_none() {
        skip_test(&format!("{OLD_BIN} does not name the program of the version before"));
    }
    path
}

impl<'s> Versions<'s> {
    /// Gives the cluster this version, in a separate file. In the end the cluster gets its usual program
    /// back.
    pub fn of(site: &'s Site, older: PathBuf, first: Version) -> Versions<'s> {
        let versions = Versions { site, older };
        std::fs::create_dir_all(site.scratch().join("bin")).expect("cannot make a folder in /scratch");
        versions.install(first);
        site.must("root", &["ln", "-sfn", INSTALLED, "/usr/local/bin/infill"]);
        versions
    }

    /// Replaces the program as packages do. Running processes keep the file from which they were started.
    pub fn install(&self, version: Version) {
        let program = match version {
            Version::Older => self.older.as_path(),
            Version::Present => Path::new(env!("CARGO_BIN_EXE_infill")),
        };
        let new = self.site.scratch().join("bin/new");
        // The files are large. A link is enough if both are on one file system.
        let made = std::fs::hard_link(program, &new).or_else(|_| std::fs::copy(program, &new).map(|_| ()));
        made.unwrap_or_else(|e| panic!("{} as {}: {e}", program.display(), new.display()));
        std::fs::rename(&new, self.site.scratch().join("bin/infill")).expect("cannot replace the program");
    }

    /// Stops the daemon, replaces the program, and starts the daemon.
    pub fn upgrade_daemon(&self, version: Version) {
        assert_eq!(self.site.stop_daemon(), Some(0), "the daemon stops on request");
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
