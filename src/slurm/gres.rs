//! Generic resources in Slurm's notation, and the node type that follows from them.

use crate::model::NodeType;

/// One generic resource of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Gres {
    name: String,
    kind: Option<String>,
    count: String,
}

/// Splits at commas outside parentheses: `gpu:a100:4(S:0,1),nvme:1` has two items.
fn items(text: &str) -> Vec<&str> {
    let (mut items, mut start, mut depth) = (Vec::new(), 0, 0usize);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    items.retain(|item| !item.trim().is_empty() && item.trim() != "(null)");
    items
}

/// Reads `name[:type][:count][(where)]`.
fn parse(item: &str) -> Gres {
    let bare = item.split('(').next().unwrap_or("").trim();
    let is_count = |s: &str| s.starts_with(|c: char| c.is_ascii_digit());
    let mut parts = bare.split(':');
    let name = parts.next().unwrap_or("").to_owned();
    match (parts.next(), parts.next()) {
        (Some(kind), Some(count)) => Gres { name, kind: Some(kind.to_owned()), count: count.to_owned() },
        (Some(count), None) if is_count(count) => Gres { name, kind: None, count: count.to_owned() },
        (Some(kind), None) => Gres { name, kind: Some(kind.to_owned()), count: "1".to_owned() },
        _ => Gres { name, kind: None, count: "1".to_owned() },
    }
}

/// The class of interchangeable nodes: `gpu:a100:4/cpu64`, or `cpu2` without generic resources.
///
/// Memory and features are left out on purpose: real memory differs by a few megabytes between equal nodes,
/// and features often name racks, which would split one type into many. Where a GPU has no type, the features
/// are all that tells an old one from a new one, so there they are added: `gpu:4/cpu64/v100`.
pub(super) fn node_type(gres: &str, cpus: i64, features: &[impl AsRef<str>]) -> NodeType {
    let mut all: Vec<Gres> = items(gres).into_iter().map(parse).filter(|g| g.count != "0").collect();
    all.sort();
    let untyped_gpu = all.iter().any(|g| g.name == "gpu" && g.kind.is_none());
    let mut text = all
        .iter()
        .map(|g| match &g.kind {
            Some(kind) => format!("{}:{kind}:{}", g.name, g.count),
            None => format!("{}:{}", g.name, g.count),
        })
        .collect::<Vec<_>>()
        .join("+");
    if !text.is_empty() {
        text.push('/');
    }
    text.push_str(&format!("cpu{cpus}"));
    if untyped_gpu && !features.is_empty() {
        let mut features: Vec<&str> = features.iter().map(AsRef::as_ref).collect();
        features.sort_unstable();
        text.push('/');
        text.push_str(&features.join("+"));
    }
    NodeType::new(text)
}

/// What `--gres` needs to say to ask for the same on each node, from the job's `tres_per_node` or else from
/// its total request over `nodes` nodes. Empty if the job asked for none, or if the total does not divide by
/// the nodes.
pub(super) fn per_node(tres_per_node: &str, tres_req: &str, nodes: u32) -> String {
    let named: Vec<&str> = items(tres_per_node)
        .into_iter()
        .filter_map(|item| item.strip_prefix("gres:").or_else(|| item.strip_prefix("gres/")))
        .collect();
    if !named.is_empty() {
        return named.join(",").replace('=', ":");
    }
    from_total(tres_req, nodes.max(1))
}

fn from_total(tres_req: &str, nodes: u32) -> String {
    let totals: Vec<(&str, u64)> = items(tres_req)
        .into_iter()
        .filter_map(|item| item.strip_prefix("gres/")?.split_once('='))
        .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
        .filter(|(_, count)| *count > 0 && count % u64::from(nodes) == 0)
        .collect();
    // `gres/gpu=4,gres/gpu:a100=4` counts the same four GPUs twice: the typed entry says more.
    let is_typed_too =
        |name: &str| totals.iter().any(|(other, _)| other.split(':').next() == Some(name) && *other != name);
    totals
        .iter()
        .filter(|(name, _)| !is_typed_too(name))
        .map(|(name, count)| format!("{name}:{}", count / u64::from(nodes)))
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hardware_has_one_name() {
        let features = ["rack7".to_owned(), "ib".to_owned()];
        let name = |gres: &str| node_type(gres, 64, &features).to_string();
        assert_eq!(name(""), "cpu64");
        assert_eq!(name("(null)"), "cpu64");
        assert_eq!(name("gpu:a100:4(S:0-1)"), "gpu:a100:4/cpu64");
        assert_eq!(name("nvme:1,gpu:a100:4(S:0,1)"), "gpu:a100:4+nvme:1/cpu64");
        assert_eq!(name("gpu:4"), "gpu:4/cpu64/ib+rack7");
        assert_eq!(name("gpu:a100:0,gpu:h100"), "gpu:h100:1/cpu64");
    }

    #[test]
    fn a_wing_can_ask_for_what_the_lead_has() {
        assert_eq!(per_node("gres:gpu:a100:4", "", 1), "gpu:a100:4");
        assert_eq!(per_node("gres/gpu:a100:4,gres/nvme:1", "", 1), "gpu:a100:4,nvme:1");
        assert_eq!(per_node("gres/gpu=4", "", 1), "gpu:4");
        let total = "cpu=8,mem=4G,node=2,billing=8,gres/gpu=8,gres/gpu:a100=8";
        assert_eq!(per_node("", total, 2), "gpu:a100:4");
        assert_eq!(per_node("", "cpu=1,gres/gpu=3", 2), "");
        assert_eq!(per_node("", "cpu=1,mem=2000M,node=1,billing=1", 1), "");
    }
}
