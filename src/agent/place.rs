//! Where the agent runs: job, node, and its private directory there.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use crate::model::{JobId, NodeName};

/// Longest path of the private directory. A Unix socket's path has at most 107 bytes, and ours adds a file
/// name.
const MAX_DIR_BYTES: usize = 90;

/// The agent's place in Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The Slurm job.
    pub job: JobId,
    /// Slurm's name of the node.
    pub node: NodeName,
    /// Whether this is a job step already, and not the batch script.
    pub in_step: bool,
}

impl Place {
    /// Reads the place from the environment; `None` outside a job.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Option<Place> {
        let job = JobId(var("SLURM_JOB_ID")?.parse().ok()?);
        let node = NodeName::new(var("SLURMD_NODENAME").or_else(|| var("HOSTNAME"))?);
        // Batch scripts and the like have ids at the upper end of the range, or none.
        let step: Option<u32> = var("SLURM_STEP_ID").and_then(|id| id.parse().ok());
        Some(Place { job, node, in_step: step.is_some_and(|id| id < 0xffff_0000) })
    }
}

/// Makes the directory that only this user may enter, for the progress socket and the notes on wings. One
/// that is there already is used again if it is ours alone.
pub fn private_dir(place: &Place) -> io::Result<PathBuf> {
    let (uid, dir) = private_path(place);
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|()| dir),
    }
    let found = std::fs::symlink_metadata(&dir)?;
    if found.is_dir() && found.uid() == uid && found.permissions().mode() & 0o077 == 0 {
        return Ok(dir);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} exists and is not a private directory of ours", dir.display()),
    ))
}

/// Whether no agent runs here or died here without removing its directory.
pub fn ended_properly(place: &Place) -> bool {
    !private_path(place).1.exists()
}

/// Our user id, and where the directory is.
fn private_path(place: &Place) -> (u32, PathBuf) {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    let name = format!("infill-{uid}-{}.{}", place.job, place.node);
    let dir = std::env::temp_dir().join(&name);
    let short = dir.as_os_str().len() <= MAX_DIR_BYTES;
    (uid, if short { dir } else { PathBuf::from("/tmp").join(&name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(vars: &[(&str, &str)]) -> Option<Place> {
        Place::from_env(|name| vars.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn a_batch_script_is_no_step() {
        let batch = place(&[("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "n1")]);
        assert_eq!(batch, Some(Place { job: JobId(7), node: "n1".into(), in_step: false }));
        let step = [("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "n1"), ("SLURM_STEP_ID", "0")];
        assert!(place(&step).unwrap().in_step);
        let odd = [("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "n1"), ("SLURM_STEP_ID", "4294967291")];
        assert!(!place(&odd).unwrap().in_step);
        assert_eq!(place(&[("HOSTNAME", "laptop")]), None);
    }
}
