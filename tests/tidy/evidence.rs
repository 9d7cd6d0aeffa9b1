//! Commands in documents that run tests name tests that exist. Cargo passes when a filter matches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{assert_none, packages, prose::documents, read, repository, sources};

/// A test command in a document.
#[derive(Debug, PartialEq)]
struct TestCommand {
    /// The package, as `-p` names it.
    package: String,
    /// What test names must contain.
    filters: Vec<String>,
}

/// Filters that stand for any name.
const PLACEHOLDERS: [&str; 2] = ["NAME", "CRATE"];

/// The commands `cargo test -p PACKAGE FILTER…` in code spans of a document.
fn test_commands(markdown: &str) -> Vec<TestCommand> {
    let spans = markdown.split('`').skip(1).step_by(2);
    spans
        .filter_map(|span| {
            let command = span.split_whitespace().collect::<Vec<_>>().join(" ");
            let rest = command.strip_prefix("cargo test -p ")?;
            let mut words = rest.split(' ').filter(|word| !word.starts_with('-')).map(str::to_owned);
            let package = words.next()?;
            Some(TestCommand { package, filters: words.collect() })
        })
        .filter(|command| !PLACEHOLDERS.contains(&command.package.as_str()))
        .collect()
}

/// The name of the package with these sources.
fn package_name(source_dir: &Path) -> String {
    let manifest = read(&source_dir.with_file_name("Cargo.toml"));
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.expect("a package has a name").to_owned()
}

/// The names of the tests below a folder, with the modules that their files are.
fn test_names(source_dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in sources(source_dir) {
        let module = path.strip_prefix(source_dir).unwrap_or(&path).with_extension("");
        let module = module.to_string_lossy().replace('/', "::");
        let text = read(&path);
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some(function) = function.filter(|_| is_test) {
                let name = function.split('(').next().unwrap_or_default();
                found.insert(format!("{module}::{name}"));
                is_test = false;
            }
        }
    }
    found
}

#[test]
fn test_commands_in_documents_name_tests_that_exist() {
    let mut packages: BTreeMap<String, PathBuf> =
        packages().into_iter().map(|source_dir| (package_name(&source_dir), source_dir)).collect();
    packages.insert("infill-tidy".to_owned(), repository().join("tests/tidy"));
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    for (document, text) in documents() {
        for command in test_commands(&text) {
            let Some(source_dir) = packages.get(&command.package) else {
                missing.push(format!("{document}: there is no package {}", command.package));
                continue;
            };
            let tests = names.entry(command.package.clone()).or_insert_with(|| test_names(source_dir));
            for filter in command.filters.iter().filter(|filter| !PLACEHOLDERS.contains(&filter.as_str())) {
                if !tests.iter().any(|name| name.contains(filter.as_str())) {
                    missing.push(format!("{document}: no test of {} contains {filter}", command.package));
                }
            }
        }
    }
    assert_none(missing, "commands that run no test");
}

#[test]
fn commands_are_read_across_lines() {
    let markdown = "Run `cargo test -p\ninfill-gaps leave -- --nocapture`, `cargo test -p NAME` or `ls`.";
    let expected = TestCommand { package: "infill-gaps".to_owned(), filters: vec!["leave".to_owned()] };
    assert_eq!(test_commands(markdown), [expected]);
    assert!(test_names(&repository().join("crates/gaps/src")).iter().any(|name| name.contains("survival")));
}

/// The cells of the tables of `docs/frameworks.md` that name tests, with their rows.
fn rows_with_tests(markdown: &str) -> Vec<(String, String)> {
    let rows = markdown.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| framework"));
    rows.map(|row| {
        let cell = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        (row.to_owned(), cell.trim().trim_matches('`').to_owned())
    })
    .collect()
}

#[test]
fn each_framework_of_the_table_has_its_test_and_its_program() {
    let rows = rows_with_tests(&read(&repository().join("docs/frameworks.md")));
    let tests = test_names(&repository().join("tests/it"));
    let programs = repository().join("examples/frameworks");
    let lacks_something = |name: &str| {
        let program = name.rsplit("::").next().unwrap_or_default();
        !tests.contains(name) || !programs.join(format!("{program}.py")).exists()
    };
    assert!(!rows.is_empty(), "docs/frameworks.md has no table");
    let missing = rows.into_iter().filter(|(_, name)| lacks_something(name)).map(|(row, _)| row);
    assert_none(missing.collect(), "rows of docs/frameworks.md without a test or a program");
}

#[test]
fn the_last_cell_of_a_row_names_its_test() {
    let markdown = "| framework | test |\n|---|---|\n| JAX | 1 s | `frameworks::jax` |\n";
    assert_eq!(rows_with_tests(markdown)[0].1, "frameworks::jax");
}
