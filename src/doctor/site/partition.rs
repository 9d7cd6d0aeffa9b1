//! `scontrol -o show partition`.

use std::collections::{BTreeMap, BTreeSet};

use super::{DEFAULT_MEMORY, is_unset, list_contains};
use crate::doctor::finding::Finding;
use infill_model::LendingMode;

/// One partition: its `Key=value` words.
pub type PartitionSettings = BTreeMap<String, String>;

/// Reads a line a partition.
pub fn parse_partitions(text: &str) -> Vec<PartitionSettings> {
    text.lines()
        .map(|line: &str| {
            let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
            pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<PartitionSettings>()
        })
        .filter(|p| p.contains_key("PartitionName"))
        .collect()
}

fn get_setting<'a>(partition: &'a PartitionSettings, key: &str) -> &'a str {
    partition.get(key).map_or("", String::as_str)
}

/// The QOS that malleable jobs run with: as configured, else the only one that the partition allows, else
/// `infill`.
pub fn qos_of(all: &[PartitionSettings], partition: &str, configured: &str) -> String {
    let allowed =
        all.iter().find(|p| get_setting(p, "PartitionName") == partition).map(|p| get_setting(p, "AllowQos"));
    match (configured, allowed) {
        ("", Some(one)) if !is_unset(one) && one != "ALL" && !one.contains(',') => one.to_owned(),
        ("", _) => "infill".to_owned(),
        (configured, _) => configured.to_owned(),
    }
}

/// Judges infill's partition among all, on a site that lends this.
pub fn check_partition(all: &[PartitionSettings], name: &str, qos: &str, lend: LendingMode) -> Vec<Finding> {
    let mend = "add the partition to slurm.conf (slurm/slurm.conf.infill has the line)";
    let Some(ours) = all.iter().find(|p| get_setting(p, "PartitionName") == name) else {
        return vec![Finding::error("partition", format!("there is no partition {name}"), mend)];
    };
    let nodes = get_setting(ours, "TotalNodes");
    let mut findings = vec![match nodes.parse::<u64>() {
        Ok(0) | Err(_) => Finding::error("partition", format!("partition {name} has no nodes"), mend),
        Ok(_) => Finding::ok("partition", format!("partition {name} has {nodes} nodes")),
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
    let why = "jobs that nobody meant to be malleable land there";
    findings.extend(check_setting(ours, name, "Default", get_setting(ours, "Default") != "YES", "NO", why));
    findings.extend(check_allowed_qos(ours, name, qos));
    findings.extend(check_tier(all, ours, name));
    findings
}

/// Slurm 26.05 says OverSubscribe=NO Exclusive=NODE for what earlier ones call OverSubscribe=EXCLUSIVE.
fn is_exclusive(partition: &PartitionSettings) -> bool {
    get_setting(partition, "OverSubscribe").starts_with("EXCLUSIVE")
        || get_setting(partition, "Exclusive").starts_with("NODE")
}

/// Where GPUs are lent: jobs share nodes, and each GPU comes with a share of the rest.
fn check_sharing(ours: &PartitionSettings, name: &str) -> Vec<Finding> {
    let why = "each job has its nodes for itself, and infill is to lend GPUs (gaps.lend)";
    let mut findings: Vec<Finding> =
        check_setting(ours, name, "OverSubscribe", !is_exclusive(ours), "NO", why).into_iter().collect();
    let defaults = get_setting(ours, "JobDefaults");
    let missing: Vec<&str> =
        ["DefCpuPerGPU", "DefMemPerGPU"].into_iter().filter(|key| !defaults.contains(key)).collect();
    if !missing.is_empty() {
        let what = format!(
            "partition {name} has no {}: a GPU comes with as little as the cluster's defaults say, and may leave \
             others without CPUs or memory",
            missing.join(" and no ")
        );
        let mend = "set them on the line of the partition in slurm.conf, each to a GPU's share of a node";
        findings.push(Finding::warn("partition", what, mend));
    }
    let most = get_setting(ours, "MaxCPUsPerSocket");
    if most.parse::<u64>().is_ok() {
        let what = format!(
            "MaxCPUsPerSocket of partition {name} is {most}, which infill does not plan with: where it leaves less \
             than is planned, a worker waits and is taken back"
        );
        let mend = "set MaxCPUsPerNode instead, which is planned with";
        findings.push(Finding::warn("partition", what, mend));
    }
    findings
}

/// Judges how much memory jobs get that do not say it, on a site that lends parts of nodes and whose
/// slurm.conf gives such jobs all of a node's. `on_cpus`: parts of nodes without GPUs are lent.
pub fn check_memory(all: &[PartitionSettings], name: &str, on_cpus: bool) -> Option<Finding> {
    let is_set =
        |p: &PartitionSettings, key: &str| get_setting(p, key).parse::<u64>().is_ok_and(|mib| mib > 0);
    let has_default = |p: &&PartitionSettings| DEFAULT_MEMORY.iter().any(|key| is_set(p, key));
    let without: Vec<&str> = all
        .iter()
        .filter(|p| !has_default(p))
        .filter(|p: &&PartitionSettings| on_cpus || get_setting(p, "PartitionName") != name)
        .map(|p| get_setting(p, "PartitionName"))
        .collect();
    (!without.is_empty()).then(|| {
        let what = format!(
            "a job in {} that does not say how much memory it needs gets all of a node's, and nothing is left to lend",
            without.join(" or ")
        );
        Finding::warn("partition", what, "set DefMemPerCPU in slurm.conf, to a CPU's share of a node's memory")
    })
}

/// Judges who pushes malleable jobs away where partitions say it (PreemptType=preempt/partition_prio).
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
        "a job that is pushed away dies, or keeps its GPUs",
    ));
    if get_setting(ours, "GraceTime").parse().unwrap_or(0) == 0 {
        let what =
            format!("partition {name} has no GraceTime: a job that is pushed away has no time to save");
        let mend =
            "set GraceTime=30 on the line of the partition in slurm.conf (the QOS's does not count here)";
        findings.push(Finding::warn("preempt", what, mend));
    }
    let waits = partitions_not_above(all, ours, name);
    if !waits.is_empty() {
        let what = format!(
            "jobs of {} wait for malleable ones: its PriorityTier is not above {name}'s",
            waits.join(", ")
        );
        let mend = format!("set PriorityTier=0 for {name} and at least 1 for the others in slurm.conf");
        findings.push(Finding::error("preempt", what, mend));
    }
    findings
}

fn check_setting(
    ours: &PartitionSettings,
    name: &str,
    key: &str,
    fine: bool,
    want: &str,
    why: &str,
) -> Option<Finding> {
    (!fine).then(|| {
        let what = format!("{key} of partition {name} is {}: {why}", get_setting(ours, key));
        Finding::error(
            "partition",
            what,
            format!("set {key}={want} on the line of the partition in slurm.conf"),
        )
    })
}

/// Only jobs that main jobs can push away may get in.
fn check_allowed_qos(ours: &PartitionSettings, name: &str, qos: &str) -> Option<Finding> {
    let allowed = get_setting(ours, "AllowQos");
    let mend = format!("set AllowQos={qos} on the line of the partition in slurm.conf");
    if allowed.eq_ignore_ascii_case(qos) {
        return None;
    }
    Some(match list_contains(allowed, qos) {
        true => {
            Finding::warn("partition", format!("partition {name} allows other QOSes, too: {allowed}"), mend)
        }
        false => Finding::error(
            "partition",
            format!("partition {name} allows QOS {allowed}: jobs get in that main jobs cannot push away"),
            mend,
        ),
    })
}

fn partitions_not_above<'a>(
    all: &'a [PartitionSettings],
    ours: &PartitionSettings,
    name: &str,
) -> Vec<&'a str> {
    let tier = |p: &PartitionSettings| get_setting(p, "PriorityTier").parse::<u64>().unwrap_or(1);
    let names = all.iter().filter(|p| tier(p) <= tier(ours)).map(|p| get_setting(p, "PartitionName"));
    names.filter(|other| *other != name).collect()
}

/// Main jobs are to be considered first.
fn check_tier(all: &[PartitionSettings], ours: &PartitionSettings, name: &str) -> Option<Finding> {
    let not_above = partitions_not_above(all, ours, name);
    (!not_above.is_empty()).then(|| {
        Finding::warn(
            "partition",
            format!("PriorityTier of {} is not above that of {name}", not_above.join(", ")),
            format!("set PriorityTier=0 for {name} and at least 1 for the others in slurm.conf"),
        )
    })
}

/// Judges what the GPUs are that are lent one by one, by their type on each node: `None` for none, or
/// several.
pub fn check_slices<'a>(types: impl Iterator<Item = Option<&'a str>>) -> Option<Finding> {
    let slices: BTreeSet<&str> = types.flatten().filter(|kind| is_slice(kind)).collect();
    (!slices.is_empty()).then(|| {
        let slices = slices.into_iter().collect::<Vec<_>>().join(", ");
        Finding::warn(
            "gpus",
            format!(
                "GPUs of type {slices} are slices (MIG), and each is lent as a GPU: NCCL joins no two slices of one GPU"
            ),
            "keep their nodes out of the partition, or have the users of jobs on several of them use gloo",
        )
    })
}

/// Whether a type of GPUs is one of slices, as NVIDIA and Slurm name them: `1g.5gb`, `a100_3g.20gb`.
fn is_slice(kind: &str) -> bool {
    let profile = kind.rsplit('_').next().unwrap_or(kind);
    let number = |text: &str, unit: &str| text.strip_suffix(unit).is_some_and(|n| n.parse::<u32>().is_ok());
    profile.split_once('.').is_some_and(|(parts, memory)| number(parts, "g") && number(memory, "gb"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    /// From Slurm 24.11.5, less what nobody reads.
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
        error  partition OverSubscribe of partition infill is EXCLUSIVE: each job has its nodes for itself, and infill is to lend GPUs (gaps.lend)
                         → set OverSubscribe=NO on the line of the partition in slurm.conf
        warn   partition partition infill has no DefCpuPerGPU and no DefMemPerGPU: a GPU comes with as little as the cluster's defaults say, and may leave others without CPUs or memory
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
    fn a_limit_on_sockets_is_told_of() {
        let said = |most: &str| {
            let text = BOTH.replace(" OverTime", &format!(" MaxCPUsPerSocket={most} OverTime"));
            render_findings(
                &check_partition(&parse_partitions(&text), "infill", "infill", LendingMode::Gpus),
                false,
            )
        };
        assert!(said("3").contains("MaxCPUsPerSocket of partition infill is 3, "));
        assert!(!said("UNLIMITED").contains("MaxCPUsPerSocket"));
    }

    #[test]
    fn memory_that_nobody_asked_for() {
        let said =
            |text: &str, on_cpus| check_memory(&parse_partitions(text), "infill", on_cpus).map(|f| f.what);
        assert!(said(BOTH, true).unwrap().starts_with("a job in main or infill that"));
        assert!(said(BOTH, false).unwrap().starts_with("a job in main that"));
        let unset = BOTH.replace(" OverTime", " DefMemPerNode=UNLIMITED OverTime");
        assert!(said(&unset, true).is_some());
        assert_eq!(said(&BOTH.replace(" OverTime", " DefMemPerCPU=500 OverTime"), true), None);
        assert_eq!(said(&BOTH.replace(" OverTime", " DefMemPerNode=500 OverTime"), true), None);
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
        error  partition Default of partition infill is YES: jobs that nobody meant to be malleable land there
                         → set Default=NO on the line of the partition in slurm.conf
        error  partition partition infill allows QOS ALL: jobs get in that main jobs cannot push away
                         → set AllowQos=infill on the line of the partition in slurm.conf
        warn   partition PriorityTier of main is not above that of infill
                         → set PriorityTier=0 for infill and at least 1 for the others in slurm.conf

        errors: 5, warnings: 1
        ");
    }

    #[test]
    fn where_partitions_preempt() {
        let said = |text: &str| render_findings(&check_preemption(&parse_partitions(text), "infill"), false);
        let sound = BOTH.replace("PriorityTier=0", "GraceTime=30 PriorityTier=0");
        assert!(said(&sound).contains("errors: 0, warnings: 0"));
        let bad = BOTH
            .replace("PriorityTier=10", "PriorityTier=0")
            .replace("PreemptMode=REQUEUE", "PreemptMode=OFF");
        insta::assert_snapshot!(said(&bad), @r"
        error  partition PreemptMode of partition infill is OFF: a job that is pushed away dies, or keeps its GPUs
                         → set PreemptMode=REQUEUE on the line of the partition in slurm.conf
        warn   preempt   partition infill has no GraceTime: a job that is pushed away has no time to save
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
    fn slices_of_gpus_are_told_of() {
        assert_eq!(check_slices([None, Some("a100"), Some(""), Some("h100_nvl")].into_iter()), None);
        let found =
            check_slices([Some("a100"), Some("1g.5gb"), Some("a100_3g.20gb"), Some("1g.5gb")].into_iter());
        let what = found.map(|f| f.what).unwrap_or_default();
        assert!(what.starts_with("GPUs of type 1g.5gb, a100_3g.20gb are slices"), "{what}");
    }
}
