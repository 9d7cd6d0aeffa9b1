//! Tests of the gap finder: small snapshots, and the survival model on the log of a real machine.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use super::*;
use infill_model::{BaseState, Job, JobState, KeepIdle, Node, NodeState, NodeType, Reservation, UserId};

mod delays;
mod learning;
mod taking;
mod verdicts;

const NOW: UnixTime = UnixTime(1_000_000);

fn node(name: &str, state: &str) -> Node {
    Node {
        state: NodeState::from_words(state.split('+')),
        partitions: vec!["main".to_owned(), "infill".to_owned()],
        ..Node::new(NodeName::new(name), NodeType::new("a"))
    }
}

/// A job from `id partition state nodes`. The nodes of a pending job are those of its planned start. It
/// starts `start` seconds from now.
fn job(text: &str, start: i64) -> Job {
    let mut words = text.split_whitespace();
    let mut word = || words.next().unwrap_or_default();
    let id = JobId(word().parse().unwrap());
    let partition = word().to_owned();
    let (base, flags) = match word() {
        "pending" => (BaseState::Pending, BTreeSet::new()),
        "completing" => (BaseState::Completed, BTreeSet::from(["COMPLETING".to_owned()])),
        "ended" => (BaseState::Preempted, BTreeSet::new()),
        _ => (BaseState::Running, BTreeSet::new()),
    };
    let nodes: Vec<NodeName> = word().split(',').map(NodeName::new).collect();
    let pending = base == BaseState::Pending;
    Job {
        user_id: UserId(1),
        state: JobState { base: base.clone(), flags },
        start_time: Some(NOW + start),
        node_count: nodes.len() as u32,
        nodes: if pending { Vec::new() } else { nodes.clone() },
        scheduled_nodes: if pending { nodes } else { Vec::new() },
        ..Job::new(id, &partition, base)
    }
}

fn snapshot(nodes: &[(&str, &str)], jobs: Vec<Job>) -> Snapshot {
    let mut snapshot = Snapshot {
        taken_at: NOW,
        nodes: nodes.iter().map(|(name, state)| node(name, state)).collect(),
        jobs,
        ..Snapshot::default()
    };
    snapshot.backfill.complete = true;
    snapshot
}

/// The defaults, but with a long lookahead at a low confidence.
fn far_ahead() -> GapsConfig {
    GapsConfig { lookahead_secs: 86_400.0, confidence: 0.5, ..GapsConfig::default() }
}

fn found(snapshot: &Snapshot, holders: &[(&str, u32)], config: &GapsConfig) -> GapSet {
    let holders = holders.iter().map(|(n, id)| (NodeName::new(n), JobId(*id))).collect();
    let occupancy = NodeOccupancy::from_snapshot(snapshot, "infill");
    let mut tracker = GapTracker::default();
    tracker.observe_round(&occupancy, &GapSet::default(), NOW + -10);
    let survival = SurvivalModel::default();
    let context = GapContext {
        config,
        safety: &SafetyLimits::default(),
        holders: &holders,
        promised_nodes: &FxHashSet::default(),
        tracker: &tracker,
        idle_reserve: &IdleReserve::default(),
        survival: &survival,
        leave_times: &LeaveTimes { least_secs: 15.0, ..LeaveTimes::default() },
        saving_jobs: &[],
        lookahead_secs: config.lookahead_secs,
    };
    find_gaps(&occupancy, &context, NOW)
}

/// One line for each node.
fn show(gaps: &GapSet) -> String {
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for gap in &gaps.gaps {
        let secs = gap.usable_until.secs_since(NOW);
        let holder = gap.holder.map_or(String::new(), |h| format!(", held by {h}"));
        let end = if gap.end == WindowEnd::Unknown { "about " } else { "" };
        lines.insert(gap.node.to_string(), format!("gap for {end}{secs:.0} s{holder}"));
    }
    for (node, refusal) in &gaps.refused {
        lines.insert(node.to_string(), refusal.to_string());
    }
    lines.into_iter().map(|(node, line)| format!("{node}: {line}\n")).collect()
}

#[test]
fn every_node_is_a_gap_or_refused_with_a_reason() {
    let nodes = [
        ("n01", "IDLE"),
        ("n02", "IDLE+PLANNED"),
        ("n03", "ALLOCATED"),
        ("n04", "MIXED"),
        ("n05", "IDLE+DRAIN"),
        ("n06", "IDLE+COMPLETING"),
        ("n07", "IDLE+COMPLETING"),
        ("n08", "ALLOCATED"),
        ("n09", "ALLOCATED"),
        ("n10", "ALLOCATED"),
        ("n11", "IDLE"),
        ("n12", "IDLE"),
        ("n13", "ALLOCATED"),
        ("n14", "IDLE"),
    ];
    let jobs = vec![
        job("1 main running n03,n04", -100),
        job("2 infill running n04,n08", -100),
        job("3 infill running n09,n13", -100),
        job("4 main completing n06", -100),
        job("5 infill completing n07", -100),
        job("6 main pending n02,n08", 615),
        job("7 main pending n02", 915),
        job("8 infill pending n01", 30),
        job("9 infill,main pending n11", 45),
        job("10 main pending n12,n13", -5),
    ];
    let snapshot = snapshot(&nodes, jobs);
    let gaps = found(&snapshot, &[("n08", 2), ("n13", 3)], &far_ahead());
    insta::assert_snapshot!(show(&gaps), @r"
    n01: gap for about 516 s
    n02: gap for 600 s
    n03: busy: job 1 of partition main is on it
    n04: busy: job 1 of partition main is on it
    n05: not usable: DRAIN+IDLE
    n06: busy: job 4 of partition main is on it
    n07: job 5 of ours is still cleaning up on it
    n08: gap for 600 s, held by 2
    n09: held by job 3, not ours to plan yet
    n10: allocated, but no job of the snapshot is on it
    n11: window of 30 s (job 9 is planned) is shorter than the 60 s that are worth starting in
    n12: window of 0 s (job 10 is planned) is shorter than the 60 s that are worth starting in
    n13: gap for -20 s, held by 3
    n14: gap for about 516 s
    ");
}

#[test]
fn idle_nodes_are_left_alone_so_that_they_fall_asleep_and_sleepers_are_not_woken() {
    let nodes = [
        ("n1", "IDLE"),
        ("n2", "IDLE"),
        ("n3", "IDLE"),
        ("n4", "ALLOCATED"),
        ("n5", "IDLE+POWERED_DOWN"),
        ("n6", "IDLE+POWERING_DOWN"),
        ("n7", "ALLOCATED+POWERING_UP"),
        ("n8", "DRAIN+IDLE+POWERED_DOWN"),
    ];
    let jobs = vec![
        job("2 infill running n4", -100),
        job("3 infill running n7", -100),
        job("6 main pending n1", 615),
    ];
    let snapshot = snapshot(&nodes, jobs);
    let show = |keep_idle, wake| {
        let config = GapsConfig { keep_idle, wake, ..GapsConfig::default() };
        show(&found(&snapshot, &[("n4", 2), ("n7", 3)], &config))
    };
    insta::assert_snapshot!(show(KeepIdle::Nodes(3), false), @r"
    n1: gap for 600 s
    n2: left alone: 3 idle nodes are kept for Slurm to switch off (gaps.keep_idle)
    n3: gap for about 300 s
    n4: gap for about 300 s, held by 2
    n5: switched off to save power; jobs do not wake it (gaps.wake)
    n6: not usable: IDLE+POWERING_DOWN
    n7: gap for about 300 s, held by 3
    n8: not usable: DRAIN+IDLE+POWERED_DOWN
    ");
    // Percent of eight nodes. No job is made to leave.
    insta::assert_snapshot!(show(KeepIdle::Percent(100.0), true), @r"
    n1: left alone: 8 idle nodes are kept for Slurm to switch off (gaps.keep_idle)
    n2: left alone: 8 idle nodes are kept for Slurm to switch off (gaps.keep_idle)
    n3: left alone: 8 idle nodes are kept for Slurm to switch off (gaps.keep_idle)
    n4: gap for about 300 s, held by 2
    n5: left alone: 8 idle nodes are kept for Slurm to switch off (gaps.keep_idle)
    n6: not usable: IDLE+POWERING_DOWN
    n7: gap for about 300 s, held by 3
    n8: not usable: DRAIN+IDLE+POWERED_DOWN
    ");
    let woken = show(KeepIdle::Nodes(0), true);
    assert!(woken.contains("n5: gap for about 300 s\n"), "{woken}");
}

#[test]
fn the_nodes_that_are_left_alone_stay_the_same() {
    let node = |name: &str, since: i64| Gap {
        node: NodeName::new(name),
        node_type: NodeType::new("a"),
        since: NOW + since,
        end: WindowEnd::Unknown,
        vacate_by: None,
        usable_until: NOW + 300,
        expected_secs: 300.0,
        holder: None,
        share: None,
    };
    let gaps = vec![node("n1", -10), node("n2", -100), node("n3", -50), node("n4", -5)];
    let mut found = GapSet { gaps: gaps.clone(), refused: Vec::new() };
    IdleReserve::default().reserve_nodes(&mut found, &Default::default(), 0, 2);
    let kept = IdleReserve::from_gaps(&found);
    let names = |kept: &IdleReserve| kept.nodes.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(names(&kept).into_iter().collect::<Vec<_>>(), ["n2", "n3"], "those idle for longest");
    // n1 has been without a main job for longer by now, but a malleable job was on it.
    let mut later = GapSet { gaps, refused: Vec::new() };
    later.gaps[0].since = NOW + -1000;
    kept.reserve_nodes(&mut later, &Default::default(), 0, 2);
    assert_eq!(IdleReserve::from_gaps(&later), kept);
}

#[test]
fn reservations_end_windows_and_cover_nodes() {
    let mut snapshot = snapshot(&[("n1", "IDLE"), ("n2", "IDLE"), ("n3", "IDLE")], vec![]);
    let reservation = |name: &str, start, end, node: &str| Reservation {
        name: name.to_owned(),
        start_time: NOW + start,
        end_time: NOW + end,
        nodes: vec![NodeName::new(node)],
        flags: vec![],
    };
    snapshot.reservations = vec![
        reservation("past", -100, -50, "n1"),
        reservation("now", -100, 50, "n2"),
        reservation("soon", 315, 900, "n3"),
    ];
    let gaps = found(&snapshot, &[], &far_ahead());
    insta::assert_snapshot!(show(&gaps), @r"
    n1: gap for about 516 s
    n2: covered by reservation now
    n3: gap for 300 s
    ");
}

#[test]
fn a_young_gap_settles_and_a_cut_plan_is_trusted_less() {
    let mut snapshot = snapshot(&[("n1", "IDLE")], vec![]);
    let mut config = GapsConfig { settle_secs: 30.0, ..GapsConfig::default() };
    assert_eq!(show(&found(&snapshot, &[], &config)), "n1: free for 10 s; it is used after 30 s\n");
    assert_eq!(found(&snapshot, &[("n1", 4)], &config).gaps.len(), 1);
    config.settle_secs = 0.0;
    let usable = |s: &Snapshot| found(s, &[], &config).gaps[0].usable_until.secs_since(NOW);
    let trusted = usable(&snapshot);
    assert!(window_notes(&snapshot, &config).is_empty());
    snapshot.backfill.complete = false;
    snapshot.backfill.exit = "bf_max_job_test".to_owned();
    assert_eq!(trusted, 300.0);
    assert!((usable(&snapshot) - 150.0).abs() <= 1.0);
    // The model's answers for longer times show where the lookahead is long.
    let usable = |s: &Snapshot| found(s, &[], &far_ahead()).gaps[0].usable_until.secs_since(NOW);
    let doubted = usable(&snapshot);
    snapshot.backfill.complete = true;
    assert!(doubted < usable(&snapshot) / 2.0);
    snapshot.backfill.complete = false;
    assert!(window_notes(&snapshot, &config)[0].contains("bf_max_job_test"));
}

#[test]
fn the_tracker_reports_which_gaps_ended() {
    let mut tracker = GapTracker::default();
    let mut see = |secs: i64, text: &str| -> String {
        let nodes: Vec<(String, &str)> = text
            .chars()
            .enumerate()
            .filter(|(_, c)| *c != '-')
            .map(|(i, c)| (format!("n{i}"), if c == 'd' { "IDLE+DRAIN" } else { "IDLE" }))
            .collect();
        let numbers =
            |wanted: char| text.chars().enumerate().filter(move |(_, c)| *c == wanted).map(|(i, _)| i);
        let mut jobs: Vec<Job> = numbers('m').map(|i| job(&format!("1{i} main running n{i}"), 0)).collect();
        jobs.extend(numbers('c').map(|i| job(&format!("2{i} infill completing n{i}"), 0)));
        jobs.sort_by_key(|j| j.id);
        let nodes: Vec<(&str, &str)> = nodes.iter().map(|(n, s)| (n.as_str(), *s)).collect();
        let snapshot = snapshot(&nodes, jobs);
        let occupancy = NodeOccupancy::from_snapshot(&snapshot, "infill");
        let ended = tracker.observe_round(&occupancy, &GapSet::default(), NOW + secs);
        let lines: Vec<String> = ended
            .iter()
            .map(|e| format!("{} {}s block {} {}", e.node, e.end.secs_since(e.start), e.block, e.taken))
            .collect();
        lines.join(", ")
    };
    // i: idle, m: main job, c: a malleable job cleans up, d: drained, -: gone.
    assert_eq!(see(0, "immm"), "");
    assert_eq!(see(10, "iiim"), "");
    assert_eq!(see(20, "mcii"), "", "gaps that were open at first teach nothing");
    assert_eq!(see(50, "mimi"), "n2 40s block 2 true");
    assert_eq!(see(60, "mdmi"), "n1 50s block 2 false");
    assert_eq!(see(90, "iimm"), "n3 70s block 1 true");
    assert_eq!(see(1000, "iiii"), "n0 0s block 2 false, n1 0s block 2 false", "too long a pause");
    assert_eq!(see(1010, "mmmm"), "", "the tracker begins again");
}

#[test]
fn survival_is_a_falling_probability() {
    let samples: Vec<GapSample> = (0..500)
        .map(|i| GapSample {
            duration_secs: f64::from(i * i % 977) * 9.0,
            taken: i % 5 != 0,
            block: 1 + i % 200,
            hour: (i % 24) as u8,
        })
        .collect();
    for survival in [
        SurvivalModel::default(),
        SurvivalModel::fit_samples(&samples),
        SurvivalModel::fit_samples(&samples[..3]),
    ] {
        for age in [0.0, 10.0, 700.0, 1e5, f64::NAN, -5.0] {
            for (block, hour) in [(0, 0), (1, 23), (50, 12), (u32::MAX, 255)] {
                assert_eq!(survival.probability_free(age, block, hour, 0.0), 1.0);
                let mut before = 1.0;
                for ahead in [1.0, 30.0, 100.0, 1e3, 1e4, 1e6, f64::INFINITY] {
                    let probability = survival.probability_free(age, block, hour, ahead);
                    assert!(
                        (0.0..=before).contains(&probability),
                        "{age} {block} {hour} {ahead}: {probability}"
                    );
                    before = probability;
                }
                for confidence in [0.9, 0.5, 0.1] {
                    let secs = survival.quantile_secs(age, block, hour, confidence);
                    let probability = survival.probability_free(age, block, hour, secs);
                    assert!((probability - confidence).abs() < 1e-6 || secs == survival::LONGEST_SECS);
                }
                let expected = survival.expected_secs(age, block, hour);
                assert!(expected > 0.0 && expected <= survival::LONGEST_SECS);
            }
        }
    }
}

#[test]
fn the_default_has_the_shape_of_summits_gaps() {
    let survival = SurvivalModel::default();
    let near = |value: f64, expect: f64, share: f64| {
        assert!((value / expect - 1.0).abs() < share, "{value} is not near {expect}");
    };
    near(survival.quantile_secs(0.0, 1, 0, 0.5), 475.0, 0.05);
    near(survival.quantile_secs(0.0, 1, 0, 0.1), 3269.0, 0.05);
    near(survival.expected_secs(0.0, 1, 0), 1192.0, 0.08);
    // The longer a gap has lasted, the longer it will last.
    assert!(survival.quantile_secs(3600.0, 1, 0, 0.5) > 3.0 * survival.quantile_secs(0.0, 1, 0, 0.5));
}

/// Start and end of the idle intervals of Summit's log, where the file is available.
fn summit() -> Option<Vec<(f64, f64)>> {
    let path = infill_testkit::data_file("idle/summit-2021-02-week1.csv.xz")?;
    let reading = infill_traces::read_idle(&path).unwrap();
    Some(reading.value.intervals.iter().map(|i| (i.start as f64, i.end as f64)).collect())
}

/// Mean squared error of the predicted probability; and the largest difference between prediction and truth,
/// over tenths of the predictions that hold at least 2 % of them.
fn calibration(survival: &SurvivalModel, gaps: &[(f64, f64, u32)]) -> (f64, f64) {
    let mut bins = [(0.0, 0.0, 0.0); 10];
    let mut squares = 0.0;
    let mut count = 0.0;
    for (start, end, block) in gaps {
        for age in [0.0, 120.0, 600.0, 1800.0, 7200.0] {
            for ahead in [60.0, 300.0, 900.0, 1800.0] {
                if end - start <= age {
                    continue;
                }
                let hour = ((start + age) / 3600.0) as u64 % 24;
                let probability = survival.probability_free(age, *block, hour as u8, ahead);
                let free = f64::from(u8::from(end - start > age + ahead));
                squares += (probability - free).powi(2);
                count += 1.0;
                let bin = &mut bins[((probability * 10.0) as usize).min(9)];
                *bin = (bin.0 + probability, bin.1 + free, bin.2 + 1.0);
            }
        }
    }
    let differences = bins.iter().filter(|b| b.2 >= 0.02 * count).map(|b| ((b.0 - b.1) / b.2).abs());
    (squares / count, differences.fold(0.0, f64::max))
}

#[test]
fn predicted_probabilities_hold_on_held_out_gaps_of_summit() {
    let Some(intervals) = summit() else { return };
    let mut together: BTreeMap<i64, u32> = BTreeMap::new();
    for (start, _) in &intervals {
        *together.entry(*start as i64).or_insert(0) += 1;
    }
    let last = intervals.iter().map(|(_, end)| *end).fold(0.0, f64::max);
    let middle = last / 2.0;
    let block = |start: f64| together.get(&(start as i64)).copied().unwrap_or(1);
    let past: Vec<GapSample> = intervals
        .iter()
        .filter(|(start, _)| *start < middle)
        .map(|(start, end)| GapSample {
            duration_secs: end.min(middle) - start,
            taken: *end < middle,
            block: block(*start),
            hour: ((start / 3600.0) as u64 % 24) as u8,
        })
        .collect();
    // Gaps that the log's end cuts off are left out, because their true length is unknown.
    let future: Vec<(f64, f64, u32)> = intervals
        .iter()
        .filter(|(start, end)| *start >= middle && *end < last)
        .map(|(start, end)| (*start, *end, block(*start)))
        .collect();
    let (default_error, default_off) = calibration(&SurvivalModel::default(), &future);
    let (error, off) = calibration(&SurvivalModel::fit_samples(&past), &future);
    println!(
        "{} gaps learned, {} held out: squared error {error:.4} (default {default_error:.4}), \
         worst tenth off by {off:.3} (default {default_off:.3})",
        past.len(),
        future.len()
    );
    assert!(error <= default_error * 1.02, "learning made it worse: {error} after {default_error}");
    assert!(off < 0.12, "predictions are off by {off}");
}

#[test]
fn gaps_of_an_old_snapshot_count_from_now_except_for_planned_ends() {
    let gap = |name: &str, vacate_by: Option<UnixTime>| Gap {
        node: NodeName::new(name),
        node_type: NodeType::new("a"),
        since: NOW,
        end: WindowEnd::Unknown,
        vacate_by,
        usable_until: NOW + 150,
        expected_secs: 500.0,
        holder: None,
        share: None,
    };
    let mut gaps = GapSet { gaps: vec![gap("n1", None), gap("n2", Some(NOW + 150))], refused: Vec::new() };
    carry_over(&mut gaps, 1000.0);
    assert_eq!(gaps.gaps[0].usable_until, NOW + 1150);
    assert_eq!(gaps.gaps[1].usable_until, NOW + 150);
    carry_over(&mut gaps, -5.0);
    assert_eq!(gaps.gaps[0].usable_until, NOW + 1150);
}
