//! What users may see of each other by slurmctld's configuration: `PrivateData`, and the users who still see
//! everything.

use std::collections::BTreeSet;
use std::path::Path;

use super::SlurmError;
use super::configuration::{ControllerConfig, program_output};
use infill_model::PrivateData;

/// The conditions with which sacctmgr selects users who see everything.
const LEVELS: [&str; 2] = ["adminlevel=operator", "adminlevel=administrator"];

/// Which data are private, and who sees everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivacyRules {
    /// The data that users may not see of each other.
    pub private: PrivateData,
    /// Login names of Slurm's operators and administrators, who see everything.
    pub operators: BTreeSet<String>,
}

impl PrivacyRules {
    /// The rules before any are read: no user sees another user's data.
    pub fn all_hidden() -> PrivacyRules {
        PrivacyRules { private: PrivateData::ALL, operators: BTreeSet::new() }
    }
}

/// Reads the rules from slurmctld's configuration and the operators from sacctmgr. A site without accounting
/// has no operators.
///
/// # Errors
/// `Transient` if the configuration lacks `PrivateData`.
pub(crate) async fn read_privacy(config: &ControllerConfig) -> Result<PrivacyRules, SlurmError> {
    read_privacy_with(config, Path::new("sacctmgr")).await
}

async fn read_privacy_with(config: &ControllerConfig, sacctmgr: &Path) -> Result<PrivacyRules, SlurmError> {
    let private = PrivateData::parse(config.get_value("PrivateData")?);
    let mut operators = BTreeSet::new();
    // Where no data are private, operators see the same as others.
    for level in LEVELS.iter().filter(|_| !private.is_nothing()) {
        match program_output(sacctmgr, &["-nP", "show", "user", "where", level, "format=user"]).await {
            Ok(text) => operators.extend(text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty())),
            Err(what) => tracing::debug!("cannot read Slurm's operators from sacctmgr: {what}"),
        }
    }
    Ok(PrivacyRules { private, operators })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration;
    use infill_testkit::write_script;

    async fn read_with(scontrol: &Path, sacctmgr: &Path) -> Result<PrivacyRules, SlurmError> {
        read_privacy_with(&configuration::read_configuration(scontrol).await?, sacctmgr).await
    }

    #[tokio::test]
    async fn settings_and_operators_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = |list: &str| {
            let lines = format!("echo 'Priority = 1'; echo 'PrivateData             = {list}'");
            write_script(
                dir.path().join("scontrol"),
                &format!("[ \"$*\" = 'show config' ] || exit 1; {lines}"),
            )
        };
        let users = "case \"$*\" in *=operator*) echo infill;; *) printf 'root\\nann\\n';; esac";
        let sacctmgr = write_script(dir.path().join("sacctmgr"), users);
        let read = read_with(&scontrol("jobs,users"), &sacctmgr).await.unwrap();
        assert_eq!(read.private, PrivateData::parse("jobs,users"));
        assert_eq!(read.operators, ["ann", "infill", "root"].map(str::to_owned).into());
        let none = dir.path().join("none");
        assert_eq!(read_with(&scontrol("jobs"), &none).await.unwrap().operators, BTreeSet::new());
        assert_eq!(read_with(&scontrol("none"), &sacctmgr).await.unwrap(), PrivacyRules::default());
        let garbled = write_script(dir.path().join("garbled"), "echo hello");
        assert!(read_with(&garbled, &sacctmgr).await.unwrap_err().is_transient());
        assert!(read_with(&none, &sacctmgr).await.is_err());
    }
}
