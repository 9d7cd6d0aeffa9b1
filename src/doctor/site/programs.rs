//! Checks the programs that run before and after each job. Wings and leaving jobs must wait for them.

use super::slurm_conf::SlurmConf;
use crate::doctor::finding::Finding;
use infill_model::config::Config;

/// The programs that run before a job's script.
const PROLOG_KEYS: [&str; 2] = ["Prolog", "PrologSlurmctld"];
/// The programs that run before a job's node is free again.
const EPILOG_KEYS: [&str; 2] = ["Epilog", "EpilogSlurmctld"];

/// Slurm's value for a time limit that is not set.
const UNSET_TIMEOUT: u64 = 65_534;

/// Compares the time limits of the programs with the times that infill waits.
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
    let what = format!("{names}: must end in time for a job's agent to report within {wait} s");
    match timeout {
        Some(secs) if secs as f64 >= wait => Finding::warn(
            "prolog",
            format!("{what}, but may take {secs} s (PrologEpilogTimeout)"),
            format!(
                "measure its time; set agent.wing_start_secs and agent.lead_start_secs to twice as much, up to {}",
                secs + 30
            ),
        ),
        _ => Finding::ok("prolog", what),
    }
}

fn check_epilog(names: &str, leave: f64, timeout: Option<u64>) -> Finding {
    let what = format!("{names}: a node that a job leaves is free only after its end");
    match timeout {
        Some(secs) if secs as f64 > leave => Finding::warn(
            "epilog",
            format!("{what}; it may take {secs} s (PrologEpilogTimeout), but gaps.leave_secs is {leave}"),
            "measure its time, and set gaps.leave_secs to it plus the time to save; infill uses that until it has measured \
             its own",
        ),
        _ => Finding::ok("epilog", what),
    }
}

/// Checks whether there is an epilog. slurmctld looks at its queue when a node reports the end of its epilog.
/// Without one it learns of most jobs' ends in another way, and looks only at the next whole second.
fn check_missing_epilog(conf: &SlurmConf) -> Option<Finding> {
    if conf.programs_of(&["Epilog"]).is_some() {
        return None;
    }
    Some(Finding::warn(
        "epilog",
        "Epilog is not set: after a malleable job has left, slurmctld looks at its queue up to 1 s later",
        "set Epilog=/bin/true in slurm.conf: then slurmctld looks at once",
    ))
}

/// Compares Slurm's own time limit for the start of a job's script with infill's.
fn check_batch_start(conf: &SlurmConf, wait: f64) -> Option<Finding> {
    let secs = conf.number_of("BatchStartTimeout")?;
    if secs as f64 <= wait {
        return None;
    }
    Some(Finding::warn(
        "prolog",
        format!(
            "BatchStartTimeout is {secs} s: jobs may start slowly here, but infill waits only {wait} s for its own"
        ),
        "set agent.wing_start_secs and agent.lead_start_secs above it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::render_findings;

    fn rendered(text: &str, wing_start_secs: f64) -> String {
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
        assert!(rendered(text, 60.0).starts_with("warn   epilog    Epilog is not set"));
    }

    #[test]
    fn programs_without_a_time_limit_are_reported() {
        // The notation of Slurm 24.11, and that of earlier releases.
        for text in [
            "Prolog[0] = /etc/slurm/prolog\nEpilog[0] = /etc/slurm/epilog\n",
            "Prolog = /etc/slurm/prolog\nEpilog = /etc/slurm/epilog\n",
        ] {
            insta::allow_duplicates! { insta::assert_snapshot!(rendered(text, 60.0), @r"
            ok     prolog    Prolog=/etc/slurm/prolog: must end in time for a job's agent to report within 60 s
            ok     epilog    Epilog=/etc/slurm/epilog: a node that a job leaves is free only after its end

            errors: 0, warnings: 0
            "); }
        }
    }

    #[test]
    fn programs_that_may_take_longer_than_infill_waits() {
        let text = "Prolog[0] = /p\nPrologSlurmctld[0] = /q\nEpilog[0] = /e\nPrologEpilogTimeout = 45\nBatchStartTimeout = 90 sec\n";
        insta::assert_snapshot!(rendered(text, 40.0), @r"
        warn   prolog    Prolog=/p, PrologSlurmctld=/q: must end in time for a job's agent to report within 40 s, but may take 45 s (PrologEpilogTimeout)
                         → measure its time; set agent.wing_start_secs and agent.lead_start_secs to twice as much, up to 75
        warn   epilog    Epilog=/e: a node that a job leaves is free only after its end; it may take 45 s (PrologEpilogTimeout), but gaps.leave_secs is 15
                         → measure its time, and set gaps.leave_secs to it plus the time to save; infill uses that until it has measured its own
        warn   prolog    BatchStartTimeout is 90 s: jobs may start slowly here, but infill waits only 40 s for its own
                         → set agent.wing_start_secs and agent.lead_start_secs above it

        errors: 0, warnings: 3
        ");
    }
}
