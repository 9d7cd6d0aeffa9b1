//! What a worker shall do next: a pure function of what the daemon says and of what runs.

use infill_model::{Directive, GenerationMember};

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WorkerAction {
    /// All is as it shall be.
    Nothing,
    /// Start the command in this place.
    Start(GenerationMember),
    /// Start the command as a newcomer, which is to have such a place.
    Warm(GenerationMember),
    /// Let the command that runs know of its place, if it can be told.
    Meet(GenerationMember),
    /// Let the command that runs leave the others, which go on without it.
    Part(u64, bool),
    /// Ask the command that runs to stop.
    Stop,
    /// The same, once it has saved what is in its memory.
    Rescue,
    /// Say (again) that the command of this generation does not run.
    Tell(u64),
    /// Exit with this code.
    Exit(i32),
}

/// How the command that runs takes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeMode {
    /// It is stopped and started again.
    Plain,
    /// It stays alive, and can be told.
    Live,
    /// It was started as a newcomer, and has no place yet.
    Spare,
    /// It has been told to leave.
    Parting,
}

/// What is on the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerStatus {
    /// The generation whose command runs here.
    pub running: Option<u64>,
    /// The last one whose command has ended.
    pub ended: Option<u64>,
    /// How the one that runs takes changes.
    pub way: ChangeMode,
    /// Whether it is the lead's node.
    pub is_lead: bool,
}

/// Decides.
pub(crate) fn decide_action(directive: &Directive, here: WorkerStatus) -> WorkerAction {
    match here.running {
        Some(generation) => decide_running(directive, generation, here.way),
        None => decide_idle(directive, here),
    }
}

fn decide_running(directive: &Directive, running: u64, way: ChangeMode) -> WorkerAction {
    match directive {
        Directive::Run(m)
            if running == m.generation && matches!(way, ChangeMode::Plain | ChangeMode::Live) =>
        {
            WorkerAction::Meet(m.clone())
        }
        Directive::Regroup(m)
            if running <= m.generation && matches!(way, ChangeMode::Live | ChangeMode::Spare) =>
        {
            WorkerAction::Meet(m.clone())
        }
        Directive::Warm(_) if matches!(way, ChangeMode::Spare | ChangeMode::Parting) => WorkerAction::Nothing,
        Directive::Part { .. } if way == ChangeMode::Parting => WorkerAction::Nothing,
        Directive::Part { generation, urgent } if running <= *generation && way == ChangeMode::Live => {
            WorkerAction::Part(*generation, *urgent)
        }
        // An order to stop what was before ours.
        Directive::Stop { generation } | Directive::Rescue { generation } if running > *generation => {
            WorkerAction::Nothing
        }
        Directive::Rescue { .. } if way == ChangeMode::Live => WorkerAction::Rescue,
        _ => WorkerAction::Stop,
    }
}

fn decide_idle(directive: &Directive, here: WorkerStatus) -> WorkerAction {
    match directive {
        // It was this generation's command that ended: the daemon has not heard of it yet.
        Directive::Run(m) if here.ended == Some(m.generation) => WorkerAction::Tell(m.generation),
        Directive::Run(m) => WorkerAction::Start(m.clone()),
        // What was to be taken along is gone.
        Directive::Regroup(m) => WorkerAction::Tell(m.generation),
        Directive::Warm(m) => WorkerAction::Warm(m.clone()),
        Directive::Stop { generation } | Directive::Rescue { generation } => WorkerAction::Tell(*generation),
        Directive::Hold | Directive::Part { .. } => WorkerAction::Nothing,
        Directive::Leave => WorkerAction::Exit(0),
        Directive::Finish { code } => WorkerAction::Exit(if here.is_lead { *code } else { 0 }),
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
    fn every_case() {
        let stop = |generation| Directive::Stop { generation };
        let rescue = |generation| Directive::Rescue { generation };
        for (directive, running, ended, want) in [
            (run(2), None, Some(1), WorkerAction::Start(member(2))),
            (run(2), Some(2), Some(1), WorkerAction::Meet(member(2))),
            (run(2), None, Some(2), WorkerAction::Tell(2)),
            (run(3), Some(2), Some(1), WorkerAction::Stop),
            (regroup(3), Some(2), None, WorkerAction::Stop),
            (regroup(3), None, Some(2), WorkerAction::Tell(3)),
            (Directive::Warm(member(2)), None, Some(2), WorkerAction::Warm(member(2))),
            (Directive::Warm(member(2)), Some(2), None, WorkerAction::Stop),
            (Directive::Part { generation: 3, urgent: false }, Some(2), None, WorkerAction::Stop),
            (Directive::Part { generation: 3, urgent: false }, None, Some(2), WorkerAction::Nothing),
            (stop(2), Some(2), None, WorkerAction::Stop),
            (stop(3), Some(2), None, WorkerAction::Stop),
            (stop(1), Some(2), None, WorkerAction::Nothing),
            (stop(2), None, Some(2), WorkerAction::Tell(2)),
            (stop(2), None, None, WorkerAction::Tell(2)),
            (rescue(2), Some(2), None, WorkerAction::Stop),
            (rescue(2), None, None, WorkerAction::Tell(2)),
            (Directive::Hold, Some(2), None, WorkerAction::Stop),
            (Directive::Hold, None, Some(2), WorkerAction::Nothing),
            (Directive::Leave, Some(2), None, WorkerAction::Stop),
            (Directive::Leave, None, Some(2), WorkerAction::Exit(0)),
            (Directive::Finish { code: 3 }, Some(2), None, WorkerAction::Stop),
            (Directive::Finish { code: 3 }, None, Some(2), WorkerAction::Exit(3)),
        ] {
            let here = WorkerStatus { running, ended, way: ChangeMode::Plain, is_lead: true };
            assert_eq!(decide_action(&directive, here), want, "{directive:?} {running:?} {ended:?}");
        }
        let wing = WorkerStatus { running: None, ended: None, way: ChangeMode::Plain, is_lead: false };
        assert_eq!(decide_action(&Directive::Finish { code: 3 }, wing), WorkerAction::Exit(0));
    }

    #[test]
    fn what_stays_alive() {
        let part = Directive::Part { generation: 3, urgent: true };
        for (directive, way, want) in [
            (run(2), ChangeMode::Live, WorkerAction::Meet(member(2))),
            (run(3), ChangeMode::Live, WorkerAction::Stop),
            (run(2), ChangeMode::Spare, WorkerAction::Stop),
            (run(2), ChangeMode::Parting, WorkerAction::Stop),
            (regroup(3), ChangeMode::Live, WorkerAction::Meet(member(3))),
            (regroup(3), ChangeMode::Spare, WorkerAction::Meet(member(3))),
            (regroup(3), ChangeMode::Parting, WorkerAction::Stop),
            // Of an older membership than the one that it was told.
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
            let here = WorkerStatus { running: Some(2), ended: None, way, is_lead: false };
            assert_eq!(decide_action(&directive, here), want, "{directive:?} {way:?}");
        }
    }
}
