//! Which switch each node hangs on, as slurmctld has it: `scontrol show topology`.
//!
//! slurmrestd has no endpoint for it. A site without topology.conf (or topology.yaml) has none.

use std::path::Path;
use std::time::Duration;

use super::SlurmError;
use super::command::ProgramCall;
use infill_model::{SwitchRecord, Topology, hostlist};

/// Longest wait for scontrol.
const LIMIT: Duration = Duration::from_secs(10);

/// Most bytes that it may print: a line a switch, each with the nodes below it.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// Most nodes, over all switches.
const MOST_NODES: usize = 1_000_000;

/// What scontrol says of a cluster without switches.
const NO_TOPOLOGY: &str = "No topology information available";

/// Lines are cut where somebody's environment says so.
const ENVIRONMENT: [(&str, &str); 2] = [("LC_ALL", "C"), ("SLURM_TOPO_LEN", "1000000000")];

const DOING: &str = "reading scontrol show topology";

/// Asks scontrol. Empty where Slurm knows of none.
///
/// # Errors
/// When scontrol does not tell, or tells of switches that are no forest.
pub(crate) async fn read_topology(scontrol: &Path) -> Result<Topology, SlurmError> {
    let args = &["show", "topology"];
    let program = ProgramCall { path: scontrol, args, env: &ENVIRONMENT, stdin: b"", limit: LIMIT };
    let failed = |what: String| SlurmError::Transient { doing: DOING.to_owned(), what };
    let out = program.run_bounded(MOST_BYTES).await.map_err(|e| failed(e.to_string()))?;
    if out.code != Some(0) {
        return Err(failed(format!("it ended with {:?}: {}", out.code, out.stderr)));
    }
    if out.stdout.len() as u64 >= MOST_BYTES {
        return Err(failed(format!("it printed {MOST_BYTES} bytes or more")));
    }
    let refused = |what: String| SlurmError::Permanent { doing: DOING.to_owned(), what };
    let records = parse_topology(&String::from_utf8_lossy(&out.stdout)).map_err(refused)?;
    // It ends with 0 when slurmctld does not answer, too.
    if records.is_empty() && !out.stderr.is_empty() && !out.stderr.contains(NO_TOPOLOGY) {
        return Err(failed(format!("it told of no switch: {}", out.stderr)));
    }
    Topology::from_records(&records).map_err(|e| refused(e.to_string()))
}

/// Reads a line a switch, such as
///
/// ```text
/// SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-4]
/// SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=leaf[0-1]
/// BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4
/// ```
///
/// Blocks that are put together of others say nothing of which: they are passed over. So is what is no
/// switch. Of a cluster with several topologies scontrol shows the default one.
fn parse_topology(text: &str) -> Result<Vec<SwitchRecord>, String> {
    let mut records = Vec::new();
    let mut nodes = 0;
    for (line, number) in text.lines().zip(1..) {
        let Some(record) = parse_switch(line, number)? else { continue };
        nodes += record.nodes.len() + record.below.len();
        if nodes > MOST_NODES {
            return Err(format!("line {number}: more than {MOST_NODES} nodes and switches below others"));
        }
        records.push(record);
    }
    Ok(records)
}

fn parse_switch(line: &str, number: usize) -> Result<Option<SwitchRecord>, String> {
    let value = |key: &str| {
        let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(name, _)| *name == key).map(|(_, value)| value).filter(|value| *value != "(null)")
    };
    let Some(name) = value("SwitchName").or_else(|| value("BlockName")) else { return Ok(None) };
    let list = |key: &str| {
        value(key).map_or(Ok(Vec::new()), |list: &str| {
            hostlist::expand_hostlist(list).map_err(|e| format!("line {number}, {key}: {e}"))
        })
    };
    let below: Vec<String> = list("Switches")?.iter().map(ToString::to_string).collect();
    // What hangs below the switches below it is not on the switch itself.
    let nodes = if below.is_empty() { list("Nodes")? } else { Vec::new() };
    Ok(Some(SwitchRecord { name: name.to_owned(), nodes, below }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::NodeName;
    use infill_testkit::write_script;

    /// What is made of what scontrol prints, and of what it complains of.
    async fn told(out: &str, err: &str) -> Result<Topology, SlurmError> {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().display();
        std::fs::write(dir.path().join("out"), out).unwrap();
        std::fs::write(dir.path().join("err"), err).unwrap();
        let cat = format!("[ \"$*\" = 'show topology' ] || exit 1; cat '{here}/out'; cat '{here}/err' >&2");
        read_topology(&write_script(dir.path().join("scontrol"), &cat)).await
    }

    async fn printed(text: &str) -> Result<Topology, SlurmError> {
        told(text, "").await
    }

    fn leaf(topology: &Topology, node: &str) -> Option<String> {
        topology.leaf_of(&NodeName::new(node)).map(|leaf| topology.switch_name(leaf).to_owned())
    }

    #[tokio::test]
    async fn trees_and_blocks_are_read() {
        let tree = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2] \nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=n3\n\
                    SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=s[0-1]\n";
        let read = printed(tree).await.unwrap();
        assert_eq!([leaf(&read, "n2"), leaf(&read, "n3")], [Some("s0".to_owned()), Some("s1".to_owned())]);
        assert_eq!(read.path_to_root(read.leaf_of(&NodeName::new("n1")).unwrap()).count(), 2);
        let blocks = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n\
                      BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n\
                      AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n";
        let read = printed(blocks).await.unwrap();
        assert_eq!([leaf(&read, "n2"), leaf(&read, "n3")], [Some("b1".to_owned()), Some("b2".to_owned())]);
    }

    #[tokio::test]
    async fn a_flat_site_has_none_and_nonsense_is_refused() {
        assert!(told("", "scontrol: error: No topology information available\n").await.unwrap().is_empty());
        let away = "slurm_load_topo error: Unable to contact slurm controller (connect failure)\n";
        let error = told("", away).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("connect failure"), "{error}");
        let error = printed("SwitchName=s0 Level=0 Nodes=n[1-\n").await.unwrap_err();
        assert!(error.to_string().contains("line 1, Nodes"), "{error}");
        let ring = printed("SwitchName=a Switches=b\nSwitchName=b Switches=a\n").await.unwrap_err();
        assert!(!ring.is_transient() && ring.to_string().contains("above itself"), "{ring}");
        let many = "SwitchName=a Nodes=n[1-90000]\n".repeat(12);
        assert!(printed(&many).await.unwrap_err().to_string().contains("line 12"));
        assert!(read_topology(Path::new("/no/such/scontrol")).await.unwrap_err().is_transient());
    }
}
