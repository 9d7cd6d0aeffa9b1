//! Real logs and curves, if they are available (in `INFILL_DATA`, else `../shared/data`).

use crate::{SwfOptions, TraceError, read_curves, read_idle, read_swf};
use infill_model::{JobLog, ParsedFile};
use infill_testkit::data_file;

/// The value of a file without malformed lines.
fn whole<T>(name: &str, reading: Result<ParsedFile<T>, TraceError>) -> T {
    let reading = reading.unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(reading.malformed_count, 0, "{name}: {:?}", reading.malformed);
    reading.value
}

fn jobs(name: &str) -> Option<JobLog> {
    let path = data_file(name)?;
    Some(whole(name, read_swf(&path, SwfOptions::default())))
}

#[test]
fn the_kth_log_is_read() {
    let Some(log) = jobs("jobs/KTH-SP2-1996-2.1-cln.swf.xz") else { return };
    assert_eq!((log.jobs.len(), log.left_out), (27_992, 0));
    assert_eq!((log.nodes_total, log.epoch), (Some(100), Some(843_480_031)));
    assert_eq!(log.time_zone.as_deref(), Some("Europe/Stockholm"));
    // The first line: 15 599850 192180 3477 4 -1 -1 4 53940 -1 1 12 12 -1 -1 -1 -1 -1
    let job = log.jobs.iter().find(|j| j.name == "15").expect("it ran");
    assert_eq!((job.submit, job.start, job.end), (599_850, 792_030, 795_507));
    assert_eq!((job.nodes, job.limit_secs, job.id.0), (4, Some(53_940), 1));
    assert_eq!((job.user.as_str(), job.account.as_str(), job.state.as_str()), ("12", "12", "COMPLETED"));
    assert!(log.jobs.iter().all(|j| j.nodes <= 100 && j.limit_secs.is_some()));
}

#[test]
fn the_theta_log_is_read() {
    let Some(log) = jobs("jobs/theta-2023.swf.xz") else { return };
    assert_eq!((log.jobs.len(), log.left_out), (23_387, 0));
    assert_eq!((log.nodes_total, log.epoch, log.time_zone), (Some(4392), None, None));
    // 639487 1672529301 71 3632 8 3600 …
    let job = log.jobs.iter().find(|j| j.name == "639487").expect("it ran");
    assert_eq!((job.submit, job.start, job.end), (1_672_529_301, 1_672_529_372, 1_672_533_004));
    assert_eq!((job.nodes, job.limit_secs), (8, Some(3600)));
    assert!(log.jobs.iter().all(|j| j.nodes <= 4392 && j.limit_secs.is_some()));
}

#[test]
fn the_summit_log_is_read() {
    let Some(path) = data_file("idle/summit-2021-02-week1.csv.xz") else { return };
    let log = whole("summit", read_idle(&path));
    assert_eq!(log.intervals.len(), 209_196);
    assert_eq!((log.start, log.end), (2396, 604_800));
    assert!(log.intervals.is_sorted_by_key(|i| (i.start, i.end)));
}

#[test]
fn the_summit_curves_are_read() {
    let Some(path) = data_file("scaling/summit.csv") else { return };
    let curves = whole("curves", read_curves(&path));
    let names: Vec<&str> = curves.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["AlexNet", "resnet18", "shufflenet", "vgg16"]);
    assert_eq!(curves[3].curve.rate(64), 70_151.7);
    assert!(curves.iter().all(|c| c.curve.points().len() == 7));
}

#[test]
fn the_elasticflow_curves_are_read() {
    let Some(path) = data_file("scaling/elasticflow-a100/vgg16.csv") else { return };
    let curves = whole("curves", read_curves(&path));
    let names: Vec<&str> = curves.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["vgg16/64", "vgg16/128", "vgg16/256"]);
    assert_eq!(curves[0].curve.rate(4), 14.755024126128259);
}

/// Step times by placement are not throughputs by nodes. Such a table is refused with its columns, not
/// guessed at.
#[test]
fn pollux_tables_are_refused() {
    let Some(path) = data_file("scaling/pollux/bert/scalability.csv") else { return };
    let e = read_curves(&path).expect_err("no curve");
    assert!(e.to_string().contains("num_nodes num_replicas local_bsz"), "{e}");
}
