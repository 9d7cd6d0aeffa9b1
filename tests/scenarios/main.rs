//! Scenarios: small scripts of a cluster's life. They are played through the gap finder, the planner and the
//! checker, and their whole output is stored beside them.
//!
//! `NAME.toml` is a script (`script.rs` has its format), `NAME.txt` its golden. A change of the planner shows
//! here as a change of text: read it as an administrator would, then accept it with `INFILL_UPDATE_GOLDENS=1
//! cargo test --test scenarios`.

mod check;
mod events;
mod play;
mod script;
mod show;
mod slurm;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use script::Script;

/// If set, goldens are written instead of compared.
const UPDATE: &str = "INFILL_UPDATE_GOLDENS";

/// Lines that a difference shows before the first line that differs.
const CONTEXT_LINES: usize = 12;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Names of the files of this extension, without it.
fn names(extension: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory()).expect("the directory of the scenarios can be read");
    let paths = entries.map(|e| e.expect("an entry").path());
    let these = paths.filter(|p| p.extension().is_some_and(|e| e == extension));
    these.filter_map(|p| p.file_stem()?.to_str().map(str::to_owned)).collect()
}

fn output(name: &str) -> Result<String, String> {
    let path = directory().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let script = Script::parse(&text, &path)?;
    let rounds = play::play(&script).map_err(|e| format!("{name}: {e}"))?;
    Ok(show::scenario(name, &script, &rounds))
}

/// Describes where a text first differs from its golden.
fn difference(golden: &str, found: &str) -> Option<String> {
    if golden == found {
        return None;
    }
    let a: Vec<&str> = golden.lines().collect();
    let b: Vec<&str> = found.lines().collect();
    let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let before: Vec<String> =
        a[at.saturating_sub(CONTEXT_LINES)..at].iter().map(|line| format!("    {line}")).collect();
    let line = |lines: &[&str]| lines.get(at).map_or("(the end)".to_owned(), |l| (*l).to_owned());
    let was = line(&a);
    let is = line(&b);
    Some(format!("line {}:\n{}\n  - {was}\n  + {is}", at + 1, before.join("\n")))
}

/// Compares one scenario with its golden, or writes the golden.
fn judge(name: &str) -> Result<(), String> {
    let found = output(name)?;
    if output(name)? != found {
        return Err(format!("{name}: played twice it says two things"));
    }
    let path = directory().join(format!("{name}.txt"));
    if std::env::var_os(UPDATE).is_some() {
        return std::fs::write(&path, found).map_err(|e| format!("{}: {e}", path.display()));
    }
    let golden = std::fs::read_to_string(&path)
        .map_err(|e| format!("{}: no golden ({e}); {UPDATE}=1 writes it", path.display()))?;
    let Some(difference) = difference(&golden, &found) else { return Ok(()) };
    let actual = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.txt"));
    std::fs::write(&actual, found).map_err(|e| format!("{}: {e}", actual.display()))?;
    Err(format!("{name}: {difference}\n  all of it: diff -u {} {}", path.display(), actual.display()))
}

#[test]
fn every_scenario_says_what_its_golden_says() {
    let scripts = names("toml");
    assert!(scripts.len() >= 12, "scripts are missing: {scripts:?}");
    let wrong: Vec<String> = scripts.iter().filter_map(|name| judge(name).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Node-seconds that each user's jobs held up to a moment.
fn held_by_user(script: &Script, rounds: &[play::Round]) -> BTreeMap<String, f64> {
    let users = script.malleable.iter().flat_map(|m| m.ids().map(|id| (id, m.user.clone())));
    let users: BTreeMap<_, _> = users.collect();
    let mut held = BTreeMap::new();
    for (round, next) in rounds.iter().zip(&rounds[1..]) {
        for plan in &round.judged.plan.jobs {
            let secs = (next.at - round.at) as f64 * plan.nodes.len() as f64;
            *held.entry(users[&plan.job].clone()).or_insert(0.0) += secs;
        }
    }
    held
}

#[test]
fn two_users_have_their_shares_by_use_after_four_hours() {
    let path = directory().join("shares_by_use.toml");
    let text = std::fs::read_to_string(&path).expect("it can be read");
    let script = Script::parse(&text, &path).expect("it is sound");
    let rounds = play::play(&script).expect("every plan passes");
    assert_eq!(rounds.last().map(|r| r.at), Some(14_400));
    let held = held_by_user(&script, &rounds);
    let share = held["alice"] / held.values().sum::<f64>();
    assert!((0.45..=0.55).contains(&share), "{held:?}");
}

#[test]
fn every_golden_has_its_script() {
    let orphans: Vec<String> = names("txt").difference(&names("toml")).cloned().collect();
    assert!(orphans.is_empty(), "goldens without a script: {orphans:?}");
}

#[test]
fn a_difference_is_shown_with_its_line() {
    assert_eq!(difference("a\nb\n", "a\nb\n"), None);
    assert_eq!(difference("a\nb\n", "a\nc\n").as_deref(), Some("line 2:\n    a\n  - b\n  + c"));
    assert_eq!(difference("a\n", "a\nc\n").as_deref(), Some("line 2:\n    a\n  - (the end)\n  + c"));
    // No line differs, but the text does.
    assert!(difference("a\n", "a").is_some());
}

#[test]
fn mistakes_in_scripts_are_reported_with_their_place() {
    let base = "about = ''\nrounds = [0, 10]\n[[nodes]]\nnames = 'n[1-2]'\n";
    let main = |rest: &str| format!("[[main]]\nid = 1\nnodes = 'n1'\nlimit_mins = 1\n{rest}");
    let cases = [
        (String::new(), ""),
        ("colour = 1".to_owned(), "line 5"),
        ("[[main]]\nid = 1\nnodes = 'n[1'\nlimit_mins = 1".to_owned(), "line 7"),
        ("[[malleable]]\nid = 1\nsizes = '3-2'".to_owned(), "line 7"),
        ("[[malleable]]\nid = 1\nsizes = '1'\ncurve = '1:'".to_owned(), "line 8"),
        ("[[malleable]]\nid = 1\nsizes = '1'\nmakes = 5".to_owned(), "job 1: it cannot make samples"),
        ("[[malleable]]\nid = 1\nsizes = '1'\nsays = 0".to_owned(), "job 1: makes, says: expected samples"),
        ("[[malleable]]\nid = 1\nsizes = '1'\nsays = 9".to_owned(), "job 1: it cannot make samples"),
        ("[config.planner]\nhorizon = 3".to_owned(), "line 6"),
        ("[config.planner]\nmax_steps = 99".to_owned(), "planner.max_steps = 99"),
        ("[[nodes]]\nnames = 'n2'".to_owned(), "nodes: n2 is there twice"),
        (main("planned = [{ from = 0, start = 9, nodes = 'n7' }]"), "main job 1: n7 is not among the nodes"),
        (main("start = 5\nends = 5"), "main job 1: expected submit"),
        (
            main("start = 0\n") + &main("").replace("id = 1", "id = 2\nstart = 30"),
            "main jobs 1 and 2 are on n1",
        ),
        (main("") + &main(""), "job 1 is there twice"),
        ("[[doubts]]\nfrom = 5\nuntil = 5\ndoubt = 'backfill_active'".to_owned(), "doubt BackfillActive"),
        ("[[doubts]]\nfrom = 5\nuntil = 6\ndoubt = 'moon'".to_owned(), "line 8"),
    ];
    for (more, expect) in cases {
        let said = Script::parse(&format!("{base}{more}\n"), Path::new("x.toml")).err().unwrap_or_default();
        assert!(said.contains(expect) && said.is_empty() == expect.is_empty(), "{more:?}: {said:?}");
    }
    let rounds = "about = ''\nrounds = [10, 0]\n[[nodes]]\nnames = 'n1'";
    assert!(Script::parse(rounds, Path::new("x.toml")).is_err_and(|e| e.contains("rounds")));
}
