//! How `infill observe` reads Slurm: through a slurmrestd, or through Slurm's commands.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tokio::process::{Child, Command};

use super::ObserveArgs;
use infill_model::{Snapshot, config::SlurmConfig};
use infill_present::output;
use infill_slurm::{CommandSlurm, RestSlurm, SlurmApi as _, SlurmCommands};

/// Time for the private slurmrestd to open its socket.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Shortest time for one of Slurm's commands. They wait for a slurmctld that is busy.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Where Debian and EL install daemons. Many users do not have these in their PATH.
const DAEMON_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// A partition that no site has: no job is malleable here.
const NO_PARTITION: &str = "infill-observe/none";

/// The help when neither way works.
const NEITHER_WAY: &str = "Install Slurm's package slurmrestd, or its client commands with their JSON plugin \
     (serializer_json.so; Debian: slurm-client and slurm-wlm-basic-plugins). Or name a running slurmrestd with --rest";

/// How Slurm is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReadWay {
    /// Through a slurmrestd.
    Rest,
    /// Through scontrol and sdiag.
    Commands,
}

impl ReadWay {
    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            ReadWay::Rest => "rest",
            ReadWay::Commands => "commands",
        }
    }
}

/// Reads Slurm in one of these ways.
pub enum SlurmReader {
    /// Through a slurmrestd.
    Rest(Box<RestReader>),
    /// Through Slurm's commands.
    Commands(Box<CommandSlurm>),
}

/// A slurmrestd, and the process that was started for it.
pub struct RestReader {
    slurm: RestSlurm,
    _private: Option<PrivateRest>,
}

impl SlurmReader {
    /// Finds a way that works. Returns it with the first look.
    ///
    /// # Errors
    /// If the chosen way does not work; without a choice, if no way does.
    pub async fn open(args: &ObserveArgs, site: &SlurmConfig) -> anyhow::Result<(SlurmReader, Snapshot)> {
        match args.via {
            Some(ReadWay::Commands) => {
                SlurmReader::commands(site).first_look().await.map_err(|e| e.context(NEITHER_WAY))
            }
            Some(ReadWay::Rest) => SlurmReader::rest(args, site).await?.first_look().await,
            None if args.rest.is_some() => SlurmReader::rest(args, site).await?.first_look().await,
            None => {
                let tried = match SlurmReader::rest(args, site).await {
                    Ok(reader) => reader.first_look().await,
                    Err(e) => Err(e),
                };
                let Err(rest) = tried else { return tried };
                output::print_note(Some(format!("{rest:#}; reading Slurm's commands instead")));
                let commands = SlurmReader::commands(site).first_look().await;
                commands.map_err(|e| anyhow!("{NEITHER_WAY}\n  slurmrestd: {rest:#}\n  commands: {e:#}"))
            }
        }
    }

    async fn rest(args: &ObserveArgs, site: &SlurmConfig) -> anyhow::Result<SlurmReader> {
        let private = match &args.rest {
            Some(_) => None,
            None => Some(PrivateRest::start(&args.slurmrestd).await?),
        };
        let url = args.rest.clone().or_else(|| private.as_ref().map(|rest| rest.url.clone()));
        let slurm = RestSlurm::new(&SlurmConfig {
            rest: url.unwrap_or_default(),
            token_file: args.token_file.clone(),
            token_user: args.token_user.clone(),
            partition: NO_PARTITION.to_owned(),
            ..site.clone()
        })?;
        Ok(SlurmReader::Rest(Box::new(RestReader { slurm, _private: private })))
    }

    fn commands(site: &SlurmConfig) -> SlurmReader {
        let limit = Duration::from_secs_f64(site.timeout_secs.clamp(1.0, 600.0)).max(COMMAND_TIMEOUT);
        let commands =
            SlurmCommands { scontrol: site.scontrol.clone(), sdiag: sdiag_beside(&site.scontrol), limit };
        SlurmReader::Commands(Box::new(CommandSlurm::new(commands, NO_PARTITION)))
    }

    async fn first_look(mut self) -> anyhow::Result<(SlurmReader, Snapshot)> {
        let snapshot = self.look().await?;
        Ok((self, snapshot))
    }

    /// Looks at Slurm once.
    ///
    /// # Errors
    /// If Slurm gives no answer that can be read.
    pub async fn look(&mut self) -> anyhow::Result<Snapshot> {
        Ok(match self {
            SlurmReader::Rest(rest) => rest.slurm.read_snapshot().await?,
            SlurmReader::Commands(slurm) => slurm.read_snapshot().await?,
        })
    }

    /// The way in use.
    pub fn way(&self) -> ReadWay {
        match self {
            SlurmReader::Rest(_) => ReadWay::Rest,
            SlurmReader::Commands(_) => ReadWay::Commands,
        }
    }
}

/// `sdiag` from the folder of `scontrol`.
fn sdiag_beside(scontrol: &Path) -> PathBuf {
    scontrol.with_file_name("sdiag")
}

/// A slurmrestd that this process has started. It ends when this is dropped.
pub struct PrivateRest {
    url: String,
    _program: Child,
    _folder: tempfile::TempDir,
}

impl PrivateRest {
    async fn start(program: &Path) -> anyhow::Result<PrivateRest> {
        let folder = tempfile::Builder::new().prefix("infill-observe-").tempdir()?;
        let socket = folder.path().join("rest.sock");
        let url = format!("unix:{}", socket.display());
        let log = std::fs::File::create(folder.path().join("log"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut child = Command::new(located(program, &path))
            .args(["-t", "2", "-s", "openapi/slurmctld", "-a", "rest_auth/local"])
            .arg(&url)
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {}: install Slurm's package slurmrestd, or name a running one with --rest",
                    program.display()
                )
            })?;
        let begun = Instant::now();
        while !socket.exists() {
            let ended = child.try_wait()?;
            if ended.is_some() || begun.elapsed() > START_TIMEOUT {
                let said = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it says nothing").to_owned();
                return Err(anyhow!("slurmrestd does not start: {last}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(PrivateRest { url, _program: child, _folder: folder })
    }
}

/// A program that is given by its name alone: in PATH, or else in the folders of daemons.
fn located(program: &Path, path: &OsStr) -> PathBuf {
    if program.components().count() != 1 || program.is_absolute() {
        return program.to_owned();
    }
    let folders = std::env::split_paths(path).chain(DAEMON_FOLDERS.map(PathBuf::from));
    let mut found = folders.map(|folder| folder.join(program)).filter(|file| file.is_file());
    found.next().unwrap_or_else(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_outside_the_path_too() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("slurmrestd"), "").unwrap();
        let path = std::env::join_paths(["/no/such/folder".as_ref(), dir.path()]).unwrap();
        assert_eq!(located(Path::new("slurmrestd"), &path), dir.path().join("slurmrestd"));
        for given in ["/opt/slurmrestd", "./slurmrestd", "slurm/slurmrestd", "no-such-program-here"] {
            assert_eq!(located(Path::new(given), &path), Path::new(given));
        }
        // A program of Debian and EL that only administrators have in their PATH.
        let nologin = located(Path::new("nologin"), OsStr::new("/no/such/folder"));
        assert_eq!(nologin, Path::new("/usr/sbin/nologin"));
    }

    #[test]
    fn sdiag_lies_beside_scontrol() {
        assert_eq!(sdiag_beside(Path::new("scontrol")), Path::new("sdiag"));
        assert_eq!(sdiag_beside(Path::new("/opt/slurm/bin/scontrol")), Path::new("/opt/slurm/bin/sdiag"));
    }
}
