//! Programs that run before and after each job: what they take, wings and leaving must wait for.

use super::slurm_conf::SlurmConf;
use crate::doctor::finding::Finding;
use infill_model::config::Config;

/// What runs before a job's script does.
const PROLOG_KEYS: [&str; 2] = ["Prolog", "PrologSlurmctld"];
/// What runs before its node is free again.
const EPILOG_KEYS: [&str; 2] = ["Epilog", "EpilogSlurmctld"];

/// Slurm's word for a time-out that is not set.
const UNSET_TIMEOUT: u64 = 65_534;

/// Judges the programs against the times that infill waits.
pub fn check_programs(conf: &SlurmConf, config: &Config) -> Vec<Finding> {
    let wait = config.agent.wing_start_secs.min(config.agent.lead_start_secs);
    let timeout = conf.number_of("PrologEpilogTimeout").filter(|secs| *secs < UNSET_TIMEOUT);
    let mut findings = Vec::new();
    findings.extend(conf.programs_of(&PROLOG_KEYS).map(|names| check_prolog(&names, wait, timeout)));
    findings.extend(
        conf.programs_of(&EPILOG_KEYS).map(|names| check_epilog(&names, config.gaps.leave_secs, timeout)),
    );
    findings.extend(check_missing_epilog(conf));
    findings.extend(check_batch_start(conf, wait));
    findings
}

fn check_prolog(names: &str, wait: f64, timeout: Option<u64>) -> Finding {
    let what = format!("{names}: a job's agent must say hello within {wait} s, whatever that takes");
    match timeout {
        Some(secs) if secs as f64 >= wait => Finding::warn(
            "prolog",
            format!("{what}, and it may take {secs} s (PrologEpilogTimeout)"),
            format!(
                "time it; set agent.wing_start_secs and agent.lead_start_secs to twice as much, up to {}",
                secs + 30
            ),
        ),
        _ => Finding::ok("prolog", what),
    }
}

fn check_epilog(names: &str, leave: f64, timeout: Option<u64>) -> Finding {
    let what = format!("{names}: a node that is left is free only after that");
    match timeout {
        Some(secs) if secs as f64 > leave => Finding::warn(
            "epilog",
            format!("{what}, which may take {secs} s (PrologEpilogTimeout), and gaps.leave_secs is {leave}"),
            "time it, and set gaps.leave_secs to what it takes and the time to save: the first leaves of a node go by that",
        ),
        _ => Finding::ok("epilog", what),
    }
}

/// slurmctld looks at its queue when a node says that its epilog has ended. Without one it learns of the end
/// of most jobs in another way, and looks only at the next whole second.
fn check_missing_epilog(conf: &SlurmConf) -> Option<Finding> {
    conf.programs_of(&["Epilog"]).is_none().then(|| {
        Finding::warn(
            "epilog",
            "Epilog is not set: when a malleable job has made way, slurmctld looks at its queue up to 1 s later",
            "set Epilog=/bin/true in slurm.conf: it looks at once then",
        )
    })
}

/// Slurm itself gives a job up whose script does not start in time.
fn check_batch_start(conf: &SlurmConf, wait: f64) -> Option<Finding> {
    let secs = conf.number_of("BatchStartTimeout")?;
    (secs as f64 > wait).then(|| {
        Finding::warn(
            "prolog",
            format!("BatchStartTimeout is {secs} s: jobs take long to start here, and infill waits {wait} s for its own"),
            "set agent.wing_start_secs and agent.lead_start_secs above it",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    fn said(text: &str, wing_start_secs: f64) -> String {
        let mut config = Config::default();
        config.agent.wing_start_secs = wing_start_secs;
        render_findings(&check_programs(&SlurmConf::parse(text), &config), false)
    }

    #[test]
    fn a_site_without_programs() {
        let text = "Prolog                  = (null)\nEpilog = (null)\nPrologEpilogTimeout     = 65534\n";
        assert_eq!(
            check_programs(&SlurmConf::parse(text), &Config::default()),
            check_missing_epilog(&SlurmConf::parse("")).into_iter().collect::<Vec<_>>()
        );
        assert!(said(text, 60.0).starts_with("warn   epilog    Epilog is not set"));
    }

    #[test]
    fn programs_without_a_bound_are_told_of() {
        // As Slurm 24.11 says it, and as earlier ones did.
        for text in [
            "Prolog[0] = /etc/slurm/prolog\nEpilog[0] = /etc/slurm/epilog\n",
            "Prolog = /etc/slurm/prolog\nEpilog = /etc/slurm/epilog\n",
        ] {
            insta::allow_duplicates! { insta::assert_snapshot!(said(text, 60.0), @r"
            ok     prolog    Prolog=/etc/slurm/prolog: a job's agent must say hello within 60 s, whatever that takes
            ok     epilog    Epilog=/etc/slurm/epilog: a node that is left is free only after that

            errors: 0, warnings: 0
            "); }
        }
    }

    #[test]
    fn programs_that_may_take_longer_than_infill_waits() {
        let text = "Prolog[0] = /p\nPrologSlurmctld[0] = /q\nEpilog[0] = /e\nPrologEpilogTimeout = 45\nBatchStartTimeout = 90 sec\n";
        insta::assert_snapshot!(said(text, 40.0), @r"
        warn   prolog    Prolog=/p, PrologSlurmctld=/q: a job's agent must say hello within 40 s, whatever that takes, and it may take 45 s (PrologEpilogTimeout)
                         → time it; set agent.wing_start_secs and agent.lead_start_secs to twice as much, up to 75
        warn   epilog    Epilog=/e: a node that is left is free only after that, which may take 45 s (PrologEpilogTimeout), and gaps.leave_secs is 15
                         → time it, and set gaps.leave_secs to what it takes and the time to save: the first leaves of a node go by that
        warn   prolog    BatchStartTimeout is 90 s: jobs take long to start here, and infill waits 40 s for its own
                         → set agent.wing_start_secs and agent.lead_start_secs above it

        errors: 0, warnings: 3
        ");
    }
}
