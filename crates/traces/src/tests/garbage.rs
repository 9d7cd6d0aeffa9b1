//! No bytes make a reader panic, run forever, or return values that its types forbid.

use proptest::prelude::*;

use super::source;
use crate::{SwfLayout, SwfOptions, curves, ended, idle, sacct, swf, workload};
use infill_model::{EndedJob, JobLog};
use infill_testkit::effort;

/// Texts with a valid header.
fn text_with_header() -> impl Strategy<Value = Vec<u8>> {
    let header = prop_oneof![
        Just("start_s,end_s,node\n"),
        Just("JobID|Start|End|NNodes|NodeList|Timelimit\n"),
        Just("JobID|JobName|Submit|WorkDir|Start|End|SubmitLine|User|NNodes|State\n"),
        Just("nodes,throughput\n"),
        Just("b,1,2\n"),
        Just("name,submit_s,samples,min_nodes,max_nodes,curve\n"),
        Just("; MaxNodes: 7\n; MaxProcs: 20\n"),
    ];
    let usual = ["-1", "1e300", "NaN", "\"", "n[1-9]", "2026-03-01T10:00:00", "9-99:00:00", "FAILED"];
    let usual = proptest::sample::select(usual.to_vec()).prop_map(str::to_owned);
    let word = prop_oneof![usual, "[0-9]{1,12}", ".{0,3}"];
    let end =
        prop_oneof![Just(" "), Just(","), Just("|"), Just("\n"), Just("\t"), Just("\r\n"), Just("\u{0}")];
    (header, proptest::collection::vec((word, end), 0..80)).prop_map(|(header, words)| {
        let text = words.into_iter().map(|(word, end)| word + end).collect::<String>();
        format!("{header}{text}").into_bytes()
    })
}

fn check_jobs(log: &JobLog) -> Result<(), TestCaseError> {
    for job in &log.jobs {
        prop_assert!(job.submit <= job.start && job.start < job.end && job.nodes > 0, "{job:?}");
        prop_assert!(job.limit_secs.is_none_or(|secs| secs > 0));
    }
    prop_assert!(log.jobs.is_sorted_by_key(|j| (j.start, j.id)));
    Ok(())
}

/// Passes the bytes to every reader.
fn read_all(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(reading) = idle::parse(source("a.csv", bytes)) {
        let log = reading.value;
        prop_assert!(
            log.intervals.iter().all(|i| log.start <= i.start && i.start < i.end && i.end <= log.end)
        );
        prop_assert!(log.intervals.is_sorted_by_key(|i| (i.start, i.end)));
    }
    for layout in [SwfLayout::Auto, SwfLayout::Standard, SwfLayout::Six] {
        let options = SwfOptions { layout, procs_per_node: None };
        if let Ok(reading) = swf::parse(source("a.swf", bytes), options) {
            check_jobs(&reading.value)?;
        }
    }
    if let Ok(reading) = sacct::parse(source("a.txt", bytes)) {
        check_jobs(&reading.value)?;
    }
    if let Ok(reading) = ended::parse(source("a.txt", bytes), "") {
        let is_valid = |job: &EndedJob| job.max_nodes > 0 && job.work_secs >= 0.0 && job.secs >= 0.0;
        prop_assert!(reading.value.jobs.iter().all(is_valid));
    }
    if let Ok(reading) = curves::parse(source("a.csv", bytes)) {
        prop_assert!(reading.value.iter().all(|c| c.curve.rate(1) > 0.0));
    }
    if let Ok(reading) = workload::parse(source("a.csv", bytes)) {
        prop_assert!(reading.value.iter().all(|j| j.samples > 0.0 && j.min_nodes <= j.max_nodes));
    }
    Ok(())
}

proptest! {
    #![proptest_config(effort::property(256))]

    #[test]
    fn bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        read_all(&bytes)?;
    }

    #[test]
    fn packed_bytes(start in 0usize..4, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let magic: [&[u8]; 4] = [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];
        read_all(&[magic[start], &bytes].concat())?;
    }

    #[test]
        fn text(bytes in text_with_header()) {
        read_all(&bytes)?;
    }
}
