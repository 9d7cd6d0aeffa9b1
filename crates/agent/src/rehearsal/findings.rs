//! What a rehearsal shows: what happened at each size, and what would go wrong in a malleable job.

use serde::Serialize;

use crate::command::SIGNAL_CODE_BASE;
use infill_model::NodeCount;

/// How the command ran at one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RehearsedRun {
    /// Number of nodes that the command saw in its environment.
    pub nodes: u32,
    /// Number of processes that infill started.
    pub processes: u32,
    /// Seconds from the start to the first report of progress; `None` if there was none.
    pub progress_secs: Option<f64>,
    /// The first step that was reported.
    pub first_step: Option<u64>,
    /// The last step that was reported.
    pub last_step: Option<u64>,
    /// The most steps from one report to the next.
    pub stride: u64,
    /// Steps that were reported after the signal.
    pub steps_after_signal: u64,
    /// Whether the signal was sent. If not, the command ended before.
    pub asked: bool,
    /// Seconds from the signal to the end, or from the start where no signal was sent.
    pub end_secs: f64,
    /// The exit code of the first process that failed; 0 if none did.
    pub code: i32,
    /// Whether it was killed at the end of its grace time.
    pub killed: bool,
}

/// What the command is measured by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RehearsalRules {
    /// Name of the signal, without SIG.
    pub signal: String,
    /// Number of the signal.
    pub signal_number: i32,
    /// Seconds that the command had to save and exit.
    pub grace_secs: f64,
    /// Seconds that it has where Slurm takes a node back without warning.
    pub preempt_secs: f64,
}

/// One thing that a rehearsal found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RehearsalFinding {
    /// The kind, in a word for programs.
    pub kind: &'static str,
    /// Whether it would make a malleable job lose work or fail.
    pub is_fault: bool,
    /// A sentence for people.
    pub text: String,
}

impl RehearsalFinding {
    fn fault(kind: &'static str, text: String) -> RehearsalFinding {
        RehearsalFinding { kind, is_fault: true, text }
    }

    fn note(kind: &'static str, text: String) -> RehearsalFinding {
        RehearsalFinding { kind, is_fault: false, text }
    }
}

/// Everything that these runs, in their order, show.
pub(super) fn examine_runs(runs: &[RehearsedRun], rules: &RehearsalRules) -> Vec<RehearsalFinding> {
    let mut findings = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        findings.extend(index.checked_sub(1).and_then(|before| examine_resumption(&runs[before], run)));
        if run.asked {
            findings.extend(examine_progress(run));
            findings.extend(examine_stop(run, rules));
        } else {
            findings.push(examine_early_end(run, index == 0));
        }
    }
    findings
}

fn examine_early_end(run: &RehearsedRun, is_first: bool) -> RehearsalFinding {
    let nodes = NodeCount(run.nodes);
    match (run.code, is_first) {
        (0, true) => RehearsalFinding::fault(
            "ended_early",
            format!(
                "On {nodes} the command ended by itself before it was asked to save. Give it more to do, or a \
                 smaller --train-secs."
            ),
        ),
        (0, false) => RehearsalFinding::fault(
            "ended_early",
            format!(
                "On {nodes} the command ended by itself. If it was not done, it takes its checkpoint for the end."
            ),
        ),
        (code, true) => RehearsalFinding::fault(
            "failed",
            format!("On {nodes} the command failed with code {code} before it was asked to save."),
        ),
        (code, false) => RehearsalFinding::fault(
            "does_not_resume",
            format!(
                "On {nodes} the command failed with code {code} instead of going on. The last lines of its output \
                 say why. Often a checkpoint fits only the size that wrote it."
            ),
        ),
    }
}

fn examine_progress(run: &RehearsedRun) -> Option<RehearsalFinding> {
    let nodes = NodeCount(run.nodes);
    if run.progress_secs.is_none() {
        return Some(RehearsalFinding::note(
            "no_progress",
            format!(
                "No progress was seen on {nodes}, so infill cannot size the job by its speed. Call infill.step in \
                 Python, or use --progress-regex."
            ),
        ));
    }
    run.first_step.is_none().then(|| {
        RehearsalFinding::note(
            "no_steps",
            format!("The progress on {nodes} names no step, so lost steps would not show."),
        )
    })
}

fn examine_stop(run: &RehearsedRun, rules: &RehearsalRules) -> Option<RehearsalFinding> {
    let nodes = NodeCount(run.nodes);
    let RehearsalRules { signal, signal_number, grace_secs, preempt_secs } = rules;
    if run.killed && run.steps_after_signal > run.stride {
        return Some(RehearsalFinding::fault(
            "signal_ignored",
            format!(
                "On {nodes} the command trained on after SIG{signal}, and was killed after {grace_secs:.0} s. It \
                 must save and exit on that signal."
            ),
        ));
    }
    if run.killed {
        return Some(RehearsalFinding::fault(
            "too_slow",
            format!(
                "On {nodes} the command did not exit within {grace_secs:.0} s after SIG{signal}, and was killed. \
                 If saving takes longer, use a larger --grace."
            ),
        ));
    }
    if run.code == SIGNAL_CODE_BASE + signal_number {
        return Some(RehearsalFinding::fault(
            "died_of_signal",
            format!(
                "SIG{signal} ended the command on {nodes}: nothing handles the signal, so nothing was saved."
            ),
        ));
    }
    if run.code != 0 {
        let code = run.code;
        return Some(RehearsalFinding::fault(
            "exit_code",
            format!(
                "On {nodes} the command exited with code {code} after SIG{signal}, which counts as a failure. It \
                 must exit with code 0."
            ),
        ));
    }
    (run.end_secs > *preempt_secs).then(|| {
        RehearsalFinding::note(
            "slow_save",
            format!(
                "Saving on {nodes} took {:.1} s. When Slurm takes a node back without warning there are \
                 {preempt_secs:.0} s, so save regularly as well.",
                run.end_secs
            ),
        )
    })
}

/// Compares the steps before a change of size with those after it.
fn examine_resumption(before: &RehearsedRun, after: &RehearsedRun) -> Option<RehearsalFinding> {
    let began = before.first_step?;
    let reached = before.last_step?;
    let resumed = after.first_step?;
    let nodes = NodeCount(after.nodes);
    if resumed <= began && reached > began {
        return Some(RehearsalFinding::fault(
            "began_again",
            format!(
                "On {nodes} the command began again at step {resumed}, after step {reached}. It found no \
                 checkpoint, or does not read it."
            ),
        ));
    }
    if resumed <= reached {
        let times = if resumed == reached {
            format!("Step {reached}")
        } else {
            format!("Steps {resumed} to {reached}")
        };
        return Some(RehearsalFinding::fault(
            "steps_repeated",
            format!("{times} ran again on {nodes}: the checkpoint was older than the last step."),
        ));
    }
    // A step that was not reported looks like one that was left out.
    let stride = before.stride.max(after.stride);
    (resumed > reached.saturating_add(stride)).then(|| {
        RehearsalFinding::fault(
            "steps_skipped",
            format!(
                "On {nodes} the command went on at step {resumed}, after step {reached}: the steps between were \
                 never seen."
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> RehearsalRules {
        RehearsalRules {
            signal: "USR1".to_owned(),
            signal_number: libc::SIGUSR1,
            grace_secs: 60.0,
            preempt_secs: 2.0,
        }
    }

    /// A run that reported these steps, and that saved and exited in time.
    fn run(nodes: u32, first: u64, last: u64) -> RehearsedRun {
        RehearsedRun {
            nodes,
            processes: nodes,
            progress_secs: Some(1.0),
            first_step: Some(first),
            last_step: Some(last),
            stride: 1,
            steps_after_signal: 1,
            asked: true,
            end_secs: 0.5,
            code: 0,
            killed: false,
        }
    }

    fn kinds(runs: &[RehearsedRun]) -> Vec<&'static str> {
        examine_runs(runs, &rules()).into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn a_command_that_saves_and_goes_on_has_no_fault() {
        assert_eq!(kinds(&[run(1, 1, 48), run(2, 49, 90), run(1, 91, 99)]), [""; 0]);
        // It reports each tenth step.
        let rare = |nodes, first, last| RehearsedRun { stride: 10, ..run(nodes, first, last) };
        assert_eq!(kinds(&[rare(1, 10, 40), rare(2, 50, 70)]), [""; 0]);
    }

    #[test]
    fn steps_that_are_lost_or_repeated_are_found() {
        for (first, kind) in
            [(1, "began_again"), (30, "steps_repeated"), (48, "steps_repeated"), (50, "steps_skipped")]
        {
            assert_eq!(kinds(&[run(1, 1, 48), run(2, first, 90)]), [kind], "{first}");
        }
        // The first run went on from an older checkpoint.
        assert_eq!(kinds(&[run(1, 100, 148), run(2, 100, 190)]), ["began_again"]);
    }

    #[test]
    fn a_stop_that_fails_is_found() {
        let cases = [
            (RehearsedRun { killed: true, steps_after_signal: 9, ..run(1, 1, 9) }, "signal_ignored"),
            (RehearsedRun { killed: true, ..run(1, 1, 9) }, "too_slow"),
            (RehearsedRun { code: 138, ..run(1, 1, 9) }, "died_of_signal"),
            (RehearsedRun { code: 3, ..run(1, 1, 9) }, "exit_code"),
            (RehearsedRun { end_secs: 2.1, ..run(1, 1, 9) }, "slow_save"),
            (RehearsedRun { asked: false, ..run(1, 1, 9) }, "ended_early"),
            (RehearsedRun { asked: false, code: 1, ..run(1, 1, 9) }, "failed"),
            (
                RehearsedRun { progress_secs: None, first_step: None, last_step: None, ..run(1, 1, 9) },
                "no_progress",
            ),
            (RehearsedRun { first_step: None, last_step: None, ..run(1, 1, 9) }, "no_steps"),
        ];
        for (run, kind) in cases {
            assert_eq!(kinds(std::slice::from_ref(&run)), [kind], "{run:?}");
        }
        let lost = RehearsedRun { asked: false, code: 1, first_step: None, last_step: None, ..run(2, 1, 9) };
        assert_eq!(kinds(&[run(1, 1, 9), lost]), ["does_not_resume"]);
    }

    #[test]
    fn only_what_loses_work_is_a_fault() {
        let findings = examine_runs(&[RehearsedRun { end_secs: 9.0, ..run(1, 1, 9) }], &rules());
        assert!(findings.iter().all(|finding| !finding.is_fault), "{findings:?}");
        let findings = examine_runs(&[RehearsedRun { code: 1, ..run(1, 1, 9) }], &rules());
        assert!(findings.iter().all(|finding| finding.is_fault), "{findings:?}");
    }
}
