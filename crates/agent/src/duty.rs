//! What a worker shall do next: a pure function of what the daemon says and of what runs.

use infill_model::{Directive, GenerationMember};

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
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
pub(crate) enum Way {
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
pub(crate) struct Present {
    /// The generation whose command runs here.
    pub running: Option<u64>,
    /// The last one whose command has ended.
    pub ended: Option<u64>,
    /// How the one that runs takes changes.
    pub way: Way,
    /// Whether it is the lead's node.
    pub is_lead: bool,
}

/// Decides.
pub(crate) fn decide(directive: &Directive, here: Present) -> Act {
    match here.running {
        Some(generation) => decide_running(directive, generation, here.way),
        None => decide_idle(directive, here),
    }
}

fn decide_running(directive: &Directive, running: u64, way: Way) -> Act {
    match directive {
        Directive::Run(m) if running == m.generation && matches!(way, Way::Plain | Way::Live) => {
            Act::Meet(m.clone())
        }
        Directive::Regroup(m) if running <= m.generation && matches!(way, Way::Live | Way::Spare) => {
            Act::Meet(m.clone())
        }
        Directive::Warm(_) if matches!(way, Way::Spare | Way::Parting) => Act::Nothing,
        Directive::Part { .. } if way == Way::Parting => Act::Nothing,
        Directive::Part { generation, urgent } if running <= *generation && way == Way::Live => {
            Act::Part(*generation, *urgent)
        }
        // An order to stop what was before ours.
        Directive::Stop { generation } | Directive::Rescue { generation } if running > *generation => {
            Act::Nothing
        }
        Directive::Rescue { .. } if way == Way::Live => Act::Rescue,
        _ => Act::Stop,
    }
}

fn decide_idle(directive: &Directive, here: Present) -> Act {
    match directive {
        // It was this generation's command that ended: the daemon has not heard of it yet.
        Directive::Run(m) if here.ended == Some(m.generation) => Act::Tell(m.generation),
        Directive::Run(m) => Act::Start(m.clone()),
        // What was to be taken along is gone.
        Directive::Regroup(m) => Act::Tell(m.generation),
        Directive::Warm(m) => Act::Warm(m.clone()),
        Directive::Stop { generation } | Directive::Rescue { generation } => Act::Tell(*generation),
        Directive::Hold | Directive::Part { .. } => Act::Nothing,
        Directive::Leave => Act::Exit(0),
        Directive::Finish { code } => Act::Exit(if here.is_lead { *code } else { 0 }),
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
            (run(2), None, Some(1), Act::Start(member(2))),
            (run(2), Some(2), Some(1), Act::Meet(member(2))),
            (run(2), None, Some(2), Act::Tell(2)),
            (run(3), Some(2), Some(1), Act::Stop),
            (regroup(3), Some(2), None, Act::Stop),
            (regroup(3), None, Some(2), Act::Tell(3)),
            (Directive::Warm(member(2)), None, Some(2), Act::Warm(member(2))),
            (Directive::Warm(member(2)), Some(2), None, Act::Stop),
            (Directive::Part { generation: 3, urgent: false }, Some(2), None, Act::Stop),
            (Directive::Part { generation: 3, urgent: false }, None, Some(2), Act::Nothing),
            (stop(2), Some(2), None, Act::Stop),
            (stop(3), Some(2), None, Act::Stop),
            (stop(1), Some(2), None, Act::Nothing),
            (stop(2), None, Some(2), Act::Tell(2)),
            (stop(2), None, None, Act::Tell(2)),
            (rescue(2), Some(2), None, Act::Stop),
            (rescue(2), None, None, Act::Tell(2)),
            (Directive::Hold, Some(2), None, Act::Stop),
            (Directive::Hold, None, Some(2), Act::Nothing),
            (Directive::Leave, Some(2), None, Act::Stop),
            (Directive::Leave, None, Some(2), Act::Exit(0)),
            (Directive::Finish { code: 3 }, Some(2), None, Act::Stop),
            (Directive::Finish { code: 3 }, None, Some(2), Act::Exit(3)),
        ] {
            let here = Present { running, ended, way: Way::Plain, is_lead: true };
            assert_eq!(decide(&directive, here), want, "{directive:?} {running:?} {ended:?}");
        }
        let wing = Present { running: None, ended: None, way: Way::Plain, is_lead: false };
        assert_eq!(decide(&Directive::Finish { code: 3 }, wing), Act::Exit(0));
    }

    #[test]
    fn what_stays_alive() {
        let part = Directive::Part { generation: 3, urgent: true };
        for (directive, way, want) in [
            (run(2), Way::Live, Act::Meet(member(2))),
            (run(3), Way::Live, Act::Stop),
            (run(2), Way::Spare, Act::Stop),
            (run(2), Way::Parting, Act::Stop),
            (regroup(3), Way::Live, Act::Meet(member(3))),
            (regroup(3), Way::Spare, Act::Meet(member(3))),
            (regroup(3), Way::Parting, Act::Stop),
            // Of an older membership than the one that it was told.
            (regroup(1), Way::Live, Act::Stop),
            (Directive::Warm(member(3)), Way::Spare, Act::Nothing),
            (Directive::Warm(member(3)), Way::Parting, Act::Nothing),
            (Directive::Warm(member(3)), Way::Live, Act::Stop),
            (part.clone(), Way::Live, Act::Part(3, true)),
            (part.clone(), Way::Parting, Act::Nothing),
            (part, Way::Spare, Act::Stop),
            (Directive::Rescue { generation: 2 }, Way::Live, Act::Rescue),
            (Directive::Rescue { generation: 1 }, Way::Live, Act::Nothing),
            (Directive::Hold, Way::Spare, Act::Stop),
            (Directive::Leave, Way::Parting, Act::Stop),
        ] {
            let here = Present { running: Some(2), ended: None, way, is_lead: false };
            assert_eq!(decide(&directive, here), want, "{directive:?} {way:?}");
        }
    }
}
