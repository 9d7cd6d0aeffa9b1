//! What the compiler does not check: where the core may look, how files open, how long functions are, where
//! the program may give up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::harness::cluster::repository;

/// Modules without I/O, async, clock or randomness of their own. Those that are not written yet are kept pure
/// too.
const CORE: [&str; 7] = ["model", "gaps", "plan", "generation", "advisor", "round", "sim"];

/// What the core may not name, and why.
const FORBIDDEN: [(&str, &str); 12] = [
    ("tokio", "no I/O and no async in the core"),
    ("reqwest", "no I/O in the core"),
    ("sqlx", "no I/O in the core"),
    ("axum", "no I/O in the core"),
    ("async fn", "no async in the core"),
    (".await", "no async in the core"),
    ("Instant::now", "the time is a parameter"),
    ("SystemTime", "the time is a parameter"),
    ("std::fs", "no I/O in the core"),
    ("std::net", "no I/O in the core"),
    ("rand::rng()", "the random generator is a parameter"),
    ("thread_rng", "the random generator is a parameter"),
];

/// The solver must keep its time limit, and reads the clock for nothing else.
const MAY_READ_THE_CLOCK: &str = "src/plan/program/solver";

/// Lines of the longest function that may be.
const LONGEST_FUNCTION: usize = 100;

/// Places outside tests that may give up. One: an offset of 0 hours from UTC is valid, which chrono's types
/// do not say.
const GIVE_UPS_ALLOWED: usize = 1;

/// Everything that ends the process or thread.
const GIVE_UPS: [&str; 6] =
    [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "unreachable!("];

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    let (dirs, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|p| p.is_dir());
    let rust = files.into_iter().filter(|p| p.extension().is_some_and(|e| e == "rs"));
    rust.chain(dirs.iter().flat_map(|d| sources(d))).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).display().to_string()
}

/// Files that belong to tests as a whole: the suites and doubles that more than one crate uses, and the
/// modules that another file declares under `#[cfg(test)]`.
fn test_files() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for path in sources(&repository().join("src")) {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        let under_cfg = lines.windows(2).filter(|w| w[0].trim() == "#[cfg(test)]").map(|w| w[1].trim());
        let names = under_cfg
            .filter_map(|l| l.trim_start_matches("pub(crate) ").strip_prefix("mod ")?.strip_suffix(';'));
        let is_root = path.file_name().is_some_and(|n| n == "mod.rs" || n == "lib.rs");
        let dir = if is_root { path.with_file_name("") } else { path.with_extension("") };
        found.extend(names.flat_map(|n| [dir.join(format!("{n}.rs")), dir.join(n)]));
    }
    let shared = ["src/slurm/conformance.rs", "src/slurm/fake.rs", "src/store/conformance.rs"];
    found.extend(shared.map(|p| repository().join(p)));
    found
}

/// The sources below `dir` that are part of the program.
fn program(dir: &Path) -> Vec<PathBuf> {
    let tests = test_files();
    sources(dir).into_iter().filter(|p| !p.ancestors().any(|a| tests.contains(a))).collect()
}

/// A file's lines of code by number, up to the module or `impl` for tests at its end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at).find(|at| {
        let next = text[*at..].lines().nth(1).unwrap_or_default();
        ["mod ", "impl "].iter().any(|w| next.starts_with(w)) && next.ends_with('{')
    });
    let lines = text[..tests.unwrap_or(text.len())].lines().enumerate().map(|(i, l)| (i + 1, l));
    lines.filter(|(_, l)| !l.trim_start().starts_with("//"))
}

#[track_caller]
fn assert_none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn the_core_does_nothing_but_compute() {
    let mut found = Vec::new();
    let dirs = CORE.iter().map(|m| repository().join("src").join(m)).filter(|d| d.exists());
    for path in dirs.flat_map(|d| program(&d)) {
        let (name, text) = (relative(&path), read(&path));
        for (number, line) in code(&text) {
            for (word, why) in FORBIDDEN {
                let timed = word.contains("Instant") && name.starts_with(MAY_READ_THE_CLOCK);
                if line.contains(word) && !timed {
                    found.push(format!("{name}:{number}: {word}: {why}"));
                }
            }
        }
    }
    assert_none(found, "the core is pure");
}

#[test]
fn the_core_knows_nothing_of_edges_and_shells() {
    let mut found = Vec::new();
    let dirs = CORE.iter().map(|m| repository().join("src").join(m)).filter(|d| d.exists());
    for path in dirs.flat_map(|d| program(&d)) {
        let text = read(&path);
        for (number, line) in code(&text) {
            let outward = ["slurm", "store", "agent", "traces", "http", "daemon", "cli"];
            if outward.iter().any(|m| line.contains(&format!("crate::{m}::"))) {
                found.push(format!("{}:{number}: {}", relative(&path), line.trim()));
            }
        }
    }
    assert_none(found, "the core depends on itself only (and on messages and settings)");
}

#[test]
fn every_file_says_what_it_is_for() {
    let all = ["src", "tests", "benches"].map(|d| repository().join(d));
    let all = all.iter().filter(|d| d.exists()).flat_map(|d| sources(d));
    assert_none(
        all.filter(|p| !read(p).starts_with("//!")).map(|p| relative(&p)).collect(),
        "a file opens with //!",
    );
}

#[test]
fn comments_keep_to_the_width_of_the_code() {
    let settings = read(&repository().join("rustfmt.toml"));
    let width = settings.lines().find_map(|l| l.strip_prefix("max_width = ")).expect("rustfmt.toml has a width");
    let width: usize = width.parse().expect("a number");
    let mut found = Vec::new();
    for path in ["src", "tests", "benches"].iter().flat_map(|d| sources(&repository().join(d))) {
        let text = read(&path);
        let comments = text.lines().enumerate().filter(|(_, l)| l.trim_start().starts_with("//"));
        let long = comments.filter(|(_, l)| l.chars().count() > width);
        found.extend(long.map(|(i, l)| format!("{}:{}: {}", relative(&path), i + 1, l.trim())));
    }
    assert_none(found, &format!("a comment line has at most {width} characters, as code has"));
}

#[test]
fn nothing_gives_up_but_where_it_is_meant_to() {
    let mut found = Vec::new();
    for path in program(&repository().join("src")) {
        let text = read(&path);
        for (number, line) in code(&text).filter(|(_, l)| GIVE_UPS.iter().any(|g| l.contains(g))) {
            found.push(format!("{}:{number}: {}", relative(&path), line.trim()));
        }
    }
    let rule =
        format!("at most {GIVE_UPS_ALLOWED} places outside tests may give up; there are {}", found.len());
    assert!(found.len() <= GIVE_UPS_ALLOWED, "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn functions_fit_on_a_screen() {
    let mut found = Vec::new();
    for path in sources(&repository().join("src")) {
        found.extend(long_functions(&read(&path)).into_iter().map(|f| format!("{}: {f}", relative(&path))));
    }
    assert_none(found, &format!("a function has at most {LONGEST_FUNCTION} lines"));
    assert!(read(&repository().join("src/main.rs")).lines().count() <= 40, "main.rs has at most 40 lines");
}

/// Formatted code closes a function with a brace as far in as its `fn`.
fn long_functions(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let word = line.trim_start();
        let is_fn = ["fn ", "pub fn ", "async fn ", "pub async fn ", "pub(super) fn ", "pub(crate) fn "];
        if !is_fn.iter().any(|f| word.starts_with(f)) || word.ends_with(';') {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - word.len()]);
        let length = lines[at..].iter().position(|l| *l == close).map_or(1, |n| n + 1);
        if length > LONGEST_FUNCTION {
            found.push(format!("line {}: {length} lines: {word}", at + 1));
        }
    }
    found
}
