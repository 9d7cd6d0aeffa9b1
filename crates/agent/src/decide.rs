//! Decides what a worker does next: a pure function of the daemon's directive and of the running command.

use infill_model::{Directive, GenerationMember};

/// What the worker does next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WorkerAction {
    /// Nothing is to be done: the command is as the daemon wants it.
    Nothing,
    /// Start the command as this member.
    Start(GenerationMember),
    /// Start the command as a newcomer, which will become such a member.
    Warm(GenerationMember),
    /// Notify the running command of its place, if it takes such messages.
    Meet(GenerationMember),
    /// Ask the running command to leave the others, which go on without it: generation, and whether it is
    /// urgent.
    Part(u64, bool),
    /// Ask the running command to stop.
    Stop,
    /// Ask the running command to stop once it has saved what is in its memory.
    Rescue,
    /// Report (again) that the command of this generation does not run.
    ReportEnd(u64),
    /// Exit with this code.
    Exit(i32),
}

/// How the running command takes changes of its membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeMode {
    /// It is stopped and started again.
    Plain,
    /// It stays alive, and takes messages about its place.
    Live,
    /// It was started as a newcomer, and has no place yet.
    Spare,
    /// It has been asked to leave.
    Parting,
}

/// The state of the worker on this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerStatus {
    /// The generation whose command runs here.
    pub running: Option<u64>,
    /// The last generation whose command has ended.
    pub ended: Option<u64>,
    /// How the running command takes changes.
    pub change_mode: ChangeMode,
    /// Whether this is the lead's node.
    pub is_lead: bool,
}

/// The action that follows from the daemon's directive and the worker's state.
pub(crate) fn decide_action(directive: &Directive, status: WorkerStatus) -> WorkerAction {
    match status.running {
        Some(generation) => decide_running(directive, generation, status.change_mode),
        None => decide_idle(directive, status),
    }
}

fn decide_running(directive: &Directive, running: u64, change_mode: ChangeMode) -> WorkerAction {
    match directive {
        Directive::Run(m)
            if running == m.generation && matches!(change_mode, ChangeMode::Plain | ChangeMode::Live) =>
        {
            WorkerAction::Meet(m.clone())
        }
        Directive::Regroup(m)
            if running <= m.generation && matches!(change_mode, ChangeMode::Live | ChangeMode::Spare) =>
        {
            WorkerAction::Meet(m.clone())
        }
        Directive::Warm(_) if matches!(change_mode, ChangeMode::Spare | ChangeMode::Parting) => {
            WorkerAction::Nothing
        }
        Directive::Part { .. } if change_mode == ChangeMode::Parting => WorkerAction::Nothing,
        Directive::Part { generation, urgent }
            if running <= *generation && change_mode == ChangeMode::Live =>
        {
            WorkerAction::Part(*generation, *urgent)
        }
        // The directive stops a generation before ours.
        Directive::Stop { generation } | Directive::Rescue { generation } if running > *generation => {
            WorkerAction::Nothing
        }
        Directive::Rescue { .. } if change_mode == ChangeMode::Live => WorkerAction::Rescue,
        _ => WorkerAction::Stop,
    }
}

fn decide_idle(directive: &Directive, status: WorkerStatus) -> WorkerAction {
    match directive {
        // This generation's command has ended, and the daemon has not received the report yet.
        Directive::Run(m) if status.ended == Some(m.generation) => WorkerAction::ReportEnd(m.generation),
        Directive::Run(m) => WorkerAction::Start(m.clone()),
        // The command that should have joined the regroup is gone.
        Directive::Regroup(m) => WorkerAction::ReportEnd(m.generation),
        Directive::Warm(m) => WorkerAction::Warm(m.clone()),
        Directive::Stop { generation } | Directive::Rescue { generation } => {
            WorkerAction::ReportEnd(*generation)
        }
        Directive::Hold | Directive::Part { .. } => WorkerAction::Nothing,
        Directive::Leave => WorkerAction::Exit(0),
        Directive::Finish { code } => WorkerAction::Exit(if status.is_lead { *code } else { 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(generation: u64) -> Directive {
        Directive::Run(member(generation))
    }

    fn member(generation: u64) -> GenerationMember {
        GenerationMember {
            generation,
            rank: 0,
            world: 1,
            master_addr: "n1".to_owned(),
            master_port: 1,
            nodes: vec!["n1".into()],
            exec_plan: "default".to_owned(),
            meeting: None,
        }
    }

    fn regroup(generation: u64) -> Directive {
        Directive::Regroup(member(generation))
    }

    #[test]
    fn directives_for_a_command_that_is_stopped_and_started() {
        let stop = |generation| Directive::Stop { generation };
        let rescue = |generation| Directive::Rescue { generation };
        for (directive, running, ended, want) in [
            (run(2), None, Some(1), WorkerAction::Start(member(2))),
            (run(2), Some(2), Some(1), WorkerAction::Meet(member(2))),
            (run(2), None, Some(2), WorkerAction::ReportEnd(2)),
            (run(3), Some(2), Some(1), WorkerAction::Stop),
            (regroup(3), Some(2), None, WorkerAction::Stop),
            (regroup(3), None, Some(2), WorkerAction::ReportEnd(3)),
            (Directive::Warm(member(2)), None, Some(2), WorkerAction::Warm(member(2))),
            (Directive::Warm(member(2)), Some(2), None, WorkerAction::Stop),
            (Directive::Part { generation: 3, urgent: false }, Some(2), None, WorkerAction::Stop),
            (Directive::Part { generation: 3, urgent: false }, None, Some(2), WorkerAction::Nothing),
            (stop(2), Some(2), None, WorkerAction::Stop),
            (stop(3), Some(2), None, WorkerAction::Stop),
            (stop(1), Some(2), None, WorkerAction::Nothing),
            (stop(2), None, Some(2), WorkerAction::ReportEnd(2)),
            (stop(2), None, None, WorkerAction::ReportEnd(2)),
            (rescue(2), Some(2), None, WorkerAction::Stop),
            (rescue(2), None, None, WorkerAction::ReportEnd(2)),
            (Directive::Hold, Some(2), None, WorkerAction::Stop),
            (Directive::Hold, None, Some(2), WorkerAction::Nothing),
            (Directive::Leave, Some(2), None, WorkerAction::Stop),
            (Directive::Leave, None, Some(2), WorkerAction::Exit(0)),
            (Directive::Finish { code: 3 }, Some(2), None, WorkerAction::Stop),
            (Directive::Finish { code: 3 }, None, Some(2), WorkerAction::Exit(3)),
        ] {
            let status = WorkerStatus { running, ended, change_mode: ChangeMode::Plain, is_lead: true };
            assert_eq!(decide_action(&directive, status), want, "{directive:?} {running:?} {ended:?}");
        }
        let wing =
            WorkerStatus { running: None, ended: None, change_mode: ChangeMode::Plain, is_lead: false };
        assert_eq!(decide_action(&Directive::Finish { code: 3 }, wing), WorkerAction::Exit(0));
    }

    #[test]
    fn directives_for_a_command_that_stays_alive() {
        let part = Directive::Part { generation: 3, urgent: true };
        for (directive, change_mode, want) in [
            (run(2), ChangeMode::Live, WorkerAction::Meet(member(2))),
            (run(3), ChangeMode::Live, WorkerAction::Stop),
            (run(2), ChangeMode::Spare, WorkerAction::Stop),
            (run(2), ChangeMode::Parting, WorkerAction::Stop),
            (regroup(3), ChangeMode::Live, WorkerAction::Meet(member(3))),
            (regroup(3), ChangeMode::Spare, WorkerAction::Meet(member(3))),
            (regroup(3), ChangeMode::Parting, WorkerAction::Stop),
            // This is an older membership than the one that the command was notified of.
            (regroup(1), ChangeMode::Live, WorkerAction::Stop),
            (Directive::Warm(member(3)), ChangeMode::Spare, WorkerAction::Nothing),
            (Directive::Warm(member(3)), ChangeMode::Parting, WorkerAction::Nothing),
            (Directive::Warm(member(3)), ChangeMode::Live, WorkerAction::Stop),
            (part.clone(), ChangeMode::Live, WorkerAction::Part(3, true)),
            (part.clone(), ChangeMode::Parting, WorkerAction::Nothing),
            (part, ChangeMode::Spare, WorkerAction::Stop),
            (Directive::Rescue { generation: 2 }, ChangeMode::Live, WorkerAction::Rescue),
            (Directive::Rescue { generation: 1 }, ChangeMode::Live, WorkerAction::Nothing),
            (Directive::Hold, ChangeMode::Spare, WorkerAction::Stop),
            (Directive::Leave, ChangeMode::Parting, WorkerAction::Stop),
        ] {
            let status = WorkerStatus { running: Some(2), ended: None, change_mode, is_lead: false };
            assert_eq!(decide_action(&directive, status), want, "{directive:?} {change_mode:?}");
        }
    }
}
