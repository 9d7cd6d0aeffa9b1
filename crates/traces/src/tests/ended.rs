//! Reading ended jobs, also with unusual characters in names.

use insta::assert_snapshot;

use super::{outcome, source};
use crate::{SACCT_FORMAT, ended, sacct};
use infill_model::{EndedJob, EndedLog};

fn describe(log: &EndedLog) -> String {
    let mut text = format!("left_out={}", log.left_out);
    for j in &log.jobs {
        text += &format!(
            "\n{} {:?} {}/{} {}..{} {}n {}gpus limit={:?} work={} secs={} exit={:?} {}",
            j.job,
            j.name,
            j.user,
            j.account,
            j.submitted_at,
            j.ended_at,
            j.max_nodes,
            j.gpus_per_node,
            j.limit_secs,
            j.work_secs,
            j.secs,
            j.exit_code,
            j.why
        );
    }
    text
}

fn read(text: &str) -> String {
    outcome(ended::parse(source("sacct.txt", text), ""), describe)
}

/// A job as `sacct` prints it in [`SACCT_FORMAT`].
fn line(name: &str, folder: &str, command: &str, rest: &str) -> String {
    let [submit, start, end] = ["09:00:00", "10:00:00", "11:00:00"].map(|t| format!("2026-03-01T{t}"));
    format!("7|{name}|{submit}|{folder}|{start}|{command}|{end}|{rest}\n")
}

fn jobs(lines: &str) -> Vec<EndedJob> {
    jobs_without(lines, "")
}

/// The jobs that are not of the partition `without`.
fn jobs_without(lines: &str, without: &str) -> Vec<EndedJob> {
    let text = format!("{}\n{lines}", SACCT_FORMAT.replace(',', "|"));
    ended::parse(source("s", text), without).unwrap().value.jobs
}

const REST: &str = "3600|ann|phys|1-00:00:00|2|cpu=8,gres/gpu:a100=8,gres/gpu=8|COMPLETED|0:0|main";

#[test]
fn ended_jobs_are_read() {
    let head = "JobIDRaw|JobID|User|Account|JobName|Submit|Start|End|ElapsedRaw|Timelimit|NNodes|AllocTRES|State|ExitCode\n";
    let times = "2026-03-01T09:00:00|2026-03-01T10:00:00|2026-03-01T11:00:00";
    let text = format!(
        "{head}\
        12|12|ann|phys|train_07.sh|{times}|3600|1-00:00:00|2|cpu=8,gres/gpu=8|COMPLETED|0:0\n\
        14|13_1|bob|phys|a|{times}|3000|UNLIMITED|3|gres/gpu=4|OUT_OF_MEMORY|0:125\n\
        15|15|bob||a|{times}|3600||1||CANCELLED by 123|0:15\n\
        16|16|bob|phys|a|{times}|3600|Partition_Limit|1||FAILED|2:0\n\
        17|17|bob|phys|a|{times}|3600||1||FAILED|0:9\n\
        18|18|bob|phys|at once|2026-03-01T09:00:00|2026-03-01T10:00:00|2026-03-01T10:00:00|0||1||FAILED|1:0\n\
        19.batch|19.batch|bob|phys|batch|{times}|3600||1||COMPLETED|0:0\n\
        20|20|bob|phys|a|2026-03-01T09:00:00|2026-03-01T10:00:00|Unknown|3600||1||RUNNING|0:0\n\
        21|21_[1-9]|bob|phys|a|2026-03-01T09:00:00|Unknown|Unknown|0||1||PENDING|0:0\n\
        22|22|bob|phys|a|2026-03-01T09:00:00|2026-03-01T10:00:00|2026-03-01T10:00:00|0||1||CANCELLED by 5|0:0\n\
        23|23|bob|phys|a|2026-03-01T09:00:00|None|2026-03-01T10:00:00|0||1||CANCELLED by 5|0:0\n\
        24|24|bob|phys|a|{times}|3600||1||REQUEUED|0:0\n\
        25|25|bob|phys|wing:12|{times}|3600||1||PREEMPTED|0:0\n"
    );
    assert_snapshot!(read(&text), @r#"
    left_out=7
    12 "train_.sh" ann/phys 2026-03-01T09:00:00Z..2026-03-01T11:00:00Z 2n 4gpus limit=Some(86400.0) work=7200 secs=3600 exit=Some(0) completed
    14 "a" bob/phys 2026-03-01T09:00:00Z..2026-03-01T11:00:00Z 3n 2gpus limit=None work=9000 secs=3600 exit=None out of memory
    15 "a" bob/ 2026-03-01T09:00:00Z..2026-03-01T11:00:00Z 1n 0gpus limit=None work=3600 secs=3600 exit=None cancelled
    16 "a" bob/phys 2026-03-01T09:00:00Z..2026-03-01T11:00:00Z 1n 0gpus limit=None work=3600 secs=3600 exit=Some(2) failed
    17 "a" bob/phys 2026-03-01T09:00:00Z..2026-03-01T11:00:00Z 1n 0gpus limit=None work=3600 secs=3600 exit=None failed
    18 "at once" bob/phys 2026-03-01T09:00:00Z..2026-03-01T10:00:00Z 1n 0gpus limit=None work=0 secs=0 exit=Some(1) failed
    "#);
}

#[test]
fn malformed_lines_are_reported() {
    let good = "2026-03-01T11:00:00";
    let text = [
        short_line("1", "ann", good, "1", "0:0|60"),
        short_line("2_3", "ann", good, "1", "0:0|60"),
        short_line("3", "", good, "1", "0:0|60"),
        short_line("4", "ann", "noon", "1", "0:0|60"),
        short_line("5", "ann", "2026-03-01T09:30:00", "1", "0:0|60"),
        short_line("6", "ann", good, "0", "0:0|60"),
        short_line("7", "ann", good, "1", "0|60"),
        short_line("8", "ann", good, "1", "0:0|-1"),
        short_line("9", "ann", good, "1", "0:0|60|1"),
    ];
    let head = "JobID|User|Submit|Start|End|NNodes|State|ExitCode|ElapsedRaw\n";
    assert_snapshot!(read(&format!("{head}{}", text.concat())), @r#"
    left_out=0
    1 "" ann/ 2026-03-01T09:00:00Z..2026-03-01T11:00:00Z 1n 0gpus limit=None work=60 secs=3600 exit=Some(0) completed
    ! line 3: the job's id is "2_3"; expected a number, which JobIDRaw also has for tasks of arrays
    ! line 4: User is ""; expected a user
    ! line 5: End is "noon"; expected a time such as 2026-03-01T10:00:00
    ! line 6: End is "2026-03-01T09:30:00"; expected a time after Start
    ! line 7: NNodes is "0"; expected a whole number from 1 to 4000000
    ! line 8: ExitCode is "0"; expected a code and a signal, as in 1:0
    ! line 9: ElapsedRaw is "-1"; expected whole seconds
    ! line 10: 10 fields; expected 9
    "#);
    assert_snapshot!(read("JobID|User|Submit|Start|End|State\n"), @r#"error: sacct.txt, line 1: found the columns "JobID User Submit Start End State"; expected a column NNodes"#);
    assert_snapshot!(read("JobID|User|Submit|Start|End|NNodes|State\n"), @r#"left_out=0"#);
    let many = format!("{head}{}", short_line("x", "ann", good, "1", "0:0|60").repeat(11));
    assert_snapshot!(read(&many), @r#"error: sacct.txt: too many malformed lines, 11 of 11: line 2: the job's id is "x"; expected a number, which JobIDRaw also has for tasks of arrays; line 3: the job's id is "x"; expected a number, which JobIDRaw also has for tasks of arrays; line 4: the job's id is "x"; expected a number, which JobIDRaw also has for tasks of arrays; …"#);
}

fn short_line(id: &str, user: &str, end: &str, nodes: &str, more: &str) -> String {
    format!("{id}|{user}|2026-03-01T09:00:00|2026-03-01T10:00:00|{end}|{nodes}|COMPLETED|{more}\n")
}

#[test]
fn all_columns_of_sacct_are_read() {
    let job = jobs(&line("bert-large_03", "/home/ann/run17", "sbatch train.sh --lr 0.1", REST)).remove(0);
    assert_eq!((job.name.as_str(), job.gpus_per_node, job.work_secs), ("bert-large_", 4, 7200.0));
    assert_eq!((job.min_nodes, job.max_nodes, job.limit_secs), (2, 2, Some(86_400.0)));
    assert_eq!(job.command_hash.len(), 32);
}

#[test]
fn jobs_of_a_series_have_one_hash() {
    let first = command_hash("/home/ann/run1", "sbatch t.sh --seed 1");
    assert_eq!(first, command_hash("/home/ann/run22", "sbatch t.sh --seed 22"));
    assert_ne!(first, command_hash("/home/bob/run1", "sbatch t.sh --seed 1"));
    assert_ne!(first, command_hash("/home/ann/run1", "sbatch u.sh --seed 1"));
    assert_eq!(command_hash("/home/ann/run1", ""), "");
}

fn command_hash(folder: &str, command: &str) -> String {
    jobs(&line("a", folder, command, REST))[0].command_hash.clone()
}

/// The name and the hash of the only job.
fn only_job(name: &str, folder: &str, command: &str) -> (String, String) {
    let mut found = jobs(&line(name, folder, command, REST));
    assert_eq!(found.len(), 1, "{name}");
    let job = found.remove(0);
    assert_eq!((job.user.as_str(), job.secs), ("ann", 3600.0), "{name}");
    (job.name, job.command_hash)
}

#[test]
fn texts_of_users_may_contain_bars() {
    let plain = only_job("a", "/x", "sbatch t.sh");
    assert_eq!(only_job("a|b", "/x", "sbatch t.sh"), ("a|b".to_owned(), plain.1.clone()));
    assert_eq!(only_job("|", "/x", "sbatch t.sh"), ("|".to_owned(), plain.1.clone()));
    assert_eq!(only_job("a", "/x|y", "sbatch t.sh").0, "a");
    let both = only_job("a|b||c", "/x", "sbatch -J a|b||c --wrap p | q");
    assert_eq!(both.0, "a|b||c");
    assert_ne!(both.1, plain.1);
    assert_ne!(only_job("a", "/x", "sbatch t.sh|u").1, plain.1);
    // A line with more bars has another format.
    let many = line(&"|".repeat(17), "/x", "sbatch t.sh", REST);
    let text = format!("{}\n{many}", SACCT_FORMAT.replace(',', "|"));
    assert_snapshot!(read(&text), @r#"
    left_out=0
    ! line 2: 33 fields; expected 16
    "#);
}

#[test]
fn a_name_is_cut_to_the_length_that_the_store_accepts() {
    let job = &jobs(&line(&format!("\u{1b}[2J{}", "ü".repeat(300)), "/x", "sbatch t.sh", REST))[0];
    assert!(job.name.starts_with("[Jüü") && job.name.chars().count() == 200, "{}", job.name);
}

#[test]
fn a_log_for_the_simulator_may_have_bars_in_names() {
    let rest = "x|y|2026-03-01T10:00:00|2026-03-01T11:00:00|2\n";
    let text = format!("JobID|JobName|Start|End|NNodes\n1|{rest}2|2|x|{rest}");
    let log = sacct::parse(source("s", text)).unwrap().value;
    let jobs: Vec<(&str, u32)> = log.jobs.iter().map(|job| (job.name.as_str(), job.nodes)).collect();
    assert_eq!(jobs, [("1", 2), ("2", 2)]);
}

#[test]
fn jobs_of_one_partition_may_be_left_out() {
    let ours = REST.replace("|main", "|infill");
    let lines = [line("a", "/x", "sbatch t.sh", REST), line("b", "/x", "sbatch t.sh", &ours)].concat();
    for (without, expected) in [("", vec!["a", "b"]), ("infill", vec!["a"])] {
        let names: Vec<String> = jobs_without(&lines, without).into_iter().map(|job| job.name).collect();
        assert_eq!(names, expected, "without {without:?}");
    }
}
