//! For each format: the rows that are read, left out, malformed and refused.

use std::num::NonZeroU32;

use insta::assert_snapshot;

use super::{outcome, source};
use crate::{SwfLayout, SwfOptions, TraceError, curves, idle, sacct, swf, workload};
use infill_model::{IdleLog, JobLog, NamedCurve, NodeName, ParsedFile, WorkloadJob};

fn idle(text: &str) -> String {
    outcome(idle::parse(source("idle.csv", text)), |log: &IdleLog| {
        let lines = log.intervals.iter().map(|i| format!("\n{} {}..{}", i.node, i.start, i.end));
        format!("{}..{}{}", log.start, log.end, lines.collect::<String>())
    })
}

fn describe(log: &JobLog) -> String {
    let mut text = format!(
        "nodes={:?} epoch={:?} zone={:?} left_out={}",
        log.nodes_total, log.epoch, log.time_zone, log.left_out
    );
    for j in &log.jobs {
        let list: Vec<&str> = j.node_list.iter().map(NodeName::as_str).collect();
        let line = format!(
            "\n{} {} {}/{}@{} {}/{}..{} limit={:?} {}n {:?} {}",
            j.id,
            j.name,
            j.user,
            j.account,
            j.partition,
            j.submit,
            j.start,
            j.end,
            j.limit_secs,
            j.nodes,
            list,
            j.state
        );
        text += line.trim_end();
    }
    text
}

fn swf(text: &str, layout: SwfLayout, procs_per_node: u32) -> String {
    let options = SwfOptions { layout, procs_per_node: NonZeroU32::new(procs_per_node) };
    outcome(swf::parse(source("log.swf", text), options), describe)
}

fn sacct(text: &str) -> String {
    outcome(sacct::parse(source("sacct.txt", text)), describe)
}

fn curves(name: &str, text: &str) -> String {
    outcome(curves::parse(source(name, text)), |curves: &Vec<NamedCurve>| {
        curves.iter().map(|c| format!("{}={}", c.name, c.curve)).collect::<Vec<_>>().join(" ")
    })
}

fn workload(text: &str) -> String {
    outcome(workload::parse(source("jobs.csv", text)), |jobs: &Vec<WorkloadJob>| {
        jobs.iter().map(|j| format!("{j:?}")).collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn idle_intervals_are_sorted_and_in_whole_seconds() {
    let text = "\u{feff}end_s,why,node,start_s\r\n\
        20,x,n10,10\r\n20,x,n9,10\r\n15,x,n9,10\r\n\r\n# later\r\n9.9,x,\"n1\",-3.5\r\n12.9,x,n1,12.1\r\n";
    assert_snapshot!(idle(text), @r"
    -3..20
    n1 -3..9
    n9 10..20
    n10 10..20
    ");
}

#[test]
fn overlapping_idle_intervals_of_a_node_are_merged() {
    assert_snapshot!(idle("start_s,end_s,node\n5,9,b\n0,10,a\n4,6,a\n10,12,a\n11,20,a\n"), @r"
    0..20
    a 0..10
    b 5..9
    a 10..20
    ");
}

#[test]
fn malformed_idle_lines_are_reported() {
    let text = "start_s,end_s,node\n1,1,a\nx,2,a\n1,inf,a\n1,2\n1,2,\n1,2,\"a\n1,2,a,b\n1,9e99,a\n1,2,a\u{0}\n1,2,a\n";
    assert_snapshot!(idle(text), @r#"
    1..2
    a 1..2
    ! line 2: end_s is "1"; expected more than start_s, which is 1
    ! line 3: start_s is "x"; expected a number
    ! line 4: end_s is "inf"; expected a number
    ! line 5: 2 fields; expected 3
    ! line 6: node is ""; expected a node
    ! line 7: a quote is not closed
    ! line 8: 4 fields; expected 3
    ! line 9: end_s is "9e99"; expected seconds within 3000 years
    ! line 10: a NUL byte; expected text
    "#);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    assert_snapshot!(idle(""), @r#"error: idle.csv, line 1: found the columns ""; expected a column start_s"#);
    assert_snapshot!(idle("start,end,node\n1,2,a\n"), @r#"error: idle.csv, line 1: found the columns "start end node"; expected a column start_s"#);
    assert_snapshot!(idle("start_s,end_s,node\n2,1,a\n"), @r#"error: idle.csv: expected at least one idle interval, found none in 1 lines: line 2: end_s is "1"; expected more than start_s, which is 2"#);
    let bad = "2,1,a\n".repeat(11);
    assert_snapshot!(idle(&format!("start_s,end_s,node\n1,2,a\n{bad}")), @r#"error: idle.csv: too many malformed lines, 11 of 12: line 3: end_s is "1"; expected more than start_s, which is 2; line 4: end_s is "1"; expected more than start_s, which is 2; line 5: end_s is "1"; expected more than start_s, which is 2; …"#);
}

/// Eleven lines of 1,100 are one in a hundred, which is allowed. With one line fewer, they are too many.
#[test]
fn one_line_in_a_hundred_may_be_malformed() {
    let reading = idle_with_eleven_malformed(1089).expect("few enough");
    assert_eq!((reading.malformed_count, reading.malformed.len()), (11, 11));
    assert!(idle_with_eleven_malformed(1088).is_err());
}

fn idle_with_eleven_malformed(good: usize) -> Result<ParsedFile<IdleLog>, TraceError> {
    let good = "1,2,a\n".repeat(good);
    let bad = "2,1,a\n".repeat(11);
    idle::parse(source("idle.csv", format!("start_s,end_s,node\n{bad}{good}")))
}

#[test]
fn only_the_first_malformed_lines_are_kept() {
    let text = format!("start_s,end_s,node\n{}{}", "1,2,a\n".repeat(3000), "2,1,a\n".repeat(25));
    let reading = idle::parse(source("idle.csv", text)).expect("few enough");
    assert_eq!((reading.malformed_count, reading.malformed.len()), (25, 20));
    assert_eq!(reading.malformed[0].line, 3002);
    assert_eq!(reading.malformed[19].line, 3021);
}

const HEADER: &str = "; MaxNodes: 4 (one rack)\n; MaxProcs: 32\n; UnixStartTime: 1000\n; TimeZone: 3600\n\
    ; TimeZoneString: Europe/Stockholm\n";

/// Jobs with allocated and with requested processors. Then no run time, no wait time, and a part of a job.
/// Then a cut line, a word in place of a number, no processors, and no submit time.
const STANDARD: &str = "\
    7 10 5 100 16 90 -1 16 120 -1 1 12 3 -1 2 -1 -1 -1\n\
    8 11 0 50 -1 -1 -1 17 -1 -1 0 13 -1 -1 2 6 -1 -1\n\
    9 12 3 0 8 -1 -1 8 60 -1 5 12 3 -1 2 -1 -1 -1\n\
    10 12 -1 -1 8 -1 -1 8 60 -1 5 12 3 -1 2 -1 -1 -1\n\
    11 12 3 9 8 -1 -1 8 60 -1 3 12 3 -1 2 -1 -1 -1\n\
    12 13 1 9 8 -1 -1 8\n\
    13 13 one 9 8 -1 -1 8 60 -1 1 12 3 -1 2 -1 -1 -1\n\
    14 13 1 9 -1 -1 -1 -1 60 -1 1 12 3 -1 2 -1 -1 -1\n\
    15 -1 1 9 8 -1 -1 8 60 -1 1 12 3 -1 2 -1 -1 -1\n";

#[test]
fn standard_logs_are_read() {
    assert_snapshot!(swf(&format!("{HEADER}{STANDARD}"), SwfLayout::Auto, 0), @r#"
    nodes=Some(4) epoch=Some(1000) zone=Some("Europe/Stockholm") left_out=3
    2 8 13/@6 11/11..61 limit=None 3n [] FAILED
    1 7 12/3@2 10/15..115 limit=Some(120) 2n [] COMPLETED
    ! line 11: 8 columns; expected 18
    ! line 12: wait time is "one"; expected a number
    ! line 13: number of processors is "-1"; expected the processors of 1 to 4000000 nodes
    ! line 14: submit time is "-1"; expected seconds from the log's start
    "#);
}

#[test]
fn processors_are_converted_to_nodes() {
    assert_eq!(nodes_of_log(HEADER, SwfLayout::Standard, 0), (3, Some(4)));
    assert_eq!(nodes_of_log(HEADER, SwfLayout::Standard, 16), (2, Some(4)));
    assert_eq!(nodes_of_log(HEADER, SwfLayout::Six, 0), (17, Some(4)));
    assert_eq!(nodes_of_log("; MaxProcs: 33\n", SwfLayout::Standard, 16), (2, Some(3)));
    assert_eq!(nodes_of_log("; MaxNodes: 0\n; MaxProcs: 33\n", SwfLayout::Standard, 0), (17, Some(33)));
    assert_eq!(nodes_of_log("", SwfLayout::Standard, 0), (17, None));
}

/// The nodes of a job with 17 processors, and the nodes of the machine.
fn nodes_of_log(header: &str, layout: SwfLayout, procs: u32) -> (u32, Option<u32>) {
    let log = format!("{header}1 10 5 100 17 200 -1 -1 -1 -1 1 12 3 -1 2 -1 -1 -1\n");
    let options = SwfOptions { layout, procs_per_node: NonZeroU32::new(procs) };
    let log = swf::parse(source("log.swf", log), options).expect("a log").value;
    (log.jobs[0].nodes, log.nodes_total)
}

#[test]
fn logs_of_six_columns_are_read() {
    let long = "1 10 5 100 4 120 -1 -1 -1 -1 -1 77 -1 -1 -1 -1 -1 -1\n2\t0\t5\t130\t4\t120\t-1\n";
    assert_snapshot!(swf(long, SwfLayout::Auto, 0), @r"
    nodes=None epoch=None zone=None left_out=0
    2 2 /@ 0/5..135 limit=Some(120) 4n []
    1 1 77/@ 10/15..115 limit=Some(120) 4n []
    ");
    assert_snapshot!(swf("1 10 5 100.4 4 120\n2 0 5 0 4 120\n3 1 1 1 0 60\n4 1 1 1\n", SwfLayout::Auto, 0), @r#"
    nodes=None epoch=None zone=None left_out=1
    1 1 /@ 10/15..115 limit=Some(120) 4n []
    ! line 3: number of processors is "0"; expected the processors of 1 to 4000000 nodes
    ! line 4: 4 columns; expected 18, or 6
    "#);
}

/// Requested times and processors decide between the layouts.
#[test]
fn the_layout_is_recognised_by_the_columns() {
    let requests = swf_line("120 -1 8 -1");
    let cpu_time = swf_line("90 -1 -1 -1");
    let unknown = swf_line("-1 -1 -1 -1");
    let six = swf_line("120 -1 -1 -1");
    assert!(is_read_as_six(&[&six]));
    assert!(is_read_as_six(&[&six, &cpu_time]), "half of the jobs");
    assert!(!is_read_as_six(&[&cpu_time, &cpu_time, &six]), "most processors are idle at times");
    assert!(!is_read_as_six(&[&unknown]));
    assert!(!is_read_as_six(&[&requests, &six, &six]), "a job has requested processors");
}

fn swf_line(columns_6_to_9: &str) -> String {
    format!("1 10 5 100 8 {columns_6_to_9} -1 1 1 1 -1 1 1 -1 -1")
}

fn is_read_as_six(lines: &[&str]) -> bool {
    let log = swf::parse(source("log.swf", lines.join("\n")), SwfOptions::default()).expect("a log");
    log.value.jobs[0].limit_secs.is_some()
}

const SACCT: &str = "State|NodeList|NNodes|Timelimit|End|Start|Submit|Partition|Account|User|JobID\n";

#[test]
fn jobs_printed_by_sacct_are_read() {
    let text = format!(
        "{SACCT}\
        COMPLETED|n[01-02,4]|3|1-02:03:04|2026-03-01T11:00:00|2026-03-01T10:00:00|2026-03-01T09:00:00|gpu|phys|ann|12\n\
        RUNNING|n3|1|UNLIMITED|Unknown|2026-03-01T09:30:00|2026-03-01T09:30:00|gpu|phys|bob|13_4\n\
        CANCELLED by 123|None assigned|2|Partition_Limit|2026-03-01T09:00:00|None|2026-03-01T08:00:00|gpu|phys|bob|14\n\
        PENDING|None assigned|2|00:10:00|Unknown|Unknown|2026-03-01T08:00:00|gpu|phys|bob|15\n\
        CANCELLED by 123|n1|1|00:10:00|2026-03-01T09:00:00|2026-03-01T09:00:00|2026-03-01T08:00:00|gpu|phys|bob|16\n\
        COMPLETED|n1|1||2026-03-01T09:01:00|2026-03-01T09:00:00|2026-03-01T08:00:00|gpu|phys|bob|17.batch\n\
        CANCELLED by 123|n1|1||2026-03-01T09:01:00|2026-03-01T09:00:00|2026-03-01T09:00:30|gpu|phys|bob|18+1\n\
        RUNNING|n5|1||Unknown|2026-03-01T11:00:00|2026-03-01T08:00:00|gpu|phys|bob|19\n"
    );
    assert_snapshot!(sacct(&text), @r#"
    nodes=None epoch=Some(0) zone=None left_out=5
    3 18+1 bob/phys@gpu 1772355600/1772355600..1772355660 limit=None 1n ["n1"] CANCELLED by 123
    2 13_4 bob/phys@gpu 1772357400/1772357400..1772362800 limit=None 1n ["n3"] RUNNING
    1 12 ann/phys@gpu 1772355600/1772359200..1772362800 limit=Some(93784) 3n ["n01", "n02", "n4"] COMPLETED
    "#);
    // The runs before the first end are incomplete.
    let log = sacct::parse(source("sacct.txt", text)).expect("a log").value;
    assert_eq!(log.complete_from, Some(1_772_355_660));
}

#[test]
fn malformed_lines_of_sacct_are_reported() {
    let text = [
        sacct_line("n1", "1", "00:10:00", "10:10:00"),
        sacct_line("n[1", "1", "00:10:00", "10:10:00"),
        sacct_line("n1", "0", "00:10:00", "10:10:00"),
        sacct_line("n1", "1", "10:00", "10:10:00"),
        sacct_line("n1", "1", "00:10:00", "noon"),
        sacct_line("n1", "1", "00:10:00", "09:10:00"),
        "FAILED|n1|1\n".to_owned(),
    ];
    assert_snapshot!(sacct(&format!("{SACCT}{}", text.concat())), @r#"
    nodes=None epoch=Some(0) zone=None left_out=0
    1 1 "x/@ 1772359200/1772359200..1772359800 limit=Some(600) 1n ["n1"] FAILED
    ! line 3: NodeList: host list "n[1": a bracket is not closed
    ! line 4: NNodes is "0"; expected a whole number from 1 to 4000000
    ! line 5: Timelimit is "10:00"; expected [DD-]HH:MM:SS
    ! line 6: End is "2026-03-01Tnoon"; expected a time such as 2026-03-01T10:00:00
    ! line 7: End is "2026-03-01T09:10:00"; expected a time after Start
    ! line 8: 3 fields; expected 11
    "#);
    assert_snapshot!(sacct("JobID|Start|End\n"), @r#"error: sacct.txt, line 1: found the columns "JobID Start End"; expected a column NNodes"#);
}

fn sacct_line(list: &str, nodes: &str, limit: &str, end: &str) -> String {
    format!("FAILED|{list}|{nodes}|{limit}|2026-03-01T{end}|2026-03-01T10:00:00||||\"x|1\n")
}

#[test]
fn gpus_are_read_if_the_site_counts_them() {
    assert_eq!(logged_gpus("billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=16G,node=2"), Ok(Some(4)));
    assert_eq!(logged_gpus("cpu=8,gres/gpu:a100=4,gres/gpu:t4=1"), Ok(Some(5)), "only by type");
    assert_eq!(logged_gpus("cpu=8,gres/gpumem=80G,mem=16G"), Ok(Some(0)));
    assert_eq!(logged_gpus(""), Ok(Some(0)));
    let without = format!("JobID|Start|End|NNodes|Other\n{}", tres_line("gres/gpu=4"));
    assert_eq!(sacct::parse(source("s", without)).unwrap().value.jobs[0].gpus, None);
    assert_snapshot!(logged_gpus("gres/gpu=many").unwrap_err(), @r#"s: expected at least one job that ran, found none in 1 lines: line 2: AllocTRES is "gres/gpu=many"; expected whole numbers of GPUs, as in gres/gpu=2"#);
}

fn tres_line(tres: &str) -> String {
    format!("7|2026-03-01T10:00:00|2026-03-01T11:00:00|2|{tres}\n")
}

fn logged_gpus(tres: &str) -> Result<Option<u32>, String> {
    let text = format!("JobID|Start|End|NNodes|AllocTRES\n{}", tres_line(tres));
    let log = sacct::parse(source("s", text)).map_err(|e| e.to_string())?;
    Ok(log.value.jobs[0].gpus)
}

#[test]
fn curves_are_read_from_long_and_wide_tables() {
    assert_snapshot!(curves("a/my.net.csv.xz", "throughput,nodes\n19,2\n10.5,1\n"), @"my.net=1:10.5,2:19");
    assert_snapshot!(curves("t.csv", "model,nodes,gpus,images_per_s\nb,1,4,8\na,1,4,9\nb,2,8,15\n"), @"b=1:8,2:15 a=1:9");
    assert_snapshot!(curves("t.csv", "nodes,speed,remark\n1,4,fast\n2,8,7\n"), @"t=1:4,2:8");
    assert_snapshot!(curves("bert.csv", "batch,1,2,4\n64,6,8,\n128,3,5,8\n"), @"bert/64=1:6,2:8 bert/128=1:3,2:5,4:8");
    // A row counts as a whole.
    assert_snapshot!(curves("bert.csv", "batch,1,2,4\n64,6,x,20\n128,3,5,8\n"), @r#"
    bert/128=1:3,2:5,4:8
    ! line 2: throughput is "x"; expected a positive number
    "#);
}

#[test]
fn tables_without_curves_are_refused() {
    assert_snapshot!(curves("t.csv", "placement,step_time\n1,4\n"), @r#"error: t.csv, line 1: found the columns "placement step_time"; expected nodes and throughput, or numbers of nodes"#);
    assert_snapshot!(curves("t.csv", "model,nodes\na,4\n"), @r#"error: t.csv, line 1: found the columns "model nodes"; expected a column with the throughput, such as throughput"#);
    assert_snapshot!(curves("t.csv", "nodes,rate\n1,5\n1,6\n"), @r#"error: t.csv: curve "t" is not valid: size 1 is given twice"#);
    assert_snapshot!(curves("t.csv", "nodes,rate\n0,5\n1,0\n1,5\n1.5,5\n"), @r#"
    t=1:5
    ! line 2: nodes is "0"; expected a whole number from 1 to 10000
    ! line 3: throughput is "0"; expected a positive number
    ! line 5: nodes is "1.5"; expected a whole number from 1 to 10000
    "#);
    assert_snapshot!(curves("t.csv", "nodes,note\n1,fast\n"), @"error: t.csv: expected at least one throughput, found none in 1 lines: line 2: no number besides the number of nodes; expected a throughput");
}

#[test]
fn workloads_are_read() {
    let text = "name,submit_s,samples,min_nodes,max_nodes,curve,weight\n\
        late,9.5,1e6,1,8,vgg16,2\nsoon,0,100,2,2,a b,\n\
        late,9,1,1,1,x,\nw,0,1,1,1,x,0\ns,0,0,1,1,x,\nm,0,1,3,2,x,\nc,0,1,1,1,,\nx,0,1,1,99999,x,\n";
    assert_snapshot!(workload(text), @r#"
    WorkloadJob { name: "soon", submit_secs: 0, samples: 100.0, min_nodes: 2, max_nodes: 2, curve: "a b", weight: 1.0, user: None }
    WorkloadJob { name: "late", submit_secs: 10, samples: 1000000.0, min_nodes: 1, max_nodes: 8, curve: "vgg16", weight: 2.0, user: None }
    ! line 4: name is "late"; expected a name that no earlier line has
    ! line 5: weight is "0"; expected a positive number
    ! line 6: samples is "0"; expected a positive number
    ! line 7: max_nodes is "2"; expected at least min_nodes, 3
    ! line 8: curve is ""; expected a name
    ! line 9: max_nodes is "99999"; expected a whole number from 1 to 10000
    "#);
    assert_snapshot!(workload("name,submit_s,samples,min_nodes,max_nodes\n"), @r#"error: jobs.csv, line 1: found the columns "name submit_s samples min_nodes max_nodes"; expected a column curve"#);
}
