//! The main promise over a whole run: main jobs start promptly. A single test allows its main job more time,
//! because other clusters share the machine. All tests together must keep these limits.

use crate::harness::record;

/// Half of all main jobs start within this time of their submission, seconds.
const MEDIAN_SECS: f64 = 2.0;

/// At most [`MOST_SLOW`] main jobs take longer than this, seconds.
const SLOW_SECS: f64 = 5.0;

/// One, because a machine that runs several clusters may stop for a moment.
const MOST_SLOW: usize = 1;

/// No main job takes longer than this, seconds.
const LIMIT_SECS: f64 = 15.0;

/// With fewer main jobs the median says little.
const FEWEST: usize = 10;

/// Sums up a run's delays, or says which limit they break. Each is a test's name and seconds.
fn judge(delays: &[(String, f64)]) -> Result<String, String> {
    let mut sorted = delays.to_vec();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let Some((slowest, last)) = sorted.last() else {
        return Err("no main job was started: nothing was shown".to_owned());
    };
    let median = sorted[sorted.len() / 2].1;
    let slow: Vec<String> = sorted
        .iter()
        .filter(|(_, secs)| *secs > SLOW_SECS)
        .map(|(test, secs)| format!("{test}: {secs:.2} s"))
        .collect();
    let summary = format!(
        "{} main jobs: half started within {median:.2} s, the last after {last:.2} s ({slowest})",
        sorted.len()
    );
    if *last > LIMIT_SECS {
        return Err(format!("{summary}; the limit is {LIMIT_SECS} s"));
    }
    if slow.len() > MOST_SLOW {
        return Err(format!("{summary}; more than {MOST_SLOW} took over {SLOW_SECS} s: {}", slow.join(", ")));
    }
    if sorted.len() >= FEWEST && median > MEDIAN_SECS {
        return Err(format!("{summary}; half must start within {MEDIAN_SECS} s"));
    }
    Ok(summary)
}

/// `TEST JOB SECONDS`, separated by tabs.
fn parse(text: &str) -> Vec<(String, f64)> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [test, _, secs] = fields[..] else { panic!("not a row of {}: {line}", record::DELAYS) };
        (test.to_owned(), secs.parse().unwrap_or_else(|e| panic!("{line}: {e}")))
    };
    text.lines().map(row).collect()
}

/// Runs last: it reads what the other tests recorded.
#[test]
#[ignore = "reads the record of a whole run: tests/run.sh runs it at the end"]
fn main_jobs_of_this_run_started_promptly() {
    let path = record::folder().expect("INFILL_TEST_RECORD names a folder").join(record::DELAYS);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    match judge(&parse(&text)) {
        Ok(summary) => println!("{summary}"),
        Err(broken) => panic!("{broken}"),
    }
}

fn delays(secs: &[f64]) -> Vec<(String, f64)> {
    secs.iter().map(|secs| ("a_test".to_owned(), *secs)).collect()
}

#[test]
fn each_limit_on_the_delays_of_a_run_can_be_broken() {
    let prompt = [1.9; 20];
    let with = |more: &[f64]| judge(&delays(&[&prompt[..], more].concat()));
    assert!(with(&[]).is_ok());
    assert!(with(&[14.9]).is_ok(), "one may be slow");
    assert!(with(&[15.1]).unwrap_err().contains("the limit is 15 s"));
    assert!(with(&[5.1, 5.2]).unwrap_err().contains("more than 1 took over 5 s"));
    assert!(judge(&delays(&[2.1; 20])).unwrap_err().contains("half must start within 2 s"));
    assert!(judge(&[]).is_err(), "a run without main jobs shows nothing");
    assert_eq!(parse("a\t7\t0.5\n"), [("a".to_owned(), 0.5)]);
}
