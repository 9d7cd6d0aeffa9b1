//! `scontrol show config`.

use std::collections::BTreeMap;

use super::{DEFAULT_MEMORY, is_unset, list_contains};
use crate::doctor::finding::Finding;
use infill_model::duration;

/// Slurm takes a list of programs where one is named; more than this are not told of.
const MOST_PROGRAMS: usize = 8;

/// The settings in effect. Lines that are no setting are passed over.
pub struct SlurmConf(BTreeMap<String, String>);

impl SlurmConf {
    /// Reads `Key = value` lines; those after the first blank part (`Cgroup Support Configuration:`) do not
    /// override.
    pub fn parse(text: &str) -> SlurmConf {
        let mut settings = BTreeMap::new();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            settings.entry(key.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
        }
        SlurmConf(settings)
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).filter(|v| !is_unset(v)).unwrap_or("")
    }

    /// A number, with or without a unit behind it.
    pub fn number_of(&self, key: &str) -> Option<u64> {
        self.get(key).split_whitespace().next()?.parse().ok()
    }

    /// Which of these programs are set, as `Key=path`; later releases number them. `None` if there are none.
    pub fn programs_of(&self, keys: &[&str]) -> Option<String> {
        let set = keys.iter().flat_map(|key| {
            let plain = Some(self.get(key)).filter(|v| !v.is_empty());
            let numbered = (0..MOST_PROGRAMS).map(move |i| self.get(&format!("{key}[{i}]")));
            let all = plain.into_iter().chain(numbered.filter(|v| !v.is_empty()));
            all.map(move |path| format!("{key}={path}"))
        });
        Some(set.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
    }

    /// Whether partitions, and not QOSes, say who pushes whom away.
    pub fn preempts_by_partition(&self) -> bool {
        self.get("PreemptType") == "preempt/partition_prio"
    }

    /// Whether jobs are preempted by requeueing where their QOS does not say otherwise.
    pub fn requeues_preempted(&self) -> bool {
        list_contains(self.get("PreemptMode"), "REQUEUE")
    }

    /// Whether Slurm gives a job that does not say how much memory it needs all of a node's.
    pub fn gives_all_memory(&self) -> bool {
        let counts = self.get("SelectTypeParameters").to_uppercase().contains("MEMORY");
        let has_default = DEFAULT_MEMORY.iter().any(|key| self.number_of(key) > Some(0));
        counts && !has_default
    }

    /// What JobSubmitPlugins is, as Slurm shows it.
    pub fn submit_plugins(&self) -> &str {
        value_or_unset(self.get("JobSubmitPlugins"))
    }

    /// Everything that matters to infill.
    pub fn check_settings(&self) -> Vec<Finding> {
        let mut findings = vec![self.check_preempt_type(), self.check_preempt_mode(), self.check_backfill()];
        findings.extend(self.check_exempt_time());
        findings.extend(self.check_requeue_exit());
        findings.extend(self.check_requeue_limits());
        findings.extend(self.check_enforcement());
        findings.extend(self.check_rate_limit());
        findings.extend(self.check_authentication());
        findings
    }

    /// Judges how many Slurm jobs infill may have: past MaxJobCount every submission on the site fails.
    pub fn check_job_count(&self, max_wings: u32) -> Option<Finding> {
        let most = self.number_of("MaxJobCount")?;
        let what = format!("slurm.max_wings is {max_wings}, and MaxJobCount {most}");
        (u64::from(max_wings) > most / 2)
            .then(|| {
                let why = format!("{what}: when slurmctld has that many jobs it takes no more, of anybody");
                Finding::error("jobs", why, format!("set slurm.max_wings to {} or less", most / 10))
            })
            .or_else(|| {
                (u64::from(max_wings) > most / 10).then(|| {
                    Finding::warn(
                        "jobs",
                        what,
                        format!("a tenth of it is enough: slurm.max_wings = {}", most / 10),
                    )
                })
            })
    }

    fn check_preempt_type(&self) -> Finding {
        match self.get("PreemptType") {
            "preempt/qos" => Finding::ok("preempt", "PreemptType is preempt/qos"),
            "preempt/partition_prio" => Finding::ok(
                "preempt",
                "PreemptType is preempt/partition_prio: a higher PriorityTier pushes away, and the QOS says nothing",
            ),
            other => Finding::error(
                "preempt",
                format!("PreemptType is {}: main jobs would wait for malleable ones", value_or_unset(other)),
                "set PreemptType=preempt/qos and PreemptMode=REQUEUE in slurm.conf, and restart slurmctld",
            ),
        }
    }

    fn check_preempt_mode(&self) -> Finding {
        let mode = self.get("PreemptMode");
        let mend = "set PreemptMode=REQUEUE in slurm.conf";
        if list_contains(mode, "SUSPEND") {
            let what =
                format!("PreemptMode is {mode}: a suspended job keeps its GPUs, so main jobs gain nothing");
            return Finding::error("preempt", what, mend);
        }
        match self.requeues_preempted() {
            true => Finding::ok("preempt", format!("PreemptMode is {mode}")),
            false => Finding::error("preempt", format!("PreemptMode is {}", value_or_unset(mode)), mend),
        }
    }

    fn check_exempt_time(&self) -> Option<Finding> {
        let secs = duration::parse(self.get("PreemptExemptTime")).unwrap_or(0);
        if secs > 0 {
            return Some(Finding::warn(
                "preempt",
                format!(
                    "PreemptExemptTime is {secs} s: a main job waits so long for a malleable job that is new"
                ),
                "set PreemptExemptTime=0, or for the infill QOS alone: sacctmgr modify qos infill set preemptexempttime=0",
            ));
        }
        (!list_contains(self.get("PreemptParameters"), "youngest_first")).then(|| {
            Finding::warn(
                "preempt",
                "PreemptParameters lacks youngest_first: Slurm pushes leads away before their wings",
                "set PreemptParameters=youngest_first in slurm.conf: a lost wing costs a resize, a lost lead a new start",
            )
        })
    }

    fn check_backfill(&self) -> Finding {
        match self.get("SchedulerType") {
            "sched/backfill" => Finding::ok("backfill", "SchedulerType is sched/backfill"),
            other => Finding::error(
                "backfill",
                format!(
                    "SchedulerType is {}: nothing tells when the main queue wants a node back",
                    value_or_unset(other)
                ),
                "set SchedulerType=sched/backfill in slurm.conf",
            ),
        }
    }

    fn check_requeue_exit(&self) -> Option<Finding> {
        let keys = ["RequeueExit", "RequeueExitHold"].map(|key| (key, self.get(key)));
        let set: Vec<String> =
            keys.iter().filter(|(_, v)| !v.is_empty()).map(|(key, v)| format!("{key}={v}")).collect();
        (!set.is_empty()).then(|| {
            Finding::warn(
                "requeue",
                format!("{}: a training command that exits with such a code is queued again", set.join(", ")),
                "tell the users of malleable jobs, or let their wrappers exit with other codes",
            )
        })
    }

    /// How often Slurm lets a job come back. What infill itself requeues, held, none of the limits counts.
    fn check_requeue_limits(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(most) = self.number_of("MaxBatchRequeue") {
            let what = format!(
                "MaxBatchRequeue is {most}: Slurm holds a lead that could not be started more often in a row; infill \
                 tries it again, on another node where it can"
            );
            findings.push(match most {
                0 => {
                    Finding::warn("requeue", what, "set MaxBatchRequeue=5 in slurm.conf, Slurm's own default")
                }
                _ => Finding::ok("requeue", what),
            });
        }
        // New in 26.11; 0 is no limit.
        let bound = |key| self.number_of(key).filter(|most| *most > 0);
        if let Some(most) = bound("MaxPreemptRequeue") {
            findings.push(Finding::warn(
                "requeue",
                format!(
                    "MaxPreemptRequeue is {most}: Slurm holds a lead that main jobs have pushed away more often since \
                     it was last released, and while infill is away nobody releases it"
                ),
                "set MaxPreemptRequeue=0 in slurm.conf: malleable jobs are pushed away all day",
            ));
        }
        if let Some(most) = bound("MaxNodeFailRequeue") {
            let what = format!(
                "MaxNodeFailRequeue is {most}: Slurm holds a lead that has lost its node more often since it was last \
                 released; infill starts it again"
            );
            findings.push(Finding::ok("requeue", what));
        }
        findings
    }

    fn check_enforcement(&self) -> Option<Finding> {
        let enforced = self.get("AccountingStorageEnforce");
        let all = list_contains(enforced, "all")
            || list_contains(enforced, "qos")
            || list_contains(enforced, "safe");
        (!all).then(|| {
            Finding::warn(
                "qos",
                format!("AccountingStorageEnforce is {}: anybody may use any QOS", value_or_unset(enforced)),
                "set AccountingStorageEnforce=associations,limits,qos in slurm.conf",
            )
        })
    }

    fn check_rate_limit(&self) -> Option<Finding> {
        list_contains(self.get("SlurmctldParameters"), "rl_enable").then(|| {
            Finding::warn(
                "rest",
                "SlurmctldParameters has rl_enable: slurmctld refuses more than a few requests a second from infill",
                "keep daemon.poll_interval_secs at 5 or more, or raise rl_bucket_size and rl_refill_rate",
            )
        })
    }

    fn check_authentication(&self) -> Option<Finding> {
        (self.get("AuthType") != "auth/munge").then(|| {
            Finding::warn(
                "munge",
                format!(
                    "AuthType is {}: agents prove who they are by MUNGE or by scontrol token",
                    value_or_unset(self.get("AuthType"))
                ),
                "run munged on all nodes, or set AuthAltTypes=auth/jwt and let users run scontrol token",
            )
        })
    }
}

fn value_or_unset(value: &str) -> &str {
    if value.is_empty() { "not set" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    /// From Slurm 24.11.5.
    const SOUND: &str = "\
Configuration data as of 2026-11-20T22:10:16
AccountingStorageEnforce = associations,limits,qos
AuthType                = auth/munge
JobSubmitPlugins        = lua
PreemptMode             = REQUEUE
PreemptParameters       = youngest_first
PreemptType             = preempt/qos
PreemptExemptTime       = 00:00:00
RequeueExit             = (null)
RequeueExitHold         = (null)
SchedulerParameters     = bf_interval=2,bf_resolution=60,sched_interval=5,batch_sched_delay=0,bf_continue
SchedulerType           = sched/backfill
SlurmctldParameters     = (null)

Cgroup Support Configuration:
CgroupPlugin            = disabled

Slurmctld(primary) at minicluster is UP
";

    fn judged(changes: &[(&str, &str)]) -> String {
        let mut conf = SlurmConf::parse(SOUND);
        for (key, value) in changes {
            conf.0.insert((*key).to_owned(), (*value).to_owned());
        }
        render_findings(&conf.check_settings(), false)
    }

    #[test]
    fn a_sound_site() {
        insta::assert_snapshot!(judged(&[]), @r"
        ok     preempt   PreemptType is preempt/qos
        ok     preempt   PreemptMode is REQUEUE
        ok     backfill  SchedulerType is sched/backfill

        errors: 0, warnings: 0
        ");
    }

    #[test]
    fn a_stock_slurm() {
        let stock = [
            ("PreemptType", "(null)"),
            ("PreemptMode", "OFF"),
            ("AccountingStorageEnforce", "none"),
            ("SchedulerType", "sched/builtin"),
        ];
        insta::assert_snapshot!(judged(&stock), @r"
        error  preempt   PreemptType is not set: main jobs would wait for malleable ones
                         → set PreemptType=preempt/qos and PreemptMode=REQUEUE in slurm.conf, and restart slurmctld
        error  preempt   PreemptMode is OFF
                         → set PreemptMode=REQUEUE in slurm.conf
        error  backfill  SchedulerType is sched/builtin: nothing tells when the main queue wants a node back
                         → set SchedulerType=sched/backfill in slurm.conf
        warn   qos       AccountingStorageEnforce is none: anybody may use any QOS
                         → set AccountingStorageEnforce=associations,limits,qos in slurm.conf

        errors: 3, warnings: 1
        ");
    }

    #[test]
    fn traps() {
        let traps = [
            ("PreemptMode", "GANG,SUSPEND"),
            ("PreemptExemptTime", "1-00:10:00"),
            ("RequeueExit", "75-80"),
            ("SlurmctldParameters", "enable_configless,rl_enable"),
            ("AuthType", "auth/slurm"),
        ];
        insta::assert_snapshot!(judged(&traps), @r"
        ok     preempt   PreemptType is preempt/qos
        error  preempt   PreemptMode is GANG,SUSPEND: a suspended job keeps its GPUs, so main jobs gain nothing
                         → set PreemptMode=REQUEUE in slurm.conf
        ok     backfill  SchedulerType is sched/backfill
        warn   preempt   PreemptExemptTime is 87000 s: a main job waits so long for a malleable job that is new
                         → set PreemptExemptTime=0, or for the infill QOS alone: sacctmgr modify qos infill set preemptexempttime=0
        warn   requeue   RequeueExit=75-80: a training command that exits with such a code is queued again
                         → tell the users of malleable jobs, or let their wrappers exit with other codes
        warn   rest      SlurmctldParameters has rl_enable: slurmctld refuses more than a few requests a second from infill
                         → keep daemon.poll_interval_secs at 5 or more, or raise rl_bucket_size and rl_refill_rate
        warn   munge     AuthType is auth/slurm: agents prove who they are by MUNGE or by scontrol token
                         → run munged on all nodes, or set AuthAltTypes=auth/jwt and let users run scontrol token

        errors: 1, warnings: 4
        ");
        assert!(judged(&[("PreemptParameters", "(null)")]).contains("lacks youngest_first"));
    }

    #[test]
    fn limits_of_requeues() {
        // Slurm 26.05 knows the first one, 26.11 all three.
        let limits = |batch, preempt, node_fail| {
            let all = [
                ("MaxBatchRequeue", batch),
                ("MaxPreemptRequeue", preempt),
                ("MaxNodeFailRequeue", node_fail),
            ];
            let conf: String = all.iter().map(|(key, most)| format!("{key:<24}= {most}\n")).collect();
            render_findings(&SlurmConf::parse(&conf).check_requeue_limits(), false)
        };
        insta::assert_snapshot!(limits("5", "100", "10"), @r"
        ok     requeue   MaxBatchRequeue is 5: Slurm holds a lead that could not be started more often in a row; infill tries it again, on another node where it can
        warn   requeue   MaxPreemptRequeue is 100: Slurm holds a lead that main jobs have pushed away more often since it was last released, and while infill is away nobody releases it
                         → set MaxPreemptRequeue=0 in slurm.conf: malleable jobs are pushed away all day
        ok     requeue   MaxNodeFailRequeue is 10: Slurm holds a lead that has lost its node more often since it was last released; infill starts it again

        errors: 0, warnings: 1
        ");
        insta::assert_snapshot!(limits("0", "0", "0"), @r"
        warn   requeue   MaxBatchRequeue is 0: Slurm holds a lead that could not be started more often in a row; infill tries it again, on another node where it can
                         → set MaxBatchRequeue=5 in slurm.conf, Slurm's own default

        errors: 0, warnings: 1
        ");
        assert_eq!(SlurmConf::parse("MaxBatchRequeue = UNLIMITED\n").check_requeue_limits().len(), 0);
    }

    #[test]
    fn memory_that_nobody_asked_for() {
        let gives = |text: &str| SlurmConf::parse(text).gives_all_memory();
        assert!(gives("SelectTypeParameters = CR_CPU_MEMORY\nDefMemPerNode = UNLIMITED\n"));
        assert!(!gives("SelectTypeParameters = CR_CPU_MEMORY\nDefMemPerCPU = 500\n"));
        assert!(!gives("SelectTypeParameters = CR_CPU\nDefMemPerNode = UNLIMITED\n"));
    }

    #[test]
    fn the_bound_on_wings_stays_well_below_slurms() {
        let level = |most: &str, wings| {
            let conf = SlurmConf::parse(&format!("MaxJobCount             = {most}\n"));
            conf.check_job_count(wings).map(|f| f.level as u8)
        };
        assert_eq!([1000, 1001, 5001].map(|wings| level("10000", wings)), [None, Some(1), Some(2)]);
        assert_eq!(level("?", 5000), None);
    }

    #[test]
    fn nonsense_is_no_setting() {
        let empty =
            SlurmConf::parse("slurm_load_ctl_conf error: Unable to contact slurm controller\n\u{0}=\n");
        assert!(!empty.requeues_preempted());
    }
}
