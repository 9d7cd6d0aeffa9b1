//! Checks the output of `sacctmgr -nP show qos` and `show user`.

use super::list_contains;
use crate::doctor::finding::Finding;
use infill_model::duration;

/// The fields that [`parse_qos`] reads, for `format=`.
pub const QOS_FIELDS: &str =
    "format=name,flags,preemptmode,gracetime,preempt,priority,usagefactor,preemptexempttime";

/// A QOS of the site.
#[derive(Clone, Debug, PartialEq)]
pub struct QosRecord {
    /// The QOS's name.
    pub name: String,
    /// The flags, joined by commas.
    pub flags: String,
    /// The preempt mode; `cluster` stands for slurm.conf's PreemptMode.
    pub preempt_mode: String,
    /// The grace time, in seconds.
    pub grace_secs: u64,
    /// The QOSes that it may preempt, joined by commas.
    pub preempts: String,
    /// The priority of its jobs.
    pub priority: u64,
    /// The factor with which its jobs' time counts in fair share.
    pub usage_factor: f64,
    /// Seconds for which a job that has just started is not preempted; `None` for slurm.conf's.
    pub exempt_secs: Option<u64>,
}

/// Parses the output of `sacctmgr -nP show qos` with [`QOS_FIELDS`]. Skips lines with other fields.
pub fn parse_qos(text: &str) -> Vec<QosRecord> {
    text.lines().filter_map(parse_qos_line).collect()
}

fn parse_qos_line(line: &str) -> Option<QosRecord> {
    let [name, flags, mode, grace, preempts, priority, usage, exempt] =
        line.split('|').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    Some(QosRecord {
        name: name.to_owned(),
        flags: flags.to_owned(),
        preempt_mode: mode.to_owned(),
        grace_secs: grace_seconds(grace),
        preempts: preempts.to_owned(),
        priority: priority.parse().unwrap_or(0),
        usage_factor: usage.parse().unwrap_or(1.0),
        exempt_secs: (!exempt.is_empty()).then(|| grace_seconds(exempt)),
    })
}

/// The seconds in `[D-]HH:MM:SS` or in a plain number; 0 for other texts.
fn grace_seconds(text: &str) -> u64 {
    duration::parse(text).or_else(|| text.parse().ok()).unwrap_or(0)
}

/// A longer grace time, in seconds, makes a main job wait too long if a job ignores its signal.
const LONG_GRACE_SECS: u64 = 120;

/// What decides which jobs may preempt which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionSource {
    /// The QOSes decide.
    ByQos {
        /// Whether the preempt mode `cluster` means REQUEUE, by slurm.conf's PreemptMode.
        cluster_requeues: bool,
    },
    /// The partitions decide: see [`super::partition::check_preemption`].
    ByPartition,
}

/// Checks infill's QOS, one of `all`.
pub fn check_qos(all: &[QosRecord], name: &str, preemption: PreemptionSource) -> Vec<Finding> {
    let Some(ours) = all.iter().find(|q| q.name.eq_ignore_ascii_case(name)) else {
        let fix = "run slurm/accounting.sh --main-qos … --account …";
        return vec![Finding::error("qos", format!("there is no QOS {name}"), fix)];
    };
    let mut findings = Vec::new();
    if let PreemptionSource::ByQos { cluster_requeues } = preemption {
        findings.extend(check_preemptable(all, ours, cluster_requeues));
    }
    if !list_contains(&ours.flags, "NoReserve") {
        let what = format!(
            "QOS {name} lacks NoReserve: backfill plans nodes for malleable jobs, and main jobs wait"
        );
        findings.push(Finding::error("qos", what, modify_command(name, "flags+=NoReserve")));
    }
    if ours.priority > 0 {
        let what = format!(
            "QOS {name} has priority {}: malleable jobs should have no priority over main jobs",
            ours.priority
        );
        findings.push(Finding::warn("qos", what, modify_command(name, "priority=0")));
    }
    if ours.usage_factor > 0.0 {
        let what = format!(
            "UsageFactor of QOS {name} is {}: malleable jobs count in the fair share and GrpTRESMins of their users, whose \
             main jobs then wait longer",
            ours.usage_factor
        );
        let setting = "usagefactor=0 (or keep it if malleable jobs are meant to count)";
        findings.push(Finding::warn("qos", what, modify_command(name, setting)));
    }
    findings
}

/// Checks whether a malleable job that has just started can be preempted. `site_secs` is slurm.conf's
/// PreemptExemptTime, which holds for a QOS without its own.
pub fn check_exempt_time(all: &[QosRecord], name: &str, site_secs: u64) -> Option<Finding> {
    let qos = all.iter().find(|q| q.name.eq_ignore_ascii_case(name));
    let own_secs = qos.and_then(|q| q.exempt_secs);
    let secs = own_secs.unwrap_or(site_secs);
    let whose = if own_secs.is_some() { format!(" of QOS {name}") } else { String::new() };
    let what = format!(
        "PreemptExemptTime{whose} is {secs} s: a main job waits that long for a malleable job that has just started"
    );
    let fix = match qos {
        Some(_) => modify_command(name, "preemptexempttime=0"),
        None => "set PreemptExemptTime=0 in slurm.conf".to_owned(),
    };
    (secs > 0).then(|| Finding::warn("preempt", what, fix))
}

fn modify_command(qos: &str, setting: &str) -> String {
    format!("sacctmgr modify qos {qos} set {setting}")
}

/// Checks whether main jobs may preempt the jobs of this QOS, and whether these are then queued again.
fn check_preemptable(all: &[QosRecord], ours: &QosRecord, cluster_requeues: bool) -> Vec<Finding> {
    let name = &ours.name;
    let mut findings = vec![check_preemptors(all, ours)];
    let requeues = list_contains(&ours.preempt_mode, "requeue")
        || (list_contains(&ours.preempt_mode, "cluster") || ours.preempt_mode.is_empty()) && cluster_requeues;
    if !requeues {
        let what = format!(
            "PreemptMode of QOS {name} is {}: a preempted job is not queued again",
            ours.preempt_mode
        );
        findings.push(Finding::error("qos", what, modify_command(name, "preemptmode=requeue")));
    }
    if ours.grace_secs == 0 {
        let what = format!("QOS {name} has no GraceTime: a preempted job has no time to save");
        findings.push(Finding::warn("qos", what, modify_command(name, "gracetime=30")));
    }
    if ours.grace_secs > LONG_GRACE_SECS {
        let what = format!("GraceTime of QOS {name} is {} s: main jobs may wait that long", ours.grace_secs);
        findings.push(Finding::warn("qos", what, modify_command(name, "gracetime=30")));
    }
    findings
}

/// Checks which QOSes may preempt infill's.
fn check_preemptors(all: &[QosRecord], ours: &QosRecord) -> Finding {
    let others = all.iter().filter(|qos| qos.name != ours.name);
    let (may, may_not): (Vec<&QosRecord>, Vec<&QosRecord>) =
        others.partition(|qos| list_contains(&qos.preempts, &ours.name));
    let example = may_not.first().map_or("normal", |qos| qos.name.as_str());
    let setting = format!("preempt+={} (for every QOS of main jobs)", ours.name);
    let fix = modify_command(example, &setting);
    match (may.is_empty(), may_not.is_empty()) {
        (true, _) => Finding::error(
            "qos",
            format!("no QOS may preempt {}: main jobs wait for malleable ones", ours.name),
            fix,
        ),
        (false, true) => Finding::ok("qos", format!("all other QOSes may preempt {}", ours.name)),
        (false, false) => Finding::warn(
            "qos",
            format!(
                "{} may preempt {}; {} may not, so its jobs wait",
                joined_names(&may),
                ours.name,
                joined_names(&may_not)
            ),
            fix,
        ),
    }
}

fn joined_names(list: &[&QosRecord]) -> String {
    list.iter().map(|qos| qos.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Checks the answer to `sacctmgr -nP show user USER format=user,adminlevel`.
pub fn check_admin_rights(text: &str, user: &str) -> Finding {
    let level = text.lines().find_map(|line| line.split_once('|').filter(|(name, _)| *name == user));
    let fix = format!(
        "run `infill doctor` as the daemon's user; if that is {user}: \
         sacctmgr add user {user} account=infill adminlevel=operator (slurm/accounting.sh does it)"
    );
    match level.map(|(_, level)| level.trim()) {
        Some("Operator") => Finding::ok("rights", format!("{user} is Operator")),
        Some("Administrator") => Finding::warn(
            "rights",
            format!("{user} is Administrator: more than infill needs"),
            format!("sacctmgr modify user {user} set adminlevel=operator"),
        ),
        _ if user == "root" => Finding::warn(
            "rights",
            "root may do anything, so the rights of the daemon's own user are not known",
            "run `infill doctor` as that user",
        ),
        Some(_) | None => {
            let what =
                format!("{user} is not an Operator: it may not pin, release or cancel other users' jobs");
            Finding::error("rights", what, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    const BY_QOS: PreemptionSource = PreemptionSource::ByQos { cluster_requeues: true };

    /// Output of Slurm 24.11.5. The other lines in these tests have its form.
    const QOS: &str = "normal||cluster|00:00:00||0|1.000000|\nmain||cluster|00:00:00|infill|100|1.000000|\n\
                       infill|NoReserve|requeue|00:00:30||0|0.000000|\n";

    #[test]
    fn a_qos_is_read() {
        let all = parse_qos(&format!("{QOS}Unknown field 'bogus'\n"));
        assert_eq!(all.len(), 3);
        assert_eq!((all[2].flags.as_str(), all[2].grace_secs, all[1].priority), ("NoReserve", 30, 100));
        assert_eq!(["30", "00:02:00", "1-00:00:00", "x"].map(grace_seconds), [30, 120, 86_400, 0]);
    }

    #[test]
    fn the_site_of_accounting_sh() {
        insta::assert_snapshot!(render_findings(&check_qos(&parse_qos(QOS), "infill", BY_QOS), false), @r"
        warn   qos       main may preempt infill; normal may not, so its jobs wait
                         → sacctmgr modify qos normal set preempt+=infill (for every QOS of main jobs)

        errors: 0, warnings: 1
        ");
    }

    #[test]
    fn a_qos_that_harms_main_jobs() {
        let bad = "normal||cluster|00:00:00||0|1.0|\ninfill||cancel|00:10:00||500|1.000000|\n";
        insta::assert_snapshot!(render_findings(&check_qos(&parse_qos(bad), "infill", BY_QOS), false), @r"
        error  qos       no QOS may preempt infill: main jobs wait for malleable ones
                         → sacctmgr modify qos normal set preempt+=infill (for every QOS of main jobs)
        error  qos       PreemptMode of QOS infill is cancel: a preempted job is not queued again
                         → sacctmgr modify qos infill set preemptmode=requeue
        warn   qos       GraceTime of QOS infill is 600 s: main jobs may wait that long
                         → sacctmgr modify qos infill set gracetime=30
        error  qos       QOS infill lacks NoReserve: backfill plans nodes for malleable jobs, and main jobs wait
                         → sacctmgr modify qos infill set flags+=NoReserve
        warn   qos       QOS infill has priority 500: malleable jobs should have no priority over main jobs
                         → sacctmgr modify qos infill set priority=0
        warn   qos       UsageFactor of QOS infill is 1: malleable jobs count in the fair share and GrpTRESMins of their users, whose main jobs then wait longer
                         → sacctmgr modify qos infill set usagefactor=0 (or keep it if malleable jobs are meant to count)

        errors: 3, warnings: 3
        ");
    }

    #[test]
    fn young_jobs_that_cannot_be_preempted() {
        let found = |own: &str, site_secs| {
            let all = parse_qos(&format!("infill|NoReserve|requeue|00:00:30||0|0|{own}\n"));
            check_exempt_time(&all, "infill", site_secs).map(|finding| finding.what)
        };
        assert_eq!(found("", 0), None);
        assert_eq!(found("00:00:00", 87_000), None, "the QOS's own time counts");
        let waits = "a main job waits that long for a malleable job that has just started";
        let unknown = check_exempt_time(&[], "infill", 60).and_then(|finding| finding.fix);
        assert_eq!(unknown.as_deref(), Some("set PreemptExemptTime=0 in slurm.conf"));
        assert_eq!(found("", 87_000), Some(format!("PreemptExemptTime is 87000 s: {waits}")));
        assert_eq!(found("00:02:00", 0), Some(format!("PreemptExemptTime of QOS infill is 120 s: {waits}")));
    }

    #[test]
    fn cluster_stands_for_slurm_conf() {
        let all = parse_qos("main||cluster|00:00:00|infill|0|1|\ninfill|NoReserve|cluster|00:00:30||0|0|\n");
        assert_eq!(check_qos(&all, "infill", BY_QOS).len(), 1);
        assert_eq!(check_qos(&all, "infill", PreemptionSource::ByQos { cluster_requeues: false }).len(), 2);
        assert_eq!(check_qos(&all, "fill", BY_QOS).len(), 1);
    }

    #[test]
    fn where_partitions_preempt_the_qos_need_not() {
        let all = parse_qos("main||cluster|00:00:00||0|1|\ninfill|NoReserve|cluster|00:00:00||0|0|\n");
        assert_eq!(check_qos(&all, "infill", PreemptionSource::ByPartition), []);
        assert_eq!(check_qos(&all, "infill", BY_QOS).len(), 2);
    }

    #[test]
    fn rights() {
        let level = |text, user| check_admin_rights(text, user).level as u8;
        assert_eq!(level("infill|Operator\n", "infill"), 0);
        assert_eq!(level("infill|Administrator\n", "infill"), 1);
        assert_eq!(level("infill|None\n", "infill"), 2);
        assert_eq!(level("", "infill"), 2);
        assert_eq!(level("", "root"), 1);
    }
}
