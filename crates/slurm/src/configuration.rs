//! slurmctld's configuration, as `scontrol show config` prints it.

use std::path::Path;
use std::time::Duration;

use super::SlurmError;
use super::command::ProgramCall;

/// Longest wait for a program. slurmdbd may be slow.
const LIMIT: Duration = Duration::from_secs(10);

/// Slurm's default for `bf_resolution`, seconds.
const DEFAULT_RESOLUTION_SECS: u32 = 60;

/// Largest `bf_resolution` that Slurm accepts, seconds.
const MAX_RESOLUTION_SECS: u32 = 3600;

/// The output of scontrol: one key and its value per line.
#[derive(Debug)]
pub(crate) struct ControllerConfig(String);

impl ControllerConfig {
    /// The value of a key.
    ///
    /// # Errors
    /// `Transient` if the output lacks the key.
    pub(crate) fn get_value(&self, key: &str) -> Result<&str, SlurmError> {
        let lines = self.0.lines().filter_map(|line| line.split_once('='));
        let value = lines.map(|(k, v)| (k.trim(), v.trim())).find(|(k, _)| *k == key).map(|(_, v)| v);
        value.ok_or_else(|| read_error(key, format!("it names no {key}")))
    }

    /// Seconds to which backfill rounds planned starts. Slurm uses its default instead of a value that it
    /// does not understand.
    pub(crate) fn backfill_resolution_secs(&self) -> u32 {
        let parameters = self.get_value("SchedulerParameters").unwrap_or_default();
        let configured = parameters.split(',').find_map(|p| p.trim().strip_prefix("bf_resolution="));
        configured
            .and_then(|secs| secs.parse().ok())
            .filter(|secs| (1..=MAX_RESOLUTION_SECS).contains(secs))
            .unwrap_or(DEFAULT_RESOLUTION_SECS)
    }
}

/// Reads slurmctld's configuration with scontrol.
///
/// # Errors
/// `Transient` if scontrol fails.
pub(crate) async fn read_configuration(scontrol: &Path) -> Result<ControllerConfig, SlurmError> {
    let text = program_output(scontrol, &["show", "config"]).await;
    text.map(ControllerConfig).map_err(|what| read_error("the configuration", what))
}

fn read_error(which: &str, what: String) -> SlurmError {
    SlurmError::Transient { doing: format!("reading {which} from scontrol show config"), what }
}

/// The standard output of one of Slurm's programs.
///
/// # Errors
/// A sentence that says why it failed.
pub(crate) async fn program_output(path: &Path, args: &[&str]) -> Result<String, String> {
    let program = ProgramCall { path, args, env: &[("LC_ALL", "C")], stdin: b"", limit: LIMIT };
    let out = program.run().await.map_err(|e| e.to_string())?;
    if out.code != Some(0) {
        return Err(format!("{} ended with {:?}: {}", path.display(), out.code, out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backfill_rounds_as_configured_and_by_default_to_minutes() {
        let secs = |value: &str| {
            let text = format!("Priority = 1\nSchedulerParameters     = {value}\nSchedulerType = x\n");
            ControllerConfig(text).backfill_resolution_secs()
        };
        assert_eq!(secs("bf_interval=2,bf_resolution=1,sched_interval=5"), 1);
        assert_eq!(secs("bf_interval=2, bf_resolution=300"), 300);
        for value in ["(null)", "", "bf_interval=2", "bf_resolution=", "bf_resolution=0", "bf_resolution=x"] {
            assert_eq!(secs(value), 60, "{value}");
        }
        assert_eq!((secs("bf_resolution=3601"), secs("bf_resolution=99999999999")), (60, 60));
        assert_eq!(ControllerConfig("hello".to_owned()).backfill_resolution_secs(), 60);
    }
}
