//! Checks the output of `scontrol -o show partition`.

use std::collections::{BTreeMap, BTreeSet};

use super::{DEFAULT_MEMORY, is_unset, list_contains};
use crate::doctor::finding::Finding;
use infill_model::{LendingMode, NodeCount};

/// The settings of a partition: its `Key=value` words.
pub type PartitionSettings = BTreeMap<String, String>;

/// Parses the output, a line for each partition.
pub fn parse_partitions(text: &str) -> Vec<PartitionSettings> {
    text.lines().map(parse_settings).filter(|p| p.contains_key("PartitionName")).collect()
}

fn parse_settings(line: &str) -> PartitionSettings {
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn get_setting<'a>(partition: &'a PartitionSettings, key: &str) -> &'a str {
    partition.get(key).map_or("", String::as_str)
}

/// The QOS of malleable jobs: the configured one, else the only one that the partition allows, else `infill`.
pub fn qos_of(all: &[PartitionSettings], partition: &str, configured: &str) -> String {
    let allowed =
        all.iter().find(|p| get_setting(p, "PartitionName") == partition).map(|p| get_setting(p, "AllowQos"));
    match (configured, allowed) {
        ("", Some(qos)) if !is_unset(qos) && qos != "ALL" && !qos.contains(',') => qos.to_owned(),
        ("", _) => "infill".to_owned(),
        (configured, _) => configured.to_owned(),
    }
}

/// Checks infill's partition, one of `all`. `lend` is what the site lends.
pub fn check_partition(all: &[PartitionSettings], name: &str, qos: &str, lend: LendingMode) -> Vec<Finding> {
    let fix = "add the partition to slurm.conf (slurm/slurm.conf.infill has the line)";
    let Some(ours) = all.iter().find(|p| get_setting(p, "PartitionName") == name) else {
        return vec![Finding::error("partition", format!("there is no partition {name}"), fix)];
    };
    let nodes = get_setting(ours, "TotalNodes");
    let mut findings = vec![match nodes.parse::<u64>() {
        Ok(0) | Err(_) => Finding::error("partition", format!("partition {name} has no nodes"), fix),
        Ok(count) => Finding::ok("partition", format!("partition {name} has {}", NodeCount(count))),
    }];
    findings.extend(check_setting(
        ours,
        name,
        "State",
        get_setting(ours, "State") == "UP",
        "UP",
        "nothing can start there",
    ));
    match lend {
        LendingMode::Nodes => {
            let why = "jobs may share a node, and infill counts whole nodes";
            findings.extend(check_setting(ours, name, "OverSubscribe", is_exclusive(ours), "EXCLUSIVE", why));
        }
        LendingMode::Gpus => findings.extend(check_sharing(ours, name)),
    }
    let why = "jobs that name no partition run there, although they are not malleable";
    findings.extend(check_setting(ours, name, "Default", get_setting(ours, "Default") != "YES", "NO", why));
    findings.extend(check_allowed_qos(ours, name, qos));
    findings.extend(check_tier(all, ours, name));
    findings
}

/// Whether each job has its nodes for itself. Earlier releases show OverSubscribe=EXCLUSIVE, Slurm 26.05
/// shows OverSubscribe=NO Exclusive=NODE.
pub fn is_exclusive(partition: &PartitionSettings) -> bool {
    get_setting(partition, "OverSubscribe").starts_with("EXCLUSIVE")
        || get_setting(partition, "Exclusive").starts_with("NODE")
}

/// Checks the settings where GPUs are lent: jobs must share nodes, and each GPU needs its share of the rest.
fn check_sharing(ours: &PartitionSettings, name: &str) -> Vec<Finding> {
    let why = "each job has its nodes for itself, but infill lends single GPUs (gaps.lend)";
    let mut findings: Vec<Finding> =
        check_setting(ours, name, "OverSubscribe", !is_exclusive(ours), "NO", why).into_iter().collect();
    let defaults = get_setting(ours, "JobDefaults");
    let missing: Vec<&str> =
        ["DefCpuPerGPU", "DefMemPerGPU"].into_iter().filter(|key| !defaults.contains(key)).collect();
    if !missing.is_empty() {
        let what = format!(
            "partition {name} has no {}: a GPU comes with the cluster's default CPUs and memory, which may be too few, \
             or leave none for other GPUs",
            missing.join(" and no ")
        );
        let fix = "set them on the line of the partition in slurm.conf, each to a GPU's share of a node";
        findings.push(Finding::warn("partition", what, fix));
    }
    let most = get_setting(ours, "MaxCPUsPerSocket");
    if most.parse::<u64>().is_ok() {
        let what = format!(
            "MaxCPUsPerSocket of partition {name} is {most}, which the planner does not respect: a worker that gets too \
             few CPUs waits and is withdrawn"
        );
        let fix = "set MaxCPUsPerNode instead, which the planner respects";
        findings.push(Finding::warn("partition", what, fix));
    }
    findings
}

/// Checks the memory of jobs that do not ask for any, on a site that lends parts of nodes and whose
/// slurm.conf gives such jobs all the memory of a node. `on_cpus`: parts of nodes without GPUs are lent.
pub fn check_memory(all: &[PartitionSettings], name: &str, on_cpus: bool) -> Option<Finding> {
    let mut without_default = Vec::new();
    for partition in all {
        let partition_name = get_setting(partition, "PartitionName");
        if !has_default_memory(partition) && (on_cpus || partition_name != name) {
            without_default.push(partition_name);
        }
    }
    if without_default.is_empty() {
        return None;
    }
    let what = format!(
        "a job in {} that does not ask for memory gets all the memory of a node, and none is left to lend",
        without_default.join(" or ")
    );
    Some(Finding::warn(
        "partition",
        what,
        "set DefMemPerCPU in slurm.conf to a CPU's share of a node's memory",
    ))
}

fn has_default_memory(partition: &PartitionSettings) -> bool {
    DEFAULT_MEMORY.iter().any(|key| get_setting(partition, key).parse::<u64>().is_ok_and(|mib| mib > 0))
}

/// Checks which jobs may preempt malleable jobs where partitions decide (PreemptType=preempt/partition_prio).
pub fn check_preemption(all: &[PartitionSettings], name: &str) -> Vec<Finding> {
    let Some(ours) = all.iter().find(|p| get_setting(p, "PartitionName") == name) else { return Vec::new() };
    let mut findings = Vec::new();
    let mode = get_setting(ours, "PreemptMode");
    findings.extend(check_setting(
        ours,
        name,
        "PreemptMode",
        list_contains(mode, "REQUEUE"),
        "REQUEUE",
        "a preempted job is not queued again, or keeps its GPUs",
    ));
    if get_setting(ours, "GraceTime").parse().unwrap_or(0) == 0 {
        let what = format!("partition {name} has no GraceTime: a preempted job has no time to save");
        let fix =
            "set GraceTime=30 on the line of the partition in slurm.conf (the QOS's does not count here)";
        findings.push(Finding::warn("preempt", what, fix));
    }
    let not_above = partitions_not_above(all, ours, name);
    if !not_above.is_empty() {
        let what = format!(
            "jobs of {} wait for malleable ones: its PriorityTier is not above {name}'s",
            not_above.join(", ")
        );
        let fix = format!("set PriorityTier=0 for {name} and at least 1 for the others in slurm.conf");
        findings.push(Finding::error("preempt", what, fix));
    }
    findings
}

fn check_setting(
    ours: &PartitionSettings,
    name: &str,
    key: &str,
    is_right: bool,
    expected: &str,
    why: &str,
) -> Option<Finding> {
    if is_right {
        return None;
    }
    let what = format!("{key} of partition {name} is {}: {why}", get_setting(ours, key));
    let fix = format!("set {key}={expected} on the line of the partition in slurm.conf");
    Some(Finding::error("partition", what, fix))
}

/// Checks that the partition allows only jobs that main jobs can preempt.
fn check_allowed_qos(ours: &PartitionSettings, name: &str, qos: &str) -> Option<Finding> {
    let allowed = get_setting(ours, "AllowQos");
    let fix = format!("set AllowQos={qos} on the line of the partition in slurm.conf");
    if allowed.eq_ignore_ascii_case(qos) {
        return None;
    }
    Some(if list_contains(allowed, qos) {
        Finding::warn("partition", format!("partition {name} also allows other QOSes: {allowed}"), fix)
    } else {
        let what = format!("partition {name} allows QOS {allowed}: main jobs cannot preempt all of its jobs");
        Finding::error("partition", what, fix)
    })
}

fn partitions_not_above<'a>(
    all: &'a [PartitionSettings],
    ours: &PartitionSettings,
    name: &str,
) -> Vec<&'a str> {
    let names = all.iter().filter(|p| priority_tier(p) <= priority_tier(ours));
    names.map(|p| get_setting(p, "PartitionName")).filter(|other| *other != name).collect()
}

fn priority_tier(partition: &PartitionSettings) -> u64 {
    get_setting(partition, "PriorityTier").parse().unwrap_or(1)
}

/// Checks that Slurm considers main jobs first.
fn check_tier(all: &[PartitionSettings], ours: &PartitionSettings, name: &str) -> Option<Finding> {
    let not_above = partitions_not_above(all, ours, name);
    if not_above.is_empty() {
        return None;
    }
    Some(Finding::warn(
        "partition",
        format!("PriorityTier of {} is not above that of {name}", not_above.join(", ")),
        format!("set PriorityTier=0 for {name} and at least 1 for the others in slurm.conf"),
    ))
}

/// Checks the GPUs that are lent one by one. `types` is the only type on each node, or `None` for nodes with
/// no or several types.
pub fn check_slices<'a>(types: impl Iterator<Item = Option<&'a str>>) -> Option<Finding> {
    let slices: BTreeSet<&str> = types.flatten().filter(|gpu_type| is_slice(gpu_type)).collect();
    if slices.is_empty() {
        return None;
    }
    let slices = slices.into_iter().collect::<Vec<_>>().join(", ");
    Some(Finding::warn(
        "gpus",
        format!(
            "GPUs of type {slices} are slices (MIG), and each is lent as a GPU: NCCL cannot join two slices of one GPU"
        ),
        "keep their nodes out of the partition, or tell users to use gloo in jobs on several of them",
    ))
}

/// Whether a type of GPUs is a slice, as NVIDIA and Slurm name them: `1g.5gb`, `a100_3g.20gb`.
fn is_slice(gpu_type: &str) -> bool {
    let profile = gpu_type.rsplit('_').next().unwrap_or(gpu_type);
    let Some((parts, memory)) = profile.split_once('.') else { return false };
    is_number_with_unit(parts, "g") && is_number_with_unit(memory, "gb")
}

fn is_number_with_unit(text: &str, unit: &str) -> bool {
    text.strip_suffix(unit).is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    /// Output of Slurm 24.11.5, without fields that are not read.
    const BOTH: &str = "\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL DenyQos=infill AllocNodes=ALL Default=YES QoS=N/A DefaultTime=01:00:00 Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=10 OverSubscribe=EXCLUSIVE OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=8 TotalNodes=4 TRES=cpu=8,mem=8000M,node=4,billing=8
PartitionName=infill AllowGroups=ALL AllowAccounts=ALL AllowQos=infill AllocNodes=ALL Default=NO QoS=N/A DefaultTime=01:00:00 Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=0 OverSubscribe=EXCLUSIVE OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=8 TotalNodes=4 TRES=cpu=8,mem=8000M,node=4,billing=8
";

    #[test]
    fn the_partition_of_slurm_conf_infill() {
        insta::assert_snapshot!(render_findings(&check_partition(&parse_partitions(BOTH), "infill", "infill", LendingMode::Nodes), false), @r"
        ok     partition partition infill has 4 nodes

        errors: 0, warnings: 0
        ");
    }

    #[test]
    fn where_gpus_are_lent() {
        let judged = |text: &str| {
            render_findings(
                &check_partition(&parse_partitions(text), "infill", "infill", LendingMode::Gpus),
                false,
            )
        };
        insta::assert_snapshot!(judged(BOTH), @r"
        ok     partition partition infill has 4 nodes
        error  partition OverSubscribe of partition infill is EXCLUSIVE: each job has its nodes for itself, but infill lends single GPUs (gaps.lend)
                         → set OverSubscribe=NO on the line of the partition in slurm.conf
        warn   partition partition infill has no DefCpuPerGPU and no DefMemPerGPU: a GPU comes with the cluster's default CPUs and memory, which may be too few, or leave none for other GPUs
                         → set them on the line of the partition in slurm.conf, each to a GPU's share of a node

        errors: 1, warnings: 1
        ");
        let share = "OverSubscribe=NO JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=4000";
        insta::assert_snapshot!(judged(&BOTH.replace("OverSubscribe=EXCLUSIVE", share)), @r"
        ok     partition partition infill has 4 nodes

        errors: 0, warnings: 0
        ");
    }

    #[test]
    fn a_limit_on_sockets_is_reported() {
        let rendered = |most: &str| {
            let text = BOTH.replace(" OverTime", &format!(" MaxCPUsPerSocket={most} OverTime"));
            render_findings(
                &check_partition(&parse_partitions(&text), "infill", "infill", LendingMode::Gpus),
                false,
            )
        };
        assert!(rendered("3").contains("MaxCPUsPerSocket of partition infill is 3, "));
        assert!(!rendered("UNLIMITED").contains("MaxCPUsPerSocket"));
    }

    #[test]
    fn jobs_that_ask_for_no_memory() {
        let rendered =
            |text: &str, on_cpus| check_memory(&parse_partitions(text), "infill", on_cpus).map(|f| f.what);
        assert!(rendered(BOTH, true).unwrap().starts_with("a job in main or infill that"));
        assert!(rendered(BOTH, false).unwrap().starts_with("a job in main that"));
        let unset = BOTH.replace(" OverTime", " DefMemPerNode=UNLIMITED OverTime");
        assert!(rendered(&unset, true).is_some());
        assert_eq!(rendered(&BOTH.replace(" OverTime", " DefMemPerCPU=500 OverTime"), true), None);
        assert_eq!(rendered(&BOTH.replace(" OverTime", " DefMemPerNode=500 OverTime"), true), None);
    }

    #[test]
    fn an_exclusive_partition_in_the_words_of_slurm_26_05() {
        let text = BOTH.replace("OverSubscribe=EXCLUSIVE", "Exclusive=NODE OverSubscribe=NO");
        assert!(
            !render_findings(
                &check_partition(&parse_partitions(&text), "infill", "infill", LendingMode::Nodes),
                false
            )
            .contains("OverSubscribe")
        );
    }

    #[test]
    fn a_partition_that_harms() {
        let bad = BOTH
            .replace("AllowQos=infill", "AllowQos=ALL")
            .replace("PriorityTier=10", "PriorityTier=0")
            .replace("Default=NO", "Default=YES")
            .replace("OverSubscribe=EXCLUSIVE", "OverSubscribe=NO")
            .replace("State=UP", "State=DRAIN")
            .replace("TotalNodes=4", "TotalNodes=0");
        insta::assert_snapshot!(render_findings(&check_partition(&parse_partitions(&bad), "infill", "infill", LendingMode::Nodes), false), @r"
        error  partition partition infill has no nodes
                         → add the partition to slurm.conf (slurm/slurm.conf.infill has the line)
        error  partition State of partition infill is DRAIN: nothing can start there
                         → set State=UP on the line of the partition in slurm.conf
        error  partition OverSubscribe of partition infill is NO: jobs may share a node, and infill counts whole nodes
                         → set OverSubscribe=EXCLUSIVE on the line of the partition in slurm.conf
        error  partition Default of partition infill is YES: jobs that name no partition run there, although they are not malleable
                         → set Default=NO on the line of the partition in slurm.conf
        error  partition partition infill allows QOS ALL: main jobs cannot preempt all of its jobs
                         → set AllowQos=infill on the line of the partition in slurm.conf
        warn   partition PriorityTier of main is not above that of infill
                         → set PriorityTier=0 for infill and at least 1 for the others in slurm.conf

        errors: 5, warnings: 1
        ");
    }

    #[test]
    fn where_partitions_preempt() {
        let rendered =
            |text: &str| render_findings(&check_preemption(&parse_partitions(text), "infill"), false);
        let sound = BOTH.replace("PriorityTier=0", "GraceTime=30 PriorityTier=0");
        assert!(rendered(&sound).contains("errors: 0, warnings: 0"));
        let bad = BOTH
            .replace("PriorityTier=10", "PriorityTier=0")
            .replace("PreemptMode=REQUEUE", "PreemptMode=OFF");
        insta::assert_snapshot!(rendered(&bad), @r"
        error  partition PreemptMode of partition infill is OFF: a preempted job is not queued again, or keeps its GPUs
                         → set PreemptMode=REQUEUE on the line of the partition in slurm.conf
        warn   preempt   partition infill has no GraceTime: a preempted job has no time to save
                         → set GraceTime=30 on the line of the partition in slurm.conf (the QOS's does not count here)
        error  preempt   jobs of main wait for malleable ones: its PriorityTier is not above infill's
                         → set PriorityTier=0 for infill and at least 1 for the others in slurm.conf

        errors: 2, warnings: 1
        ");
    }

    #[test]
    fn no_partition() {
        assert_eq!(
            check_partition(
                &parse_partitions("Partition nope not found\n"),
                "nope",
                "infill",
                LendingMode::Nodes
            )
            .len(),
            1
        );
    }

    #[test]
    fn the_qos_in_use() {
        let all = parse_partitions(BOTH);
        assert_eq!(qos_of(&all, "infill", ""), "infill");
        assert_eq!(qos_of(&all, "infill", "fill"), "fill");
        assert_eq!(
            qos_of(&parse_partitions(&BOTH.replace("AllowQos=infill", "AllowQos=scavenge")), "infill", ""),
            "scavenge"
        );
    }

    #[test]
    fn slices_of_gpus_are_reported() {
        assert_eq!(check_slices([None, Some("a100"), Some(""), Some("h100_nvl")].into_iter()), None);
        let found =
            check_slices([Some("a100"), Some("1g.5gb"), Some("a100_3g.20gb"), Some("1g.5gb")].into_iter());
        let what = found.map(|f| f.what).unwrap_or_default();
        assert!(what.starts_with("GPUs of type 1g.5gb, a100_3g.20gb are slices"), "{what}");
    }
}
