//! What a worker shall do next: a pure function of what the daemon says and of what runs.

use crate::model::{Directive, Member};

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// All is as it shall be.
    Nothing,
    /// Start the command in this place.
    Start(Member),
    /// Ask the command that runs to stop.
    Stop,
    /// Say (again) that the command of this generation does not run.
    Tell(u64),
    /// Exit with this code.
    Exit(i32),
}

/// Decides. `running` is the generation whose command runs here, `ended` the last one whose command has
/// ended.
pub fn decide(directive: &Directive, running: Option<u64>, ended: Option<u64>, is_lead: bool) -> Act {
    match (directive, running) {
        (Directive::Run(m), Some(g)) if g == m.generation => Act::Nothing,
        // It was this generation's command that ended: the daemon has not heard of it yet.
        (Directive::Run(m), None) if ended == Some(m.generation) => Act::Tell(m.generation),
        (Directive::Run(m), None) => Act::Start(m.clone()),
        // An order to stop what was before ours.
        (Directive::Stop { generation }, Some(g)) if g > *generation => Act::Nothing,
        (Directive::Stop { generation }, None) => Act::Tell(*generation),
        (_, Some(_)) => Act::Stop,
        (Directive::Hold, None) => Act::Nothing,
        (Directive::Leave, None) => Act::Exit(0),
        (Directive::Finish { code }, None) => Act::Exit(if is_lead { *code } else { 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(generation: u64) -> Directive {
        Directive::Run(member(generation))
    }

    fn member(generation: u64) -> Member {
        Member {
            generation,
            rank: 0,
            world: 1,
            master_addr: "n1".to_owned(),
            master_port: 1,
            nodes: vec!["n1".into()],
            exec_plan: "default".to_owned(),
        }
    }

    #[test]
    fn every_case() {
        let stop = |generation| Directive::Stop { generation };
        for (directive, running, ended, want) in [
            (run(2), None, Some(1), Act::Start(member(2))),
            (run(2), Some(2), Some(1), Act::Nothing),
            (run(2), None, Some(2), Act::Tell(2)),
            (run(3), Some(2), Some(1), Act::Stop),
            (stop(2), Some(2), None, Act::Stop),
            (stop(3), Some(2), None, Act::Stop),
            (stop(1), Some(2), None, Act::Nothing),
            (stop(2), None, Some(2), Act::Tell(2)),
            (stop(2), None, None, Act::Tell(2)),
            (Directive::Hold, Some(2), None, Act::Stop),
            (Directive::Hold, None, Some(2), Act::Nothing),
            (Directive::Leave, Some(2), None, Act::Stop),
            (Directive::Leave, None, Some(2), Act::Exit(0)),
            (Directive::Finish { code: 3 }, Some(2), None, Act::Stop),
            (Directive::Finish { code: 3 }, None, Some(2), Act::Exit(3)),
        ] {
            assert_eq!(decide(&directive, running, ended, true), want, "{directive:?} {running:?} {ended:?}");
        }
        assert_eq!(decide(&Directive::Finish { code: 3 }, None, None, false), Act::Exit(0));
    }
}
