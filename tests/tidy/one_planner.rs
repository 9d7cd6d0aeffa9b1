//! The daemon, the gap simulator and the closed machine decide by the same advisor, order, planner and
//! checker. Each of these is put together in one place. Only the baselines belong to the simulator alone.

use super::{assert_none, code, packages, program, read, relative};

/// What is made, and the only files of the program that make it.
const MAKERS: [(&str, &[&str]); 6] = [
    // The advisor: for rounds, and for `infill advise`, which tries one program, or one table, alone.
    (
        "JobAdvisor::new(",
        &[
            "crates/planner/src/round/round_state.rs",
            "crates/advisor/src/curve_trial.rs",
            "crates/advisor/src/type_trial.rs",
        ],
    ),
    // The order.
    ("JobPriorities::default()", &["crates/planner/src/round/round_state.rs"]),
    // The input of the planner, and the checker of its plans.
    ("RoundInput {", &["crates/planner/src/round/round_state.rs", "crates/planner/src/round/round_input.rs"]),
    (
        "MalleableJob {",
        &[
            "crates/model/src/malleable.rs",
            "crates/planner/src/round/demand.rs",
            // The same job, its own nodes as one.
            "crates/planner/src/round/extended_jobs.rs",
        ],
    ),
    ("check_plan(&problem, ", &["crates/planner/src/round/round_input.rs"]),
    // All of them together.
    (
        "RoundState::new(",
        &[
            "crates/daemon/src/state.rs",
            "lab/sim/src/policy/infill.rs",
            "lab/sim/src/closed/policy/infill.rs",
        ],
    ),
];

/// The policies that are the daemon's.
const POLICIES: [&str; 2] = ["lab/sim/src/policy/infill.rs", "lab/sim/src/closed/policy/infill.rs"];

/// What a policy would do that computes rates or weights of its own, or asks a part instead of the whole.
const OF_ITS_OWN: [&str; 9] = [
    "ScalingCurve::new(",
    "ScalingCurve {",
    "CurvePoint {",
    "RateCurve::new(",
    ".curve =",
    ".rate =",
    ".weight =",
    "PlanningProblem::new(",
    "plan_without_solver(",
];

#[test]
fn advisor_order_planner_and_checker_are_put_together_in_one_place() {
    let files = program(&packages());
    for (made, makers) in MAKERS {
        let is_maker = |path: &str| makers.iter().any(|maker| path == *maker || path.starts_with(*maker));
        let mut found = Vec::new();
        let mut seen = 0;
        for path in &files {
            let text = read(path);
            let path = relative(path);
            let lines = code(&text).filter(|(_, line)| makes(line, made));
            let places: Vec<String> = lines.map(|(number, _)| format!("{path}:{number}")).collect();
            seen += places.len();
            found.extend(places.into_iter().filter(|_| !is_maker(&path)));
        }
        assert!(seen > 0, "nothing makes {made}: has it another name now?");
        assert_none(found, &format!("{made} only in {}", makers.join(", ")));
    }
}

/// Whether a line makes one of these, rather than says what it is made of.
fn makes(line: &str, made: &str) -> bool {
    let declares = ["struct ", "enum ", "impl ", "impl<", " for ", "-> ", "fn "];
    let begins = |before: &str| {
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !before.ends_with("let ")
    };
    line.match_indices(made)
        .any(|(at, _)| begins(&line[..at]) && declares.iter().all(|word| !line[..at].contains(word)))
}

#[test]
fn policies_of_infill_compute_no_weight_and_no_curve() {
    let mut found = Vec::new();
    for policy in POLICIES {
        let text = read(&super::repository().join(policy));
        assert!(text.contains("check_solved_plan(&input"), "{policy} has the daemon's plans checked");
        for (number, line) in code(&text) {
            let own = OF_ITS_OWN.iter().filter(|what| line.contains(**what));
            found.extend(own.map(|what| format!("{policy}:{number}: {what}")));
        }
    }
    assert_none(found, "rates and weights are the scene's");
}
