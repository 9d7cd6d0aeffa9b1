//! The agent's private directory on its node: the progress socket, the notes on wings, and how the agent
//! ended.
//!
//! Its usual name can be taken by anybody first, as every name in /tmp. So nobody guesses it: whoever needs
//! the place is told.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::place::Place;

/// Longest path of the directory. A Unix socket's path has at most 107 bytes, and ours adds a file name.
const MAX_PATH_BYTES: usize = 90;

/// Where it may be, if `$TMPDIR` does not do: a job brings its own to nodes on which nobody made it.
const BASES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Names with random endings that are tried in one place. Nobody can take such a name first; a second is for
/// chance.
const MOST_NAMES: usize = 3;

/// Bytes of a random ending: it need not be secret, only new.
const ENDING_BYTES: usize = 6;

/// The progress socket, which the agent opens when it begins.
const SOCKET: &str = "progress";

/// The socket at which the command's processes talk with the agent.
const CONTROL: &str = "control";

/// What the agent writes when it ends.
const END: &str = "ended";

/// How an agent ended, as far as its batch script has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is done, or failed.
    Done,
    /// It left because its node is wanted, or the job's time is up.
    Left,
}

/// How far an agent came, as far as its batch script has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It never began.
    None,
    /// It began and noted no end: while it does not run, it died.
    Began,
    /// It came to an end of its own.
    Ended,
}

/// A directory that only this user may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// Makes it, under its usual name if possible. One that is there already is used again if it is ours
    /// alone.
    pub fn make(place: &Place) -> io::Result<Home> {
        let mut bases = vec![std::env::temp_dir()];
        bases.extend(BASES.map(PathBuf::from));
        let made = make_in(&bases, &usual_name(place))?;
        if !made.starts_with(&bases[0]) {
            tracing::warn!(dir = %made.display(), "no place for our directory in TMPDIR: it is elsewhere");
        }
        Ok(Home(made))
    }

    /// The one that whoever started us has made, if we can use it here.
    pub fn given(path: &Path) -> Option<Home> {
        is_ours(path).then(|| Home(path.to_owned()))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The progress socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join(SOCKET)
    }

    /// The socket at which the command's processes talk with the agent.
    pub fn control(&self) -> PathBuf {
        self.0.join(CONTROL)
    }

    /// The notes on wings.
    pub fn notes(&self) -> PathBuf {
        self.0.join("wings")
    }

    /// Forgets how an agent before ended here.
    pub fn begin(&self) {
        for name in [SOCKET, CONTROL, END] {
            // What cannot be removed was not there.
            std::fs::remove_file(self.0.join(name)).ok();
        }
    }

    /// Notes how the agent ended.
    pub fn note_end(&self, end: End) {
        let word = if end == End::Left { "left" } else { "done" };
        if let Err(error) = std::fs::write(self.0.join(END), word) {
            tracing::debug!(dir = %self.0.display(), %error, "cannot note the end");
        }
    }

    /// How the agent ended; `None` if it noted nothing.
    pub fn end(&self) -> Option<End> {
        let word = std::fs::read_to_string(self.0.join(END)).ok()?;
        Some(if word == "left" { End::Left } else { End::Done })
    }

    /// How far the last agent came here.
    pub fn life(&self) -> Life {
        match self.end() {
            Some(_) => Life::Ended,
            None if self.socket().exists() => Life::Began,
            None => Life::None,
        }
    }

    /// After the end nothing in it is wanted.
    pub fn remove(self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(dir = %self.0.display(), %error, "cannot remove the private directory");
        }
    }
}

fn usual_name(place: &Place) -> String {
    format!("infill-{}-{}.{}", user(), place.job, place.node)
}

/// Our user id.
pub(crate) fn user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes the directory in the first of these places that allows it. The error names all that was tried.
fn make_in(bases: &[PathBuf], name: &str) -> io::Result<PathBuf> {
    let mut tried = Vec::new();
    for base in bases {
        match make_at(&base.join(name)) {
            Ok(path) => return Ok(path),
            Err(error) => tried.push(format!("{}: {error}", base.display())),
        }
    }
    Err(io::Error::other(format!("no place for a private directory: {}", tried.join("; "))))
}

fn make_at(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().len() > MAX_PATH_BYTES - 2 * ENDING_BYTES - 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a socket"));
    }
    match create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_ours(path) => return Ok(path.to_owned()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|()| path.to_owned()),
    }
    tracing::warn!(dir = %path.display(), "this is no private directory of ours: taking another name");
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MOST_NAMES {
        let other = with_ending(path)?;
        match create(&other) {
            Ok(()) => return Ok(other),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn create(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

fn is_ours(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == user() && found.permissions().mode() & 0o077 == 0)
}

/// The path with a random ending.
fn with_ending(path: &Path) -> io::Result<PathBuf> {
    let mut bytes = [0u8; ENDING_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    Ok(PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "infill-7-100.n1";

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_usual_name_and_again_the_same() {
        let base = tempfile::tempdir().unwrap();
        let bases = [base.path().to_owned()];
        let first = make_in(&bases, NAME).unwrap();
        assert_eq!((first.clone(), mode(&first)), (base.path().join(NAME), 0o700));
        assert_eq!(make_in(&bases, NAME).unwrap(), first);
    }

    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let takes: [fn(&Path); 3] = [
            |path| {
                std::fs::create_dir(path).unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
            },
            |path| std::fs::write(path, "mine").unwrap(),
            |path| std::os::unix::fs::symlink("/", path).unwrap(),
        ];
        for take in takes {
            let base = tempfile::tempdir().unwrap();
            take(&base.path().join(NAME));
            let made = make_in(&[base.path().to_owned()], NAME).unwrap();
            let text = made.display().to_string();
            assert!(text.starts_with(&format!("{}.", base.path().join(NAME).display())), "{text}");
            assert_eq!((mode(&made), made.parent()), (0o700, Some(base.path())));
        }
    }

    #[test]
    fn a_tmpdir_that_is_not_there_or_too_deep() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("d".repeat(MAX_PATH_BYTES));
        std::fs::create_dir(&deep).unwrap();
        let bases = [PathBuf::from("/no/such/place"), deep, base.path().to_owned()];
        assert_eq!(make_in(&bases, NAME).unwrap(), base.path().join(NAME));
        let error = make_in(&bases[..2], NAME).unwrap_err().to_string();
        assert!(error.contains("/no/such/place: ") && error.contains("too long"), "{error}");
    }

    #[test]
    fn how_an_agent_ended_is_seen_from_outside() {
        let base = tempfile::tempdir().unwrap();
        let home = Home(make_in(&[base.path().to_owned()], NAME).unwrap());
        assert_eq!((home.end(), home.life()), (None, Life::None));
        std::fs::write(home.socket(), "").unwrap();
        assert_eq!(home.life(), Life::Began);
        home.note_end(End::Left);
        assert_eq!((home.end(), home.life()), (Some(End::Left), Life::Ended));
        home.note_end(End::Done);
        assert_eq!(home.end(), Some(End::Done));
        home.begin();
        assert_eq!((home.end(), home.life()), (None, Life::None));
        assert_eq!(Home::given(home.path()), Some(home.clone()));
        assert_eq!(Home::given(base.path().join("none").as_path()), None);
        home.remove();
        assert!(!base.path().join(NAME).exists());
    }
}
