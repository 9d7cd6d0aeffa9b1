//! The agent's private directory on its node. It contains the sockets for the command, the notes on wings,
//! and a file that says how the agent ended.
//!
//! As with every name in /tmp, someone else can take its usual name first. So no program guesses the path:
//! each one that needs it gets it as an argument or a variable.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::slurm_context::SlurmContext;

/// Longest path of the directory. A Unix socket's path has at most 107 bytes, and ours adds a file name.
const MAX_PATH_BYTES: usize = 90;

/// Where it may be if `$TMPDIR` cannot be used. A job brings that variable to nodes on which the directory
/// may not exist.
const BASE_DIRS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// How many names with random endings are tried in one place. No one can take such a name on purpose; further
/// tries are for a name that exists by chance.
const MAX_NAME_TRIES: usize = 3;

/// Bytes of a random ending. It need not be secret, only new.
const ENDING_BYTES: usize = 6;

/// File name of the progress socket, which the agent opens when it starts.
const PROGRESS_SOCKET: &str = "progress";

/// File name of the socket at which the command's processes talk with the agent.
const CONTROL_SOCKET: &str = "control";

/// Name of the file that the agent writes when it ends.
const END_FILE: &str = "ended";

/// How an agent ended, as far as its batch script has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentEnd {
    /// It has finished or failed.
    Done,
    /// It left because its node is wanted, or the job's time is up.
    Left,
}

/// How far an agent came, as far as its batch script has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentPhase {
    /// It never started.
    None,
    /// It started and recorded no end. If it does not run, it died.
    Began,
    /// It ended by itself.
    Ended,
}

/// A directory that only this user may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeDir(PathBuf);

impl RuntimeDir {
    /// Makes the directory, under its usual name if possible. An existing one is used again if it is ours
    /// alone.
    ///
    /// # Errors
    /// When it can be made nowhere.
    pub fn create_for(context: &SlurmContext) -> io::Result<RuntimeDir> {
        let mut bases = vec![std::env::temp_dir()];
        bases.extend(BASE_DIRS.map(PathBuf::from));
        let made = create_in_first(&bases, &usual_name(context))?;
        if !made.starts_with(&bases[0]) {
            tracing::warn!(dir = %made.display(), "cannot make our directory in TMPDIR: using another place");
        }
        Ok(RuntimeDir(made))
    }

    /// The directory that the program which started us has made, if we can use it here.
    pub fn open_given(path: &Path) -> Option<RuntimeDir> {
        is_private_dir(path).then(|| RuntimeDir(path.to_owned()))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of the progress socket.
    pub fn progress_socket(&self) -> PathBuf {
        self.0.join(PROGRESS_SOCKET)
    }

    /// Path of the socket at which the command's processes talk with the agent.
    pub fn control_socket(&self) -> PathBuf {
        self.0.join(CONTROL_SOCKET)
    }

    /// Path of the file with the notes on wings.
    pub fn wing_notes(&self) -> PathBuf {
        self.0.join("wings")
    }

    /// Removes the sockets and the recorded end of an earlier agent.
    pub fn clear_previous_run(&self) {
        for name in [PROGRESS_SOCKET, CONTROL_SOCKET, END_FILE] {
            // A file that cannot be removed did not exist.
            std::fs::remove_file(self.0.join(name)).ok();
        }
    }

    /// Records how the agent ended.
    pub fn record_end(&self, end: AgentEnd) {
        let word = if end == AgentEnd::Left { "left" } else { "done" };
        if let Err(error) = std::fs::write(self.0.join(END_FILE), word) {
            tracing::debug!(dir = %self.0.display(), %error, "cannot record the agent's end");
        }
    }

    /// How the agent ended; `None` if it recorded nothing.
    pub fn recorded_end(&self) -> Option<AgentEnd> {
        let word = std::fs::read_to_string(self.0.join(END_FILE)).ok()?;
        Some(if word == "left" { AgentEnd::Left } else { AgentEnd::Done })
    }

    /// How far the last agent came here.
    pub fn agent_phase(&self) -> AgentPhase {
        match self.recorded_end() {
            Some(_) => AgentPhase::Ended,
            None if self.progress_socket().exists() => AgentPhase::Began,
            None => AgentPhase::None,
        }
    }

    /// Removes the directory and its contents, which are not needed after the end.
    pub fn remove(self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(dir = %self.0.display(), %error, "cannot remove the private directory");
        }
    }
}

fn usual_name(context: &SlurmContext) -> String {
    format!("infill-{}-{}.{}", own_uid(), context.job, context.node)
}

/// Our user id.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes the directory in the first of these places that allows it.
///
/// # Errors
/// When none does. The text names all places with their errors.
fn create_in_first(bases: &[PathBuf], name: &str) -> io::Result<PathBuf> {
    let mut tried = Vec::new();
    for base in bases {
        match create_at(&base.join(name)) {
            Ok(path) => return Ok(path),
            Err(error) => tried.push(format!("{}: {error}", base.display())),
        }
    }
    Err(io::Error::other(format!("no place for a private directory: {}", tried.join("; "))))
}

fn create_at(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().len() > MAX_PATH_BYTES - 2 * ENDING_BYTES - 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a socket"));
    }
    match create_private_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_private_dir(path) => {
            return Ok(path.to_owned());
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|()| path.to_owned()),
    }
    tracing::warn!(dir = %path.display(), "this is not a private directory of ours: taking another name");
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MAX_NAME_TRIES {
        let other = with_random_suffix(path)?;
        match create_private_dir(&other) {
            Ok(()) => return Ok(other),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

fn is_private_dir(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| {
        found.is_dir() && found.uid() == own_uid() && found.permissions().mode() & 0o077 == 0
    })
}

/// Appends a random ending to the path.
fn with_random_suffix(path: &Path) -> io::Result<PathBuf> {
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
    fn the_directory_has_its_usual_name_and_is_used_again() {
        let base = tempfile::tempdir().unwrap();
        let bases = [base.path().to_owned()];
        let first = create_in_first(&bases, NAME).unwrap();
        assert_eq!((first.clone(), mode(&first)), (base.path().join(NAME), 0o700));
        assert_eq!(create_in_first(&bases, NAME).unwrap(), first);
    }

    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let take_the_name: [fn(&Path); 3] = [
            |path| {
                std::fs::create_dir(path).unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
            },
            |path| std::fs::write(path, "mine").unwrap(),
            |path| std::os::unix::fs::symlink("/", path).unwrap(),
        ];
        for take in take_the_name {
            let base = tempfile::tempdir().unwrap();
            take(&base.path().join(NAME));
            let made = create_in_first(&[base.path().to_owned()], NAME).unwrap();
            let text = made.display().to_string();
            assert!(text.starts_with(&format!("{}.", base.path().join(NAME).display())), "{text}");
            assert_eq!((mode(&made), made.parent()), (0o700, Some(base.path())));
        }
    }

    #[test]
    fn a_tmpdir_that_is_missing_or_too_deep_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("d".repeat(MAX_PATH_BYTES));
        std::fs::create_dir(&deep).unwrap();
        let bases = [PathBuf::from("/no/such/place"), deep, base.path().to_owned()];
        assert_eq!(create_in_first(&bases, NAME).unwrap(), base.path().join(NAME));
        let error = create_in_first(&bases[..2], NAME).unwrap_err().to_string();
        assert!(error.contains("/no/such/place: ") && error.contains("too long"), "{error}");
    }

    #[test]
    fn the_directory_shows_how_far_an_agent_came() {
        let base = tempfile::tempdir().unwrap();
        let home = RuntimeDir(create_in_first(&[base.path().to_owned()], NAME).unwrap());
        assert_eq!((home.recorded_end(), home.agent_phase()), (None, AgentPhase::None));
        std::fs::write(home.progress_socket(), "").unwrap();
        assert_eq!(home.agent_phase(), AgentPhase::Began);
        home.record_end(AgentEnd::Left);
        assert_eq!((home.recorded_end(), home.agent_phase()), (Some(AgentEnd::Left), AgentPhase::Ended));
        home.record_end(AgentEnd::Done);
        assert_eq!(home.recorded_end(), Some(AgentEnd::Done));
        home.clear_previous_run();
        assert_eq!((home.recorded_end(), home.agent_phase()), (None, AgentPhase::None));
        assert_eq!(RuntimeDir::open_given(home.path()), Some(home.clone()));
        assert_eq!(RuntimeDir::open_given(base.path().join("none").as_path()), None);
        home.remove();
        assert!(!base.path().join(NAME).exists());
    }
}
