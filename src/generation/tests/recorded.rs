//! Records: what is written is read again, and so is what was written before records had a version.

use serde_json::json;

use crate::generation::machine::Machine;
use crate::model::UnixTime;

use super::rig::running;
use super::table::PHASES;

/// Records without a version, each as the program wrote it.
const UNVERSIONED: [(&str, &str); 4] = [
    ("launching", include_str!("unversioned/launching.json")),
    ("running on two nodes, with a wing ordered for a third", include_str!("unversioned/running.json")),
    ("stopping because a member failed", include_str!("unversioned/failing.json")),
    ("stopping because Slurm takes a node back", include_str!("unversioned/losing.json")),
];

#[test]
fn what_is_written_is_read_again() {
    for (name, phase) in PHASES {
        let mut machine = phase().m;
        let mut read = Machine::from_record(machine.record()).unwrap();
        // The target comes with the next round.
        machine.resume(UnixTime(5000));
        read.resume(UnixTime(5000));
        assert_eq!(read, machine, "{name}");
    }
}

#[test]
fn only_known_versions_are_read() {
    let record = |version| {
        let mut record = running("1-8", &[1]).m.record();
        record["version"] = version;
        Machine::from_record(record).map_or_else(|e| e.to_string(), |_| "read".to_owned())
    };
    let said = [json!(2), json!(3), json!("2"), json!(null)].map(record).join("\n");
    insta::assert_snapshot!(said, @"");
    let error = Machine::from_record(json!({"job": 7})).unwrap_err();
    insta::assert_snapshot!(error, @"");
}

#[test]
fn records_without_a_version_are_read() {
    let mut said = String::new();
    for (name, text) in UNVERSIONED {
        let m = Machine::from_record(serde_json::from_str(text).unwrap()).unwrap();
        let wings: Vec<String> =
            m.wings.iter().map(|(o, w)| format!("{o} on {:?} {:?}", w.order.nodes, w.job)).collect();
        said += &format!(
            "{name}:\n  {:?}\n  {:?} of {}, workers {:?}, wings {wings:?}, changed {:?}, back-off {:?}\n",
            m.phase,
            m.generation,
            m.allowed(),
            m.workers.keys(),
            m.rescaled_at,
            m.backoff.start_after,
        );
    }
    insta::assert_snapshot!(said, @"");
}
