//! What the gap finder says about single nodes, and what the tracker remembers of a gap.

use super::*;
use infill_model::WindowCause;

#[test]
fn a_node_outside_of_the_malleable_partition_is_not_mentioned() {
    let mut snapshot = snapshot(
        &[("n1", "IDLE"), ("n2", "IDLE"), ("n3", "ALLOCATED"), ("n4", "IDLE+DRAIN")],
        vec![job("1 main running n3", -100)],
    );
    for other in &mut snapshot.nodes[1..] {
        other.partitions = vec!["main".to_owned()];
    }
    assert_eq!(show(&found(&snapshot, &[], &GapsConfig::default())), "n1: gap for about 300 s\n");
}

#[test]
fn a_node_whose_cpus_for_the_partition_are_used_up_says_so() {
    let snapshot = snapshot(&[("n1", "IDLE+MAX_CPUS_PER_NODE"), ("n2", "IDLE+DRAIN")], vec![]);
    insta::assert_snapshot!(show(&found(&snapshot, &[], &far_ahead())), @r"
    n1: jobs of ours have all CPUs of its node that the partition may have (MaxCPUsPerNode)
    n2: not usable: DRAIN+IDLE
    ");
}

#[test]
fn a_busy_node_names_the_partition_of_its_own_job() {
    let nodes = ["n1", "n2", "n3", "n4"].map(|name| (name, "ALLOCATED"));
    let jobs = ["1 main running n1", "2 debug running n2", "3 main running n3", "4 debug running n4"];
    let snapshot = snapshot(&nodes, jobs.map(|text| job(text, -100)).to_vec());
    insta::assert_snapshot!(show(&found(&snapshot, &[], &far_ahead())), @r"
    n1: busy: job 1 of partition main is on it
    n2: busy: job 2 of partition debug is on it
    n3: busy: job 3 of partition main is on it
    n4: busy: job 4 of partition debug is on it
    ");
}

#[test]
fn a_window_of_exactly_the_least_length_is_worth_starting_in() {
    // A node must be left 15 s before a planned start.
    let jobs = vec![job("6 main pending n1", 75), job("7 main pending n2", 74)];
    let snapshot = snapshot(&[("n1", "IDLE"), ("n2", "IDLE")], jobs);
    let config = GapsConfig { min_window_secs: 60.0, ..far_ahead() };
    insta::assert_snapshot!(show(&found(&snapshot, &[], &config)), @r"
    n1: gap for 60 s
    n2: window of 59 s (job 7 is planned) is shorter than the 60 s that are worth starting in
    ");
}

/// NOW is 20 s before a whole minute.
#[test]
fn a_window_is_too_short_where_backfill_can_start_no_job() {
    let jobs = ["1 main pending n1", "2 main pending n2", "3 main pending n3", "4 main pending n4"];
    let starts = [79, 80, 83, 200];
    let jobs = jobs.iter().zip(starts).map(|(text, start)| job(text, start)).collect();
    let nodes = ["n1", "n2", "n3", "n4"].map(|name| (name, "IDLE"));
    let mut snapshot = snapshot(&nodes, jobs);
    let config = GapsConfig { min_window_secs: 60.0, ..far_ahead() };
    let mut with = |resolution_secs, holders: &[(&str, u32)]| {
        snapshot.backfill.resolution_secs = resolution_secs;
        show(&found(&snapshot, holders, &config))
    };
    insta::assert_snapshot!(with(Some(60), &[]), @r"
    n1: window of 64 s (job 1 is planned) is shorter than the 107 s that are worth starting in
    n2: gap for 65 s
    n3: gap for 68 s
    n4: gap for 185 s
    ");
    let all_are_long_enough = "n1: gap for 64 s\nn2: gap for 65 s\nn3: gap for 68 s\nn4: gap for 185 s\n";
    assert_eq!(with(Some(1), &[]), all_are_long_enough);
    assert_eq!(with(None, &[]), all_are_long_enough, "the rounding is unknown");
    // A job that is there already may stay.
    assert!(with(Some(60), &[("n1", 5)]).starts_with("n1: gap for 64 s, held by 5\n"));
    // Rounded to ten minutes, the first three have a planned start in the past.
    assert_eq!(with(Some(600), &[]).matches("are worth starting in").count(), 3);
}

#[test]
fn an_ended_gap_has_its_last_planned_end() {
    let main = snapshot(&[("n1", "ALLOCATED")], vec![job("1 main running n1", -100)]);
    let free = snapshot(&[("n1", "IDLE")], vec![job("6 main pending n1", 600)]);
    let mut tracker = GapTracker::default();
    let mut see = |snapshot: &Snapshot, gaps: &GapSet, secs: i64| {
        tracker.observe_round(&NodeOccupancy::from_snapshot(snapshot, "infill"), gaps, NOW + secs)
    };
    let planned = found(&free, &[], &far_ahead());
    assert!(see(&main, &GapSet::default(), 0).is_empty());
    assert!(see(&free, &GapSet::default(), 10).is_empty());
    assert!(see(&free, &planned, 20).is_empty());
    let ended = see(&main, &planned, 30);
    let cause = WindowCause::PlannedJob(JobId(6));
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].planned, WindowEnd::Known { at: NOW + 600, cause });
}
