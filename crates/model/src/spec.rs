//! What the lead's agent declares of its job.

use serde::{Deserialize, Deserializer, Serialize};

use super::{BatchMode, Curve, DeclaredPlan, RescaleCosts, Sizes, declared};

/// Longest grace time that a job may ask for, seconds: a shrinking job holds its nodes for so long.
pub(crate) const MAX_GRACE_SECS: u32 = 3600;

/// Longest name of a profile or hash of a command.
pub const MAX_NAME_CHARS: usize = 200;

/// Whether a number can be a rate: positive and finite.
pub fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

/// What the lead's agent declares about the job, from the flags of `infill run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunSpec {
    /// Allowed sizes; `None` leaves what the submission said.
    pub sizes: Option<Sizes>,
    /// Declared throughput curve.
    pub curve: Option<Curve>,
    /// Declared rescale costs.
    pub costs: Option<RescaleCosts>,
    /// What it shall make at the least while others have more than their least, samples a second.
    pub at_least: Option<f64>,
    /// Failures that are retried before the job fails. Scaling events never count.
    pub max_restarts: u32,
    /// Seconds that the command gets to save and exit after the rescale signal.
    pub grace_secs: u32,
    /// Name of the profile, if the user gave one.
    pub profile: Option<String>,
    /// Hash of the normalised command line, to recognise a recurring job.
    pub command_hash: String,
    /// How the work of a step grows with the number of nodes. A word of a newer version is read as
    /// [`BatchMode::Auto`].
    #[serde(deserialize_with = "known_or_auto")]
    pub batch: BatchMode,
    /// Execution plans among which infill chooses, the one to begin with first; none where the program has
    /// but one.
    pub plans: Vec<DeclaredPlan>,
    /// Whether the lead is a job of the main queue that wings extend: its sizes then count its own nodes as
    /// one.
    pub extends: bool,
}

/// It says only how the job is learned from: no reason to refuse it.
fn known_or_auto<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BatchMode, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(word.parse().unwrap_or_default())
}

impl RunSpec {
    /// The same with every value inside its bounds: what comes over the wire may hold anything.
    pub fn bounded(self) -> Self {
        let short =
            |s: String| s.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect::<String>();
        let sound = |secs: f64| (0.0..=86_400.0).contains(&secs);
        RunSpec {
            costs: self.costs.filter(|c| sound(c.up_secs) && sound(c.down_secs) && sound(c.start_secs)),
            at_least: self.at_least.filter(|rate| is_rate(*rate)),
            grace_secs: self.grace_secs.min(MAX_GRACE_SECS),
            profile: self.profile.map(short),
            command_hash: short(self.command_hash),
            plans: declared::bounded(self.plans),
            ..self
        }
    }
}

impl Default for RunSpec {
    fn default() -> Self {
        RunSpec {
            sizes: None,
            curve: None,
            costs: None,
            at_least: None,
            max_restarts: 3,
            grace_secs: 60,
            profile: None,
            command_hash: String::new(),
            batch: BatchMode::Auto,
            plans: Vec::new(),
            extends: false,
        }
    }
}
