//! Checks the output of `scontrol show config`.

use std::collections::BTreeMap;

use super::{DEFAULT_MEMORY, is_unset, list_contains};
use crate::doctor::finding::Finding;
use infill_model::duration;

/// The most programs of a list that are read.
const MOST_PROGRAMS: usize = 8;

/// The settings in effect.
pub struct SlurmConf(BTreeMap<String, String>);

impl SlurmConf {
    /// Parses `Key = value` lines and skips others. The first value of a key counts, so that later parts such
    /// as `Cgroup Support Configuration:` override nothing.
    pub fn parse(text: &str) -> SlurmConf {
        let mut settings = BTreeMap::new();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            settings.entry(key.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
        }
        SlurmConf(settings)
    }

    /// A setting; empty if it is not set.
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).filter(|v| !is_unset(v)).unwrap_or("")
    }

    /// A setting as a number. A unit behind it is ignored.
    pub fn number_of(&self, key: &str) -> Option<u64> {
        self.get(key).split_whitespace().next()?.parse().ok()
    }

    /// The programs that these keys set, as `Key=path`. Later releases of Slurm number the keys. `None` if
    /// there are none.
    pub fn programs_of(&self, keys: &[&str]) -> Option<String> {
        let set = keys.iter().flat_map(|key| {
            let plain = Some(self.get(key)).filter(|v| !v.is_empty());
            let numbered = (0..MOST_PROGRAMS).map(move |i| self.get(&format!("{key}[{i}]")));
            let all = plain.into_iter().chain(numbered.filter(|v| !v.is_empty()));
            all.map(move |path| format!("{key}={path}"))
        });
        Some(set.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
    }

    /// Whether partitions, and not QOSes, decide which jobs may preempt which.
    pub fn preempts_by_partition(&self) -> bool {
        self.get("PreemptType") == "preempt/partition_prio"
    }

    /// Whether preempted jobs are queued again unless their QOS says otherwise.
    pub fn requeues_preempted(&self) -> bool {
        list_contains(self.get("PreemptMode"), "REQUEUE")
    }

    /// Whether Slurm gives a job that does not ask for memory all the memory of a node.
    pub fn gives_all_memory(&self) -> bool {
        let counts_memory = self.get("SelectTypeParameters").to_uppercase().contains("MEMORY");
        let has_default = DEFAULT_MEMORY.iter().any(|key| self.number_of(key) > Some(0));
        counts_memory && !has_default
    }

    /// The value of JobSubmitPlugins, for a message.
    pub fn submit_plugins(&self) -> &str {
        value_or_unset(self.get("JobSubmitPlugins"))
    }

    /// Checks all settings that matter to infill, except those that need its configuration.
    pub fn check_settings(&self) -> Vec<Finding> {
        let mut findings = vec![self.check_preempt_type(), self.check_preempt_mode(), self.check_backfill()];
        findings.extend(self.check_preempt_order());
        findings.extend(self.check_requeue_exit());
        findings.extend(self.check_requeue_limits());
        findings.extend(self.check_enforcement());
        findings.extend(self.check_rate_limit());
        findings.extend(self.check_authentication());
        findings
    }

    /// Checks the number of wings that infill may have. Above MaxJobCount every submission on the site fails.
    pub fn check_job_count(&self, max_wings: u32) -> Option<Finding> {
        let most = self.number_of("MaxJobCount")?;
        let tenth = most / 10;
        let what = format!("slurm.max_wings is {max_wings}, and MaxJobCount {most}");
        if u64::from(max_wings) > most / 2 {
            let why = format!("{what}: a slurmctld with MaxJobCount jobs accepts no more jobs from any user");
            return Some(Finding::error("jobs", why, format!("set slurm.max_wings to {tenth} or less")));
        }
        if u64::from(max_wings) > tenth {
            let fix = format!("a tenth of MaxJobCount is enough: slurm.max_wings = {tenth}");
            return Some(Finding::warn("jobs", what, fix));
        }
        None
    }

    fn check_preempt_type(&self) -> Finding {
        match self.get("PreemptType") {
            "preempt/qos" => Finding::ok("preempt", "PreemptType is preempt/qos"),
            "preempt/partition_prio" => Finding::ok(
                "preempt",
                "PreemptType is preempt/partition_prio: a higher PriorityTier preempts, and QOSes do not count",
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
        let fix = "set PreemptMode=REQUEUE in slurm.conf";
        if list_contains(mode, "SUSPEND") {
            let what =
                format!("PreemptMode is {mode}: a suspended job keeps its GPUs, so main jobs gain nothing");
            return Finding::error("preempt", what, fix);
        }
        if self.requeues_preempted() {
            Finding::ok("preempt", format!("PreemptMode is {mode}"))
        } else {
            Finding::error("preempt", format!("PreemptMode is {}", value_or_unset(mode)), fix)
        }
    }

    /// Seconds for which a job that has just started is not preempted, if its QOS does not say otherwise.
    pub fn exempt_secs(&self) -> u64 {
        duration::parse(self.get("PreemptExemptTime")).unwrap_or(0)
    }

    fn check_preempt_order(&self) -> Option<Finding> {
        if list_contains(self.get("PreemptParameters"), "youngest_first") {
            return None;
        }
        Some(Finding::warn(
            "preempt",
            "PreemptParameters lacks youngest_first: Slurm preempts leads before their wings",
            "set PreemptParameters=youngest_first in slurm.conf: a lost wing costs a rescale, but a lost lead a new start",
        ))
    }

    fn check_backfill(&self) -> Finding {
        match self.get("SchedulerType") {
            "sched/backfill" => Finding::ok("backfill", "SchedulerType is sched/backfill"),
            other => Finding::error(
                "backfill",
                format!(
                    "SchedulerType is {}: it does not plan when main jobs will start",
                    value_or_unset(other)
                ),
                "set SchedulerType=sched/backfill in slurm.conf",
            ),
        }
    }

    fn check_requeue_exit(&self) -> Option<Finding> {
        let values = ["RequeueExit", "RequeueExitHold"].map(|key| (key, self.get(key)));
        let set: Vec<String> = values
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if set.is_empty() {
            return None;
        }
        Some(Finding::warn(
            "requeue",
            format!("{}: a training command that exits with such a code is queued again", set.join(", ")),
            "tell the users of malleable jobs, or let their wrappers exit with other codes",
        ))
    }

    /// Checks how often Slurm queues a job again. Jobs that infill itself requeues are held, and none of
    /// these limits counts them.
    fn check_requeue_limits(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(most) = self.number_of("MaxBatchRequeue") {
            let what = format!(
                "MaxBatchRequeue is {most}: Slurm holds a lead whose start failed more often in a row; infill \
                 then retries it, on another node if possible"
            );
            findings.push(if most == 0 {
                Finding::warn("requeue", what, "set MaxBatchRequeue=5 in slurm.conf, Slurm's own default")
            } else {
                Finding::ok("requeue", what)
            });
        }
        // These are new in 26.11. 0 means that there is no limit.
        if let Some(most) = self.number_of("MaxPreemptRequeue").filter(|most| *most > 0) {
            findings.push(Finding::warn(
                "requeue",
                format!(
                    "MaxPreemptRequeue is {most}: Slurm holds a lead that was preempted more often since its last release; \
                     only infill releases it, so it stays held while infill is down"
                ),
                "set MaxPreemptRequeue=0 in slurm.conf: preemption of malleable jobs is normal",
            ));
        }
        if let Some(most) = self.number_of("MaxNodeFailRequeue").filter(|most| *most > 0) {
            let what = format!(
                "MaxNodeFailRequeue is {most}: Slurm holds a lead that lost its node more often since its last release; \
                 infill then starts it again"
            );
            findings.push(Finding::ok("requeue", what));
        }
        findings
    }

    fn check_enforcement(&self) -> Option<Finding> {
        let enforced = self.get("AccountingStorageEnforce");
        if ["all", "qos", "safe"].iter().any(|word| list_contains(enforced, word)) {
            return None;
        }
        Some(Finding::warn(
            "qos",
            format!("AccountingStorageEnforce is {}: all users may use any QOS", value_or_unset(enforced)),
            "set AccountingStorageEnforce=associations,limits,qos in slurm.conf",
        ))
    }

    fn check_rate_limit(&self) -> Option<Finding> {
        if !list_contains(self.get("SlurmctldParameters"), "rl_enable") {
            return None;
        }
        Some(Finding::warn(
            "rest",
            "SlurmctldParameters has rl_enable: slurmctld accepts only a few requests a second from infill",
            "keep daemon.poll_interval_secs at 5 or more, or raise rl_bucket_size and rl_refill_rate",
        ))
    }

    fn check_authentication(&self) -> Option<Finding> {
        let auth_type = self.get("AuthType");
        if auth_type == "auth/munge" {
            return None;
        }
        Some(Finding::warn(
            "munge",
            format!(
                "AuthType is {}: agents need MUNGE or scontrol token to prove who they are",
                value_or_unset(auth_type)
            ),
            "run munged on all nodes, or set AuthAltTypes=auth/jwt and let users run scontrol token",
        ))
    }
}

fn value_or_unset(value: &str) -> &str {
    if value.is_empty() { "not set" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    /// Output of Slurm 24.11.5.
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
        error  backfill  SchedulerType is sched/builtin: it does not plan when main jobs will start
                         → set SchedulerType=sched/backfill in slurm.conf
        warn   qos       AccountingStorageEnforce is none: all users may use any QOS
                         → set AccountingStorageEnforce=associations,limits,qos in slurm.conf

        errors: 3, warnings: 1
        ");
    }

    #[test]
    fn traps() {
        let traps = [
            ("PreemptMode", "GANG,SUSPEND"),
            ("RequeueExit", "75-80"),
            ("SlurmctldParameters", "enable_configless,rl_enable"),
            ("AuthType", "auth/slurm"),
        ];
        insta::assert_snapshot!(judged(&traps), @r"
        ok     preempt   PreemptType is preempt/qos
        error  preempt   PreemptMode is GANG,SUSPEND: a suspended job keeps its GPUs, so main jobs gain nothing
                         → set PreemptMode=REQUEUE in slurm.conf
        ok     backfill  SchedulerType is sched/backfill
        warn   requeue   RequeueExit=75-80: a training command that exits with such a code is queued again
                         → tell the users of malleable jobs, or let their wrappers exit with other codes
        warn   rest      SlurmctldParameters has rl_enable: slurmctld accepts only a few requests a second from infill
                         → keep daemon.poll_interval_secs at 5 or more, or raise rl_bucket_size and rl_refill_rate
        warn   munge     AuthType is auth/slurm: agents need MUNGE or scontrol token to prove who they are
                         → run munged on all nodes, or set AuthAltTypes=auth/jwt and let users run scontrol token

        errors: 1, warnings: 3
        ");
        assert!(judged(&[("PreemptParameters", "(null)")]).contains("lacks youngest_first"));
    }

    #[test]
    fn limits_of_requeues() {
        // Slurm 26.05 has the first setting, 26.11 all three.
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
        ok     requeue   MaxBatchRequeue is 5: Slurm holds a lead whose start failed more often in a row; infill then retries it, on another node if possible
        warn   requeue   MaxPreemptRequeue is 100: Slurm holds a lead that was preempted more often since its last release; only infill releases it, so it stays held while infill is down
                         → set MaxPreemptRequeue=0 in slurm.conf: preemption of malleable jobs is normal
        ok     requeue   MaxNodeFailRequeue is 10: Slurm holds a lead that lost its node more often since its last release; infill then starts it again

        errors: 0, warnings: 1
        ");
        insta::assert_snapshot!(limits("0", "0", "0"), @r"
        warn   requeue   MaxBatchRequeue is 0: Slurm holds a lead whose start failed more often in a row; infill then retries it, on another node if possible
                         → set MaxBatchRequeue=5 in slurm.conf, Slurm's own default

        errors: 0, warnings: 1
        ");
        assert_eq!(SlurmConf::parse("MaxBatchRequeue = UNLIMITED\n").check_requeue_limits().len(), 0);
    }

    #[test]
    fn jobs_that_ask_for_no_memory() {
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
    fn an_error_message_has_no_settings() {
        let empty =
            SlurmConf::parse("slurm_load_ctl_conf error: Unable to contact slurm controller\n\u{0}=\n");
        assert!(!empty.requeues_preempted());
    }
}
