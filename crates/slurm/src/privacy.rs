//! What users may see of each other, as slurmctld has it: `PrivateData`, and who sees everything all the
//! same.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::SlurmError;
use super::command::Program;
use infill_model::PrivateData;

/// Longest wait for each of the programs: slurmdbd may be slow.
const LIMIT: Duration = Duration::from_secs(10);

/// Levels of users who see everything.
const LEVELS: [&str; 2] = ["adminlevel=operator", "adminlevel=administrator"];

/// Who may see what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privacy {
    /// What users may not see of each other.
    pub private: PrivateData,
    /// Login names of Slurm's operators and administrators, who see everything.
    pub operators: BTreeSet<String>,
}

impl Privacy {
    /// Before anything was read: nobody sees what is another's.
    pub fn unknown() -> Privacy {
        Privacy { private: PrivateData::ALL, operators: BTreeSet::new() }
    }
}

/// Asks scontrol and sacctmgr. A site without accounting has no operators.
///
/// # Errors
/// When scontrol does not tell the configuration.
pub(crate) async fn read(scontrol: &Path) -> Result<Privacy, SlurmError> {
    read_with(scontrol, Path::new("sacctmgr")).await
}

async fn read_with(scontrol: &Path, sacctmgr: &Path) -> Result<Privacy, SlurmError> {
    let doing = || "reading PrivateData from scontrol show config".to_owned();
    let failed = |what: String| SlurmError::Transient { doing: doing(), what };
    let text = output_of(scontrol, &["show", "config"]).await.map_err(failed)?;
    let line = text.lines().filter_map(|l| l.split_once('=')).find(|(k, _)| k.trim() == "PrivateData");
    let (_, list) = line.ok_or_else(|| failed("it names no PrivateData".to_owned()))?;
    let private = PrivateData::parse(list);
    let mut operators = BTreeSet::new();
    // Where nothing is private, nobody needs to be told apart.
    for level in LEVELS.iter().filter(|_| !private.is_nothing()) {
        match output_of(sacctmgr, &["-nP", "show", "user", "where", level, "format=user"]).await {
            Ok(text) => operators.extend(text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty())),
            Err(what) => tracing::debug!("Slurm's operators are not known: {what}"),
        }
    }
    Ok(Privacy { private, operators })
}

async fn output_of(path: &Path, args: &[&str]) -> Result<String, String> {
    let program = Program { path, args, env: &[("LC_ALL", "C")], stdin: b"", limit: LIMIT };
    let out = program.run().await.map_err(|e| e.to_string())?;
    if out.code != Some(0) {
        return Err(format!("{} ended with {:?}: {}", path.display(), out.code, out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::script;

    #[tokio::test]
    async fn settings_and_operators_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = |list: &str| {
            let lines = format!("echo 'Priority = 1'; echo 'PrivateData             = {list}'");
            script(dir.path().join("scontrol"), &format!("[ \"$*\" = 'show config' ] || exit 1; {lines}"))
        };
        let users = "case \"$*\" in *=operator*) echo infill;; *) printf 'root\\nann\\n';; esac";
        let sacctmgr = script(dir.path().join("sacctmgr"), users);
        let read = read_with(&scontrol("jobs,users"), &sacctmgr).await.unwrap();
        assert_eq!(read.private, PrivateData::parse("jobs,users"));
        assert_eq!(read.operators, ["ann", "infill", "root"].map(str::to_owned).into());
        let none = dir.path().join("none");
        assert_eq!(read_with(&scontrol("jobs"), &none).await.unwrap().operators, BTreeSet::new());
        assert_eq!(read_with(&scontrol("none"), &sacctmgr).await.unwrap(), Privacy::default());
        let garbled = script(dir.path().join("garbled"), "echo hello");
        assert!(read_with(&garbled, &sacctmgr).await.unwrap_err().is_transient());
        assert!(read_with(&none, &sacctmgr).await.is_err());
    }
}
