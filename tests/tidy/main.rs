//! What the compiler does not check: where the core may look, how files open, how long functions are, where
//! the program may give up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

mod evidence;
mod imports;
mod one_planner;
mod promises;
mod prose;
mod site;
mod style;

/// Crates that compute and do nothing else: no I/O, no async, no clock or randomness of their own.
/// `clippy.toml` keeps the clock from them.
const CORE: [&str; 7] = [
    "crates/model",
    "crates/api",
    "crates/gaps",
    "crates/advisor",
    "crates/planner",
    "crates/lifecycle",
    "lab/sim",
];

/// What brings runtimes, networks, databases or command lines.
const EDGES: [&str; 7] = ["anyhow", "async-trait", "axum", "clap", "reqwest", "sqlx", "tokio"];

/// Lines of the longest function that may be.
const LONGEST_FUNCTION: usize = 100;

/// Places outside tests that may give up. One: an offset of 0 hours from UTC is valid, which chrono's types
/// do not say.
const GIVE_UPS_ALLOWED: usize = 1;

/// Everything that ends the process or thread.
const GIVE_UPS: [&str; 6] =
    [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "unreachable!("];

/// The checkout under test.
fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// The folders with the sources of each package: the program's first.
fn packages() -> Vec<PathBuf> {
    packages_in(repository())
}

/// The same of the checkout at `root`.
fn packages_in(root: &Path) -> Vec<PathBuf> {
    let members = ["crates", "lab"].iter().flat_map(|dir| {
        let entries = std::fs::read_dir(root.join(dir)).unwrap_or_else(|e| panic!("{dir}: {e}"));
        entries.map(|entry| entry.expect("an entry").path().join("src"))
    });
    let mut found: Vec<PathBuf> = members.collect();
    found.sort();
    found.insert(0, root.join("src"));
    found
}

/// All sources of all packages.
fn all_sources() -> Vec<PathBuf> {
    packages().iter().flat_map(|dir| sources(dir)).collect()
}

/// The same, and those of the tests and benches beside them.
fn all_files() -> Vec<PathBuf> {
    let beside = ["tests", "benches"].map(|dir| sources(&repository().join(dir)));
    all_sources().into_iter().chain(beside.into_iter().flatten()).collect()
}

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
fn test_files(dirs: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for path in dirs.iter().flat_map(|dir| sources(dir)) {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        let under_cfg = lines.windows(2).filter(|w| w[0].trim() == "#[cfg(test)]").map(|w| w[1].trim());
        let names = under_cfg
            .filter_map(|l| l.trim_start_matches("pub(crate) ").strip_prefix("mod ")?.strip_suffix(';'));
        let is_root = path.file_name().is_some_and(|n| n == "mod.rs" || n == "lib.rs" || n == "main.rs");
        let dir = if is_root { path.with_file_name("") } else { path.with_extension("") };
        found.extend(names.flat_map(|n| [dir.join(format!("{n}.rs")), dir.join(n)]));
    }
    let shared = [
        "crates/slurm/src/conformance.rs",
        "crates/slurm/src/fake.rs",
        "crates/store/src/conformance.rs",
        "crates/testkit",
    ];
    found.extend(
        dirs.iter()
            .flat_map(|dir| sources(dir))
            .filter(|path| shared.iter().any(|shared| path.to_string_lossy().contains(shared))),
    );
    found
}

/// The sources below these folders that are part of the program.
fn program(dirs: &[PathBuf]) -> Vec<PathBuf> {
    let tests = test_files(dirs);
    dirs.iter().flat_map(|dir| sources(dir)).filter(|p| !p.ancestors().any(|a| tests.contains(a))).collect()
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
    for dir in CORE {
        let manifest = read(&repository().join(dir).join("Cargo.toml"));
        let dependencies = manifest.split("[dependencies]\n").nth(1).expect("dependencies");
        let dependencies = dependencies.lines().take_while(|line| !line.starts_with('['));
        for name in dependencies.filter_map(|line| line.split(['.', ' ', '=']).next()) {
            let own = name.strip_prefix("infill-");
            let is_core = |own: &str| CORE.iter().any(|dir| dir.ends_with(&format!("/{own}")));
            if EDGES.contains(&name) || own.is_some_and(|own| !is_core(own)) {
                found.push(format!("{dir}/Cargo.toml: {name}"));
            }
        }
    }
    assert_none(found, "the core depends on nothing that does more than compute");
}

/// Files that import each other in a circle, each with its reason in ARCHITECTURE.
const CIRCLES: [&str; 1] = ["crates/agent/src/script_end.rs and crates/agent/src/step.rs"];

/// Which files of a package import which others of it.
fn imports_in(package: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let paths = program(&[package.to_owned()]);
    let module =
        |path: &Path| imports::module(&path.strip_prefix(package).unwrap_or(path).display().to_string());
    let files: BTreeMap<Vec<String>, String> = paths.iter().map(|p| (module(p), relative(p))).collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (own, path) in &files {
        let text = read(&repository().join(path));
        for (_, named) in imports::named(own, code(&text)) {
            let file = (1..=named.len()).rev().find_map(|n| files.get_key_value(&named[..n]));
            // What a folder's `mod.rs` hands on counts as the folder's: a file and its folder are no circle.
            let other = file.filter(|(m, _)| !own.starts_with(m) && !m.starts_with(own));
            uses.entry(path.clone()).or_default().extend(other.map(|(_, other)| other.clone()));
        }
    }
    uses
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let uses: BTreeMap<String, BTreeSet<String>> = packages().iter().flat_map(|p| imports_in(p)).collect();
    assert!(
        uses["crates/planner/src/plan/placement/seats.rs"]
            .contains("crates/planner/src/plan/placement/free_blocks.rs"),
        "imports are seen: {uses:?}"
    );
    let reaches = |from: &str, to: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            open.extend(
                uses.get(file).into_iter().flatten().map(String::as_str).filter(|next| seen.insert(*next)),
            );
        }
        seen.contains(to)
    };
    let pairs = uses.iter().flat_map(|(a, others)| others.iter().map(move |b| (a.as_str(), b.as_str())));
    let circles: BTreeSet<String> =
        pairs.filter(|(a, b)| a < b && reaches(b, a)).map(|(a, b)| format!("{a} and {b}")).collect();
    assert!(circles.iter().eq(CIRCLES), "files import each other in a circle: {circles:?}");
}

/// Steps of a round, as they are called. Only the scene may call them: the daemon, the simulator, the
/// scenarios and the benches feed it.
const STEPS_OF_A_ROUND: [&str; 7] = [
    "tracker.observe_round(",
    "lookahead.record_arrivals(",
    "lookahead.lookahead_secs(",
    "gaps::find_gaps(",
    "find_gaps(&occupancy",
    "advisor.run_round(",
    "demand::malleable_jobs(",
];

/// Where the steps of a round are put together.
const SCENE: &str = "crates/planner/src/round/round_state.rs";

#[test]
fn the_steps_of_a_round_are_put_together_in_one_place() {
    let scene = read(&repository().join(SCENE));
    let mut found = Vec::new();
    let own = ["crates/gaps/src/tests", "crates/gaps/src/lookahead.rs", "tests/tidy/main.rs", SCENE];
    let is_own = |path: &PathBuf| own.iter().any(|own| relative(path).starts_with(own));
    for path in all_files().into_iter().filter(|p| !is_own(p)) {
        let text = read(&path);
        // Unit tests of a step call it alone.
        for (number, line) in code(&text).filter(|_| !relative(&path).contains("advisor/")) {
            found.extend(
                STEPS_OF_A_ROUND
                    .iter()
                    .filter(|s| line.contains(**s))
                    .map(|step| format!("{}:{number}: {step}", relative(&path))),
            );
        }
    }
    assert_none(found, "only the scene calls the steps of a round");
    for step in [
        "tracker.observe_round(",
        "lookahead.record_arrivals(",
        "gaps::find_gaps(",
        "advisor.run_round(",
        "demand::malleable_jobs(",
    ] {
        assert!(scene.contains(step), "{SCENE} does not call {step}");
    }
}

/// Most lines of a file.
const LONGEST_FILE: usize = 500;

#[test]
fn files_stay_short() {
    let long = all_sources().into_iter().map(|p| (relative(&p), read(&p).lines().count()));
    let long = long.filter(|(_, lines)| *lines > LONGEST_FILE);
    assert_none(
        long.map(|(name, lines)| format!("{name}: {lines} lines")).collect(),
        &format!("a file has at most {LONGEST_FILE} lines"),
    );
}

/// Most fields of a struct that is neither a setting, nor a value of the model, nor a message.
const MOST_FIELDS: usize = 15;

/// Where structs are what others say: settings, values, messages, command lines, and old records.
const WIDE: [&str; 6] = [
    "crates/model/",
    "crates/api/",
    "src/",
    "lab/cli/",
    "crates/slurm/src/rest/wire",
    "crates/lifecycle/src/record/unversioned",
];

#[test]
fn structs_stay_small() {
    let mut found = Vec::new();
    for path in program(&packages()).into_iter().filter(|p| !WIDE.iter().any(|w| relative(p).starts_with(w)))
    {
        let text = read(&path);
        let mut open: Option<(String, usize)> = None;
        for (_, line) in code(&text) {
            let opens = line.contains("struct ") && line.ends_with('{') && !line.starts_with(' ');
            match &mut open {
                _ if opens => open = Some((line.to_owned(), 0)),
                Some((name, fields)) if line == "}" => {
                    if *fields > MOST_FIELDS {
                        found.push(format!("{}: {name} has {fields} fields", relative(&path)));
                    }
                    open = None;
                }
                Some((_, fields)) => {
                    *fields += usize::from(
                        line.starts_with("    ")
                            && !line.starts_with("     ")
                            && line.contains(": ")
                            && !line.trim_start().starts_with('#'),
                    )
                }
                None => {}
            }
        }
    }
    assert_none(found, &format!("a struct has at most {MOST_FIELDS} fields"));
}

#[test]
fn what_the_architecture_names_is_there() {
    let text = read(&repository().join("ARCHITECTURE.md"));
    let ends = [".rs", ".md", ".toml", ".sh", ".lua", ".py", "/"];
    let words = text.split('`').skip(1).step_by(2);
    let paths: Vec<&str> = words
        .filter(|w| {
            !w.contains([' ', '*', '…']) && ends.iter().any(|e| w.ends_with(e)) && !w.starts_with('/')
        })
        .collect();
    assert!(paths.len() > 20, "{paths:?}");
    // `gaps/survival.rs` is the file of that crate.
    let is_there = |path: &str| {
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let of_crate = ["crates", "lab"].map(|dir| format!("{dir}/{name}/src/{rest}"));
        of_crate.iter().map(String::as_str).chain([path]).any(|p| repository().join(p).exists())
    };
    let missing: Vec<String> = paths.into_iter().filter(|path| !is_there(path)).map(str::to_owned).collect();
    assert_none(missing, "ARCHITECTURE.md names files and folders that are there");
}

#[test]
fn every_file_says_what_it_is_for() {
    assert_none(
        all_files().into_iter().filter(|p| !read(p).starts_with("//!")).map(|p| relative(&p)).collect(),
        "a file opens with //!",
    );
}

#[test]
fn comments_keep_to_the_width_of_the_code() {
    let settings = read(&repository().join("rustfmt.toml"));
    let width =
        settings.lines().find_map(|l| l.strip_prefix("max_width = ")).expect("rustfmt.toml has a width");
    let width: usize = width.parse().expect("a number");
    let mut found = Vec::new();
    for path in all_files() {
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
    for path in program(&packages()) {
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
    for path in all_sources() {
        found.extend(long_functions(&read(&path)).into_iter().map(|f| format!("{}: {f}", relative(&path))));
    }
    assert_none(found, &format!("a function has at most {LONGEST_FUNCTION} lines"));
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
