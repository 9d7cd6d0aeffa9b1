//! Checks limits of accounts and users in which malleable jobs count. The limits come from
//! `scontrol -o show assoc_mgr flags=assoc`, the QOSes from `sacctmgr -nP show assoc`.
//!
//! Slurm counts every job of an association, whatever its QOS, and preempts no job for a main job that waits
//! for such a limit. Malleable jobs are exempt only if they have an account of their own.

use std::collections::{BTreeMap, BTreeSet};

use super::list_contains;
use crate::doctor::finding::Finding;

/// The fields of `sacctmgr -nP show assoc` that [`check_limits`] reads, for `format=`.
pub const ASSOCIATION_FIELDS: &str = "format=account,user,qos";

/// Limits in which every running or waiting job counts, by slurmctld's names.
const COUNTED_LIMITS: [&str; 6] =
    ["GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpTRESRunMins", "MaxJobs", "MaxSubmitJobs"];

/// The most limits that have a finding each.
const MAX_REPORTED_LIMITS: usize = 8;

/// An association: an account and a user in it. The user is empty for the account itself.
type AssociationKey = (String, String);

/// A limit of an association and its present use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AssociationLimit {
    who: AssociationKey,
    /// The limit's name, such as `GrpTRES=node`.
    what: String,
    most: u64,
    used: u64,
}

/// The associations in slurmctld.
#[derive(Default)]
struct AssociationTable {
    limits: Vec<AssociationLimit>,
    /// The parent of each account.
    parents: BTreeMap<String, String>,
}

impl AssociationTable {
    fn parse(text: &str) -> AssociationTable {
        let mut table = AssociationTable::default();
        for line in text.lines() {
            let words: Vec<(&str, &str)> =
                line.split_whitespace().filter_map(|w| w.split_once('=')).collect();
            let Some(account) = find_name(&words, "Account") else { continue };
            let Some(user) = find_name(&words, "UserName") else { continue };
            if let Some(parent) = find_name(&words, "ParentAccount")
                && user.is_empty()
                && !parent.is_empty()
            {
                table.parents.insert(account.clone(), parent);
            }
            let who = (account, user);
            for (key, value) in words.iter().filter(|(k, _)| COUNTED_LIMITS.contains(k)) {
                table.limits.extend(parse_limits(&who, key, value));
            }
        }
        table
    }

    /// The account and all accounts above it.
    fn account_lineage<'a>(&'a self, account: &'a str) -> impl Iterator<Item = &'a str> {
        // The limit guards against a circle in Slurm's output.
        std::iter::successors(Some(account), |a| self.parents.get(*a).map(String::as_str)).take(64)
    }
}

/// The value of a key without the id behind it: `research(3)` becomes `research`.
fn find_name(words: &[(&str, &str)], key: &str) -> Option<String> {
    let (_, value) = words.iter().find(|(k, _)| *k == key)?;
    Some(value.split('(').next().unwrap_or_default().to_owned())
}

/// Parses `3(1)`, or `cpu=N(8),node=4(4)`. `N` means that there is no limit.
fn parse_limits(who: &AssociationKey, key: &str, value: &str) -> Vec<AssociationLimit> {
    let mut limits = Vec::new();
    limits.extend(parse_limit(who, key.to_owned(), value));
    for (tres, value) in value.split(',').filter_map(|part| part.split_once('=')) {
        limits.extend(parse_limit(who, format!("{key}={tres}"), value));
    }
    limits
}

/// Parses `3(1)`: the limit, and its use in parentheses.
fn parse_limit(who: &AssociationKey, what: String, value: &str) -> Option<AssociationLimit> {
    let (most, used) = value.strip_suffix(')')?.split_once('(')?;
    Some(AssociationLimit { who: who.clone(), what, most: most.parse().ok()?, used: used.parse().ok()? })
}

/// Checks limits in which both jobs of this QOS and other jobs count. `associations` is the output of
/// `sacctmgr` with [`ASSOCIATION_FIELDS`], `manager` that of `scontrol`.
pub fn check_limits(associations: &str, manager: &str, qos: &str) -> Vec<Finding> {
    let all = AssociationTable::parse(manager);
    let shared = shared_associations(associations, &all, qos);
    let mut found: Vec<&AssociationLimit> = all.limits.iter().filter(|l| shared.contains(&l.who)).collect();
    // The tightest limits come first.
    found.sort_by_key(|l| l.most.saturating_sub(l.used));
    if found.is_empty() {
        return vec![Finding::ok(
            "limits",
            "no limit of an account or a user counts malleable and main jobs together",
        )];
    }
    let mut findings: Vec<Finding> =
        found.iter().take(MAX_REPORTED_LIMITS).map(|l| limit_finding(l)).collect();
    if found.len() > MAX_REPORTED_LIMITS {
        let what =
            format!("{} further limits of this kind have more left", found.len() - MAX_REPORTED_LIMITS);
        findings.push(Finding::warn("limits", what, "sacctmgr show assoc"));
    }
    findings
}

/// Associations that count jobs of this QOS and of others: those that allow both, and the accounts above
/// those that allow this one.
fn shared_associations(associations: &str, all: &AssociationTable, qos: &str) -> BTreeSet<AssociationKey> {
    let mut shared = BTreeSet::new();
    for line in associations.lines() {
        let [account, user, allowed] = line.split('|').collect::<Vec<_>>()[..] else { continue };
        if !list_contains(allowed, qos) {
            continue;
        }
        if !allowed.eq_ignore_ascii_case(qos) {
            shared.insert((account.to_owned(), user.to_owned()));
        }
        shared.extend(all.account_lineage(account).skip(1).map(|a| (a.to_owned(), String::new())));
    }
    shared
}

fn limit_finding(limit: &AssociationLimit) -> Finding {
    let (account, user) = &limit.who;
    let who = match user.as_str() {
        "" => format!("account {account}"),
        user => format!("user {user} in account {account}"),
    };
    let AssociationLimit { what, most, used, .. } = limit;
    Finding::warn(
        "limits",
        format!(
            "{who}: {used} of {what} {most} in use, {} left; malleable jobs count in it, and main jobs wait when it is \
             used up",
            most.saturating_sub(*used)
        ),
        "give malleable jobs an account of their own: slurm/accounting.sh … --own-account NAME (slurm/README.md)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    /// Output of Slurm 24.11.5, without fields that are not read.
    const MANAGER: &str = "\
Current Association Manager state
Association Records
ClusterName=minicluster Account=root UserName= Partition= Priority=0 ID=1 ParentAccount= Lineage=/ DefAssoc=No GrpJobs=N(1) GrpSubmitJobs=N(2) GrpWall=N(0.94) GrpTRES=cpu=N(8),node=N(4) GrpTRESMins=cpu=N(7) GrpTRESRunMins=cpu=N(472),node=N(236) MaxJobs= MaxSubmitJobs=
ClusterName=minicluster Account=research UserName= Partition= Priority=0 ID=3 ParentAccount=root(1) Lineage=/research/ DefAssoc=Yes GrpJobs=N(1) GrpSubmitJobs=N(2) GrpWall=N(0.94) GrpTRES=cpu=N(8),node=4(4) GrpTRESMins=node=1000(3) GrpTRESRunMins=node=N(236) MaxJobs= MaxSubmitJobs=
ClusterName=minicluster Account=research UserName=alice(6101) Partition= Priority=0 ID=4 ParentAccount= Lineage=/research/0-alice/ DefAssoc=Yes GrpJobs=N(1) GrpSubmitJobs=N(1) GrpTRES=cpu=N(8),node=N(4) MaxJobs=3(1) MaxSubmitJobs=5(1)
ClusterName=minicluster Account=harvest UserName= Partition= Priority=0 ID=9 ParentAccount=root(1) Lineage=/harvest/ DefAssoc=Yes GrpJobs=100(0) MaxJobs= MaxSubmitJobs=
";

    #[test]
    fn limits_that_main_jobs_share() {
        let text = "root||normal\nresearch||infill,main\nresearch|alice|infill,main\n";
        insta::assert_snapshot!(render_findings(&check_limits(text, MANAGER, "infill"), false), @r"
        warn   limits    account research: 4 of GrpTRES=node 4 in use, 0 left; malleable jobs count in it, and main jobs wait when it is used up
                         → give malleable jobs an account of their own: slurm/accounting.sh … --own-account NAME (slurm/README.md)
        warn   limits    user alice in account research: 1 of MaxJobs 3 in use, 2 left; malleable jobs count in it, and main jobs wait when it is used up
                         → give malleable jobs an account of their own: slurm/accounting.sh … --own-account NAME (slurm/README.md)
        warn   limits    user alice in account research: 1 of MaxSubmitJobs 5 in use, 4 left; malleable jobs count in it, and main jobs wait when it is used up
                         → give malleable jobs an account of their own: slurm/accounting.sh … --own-account NAME (slurm/README.md)

        errors: 0, warnings: 3
        ");
    }

    #[test]
    fn an_account_of_their_own_shares_only_the_limits_above_it() {
        let text = "research||main\nresearch|alice|main\nharvest||infill\nharvest|alice|infill\n";
        assert!(
            render_findings(&check_limits(text, MANAGER, "infill"), false).contains("no limit of an account")
        );
        let tight = MANAGER.replace(
            "GrpJobs=N(1) GrpSubmitJobs=N(2) GrpWall=N(0.94) GrpTRES=cpu=N(8),node=N(4)",
            "GrpJobs=7(1)",
        );
        assert!(
            render_findings(&check_limits(text, &tight, "infill"), false)
                .contains("account root: 1 of GrpJobs 7")
        );
    }

    #[test]
    fn only_some_of_many_limits_are_listed_and_malformed_ones_are_skipped() {
        let manager: String = (0..20)
            .map(|i| format!("Account=a{i} UserName= ParentAccount=a{i} GrpJobs={i}(0) GrpTRES=x(\n"))
            .collect();
        let text: String = (0..20).map(|i| format!("a{i}||infill,main\nbroken|line\n")).collect();
        assert_eq!(check_limits(&text, &manager, "infill").len(), MAX_REPORTED_LIMITS + 1);
        assert_eq!(check_limits("", "", "infill").len(), 1);
    }
}
