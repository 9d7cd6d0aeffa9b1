//! Reads slurmctld's topology, the switches and the nodes below them, from `scontrol show topology`.
//!
//! slurmrestd has no endpoint for it. A site without topology.conf (or topology.yaml) has no topology.

use std::path::Path;
use std::time::Duration;

use super::SlurmError;
use super::command::ProgramCall;
use infill_model::{NodeName, SwitchRecord, Topology, hostlist};

/// Longest wait for scontrol.
const LIMIT: Duration = Duration::from_secs(10);

/// Most bytes that scontrol may print: one line per switch, with the nodes below it.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Most nodes and switches below others, over all lines.
const MAX_NODES: usize = 1_000_000;

/// scontrol's message for a cluster without switches.
const NO_TOPOLOGY: &str = "No topology information available";

/// `SLURM_TOPO_LEN` keeps scontrol from cutting long lines, whatever this process's environment says.
const ENVIRONMENT: [(&str, &str); 2] = [("LC_ALL", "C"), ("SLURM_TOPO_LEN", "1000000000")];

const DOING: &str = "reading scontrol show topology";

/// Reads the topology with scontrol. Empty where Slurm has none.
///
/// # Errors
/// `Transient` if scontrol fails; `Permanent` if its output cannot be read, or if the switches do not form a
/// forest.
pub(crate) async fn read_topology(scontrol: &Path) -> Result<Topology, SlurmError> {
    let args = &["show", "topology"];
    let program = ProgramCall { path: scontrol, args, env: &ENVIRONMENT, stdin: b"", limit: LIMIT };
    let out = program.run_bounded(MAX_BYTES).await.map_err(|e| transient_error(e.to_string()))?;
    if out.code != Some(0) {
        return Err(transient_error(format!("it ended with {:?}: {}", out.code, out.stderr)));
    }
    if out.stdout.len() as u64 >= MAX_BYTES {
        return Err(transient_error(format!("it printed {MAX_BYTES} bytes or more")));
    }
    let records = parse_topology(&String::from_utf8_lossy(&out.stdout)).map_err(permanent_error)?;
    // scontrol also ends with 0 when slurmctld does not answer.
    if records.is_empty() && !out.stderr.is_empty() && !out.stderr.contains(NO_TOPOLOGY) {
        return Err(transient_error(format!("it printed no switch: {}", out.stderr)));
    }
    Topology::from_records(&records).map_err(|e| permanent_error(e.to_string()))
}

fn transient_error(what: String) -> SlurmError {
    SlurmError::Transient { doing: DOING.to_owned(), what }
}

fn permanent_error(what: String) -> SlurmError {
    SlurmError::Permanent { doing: DOING.to_owned(), what }
}

/// Reads one switch per line, such as
///
/// ```text
/// SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-4]
/// SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=leaf[0-1]
/// BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4
/// ```
///
/// Aggregated blocks do not list the blocks that they consist of: they are skipped, and so are lines without
/// a switch. For a cluster with several topologies, scontrol shows the default one.
fn parse_topology(text: &str) -> Result<Vec<SwitchRecord>, String> {
    let mut records = Vec::new();
    let mut nodes = 0;
    for (line, number) in text.lines().zip(1..) {
        let Some(record) = parse_switch(line, number)? else { continue };
        nodes += record.nodes.len() + record.below.len();
        if nodes > MAX_NODES {
            return Err(format!("line {number}: more than {MAX_NODES} nodes and switches below others"));
        }
        records.push(record);
    }
    Ok(records)
}

fn parse_switch(line: &str, number: usize) -> Result<Option<SwitchRecord>, String> {
    let Some(name) = value_in_line(line, "SwitchName").or_else(|| value_in_line(line, "BlockName")) else {
        return Ok(None);
    };
    let below: Vec<String> =
        host_list_in_line(line, number, "Switches")?.iter().map(ToString::to_string).collect();
    // The nodes of a switch above others are connected to the lower switches, and not to this one.
    let nodes = if below.is_empty() { host_list_in_line(line, number, "Nodes")? } else { Vec::new() };
    Ok(Some(SwitchRecord { name: name.to_owned(), nodes, below }))
}

/// The value of `key` in a line of `KEY=VALUE` words; `None` if it is missing or `(null)`.
fn value_in_line<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
    let (_, value) = words.find(|(name, _)| *name == key)?;
    Some(value).filter(|value| *value != "(null)")
}

/// The expanded host list of `key` in a line; empty if it is missing.
fn host_list_in_line(line: &str, number: usize, key: &str) -> Result<Vec<NodeName>, String> {
    let Some(list) = value_in_line(line, key) else { return Ok(Vec::new()) };
    hostlist::expand_hostlist(list).map_err(|e| format!("line {number}, {key}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::write_script;

    /// The topology that is read when scontrol prints these texts to standard output and standard error.
    async fn read_with(out: &str, err: &str) -> Result<Topology, SlurmError> {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().display();
        std::fs::write(dir.path().join("out"), out).unwrap();
        std::fs::write(dir.path().join("err"), err).unwrap();
        let cat = format!("[ \"$*\" = 'show topology' ] || exit 1; cat '{here}/out'; cat '{here}/err' >&2");
        read_topology(&write_script(dir.path().join("scontrol"), &cat)).await
    }

    async fn printed(text: &str) -> Result<Topology, SlurmError> {
        read_with(text, "").await
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
        assert!(
            read_with("", "scontrol: error: No topology information available\n").await.unwrap().is_empty()
        );
        let away = "slurm_load_topo error: Unable to contact slurm controller (connect failure)\n";
        let error = read_with("", away).await.unwrap_err();
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
