//! Warnings for the owner of a job about how it saves.

use std::fmt;

use infill_advisor::stops;
use infill_model::{GenerationStop, StopOutcome};

/// From this number of lost checkpoints on, less those that were forgiven, the owner gets a warning.
const LOST_TO_WARN: f64 = 0.5;

/// A problem with how a job saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SaveWarning {
    /// Checkpoints were lost: the command was killed at the end of its grace time, or failed.
    Lost {
        /// Number of lost checkpoints among the last stops.
        lost: usize,
        /// Number of stops that were considered.
        of: usize,
        /// The grace time that was too short, seconds; `None` if the command failed.
        grace_secs: Option<f64>,
    },
    /// Saving takes longer than Slurm allows where it takes a node back without a plan.
    Slow {
        /// Longest time that saving took, seconds.
        secs: f64,
        /// Time that the command has in that case, seconds.
        has_secs: f64,
    },
}

impl SaveWarning {
    /// Judges the last stops of a program. `has_secs`: seconds that it has when Slurm takes a node back.
    pub(super) fn from_stops(last: &[GenerationStop], has_secs: f64) -> Option<SaveWarning> {
        if stops::lost_checkpoints(last) >= LOST_TO_WARN {
            let lost = last.iter().filter(|s| s.end.lost_checkpoint());
            let killed = last.iter().filter(|s| s.end.lost_checkpoint() && s.end.is_lower_bound());
            let grace_secs = killed.map(|s| s.secs).max_by(f64::total_cmp);
            return Some(SaveWarning::Lost { lost: lost.count(), of: last.len(), grace_secs });
        }
        let secs = last.iter().map(|s| s.secs).max_by(f64::total_cmp)?;
        let cut = last.iter().any(|s| s.end == StopOutcome::Cut);
        (cut || secs > has_secs).then_some(SaveWarning::Slow { secs, has_secs })
    }
}

impl fmt::Display for SaveWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaveWarning::Lost { lost, of, grace_secs } => {
                write!(f, "{lost} of the last {of} checkpoints were lost: ")?;
                match grace_secs {
                    Some(secs) => write!(
                        f,
                        "the command was killed while it saved, after the {secs:.0} s that --grace gives it"
                    )?,
                    None => f.write_str("the command failed while it saved")?,
                }
                f.write_str("; until it saves again, this job is rescaled as seldom as possible")
            }
            SaveWarning::Slow { secs, has_secs } => write!(
                f,
                "saving takes {:.0} s or more, but where Slurm takes a node back without a plan the command has only \
                 {has_secs:.0} s: its work since the last checkpoint is lost then, so let it save from time to time",
                secs.ceil()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    fn warning_for(stops: &[(f64, StopOutcome)]) -> String {
        let mut last = Vec::new();
        for (generation, (secs, end)) in (1..).zip(stops) {
            last.push(GenerationStop { job: JobId(1), generation, secs: *secs, end: *end });
        }
        SaveWarning::from_stops(&last, 2.0).map_or("nothing".to_owned(), |w| w.to_string())
    }

    #[test]
    fn the_owner_learns_what_is_lost_and_what_would_be() {
        use StopOutcome::{Cut, Failed, Killed, Saved};
        let all = [
            warning_for(&[]),
            warning_for(&[(1.9, Saved)]),
            warning_for(&[(20.2, Saved), (1.0, Saved)]),
            warning_for(&[(1.0, Saved), (1.9, Cut)]),
            warning_for(&[(5.0, Killed), (5.0, Killed), (1.0, Failed)]),
            warning_for(&[(1.0, Saved), (1.0, Failed)]),
            warning_for(&[(5.0, Killed), (1.0, Saved), (1.0, Saved)]),
        ];
        insta::assert_snapshot!(all.join("\n"), @r"
        nothing
        nothing
        saving takes 21 s or more, but where Slurm takes a node back without a plan the command has only 2 s: its work since the last checkpoint is lost then, so let it save from time to time
        saving takes 2 s or more, but where Slurm takes a node back without a plan the command has only 2 s: its work since the last checkpoint is lost then, so let it save from time to time
        3 of the last 3 checkpoints were lost: the command was killed while it saved, after the 5 s that --grace gives it; until it saves again, this job is rescaled as seldom as possible
        1 of the last 2 checkpoints were lost: the command failed while it saved; until it saves again, this job is rescaled as seldom as possible
        saving takes 5 s or more, but where Slurm takes a node back without a plan the command has only 2 s: its work since the last checkpoint is lost then, so let it save from time to time
        ");
    }
}
