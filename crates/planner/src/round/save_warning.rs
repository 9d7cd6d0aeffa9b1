//! What the owner of a job should know of how it saves.

use std::fmt;

use infill_advisor::stops;
use infill_model::{GenerationStop, StopOutcome};

/// From so many lost checkpoints, less those that were forgiven, the owner is told.
const TELLING: f64 = 0.5;

/// What is wrong with how a job saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SaveWarning {
    /// Checkpoints were lost: the command was killed at the end of its grace time, or failed.
    Lost {
        /// How many of the last stops.
        lost: usize,
        /// How many were looked at.
        of: usize,
        /// The grace time that was too short, if that was it.
        grace_secs: Option<f64>,
    },
    /// It takes longer than Slurm leaves it where it takes a node back without a plan.
    Slow {
        /// What it has taken, seconds.
        secs: f64,
        /// What it has then, seconds.
        has_secs: f64,
    },
}

impl SaveWarning {
    /// Judges the last stops of a program, which has so many seconds when Slurm takes a node back.
    pub(super) fn from_stops(last: &[GenerationStop], has_secs: f64) -> Option<SaveWarning> {
        if stops::lost_checkpoints(last) >= TELLING {
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
                f.write_str("; until it saves again, this job is rescaled as seldom as can be")
            }
            SaveWarning::Slow { secs, has_secs } => write!(
                f,
                "saving takes {:.0} s or more, but where Slurm takes a node back without a plan the command has only \
                 {has_secs:.0} s: what it did since its last checkpoint is lost then, so let it save now and then",
                secs.ceil()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    fn said(stops: &[(f64, StopOutcome)]) -> String {
        let stop = |(generation, (secs, end)): (u64, &(f64, StopOutcome))| GenerationStop {
            job: JobId(1),
            generation,
            secs: *secs,
            end: *end,
        };
        let last: Vec<GenerationStop> = (1..).zip(stops).map(stop).collect();
        SaveWarning::from_stops(&last, 2.0).map_or("nothing".to_owned(), |w| w.to_string())
    }

    #[test]
    fn the_owner_is_told_what_is_lost_and_what_would_be() {
        use StopOutcome::{Cut, Failed, Killed, Saved};
        let all = [
            said(&[]),
            said(&[(1.9, Saved)]),
            said(&[(20.2, Saved), (1.0, Saved)]),
            said(&[(1.0, Saved), (1.9, Cut)]),
            said(&[(5.0, Killed), (5.0, Killed), (1.0, Failed)]),
            said(&[(1.0, Saved), (1.0, Failed)]),
            said(&[(5.0, Killed), (1.0, Saved), (1.0, Saved)]),
        ];
        insta::assert_snapshot!(all.join("\n"), @r"
        nothing
        nothing
        saving takes 21 s or more, but where Slurm takes a node back without a plan the command has only 2 s: what it did since its last checkpoint is lost then, so let it save now and then
        saving takes 2 s or more, but where Slurm takes a node back without a plan the command has only 2 s: what it did since its last checkpoint is lost then, so let it save now and then
        3 of the last 3 checkpoints were lost: the command was killed while it saved, after the 5 s that --grace gives it; until it saves again, this job is rescaled as seldom as can be
        1 of the last 2 checkpoints were lost: the command failed while it saved; until it saves again, this job is rescaled as seldom as can be
        saving takes 5 s or more, but where Slurm takes a node back without a plan the command has only 2 s: what it did since its last checkpoint is lost then, so let it save now and then
        ");
    }
}
