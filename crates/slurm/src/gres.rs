//! Generic resources in Slurm's notation, and the node type that follows from them.

use infill_model::{GpuCounts, NodeType};

/// Slurm's name of the generic resource for GPUs.
const GPU: &str = "gpu";

/// Generic resources with which Slurm allocates parts of GPUs.
const PARTS_OF_GPUS: [&str; 2] = ["mps", "shard"];

/// One generic resource of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GenericResource {
    name: String,
    kind: Option<String>,
    count: String,
}

/// Splits at commas outside parentheses: `gpu:a100:4(S:0,1),nvme:1` has two items.
fn split_items(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut depth = 0usize;
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

/// Whether a part of a generic resource is a count and not a type. A count may end in a multiplier, as in
/// `4k`. The types of MIG slices also begin with a digit, as in `gpu:1g.5gb`.
fn is_count(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix_len = text.len() - digits.len();
    suffix_len <= 1 && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Reads `name[:type][:count][(where)]`.
fn parse_gres(item: &str) -> GenericResource {
    // Slurm writes GPUs without a type as `gpu:(null):2(IDX:0-1)`.
    let typeless = item.replace(":(null)", "");
    let bare = typeless.split('(').next().unwrap_or("").trim();
    let mut parts = bare.split(':');
    let name = parts.next().unwrap_or("").to_owned();
    match (parts.next(), parts.next()) {
        (Some(kind), Some(count)) => {
            GenericResource { name, kind: Some(kind.to_owned()), count: count.to_owned() }
        }
        (Some(count), None) if is_count(count) => {
            GenericResource { name, kind: None, count: count.to_owned() }
        }
        (Some(kind), None) => GenericResource { name, kind: Some(kind.to_owned()), count: "1".to_owned() },
        _ => GenericResource { name, kind: None, count: "1".to_owned() },
    }
}

/// The GPUs of a list such as `gpu:a100:4(S:0,1),nvme:1`, or of a node's `gres_used`. `None` if an entry for
/// GPUs has no readable count.
pub(super) fn gpu_counts(text: &str) -> Option<GpuCounts> {
    count_gpus(split_items(text).into_iter().map(parse_gres).filter(|g| g.name == GPU))
}

/// The GPUs of a job's `gres_detail` for one node. `None` if the text has parts of GPUs or an unreadable
/// count.
pub(super) fn gpus_held(text: &str) -> Option<GpuCounts> {
    let all: Vec<GenericResource> = split_items(text).into_iter().map(parse_gres).collect();
    if all.iter().any(|g: &GenericResource| PARTS_OF_GPUS.contains(&g.name.as_str())) {
        None
    } else {
        count_gpus(all.into_iter().filter(|g| g.name == GPU))
    }
}

/// Number of GPUs of all types in a request such as `gres/gpu:a100:2`, `gres:gpu:2` or `cpu=4,gres/gpu=1`.
/// `None` if it asks for parts of GPUs, or if a count is not a number.
pub(super) fn gpus_requested(text: &str) -> Option<u64> {
    let mut sum = 0u64;
    for item in split_items(text) {
        let Some(item) = item.strip_prefix("gres/").or_else(|| item.strip_prefix("gres:")) else { continue };
        let gres = parse_gres(&item.replace('=', ":"));
        match gres.name.as_str() {
            GPU => sum = sum.saturating_add(gres.count.parse().ok()?),
            name if PARTS_OF_GPUS.contains(&name) => return None,
            _ => {}
        }
    }
    Some(sum)
}

fn count_gpus(gpus: impl Iterator<Item = GenericResource>) -> Option<GpuCounts> {
    let counts: Option<Vec<(String, u32)>> =
        gpus.map(|g| Some((g.kind.unwrap_or_default(), g.count.parse().ok()?))).collect();
    counts.map(GpuCounts::from_counts)
}

/// The class of interchangeable nodes: `gpu:a100:4/cpu64`, or `cpu2` without generic resources.
///
/// Memory and features are left out on purpose: real memory differs by a few megabytes between equal nodes,
/// and features often name racks, which would split one type into many. Where a GPU has no type, only the
/// features can distinguish old GPUs from new ones, so there they are added: `gpu:4/cpu64/v100`.
pub(super) fn node_type(gres: &str, cpus: i64, features: &[impl AsRef<str>]) -> NodeType {
    let mut all: Vec<GenericResource> =
        split_items(gres).into_iter().map(parse_gres).filter(|g| g.count != "0").collect();
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

/// The value of `--gres` that asks for the same resources per node as a job. It follows from the job's
/// `tres_per_node`, or else from its total request over `nodes` nodes. Empty if the job asked for no generic
/// resources, or if the total is not divisible by the nodes.
pub(super) fn gres_per_node(tres_per_node: &str, tres_req: &str, nodes: u32) -> String {
    let named: Vec<&str> = split_items(tres_per_node)
        .into_iter()
        .filter_map(|item| item.strip_prefix("gres:").or_else(|| item.strip_prefix("gres/")))
        .collect();
    if !named.is_empty() {
        return named.join(",").replace('=', ":");
    }
    from_total(tres_req, nodes.max(1))
}

fn from_total(tres_req: &str, nodes: u32) -> String {
    let totals: Vec<(&str, u64)> = split_items(tres_req)
        .into_iter()
        .filter_map(|item| item.strip_prefix("gres/")?.split_once('='))
        .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
        .filter(|(_, count)| *count > 0 && count % u64::from(nodes) == 0)
        .collect();
    // `gres/gpu=4,gres/gpu:a100=4` counts the same four GPUs twice. Use only the entry with a type.
    let has_typed_entry =
        |name: &str| totals.iter().any(|(other, _)| other.split(':').next() == Some(name) && *other != name);
    totals
        .iter()
        .filter(|(name, _)| !has_typed_entry(name))
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
    fn gpus_are_counted_by_type() {
        let said = |gpus: Option<GpuCounts>| gpus.map(|g| serde_json::to_string(&g).unwrap());
        let of = |text| said(gpu_counts(text));
        assert_eq!(of("gpu:a100:4(S:0,1),nvme:1").as_deref(), Some(r#"[["a100",4]]"#));
        assert_eq!(of("gpu:a100:2(IDX:0,3),gpu:t4:1(IDX:4)").as_deref(), Some(r#"[["a100",2],["t4",1]]"#));
        assert_eq!(of("gpu:a100:0(IDX:N/A)").as_deref(), Some("[]"));
        assert_eq!(of("gpu:2").as_deref(), Some(r#"[["",2]]"#));
        assert_eq!(of("gpu:(null):3(IDX:0-2)").as_deref(), Some(r#"[["",3]]"#));
        assert_eq!(of("gpu:(null):0(IDX:N/A)").as_deref(), Some("[]"));
        assert_eq!(of("(null)").as_deref(), Some("[]"));
        assert_eq!(of("gpu:a100:many"), None);
        assert_eq!(of("shard:a100:8,gpu:a100:4").as_deref(), Some(r#"[["a100",4]]"#));
        assert_eq!(said(gpus_held("gpu:a100:1(IDX:2)")).as_deref(), Some(r#"[["a100",1]]"#));
        assert_eq!(said(gpus_held("shard:a100:3(IDX:0)")), None, "part of a GPU");
    }

    #[test]
    fn slices_of_gpus_are_gpus_of_a_type() {
        let of = |text| gpu_counts(text).map(|g| serde_json::to_string(&g).unwrap());
        assert_eq!(of("gpu:1g.5gb:7(S:0)").as_deref(), Some(r#"[["1g.5gb",7]]"#));
        assert_eq!(of("gpu:a100_1g.5gb:2(IDX:0-1)").as_deref(), Some(r#"[["a100_1g.5gb",2]]"#));
        assert_eq!(of("gpu:1g.5gb:4,gpu:3g.20gb:1").as_deref(), Some(r#"[["1g.5gb",4],["3g.20gb",1]]"#));
        assert_eq!(of("gpu:1g.5gb").as_deref(), Some(r#"[["1g.5gb",1]]"#), "one, without a number");
        assert_eq!(node_type("gpu:1g.5gb:7(S:0)", 28, &["ib"]).to_string(), "gpu:1g.5gb:7/cpu28");
        assert_eq!(
            [gpus_requested("gres/gpu:1g.5gb:2"), gpus_requested("gres/gpu:1g.5gb")],
            [Some(2), Some(1)]
        );
        assert_eq!(gres_per_node("gres/gpu:1g.5gb:2", "", 1), "gpu:1g.5gb:2");
        let count = |text: &str| parse_gres(text).count;
        assert_eq!(["gpu:4", "nic:4k", "gpu:2g.10gb"].map(count), ["4", "4k", "1"]);
    }

    #[test]
    fn gpus_that_are_asked_for() {
        assert_eq!(gpus_requested("gres/gpu:a100:2"), Some(2));
        assert_eq!(gpus_requested("gres:gpu:3,gres:nvme:1"), Some(3));
        assert_eq!(gpus_requested("cpu=4,gres/gpu=1"), Some(1));
        assert_eq!(gpus_requested("gres/gpu"), Some(1));
        assert_eq!(gpus_requested("cpu=4"), Some(0));
        assert_eq!(gpus_requested(""), Some(0));
        assert_eq!(gpus_requested("gres/shard:2"), None);
        assert_eq!(gpus_requested("gres/gpu:a100:all"), None);
    }

    #[test]
    fn a_wing_can_ask_for_what_the_lead_has() {
        assert_eq!(gres_per_node("gres:gpu:a100:4", "", 1), "gpu:a100:4");
        assert_eq!(gres_per_node("gres/gpu:a100:4,gres/nvme:1", "", 1), "gpu:a100:4,nvme:1");
        assert_eq!(gres_per_node("gres/gpu=4", "", 1), "gpu:4");
        let total = "cpu=8,mem=4G,node=2,billing=8,gres/gpu=8,gres/gpu:a100=8";
        assert_eq!(gres_per_node("", total, 2), "gpu:a100:4");
        assert_eq!(gres_per_node("", "cpu=1,gres/gpu=3", 2), "");
        assert_eq!(gres_per_node("", "cpu=1,mem=2000M,node=1,billing=1", 1), "");
    }
}
