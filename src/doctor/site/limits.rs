//! Limits of accounts and users in which malleable jobs count: `scontrol -o show assoc_mgr flags=assoc`, and
//! `sacctmgr -nP show assoc` for the QOSes.
//!
//! Slurm counts every job of an association, whatever its QOS, and preempts nothing for a main job that waits
//! for such a limit. What exempts malleable jobs is an account of their own.

use std::collections::{BTreeMap, BTreeSet};

use super::list_contains;
use crate::doctor::finding::Finding;

/// The fields of `sacctmgr -nP show assoc` that [`judge`] reads, for `format=`.
pub const ASSOCIATION_FIELDS: &str = "format=account,user,qos";

/// Limits that are counted down by every job that runs or waits, as slurmctld names them.
const COUNTED_LIMITS: [&str; 6] =
    ["GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpTRESRunMins", "MaxJobs", "MaxSubmitJobs"];

/// Most limits that are told of one by one.
const MAX_REPORTED_LIMITS: usize = 8;

/// An association: an account, or a user in it.
type AssociationKey = (String, String);

/// A limit and what counts in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AssociationLimit {
    who: AssociationKey,
    what: String,
    most: u64,
    used: u64,
}

/// What slurmctld knows of the associations.
#[derive(Default)]
struct AssociationTable {
    limits: Vec<AssociationLimit>,
    /// Account → the one above it.
    parents: BTreeMap<String, String>,
}

impl AssociationTable {
    fn parse(text: &str) -> AssociationTable {
        let mut all = AssociationTable::default();
        for line in text.lines() {
            let words: Vec<(&str, &str)> =
                line.split_whitespace().filter_map(|w| w.split_once('=')).collect();
            let get = |key: &str| words.iter().find(|(k, _)| *k == key).map(|(_, v)| bare_name(v).to_owned());
            let (Some(account), Some(user)) = (get("Account"), get("UserName")) else { continue };
            if let Some(parent) = get("ParentAccount").filter(|p| user.is_empty() && !p.is_empty()) {
                all.parents.insert(account.clone(), parent);
            }
            let who = (account, user);
            for (key, value) in words.iter().filter(|(k, _)| COUNTED_LIMITS.contains(k)) {
                all.limits.extend(parse_limits(&who, key, value));
            }
        }
        all
    }

    /// The account and all above it.
    fn account_lineage<'a>(&'a self, account: &'a str) -> impl Iterator<Item = &'a str> {
        // A circle in what Slurm says must not hang us.
        std::iter::successors(Some(account), |a| self.parents.get(*a).map(String::as_str)).take(64)
    }
}

/// `research(3)` is research.
fn bare_name(word: &str) -> &str {
    word.split('(').next().unwrap_or_default()
}

/// Reads `3(1)`, or `cpu=N(8),node=4(4)`; `N` is no limit.
fn parse_limits(who: &AssociationKey, key: &str, value: &str) -> Vec<AssociationLimit> {
    let one = |what: String, value: &str| {
        let (most, used) = value.strip_suffix(')')?.split_once('(')?;
        Some(AssociationLimit { who: who.clone(), what, most: most.parse().ok()?, used: used.parse().ok()? })
    };
    let named = value.split(',').filter_map(|part| {
        let (tres, value) = part.split_once('=')?;
        one(format!("{key}={tres}"), value)
    });
    one(key.to_owned(), value).into_iter().chain(named).collect()
}

/// Judges limits in which jobs of this QOS count and others as well. `associations` is what `sacctmgr`
/// printed of [`ASSOCIATION_FIELDS`], `manager` what `scontrol` printed.
pub fn check_limits(associations: &str, manager: &str, qos: &str) -> Vec<Finding> {
    let all = AssociationTable::parse(manager);
    let shared = shared_associations(associations, &all, qos);
    let mut found: Vec<&AssociationLimit> = all.limits.iter().filter(|l| shared.contains(&l.who)).collect();
    // The tightest first.
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
        let what = format!("{} more such limits have more left", found.len() - MAX_REPORTED_LIMITS);
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
            "{who}: {used} of {what} {most} in use, {} left; malleable jobs count in it, and main jobs wait once it is \
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

    /// From Slurm 24.11.5, less what nobody reads.
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
        warn   limits    account research: 4 of GrpTRES=node 4 in use, 0 left; malleable jobs count in it, and main jobs wait once it is used up
                         → give malleable jobs an account of their own: slurm/accounting.sh … --own-account NAME (slurm/README.md)
        warn   limits    user alice in account research: 1 of MaxJobs 3 in use, 2 left; malleable jobs count in it, and main jobs wait once it is used up
                         → give malleable jobs an account of their own: slurm/accounting.sh … --own-account NAME (slurm/README.md)
        warn   limits    user alice in account research: 1 of MaxSubmitJobs 5 in use, 4 left; malleable jobs count in it, and main jobs wait once it is used up
                         → give malleable jobs an account of their own: slurm/accounting.sh … --own-account NAME (slurm/README.md)

        errors: 0, warnings: 3
        ");
    }

    #[test]
    fn an_account_of_their_own_shares_only_what_stands_above_it() {
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
    fn few_of_many_and_no_nonsense() {
        let manager: String = (0..20)
            .map(|i: usize| format!("Account=a{i} UserName= ParentAccount=a{i} GrpJobs={i}(0) GrpTRES=x(\n"))
            .collect();
        let text: String = (0..20).map(|i| format!("a{i}||infill,main\nbroken|line\n")).collect();
        assert_eq!(check_limits(&text, &manager, "infill").len(), MAX_REPORTED_LIMITS + 1);
        assert_eq!(check_limits("", "", "infill").len(), 1);
    }
}
