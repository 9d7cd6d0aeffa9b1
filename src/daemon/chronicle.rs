//! What is recorded for people: what each node was used for, round by round.

use crate::gaps::{Delay, Delays, Occupancy, Use};
use crate::model::{Gaps, JobId, NodeName, Refusal, Snapshot, UnixTime, lead_of};
use crate::timeline::{Hour, NodeUse, Recorder};

/// How often the hour that is under way is stored, seconds: so much is lost of it when the daemon is killed.
const STORED_EVERY_SECS: f64 = 60.0;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Chronicle {
    recorder: Recorder,
    delays: Delays,
    /// Main jobs that have started where ours were, and are not counted yet.
    started: Vec<Delay>,
    /// When the hour that is under way was to be stored last.
    stored_at: Option<UnixTime>,
}

impl Chronicle {
    /// Goes on with the hour of an earlier daemon.
    pub fn resume(&mut self, hour: Hour) {
        self.recorder = Recorder::resume(hour);
    }

    /// How long main jobs waited that have started since the last call.
    pub fn take_started(&mut self) -> Vec<Delay> {
        std::mem::take(&mut self.started)
    }

    /// Takes in a trusted snapshot and what was found in it. Returns the hours that are to be stored: those
    /// that are over by that, and at times the one that is under way.
    pub fn look(&mut self, snapshot: &Snapshot, partition: &str, gaps: &Gaps, now: UnixTime) -> Vec<Hour> {
        let occupancy = Occupancy::of(snapshot, partition);
        self.started.extend(self.delays.look(snapshot, &occupancy, now));
        let ours = snapshot.nodes.iter().enumerate();
        let ours = ours.filter(|(_, node)| node.partitions.iter().any(|p| p == partition));
        let used = |(at, node): (usize, &crate::model::Node)| {
            let used = match occupancy.usage(at)? {
                Use::Main(_) => NodeUse::Main,
                Use::Ours(job) | Use::Leaving(job) => NodeUse::Job(whose(snapshot, job)),
                Use::Asleep | Use::Unsound | Use::Unexplained => NodeUse::Down,
                Use::Free => idle(gaps, &node.name),
            };
            Some((node.name.clone(), used))
        };
        let mut hours = self.recorder.look(now, ours.filter_map(used));
        if self.stored_at.is_none_or(|at| now.secs_since(at) >= STORED_EVERY_SECS) {
            self.stored_at = Some(now);
            hours.push(self.recorder.hour().clone());
        }
        hours
    }

    /// The hour that is under way, to be stored at the end; `None` where nobody has looked.
    pub fn under_way(&self) -> Option<Hour> {
        self.stored_at.map(|_| self.recorder.hour().clone())
    }
}

/// The malleable job to which one of ours belongs. Wings are named after their leads, and whoever names a job
/// after somebody else's has one of its own.
fn whose(snapshot: &Snapshot, job: JobId) -> JobId {
    let lead = || {
        let wing = snapshot.job(job)?;
        snapshot.job(lead_of(wing)?).filter(|lead| lead.user_id == wing.user_id)
    };
    lead().map_or(job, |lead| lead.id)
}

/// What an idle node is for.
fn idle(gaps: &Gaps, node: &NodeName) -> NodeUse {
    match gaps.refusal(node) {
        None => NodeUse::Idle,
        Some(Refusal::Reserved(_) | Refusal::Short { .. }) => NodeUse::Wanted,
        Some(_) => NodeUse::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BaseState, Job, Node, NodeState, NodeType, UserId, wing_name};

    fn snapshot() -> Snapshot {
        let node = |name: &str, state: &str| Node {
            partitions: vec!["infill".to_owned()],
            state: NodeState::from_words([state]),
            ..Node::new(NodeName::new(name), NodeType::new("a"))
        };
        let job = |id, partition: &str, node: &str, name: &str| Job {
            nodes: vec![NodeName::new(node)],
            name: name.to_owned(),
            ..Job::new(JobId(id), partition, BaseState::Running)
        };
        let wing = job(8, "infill", "n2", &wing_name(JobId(7)));
        let theirs = Job { user_id: UserId(5), ..job(9, "infill", "n7", &wing_name(JobId(7))) };
        let elsewhere = Node { partitions: vec!["main".to_owned()], ..node("n0", "IDLE") };
        let states = [
            ("n1", "ALLOCATED"),
            ("n2", "ALLOCATED"),
            ("n3", "IDLE"),
            ("n4", "IDLE"),
            ("n5", "IDLE"),
            ("n6", "DOWN"),
            ("n7", "ALLOCATED"),
        ];
        let nodes = states.map(|(name, state)| node(name, state));
        Snapshot {
            nodes: std::iter::once(elsewhere).chain(nodes).collect(),
            jobs: vec![job(1, "main", "n1", ""), job(7, "infill", "", ""), wing, theirs],
            ..Snapshot::default()
        }
    }

    fn look(chronicle: &mut Chronicle, at: i64) -> Vec<Hour> {
        let short = Refusal::Short { window_secs: 5.0, cause: None, worth_secs: 60.0 };
        let refused = vec![(NodeName::new("n4"), short), (NodeName::new("n5"), Refusal::Kept { nodes: 1 })];
        let gaps = Gaps { gaps: Vec::new(), refused };
        chronicle.look(&snapshot(), "infill", &gaps, UnixTime(at))
    }

    #[test]
    fn each_node_of_the_partition_is_used_for_something() {
        let mut chronicle = Chronicle::default();
        look(&mut chronicle, 3600);
        let hour = look(&mut chronicle, 3660).remove(0);
        let spans = hour.spans();
        let said: Vec<String> = spans
            .iter()
            .map(|(node, from, to, used)| format!("{} {from}-{to} {used:?}", hour.names[*node as usize]))
            .collect();
        let expected = [
            "n1 0-60 Main",
            "n2 0-60 Job(JobId(7))",
            "n3 0-60 Idle",
            "n4 0-60 Wanted",
            "n5 0-60 Refused",
            "n6 0-60 Down",
            "n7 0-60 Job(JobId(9))",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn the_hour_that_is_under_way_is_stored_once_a_minute() {
        let mut chronicle = Chronicle::default();
        let mut stored = |at| -> Vec<(i64, u32)> {
            look(&mut chronicle, at).iter().map(|hour| (hour.from.0, hour.secs)).collect()
        };
        assert_eq!(stored(7100), [(3600, 3500)]);
        assert!(stored(7130).is_empty());
        assert_eq!(stored(7160), [(3600, 3560)]);
        assert_eq!(stored(7205), [(3600, 3600)]);
        assert_eq!(stored(7220), [(7200, 20)]);
    }
}
