//! What a profile from outside must be: a file may hold anything.

use std::collections::BTreeSet;

use infill_model::{
    ChangeCost, MAX_NAME_CHARS, MAX_NODES_A_JOB, MeasuredCosts, Profile, SizePoint, Spread, UnixTime,
};

/// Most measured sizes of a profile.
pub(crate) const MAX_POINTS: usize = 256;

/// Largest relative error: beyond, a rate says nothing.
const MAX_ERROR: f64 = 10.0;

/// Longest time that anything of a profile can have taken: ten years.
const MAX_SECS: f64 = 3.2e8;

/// Why a profile is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile {name:?} of {user:?}: {what}")]
pub(crate) struct InvalidProfile {
    user: String,
    name: String,
    what: String,
}

/// The profile as it is kept: changed now, and measured in the past.
pub(crate) fn validate_profile(mut profile: Profile, now: UnixTime) -> Result<Profile, InvalidProfile> {
    if let Some(what) = find_problem(&profile) {
        let short = |s: &str| s.chars().take(MAX_NAME_CHARS).collect();
        return Err(InvalidProfile { user: short(&profile.key.user), name: short(&profile.key.name), what });
    }
    profile.points.sort_by_key(|p| p.nodes);
    profile.unfit.sort_unstable();
    profile.unfit.dedup();
    profile.points.iter_mut().for_each(|p| p.at = p.at.min(now));
    // It would be deleted at once if it counted as old as it is.
    profile.updated_at = now;
    Ok(profile)
}

fn find_problem(profile: &Profile) -> Option<String> {
    let key = &profile.key;
    let names = [
        ("user", key.user.as_str()),
        ("name", key.name.as_str()),
        ("node type", key.node_type.as_str()),
        ("execution plan", key.exec_plan.0.as_str()),
    ];
    let empty = names.into_iter().find(|(_, text)| text.is_empty());
    let odd =
        names.into_iter().chain([("job name", profile.job_name.as_str())]).find(|(_, text)| !is_text(text));
    let MeasuredCosts { up, down, start, live_up, live_down } = &profile.costs;
    let costs = [up, down, start, live_up, live_down];
    empty
        .map(|(what, _)| format!("its {what} is empty"))
        .or_else(|| {
            odd.map(|(what, _)| {
                format!("its {what} is longer than {MAX_NAME_CHARS} characters or not printable")
            })
        })
        .or_else(|| find_points_problem(&profile.points))
        .or_else(|| find_unfit_problem(&profile.unfit))
        .or_else(|| costs.into_iter().find_map(find_cost_problem))
        .or_else(|| find_secs_problem("seconds of probes", profile.probe_secs))
}

fn is_text(text: &str) -> bool {
    text.chars().count() <= MAX_NAME_CHARS && !text.chars().any(char::is_control)
}

fn find_points_problem(points: &[SizePoint]) -> Option<String> {
    if points.len() > MAX_POINTS {
        return Some(format!("more than {MAX_POINTS} sizes"));
    }
    let mut seen = BTreeSet::new();
    let twice = points.iter().find(|p| !seen.insert(p.nodes));
    twice
        .map(|p| format!("{} nodes are there twice", p.nodes))
        .or_else(|| points.iter().find_map(find_point_problem))
}

fn find_unfit_problem(unfit: &[u32]) -> Option<String> {
    if unfit.len() > MAX_POINTS {
        return Some(format!("more than {MAX_POINTS} sizes that do not fit"));
    }
    let odd = unfit.iter().find(|n| !(1..=MAX_NODES_A_JOB).contains(*n));
    odd.map(|n| format!("{n} nodes, which do not fit: the size is out of range"))
}

fn find_point_problem(point: &SizePoint) -> Option<String> {
    let positive = |x: f64| x.is_normal() && x > 0.0;
    let on_hosts = 1.0..=f64::from(point.nodes.max(1));
    let rules = [
        ((1..=MAX_NODES_A_JOB).contains(&point.nodes), "the size is out of range"),
        (positive(point.rate), "the rate is no positive finite number"),
        ((0.0..=MAX_ERROR).contains(&point.error), "the error is out of range"),
        ((0.0..=MAX_SECS).contains(&point.secs), "the seconds are out of range"),
        (is_valid_spread(&point.spread), "what was measured on several switches is out of range"),
        (is_valid_spread(&point.over_hosts), "what was measured on several hosts is out of range"),
        (point.hosts.is_none_or(|hosts| on_hosts.contains(&hosts)), "the number of hosts is out of range"),
        (point.step_samples.is_none_or(positive), "the samples of a step are no positive finite number"),
    ];
    let broken = rules.into_iter().find(|(holds, _)| !holds);
    broken.map(|(_, what)| format!("{} nodes: {what}", point.nodes))
}

fn is_valid_spread(spread: &Spread) -> bool {
    match spread {
        Spread::Near | Spread::Across => true,
        Spread::Both { rate, error } => rate.is_normal() && *rate > 0.0 && (0.0..=MAX_ERROR).contains(error),
    }
}

fn find_cost_problem(cost: &ChangeCost) -> Option<String> {
    let parts = [cost.checkpoint_secs, cost.exit_secs, cost.start_secs, cost.warmup_secs];
    parts.into_iter().find_map(|secs| find_secs_problem("seconds of a rescale", secs))
}

fn find_secs_problem(what: &str, secs: f64) -> Option<String> {
    (!(0.0..=MAX_SECS).contains(&secs)).then(|| format!("the {what} are out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::samples;

    fn refused(change: impl FnOnce(&mut Profile)) -> String {
        let mut profile = samples::sample_profile("alice", "bert", "gpu:a100:4");
        change(&mut profile);
        validate_profile(profile, samples::NOW).unwrap_err().what
    }

    #[test]
    fn a_sound_profile_is_taken_as_changed_now() {
        let mut profile = samples::sample_profile("alice", "bert", "gpu:a100:4");
        profile.points[0].at = samples::NOW + 1000;
        profile.updated_at = UnixTime(0);
        let taken = validate_profile(profile.clone(), samples::NOW).unwrap();
        assert_eq!((taken.updated_at, taken.points[0].at), (samples::NOW, samples::NOW));
        assert_eq!(taken.points[1], profile.points[1]);
    }

    #[test]
    fn what_no_measurement_can_be_is_refused() {
        assert!(refused(|p| p.key.user.clear()).contains("user is empty"));
        assert!(refused(|p| p.key.name = "x".repeat(201)).contains("name is longer"));
        assert!(refused(|p| p.key.exec_plan.0 = "a\nb".to_owned()).contains("not printable"));
        assert!(refused(|p| p.job_name = "\u{1b}[2J".to_owned()).contains("job name is longer"));
        assert!(refused(|p| p.points[0].nodes = 0).contains("size is out of range"));
        assert!(refused(|p| p.points[0].nodes = 4).contains("4 nodes are there twice"));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-320] {
            assert!(refused(|p| p.points[0].rate = rate).contains("rate"), "{rate}");
        }
        assert!(refused(|p| p.points[0].error = -0.1).contains("error"));
        assert!(refused(|p| p.points[0].secs = f64::NAN).contains("seconds"));
        assert!(refused(|p| p.points[0].step_samples = Some(0.0)).contains("samples of a step"));
        for rate in [0.0, f64::NAN] {
            let both = Spread::Both { rate, error: 0.1 };
            assert!(refused(|p| p.points[0].spread = both).contains("several switches"), "{rate}");
            assert!(refused(|p| p.points[0].over_hosts = both).contains("several hosts"), "{rate}");
        }
        for hosts in [0.0, -1.0, 1e9, f64::NAN] {
            assert!(refused(|p| p.points[0].hosts = Some(hosts)).contains("number of hosts"), "{hosts}");
        }
        assert!(refused(|p| p.costs.down.exit_secs = -1.0).contains("rescale"));
        assert!(refused(|p| p.probe_secs = f64::INFINITY).contains("probes"));
        let point = |nodes| SizePoint { nodes, ..samples::sample_profile("a", "b", "c").points[0] };
        assert!(refused(|p| p.points = (1..=257).map(point).collect()).contains("256 sizes"));
    }
}
