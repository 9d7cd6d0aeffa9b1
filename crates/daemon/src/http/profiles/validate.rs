//! Checks imported profiles, because a file may contain anything.

use std::collections::BTreeSet;

use infill_model::{
    ChangeCost, MAX_NAME_CHARS, MAX_NODES_A_JOB, MeasuredCosts, Profile, SizePoint, Spread, UnixTime,
};

/// Most measured sizes of a profile.
pub(crate) const MAX_POINTS: usize = 256;

/// Largest relative error. A rate with a larger error has no meaning.
const MAX_ERROR: f64 = 10.0;

/// Longest time in a profile, seconds: ten years.
const MAX_SECS: f64 = 3.2e8;

/// Why a profile is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile {name:?} of {user:?}: {what}")]
pub(crate) struct InvalidProfile {
    user: String,
    name: String,
    what: String,
}

/// Checks a profile and returns it as it is stored: changed now, and measured in the past.
pub(crate) fn validate_profile(mut profile: Profile, now: UnixTime) -> Result<Profile, InvalidProfile> {
    if let Some(what) = find_problem(&profile) {
        let user = shorten(&profile.key.user);
        let name = shorten(&profile.key.name);
        return Err(InvalidProfile { user, name, what });
    }
    profile.points.sort_by_key(|point| point.nodes);
    profile.unfit.sort_unstable();
    profile.unfit.dedup();
    for point in &mut profile.points {
        point.at = point.at.min(now);
    }
    // With its old date, the profile might be deleted at once.
    profile.updated_at = now;
    Ok(profile)
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

fn find_problem(profile: &Profile) -> Option<String> {
    let key = &profile.key;
    let names = [
        ("user", key.user.as_str()),
        ("name", key.name.as_str()),
        ("node type", key.node_type.as_str()),
        ("execution plan", key.exec_plan.0.as_str()),
    ];
    if let Some((what, _)) = names.into_iter().find(|(_, text)| text.is_empty()) {
        return Some(format!("its {what} is empty"));
    }
    let mut texts = names.into_iter().chain([("job name", profile.job_name.as_str())]);
    if let Some((what, _)) = texts.find(|(_, text)| !is_text(text)) {
        return Some(format!("its {what} is longer than {MAX_NAME_CHARS} characters or not printable"));
    }
    let MeasuredCosts { up, down, start, live_up, live_down } = &profile.costs;
    let costs = [up, down, start, live_up, live_down];
    find_points_problem(&profile.points)
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
    if let Some(repeated) = points.iter().find(|point| !seen.insert(point.nodes)) {
        return Some(format!("it has the size of {} nodes twice", repeated.nodes));
    }
    points.iter().find_map(find_point_problem)
}

fn find_unfit_problem(unfit: &[u32]) -> Option<String> {
    if unfit.len() > MAX_POINTS {
        return Some(format!("more than {MAX_POINTS} sizes that do not fit"));
    }
    let wrong = unfit.iter().find(|nodes| !(1..=MAX_NODES_A_JOB).contains(*nodes));
    wrong.map(|nodes| format!("its list of sizes that do not fit has {nodes} nodes, which is out of range"))
}

fn is_positive(number: f64) -> bool {
    number.is_normal() && number > 0.0
}

fn find_point_problem(point: &SizePoint) -> Option<String> {
    let possible_hosts = 1.0..=f64::from(point.nodes.max(1));
    let rules = [
        ((1..=MAX_NODES_A_JOB).contains(&point.nodes), "the size is out of range"),
        (is_positive(point.rate), "the rate must be a positive finite number"),
        ((0.0..=MAX_ERROR).contains(&point.error), "the error is out of range"),
        ((0.0..=MAX_SECS).contains(&point.secs), "the seconds are out of range"),
        (is_valid_spread(&point.spread), "the measurement on several switches is out of range"),
        (is_valid_spread(&point.over_hosts), "the measurement on several hosts is out of range"),
        (
            point.hosts.is_none_or(|hosts| possible_hosts.contains(&hosts)),
            "the number of hosts is out of range",
        ),
        (
            point.step_samples.is_none_or(is_positive),
            "the samples of a step must be a positive finite number",
        ),
    ];
    let broken = rules.into_iter().find(|(holds, _)| !holds);
    broken.map(|(_, what)| format!("{} nodes: {what}", point.nodes))
}

fn is_valid_spread(spread: &Spread) -> bool {
    match spread {
        Spread::Near | Spread::Across => true,
        Spread::Both { rate, error } => is_positive(*rate) && (0.0..=MAX_ERROR).contains(error),
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
    fn a_valid_profile_is_accepted_as_changed_now() {
        let mut profile = samples::sample_profile("alice", "bert", "gpu:a100:4");
        profile.points[0].at = samples::NOW + 1000;
        profile.updated_at = UnixTime(0);
        let taken = validate_profile(profile.clone(), samples::NOW).unwrap();
        assert_eq!((taken.updated_at, taken.points[0].at), (samples::NOW, samples::NOW));
        assert_eq!(taken.points[1], profile.points[1]);
    }

    #[test]
    fn an_impossible_profile_is_refused() {
        assert!(refused(|profile| profile.key.user.clear()).contains("user is empty"));
        assert!(refused(|profile| profile.key.name = "x".repeat(201)).contains("name is longer"));
        assert!(refused(|profile| profile.key.exec_plan.0 = "a\nb".to_owned()).contains("not printable"));
        assert!(refused(|profile| profile.job_name = "\u{1b}[2J".to_owned()).contains("job name is longer"));
        assert!(refused(|profile| profile.points[0].nodes = 0).contains("size is out of range"));
        assert!(refused(|profile| profile.points[0].nodes = 4).contains("4 nodes twice"));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-320] {
            assert!(refused(|profile| profile.points[0].rate = rate).contains("rate"), "{rate}");
        }
        assert!(refused(|profile| profile.points[0].error = -0.1).contains("error"));
        assert!(refused(|profile| profile.points[0].secs = f64::NAN).contains("seconds"));
        assert!(refused(|profile| profile.points[0].step_samples = Some(0.0)).contains("samples of a step"));
        for rate in [0.0, f64::NAN] {
            let both = Spread::Both { rate, error: 0.1 };
            assert!(
                refused(|profile| profile.points[0].spread = both).contains("several switches"),
                "{rate}"
            );
            assert!(
                refused(|profile| profile.points[0].over_hosts = both).contains("several hosts"),
                "{rate}"
            );
        }
        for hosts in [0.0, -1.0, 1e9, f64::NAN] {
            assert!(
                refused(|profile| profile.points[0].hosts = Some(hosts)).contains("number of hosts"),
                "{hosts}"
            );
        }
        assert!(refused(|profile| profile.costs.down.exit_secs = -1.0).contains("rescale"));
        assert!(refused(|profile| profile.probe_secs = f64::INFINITY).contains("probes"));
        let sample = samples::sample_profile("a", "b", "c").points[0];
        let points: Vec<SizePoint> = (1..=257).map(|nodes| SizePoint { nodes, ..sample }).collect();
        assert!(refused(|profile| profile.points = points).contains("256 sizes"));
    }
}
