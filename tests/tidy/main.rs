//! What the compiler does not check: where the core may look, how files open, how long functions are, where
//! the program may give up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

mod imports;
mod promises;

/// Modules without I/O, async, clock or randomness of their own. Those that are not written yet are kept pure
/// too.
const CORE: [&str; 9] =
    ["model", "gaps", "plan", "generation", "advisor", "round", "sim", "timeline", "daemon/fleet"];

/// What the core may not name, and why.
const FORBIDDEN: [(&str, &str); 14] = [
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
    ("clap::", "no command line in the core"),
    ("anyhow", "the core's errors are types"),
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

/// The checkout under test.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
    let dirs = CORE.iter().map(|m| repository().join("src").join(m));
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

/// What each module may use of the others. Upwards in this list nothing may be used, so that there is no
/// circle among modules.
const MAY_USE: [(&str, &[&str]); 23] = [
    ("model", &[]),
    ("addresses", &[]),
    ("causes", &[]),
    ("clock", &["model"]),
    ("config", &["model"]),
    ("api", &["model"]),
    ("gaps", &["config", "model"]),
    ("advisor", &["config", "model"]),
    ("charts", &["advisor", "api", "model"]),
    ("words", &["api", "charts", "clock", "model"]),
    ("plan", &["config", "model"]),
    ("round", &["advisor", "config", "gaps", "model", "plan"]),
    ("generation", &["model"]),
    ("sim", &["advisor", "config", "gaps", "generation", "model", "plan", "round"]),
    ("timeline", &["model"]),
    ("traces", &["model"]),
    ("slurm", &["addresses", "causes", "clock", "config", "model"]),
    ("store", &["model"]),
    ("agent", &["addresses", "api", "causes", "clock", "config", "model"]),
    (
        "daemon",
        &[
            "addresses",
            "advisor",
            "api",
            "causes",
            "clock",
            "config",
            "gaps",
            "generation",
            "model",
            "plan",
            "round",
            "slurm",
            "store",
            "timeline",
        ],
    ),
    (
        "http",
        &[
            "advisor",
            "api",
            "charts",
            "clock",
            "config",
            "daemon",
            "generation",
            "model",
            "slurm",
            "store",
            "timeline",
            "words",
        ],
    ),
    ("serve", &["api", "clock", "config", "daemon", "http", "model", "round", "slurm", "store", "timeline"]),
    (
        "cli",
        &[
            "addresses",
            "advisor",
            "agent",
            "api",
            "causes",
            "charts",
            "clock",
            "config",
            "gaps",
            "model",
            "serve",
            "sim",
            "slurm",
            "store",
            "traces",
            "words",
        ],
    ),
];

/// Files that import each other in a circle, each with its reason in ARCHITECTURE.
const CIRCLES: [&str; 1] = ["src/agent/script.rs and src/agent/step.rs"];

/// The module of the crate to which a file belongs.
fn module_of(path: &Path) -> String {
    relative(path)["src/".len()..].split(['/', '.']).next().unwrap_or_default().to_owned()
}

/// Which module uses which, with the lines that say so.
fn uses() -> BTreeMap<(String, String), Vec<String>> {
    let src = repository().join("src");
    let is_module = |name: &&str| src.join(name).is_dir() || src.join(format!("{name}.rs")).exists();
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for path in program(&src) {
        let (module, text) = (module_of(&path), read(&path));
        let own = imports::module(relative(&path).as_str());
        for (number, named) in imports::named(&own, code(&text)) {
            let Some(other) = named.first().filter(|m| is_module(&m.as_str()) && **m != module) else {
                continue;
            };
            let place = format!("{}:{number}: {}", relative(&path), named.join("::"));
            found.entry((module.clone(), other.clone())).or_default().push(place);
        }
    }
    found
}

#[test]
fn each_module_uses_only_what_the_table_allows() {
    let mut uses = uses();
    uses.retain(|(module, _), _| module != "main");
    let allows =
        |module: &str, other: &str| MAY_USE.iter().any(|(m, others)| *m == module && others.contains(&other));
    let against = uses.iter().filter(|((module, other), _)| !allows(module, other));
    let against: Vec<String> = against.flat_map(|(_, places)| places.iter().cloned()).collect();
    assert_none(against, "a module uses only what the table allows");
    let table = MAY_USE.iter().flat_map(|(module, others)| others.iter().map(|o| (*module, *o)));
    let idle = table.filter(|(m, o)| !uses.contains_key(&((*m).to_owned(), (*o).to_owned())));
    assert_none(
        idle.map(|(m, o)| format!("{m} does not use {o}")).collect(),
        "the table allows only what is needed",
    );
}

#[test]
fn the_table_has_every_module_and_no_circle() {
    let listed: BTreeSet<&str> = MAY_USE.iter().map(|(m, _)| *m).collect();
    let not_listed = program(&repository().join("src")).iter().map(|p| module_of(p)).collect::<BTreeSet<_>>();
    let not_listed = not_listed.into_iter().filter(|m| !listed.contains(m.as_str()));
    let not_listed: Vec<String> = not_listed.filter(|m| !["lib", "main"].contains(&m.as_str())).collect();
    assert_none(not_listed, "every module has a line in the table");
    for (place, (module, others)) in MAY_USE.iter().enumerate() {
        let before: BTreeSet<&str> = MAY_USE[..place].iter().map(|(m, _)| *m).collect();
        for other in *others {
            assert!(before.contains(other), "{module} may use {other}, which does not stand before it");
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let paths = program(&repository().join("src"));
    let files: BTreeMap<Vec<String>, String> =
        paths.iter().map(|p| (imports::module(&relative(p)), relative(p))).collect();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (own, path) in &files {
        let text = read(&repository().join(path));
        for (_, named) in imports::named(own, code(&text)) {
            let file = (1..=named.len()).rev().find_map(|n| files.get_key_value(&named[..n]));
            // What a folder's `mod.rs` hands on counts as the folder's: a file and its folder are no circle.
            let other = file.filter(|(m, _)| !own.starts_with(m) && !m.starts_with(own));
            uses.entry(path).or_default().extend(other.map(|(_, other)| other.as_str()));
        }
    }
    assert!(
        uses["src/plan/laying/seats.rs"].contains("src/plan/laying/ground.rs"),
        "imports are seen: {uses:?}"
    );
    let reaches = |from: &str, to: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            open.extend(uses.get(file).into_iter().flatten().filter(|next| seen.insert(**next)));
        }
        seen.contains(to)
    };
    let pairs = uses.iter().flat_map(|(a, others)| others.iter().map(move |b| (*a, *b)));
    let circles: BTreeSet<String> =
        pairs.filter(|(a, b)| a < b && reaches(b, a)).map(|(a, b)| format!("{a} and {b}")).collect();
    assert!(circles.iter().eq(CIRCLES), "files import each other in a circle: {circles:?}");
}

/// Steps of a round, as they are called. Only the scene may call them: the daemon, the simulator, the
/// scenarios and the benches feed it.
const STEPS_OF_A_ROUND: [&str; 7] = [
    "tracker.observe(",
    "lookahead.note(",
    "lookahead.secs(",
    "gaps::find(",
    "find(&occupancy",
    "library.round(",
    "demand::jobs(",
];

/// Where the steps of a round are put together.
const SCENE: &str = "src/round/scene.rs";

#[test]
fn the_steps_of_a_round_are_put_together_in_one_place() {
    let scene = read(&repository().join(SCENE));
    let mut found = Vec::new();
    let dirs = ["src", "tests", "benches"].map(|d| repository().join(d));
    let own = ["src/gaps/tests", "src/gaps/lookahead.rs", "tests/tidy/main.rs", SCENE];
    let is_own = |path: &PathBuf| own.iter().any(|own| relative(path).starts_with(own));
    for path in dirs.iter().flat_map(|d| sources(d)).filter(|p| !is_own(p)) {
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
    for step in ["tracker.observe(", "lookahead.note(", "gaps::find(", "library.round(", "demand::jobs("] {
        assert!(scene.contains(step), "{SCENE} does not call {step}");
    }
}

/// Most lines of a file.
const LONGEST_FILE: usize = 500;

#[test]
fn files_stay_short() {
    let long =
        sources(&repository().join("src")).into_iter().map(|p| (relative(&p), read(&p).lines().count()));
    let long = long.filter(|(_, lines)| *lines > LONGEST_FILE);
    assert_none(
        long.map(|(name, lines)| format!("{name}: {lines} lines")).collect(),
        "a file has at most 500 lines",
    );
}

/// Most fields of a struct that is neither a setting, nor a value of the model, nor a message.
const MOST_FIELDS: usize = 15;

/// Where structs are what others say: settings, values, messages, command lines, and old records.
const WIDE: [&str; 6] = [
    "src/config",
    "src/model/",
    "src/api/",
    "src/cli/",
    "src/slurm/rest/wire",
    "src/generation/record/unversioned",
];

#[test]
fn structs_stay_small() {
    let mut found = Vec::new();
    for path in program(&repository().join("src"))
        .into_iter()
        .filter(|p| !WIDE.iter().any(|w| relative(p).starts_with(w)))
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
    let there = |path: &&str| !["", "src"].iter().any(|d| repository().join(d).join(path).exists());
    let missing: Vec<String> = paths.into_iter().filter(there).map(str::to_owned).collect();
    assert_none(missing, "ARCHITECTURE.md names files and folders that are there");
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
    let width =
        settings.lines().find_map(|l| l.strip_prefix("max_width = ")).expect("rustfmt.toml has a width");
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
