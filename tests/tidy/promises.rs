//! Each line of README's "What infill will never do" is held by a test that every run has: `tests/core.txt`
//! lists the cluster tests of `tests/run.sh`, under the promises that they hold infill to.

use std::collections::BTreeMap;

use super::{read, repository};

const SECTION: &str = "## What infill will never do";

/// The list of the core's cluster tests.
const CORE: &str = "tests/core.txt";

/// Under this heading are tests that hold infill to no line of that section.
const OTHERS: &str = "the rest";

/// The first sentence of each point of the section.
fn promises(readme: &str) -> Vec<String> {
    let section = readme.split(SECTION).nth(1).expect("README has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let points = section.split("\n- ").skip(1);
    points.map(|point| first_sentence(&point.split_whitespace().collect::<Vec<_>>().join(" "))).collect()
}

fn first_sentence(text: &str) -> String {
    text.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// The tests under each heading: lines `> HEADING`, each followed by names of tests. `#` begins a comment.
fn listed(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut heading = "";
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("> ") {
            Some(new) => {
                heading = new;
                found.entry(heading).or_default();
            }
            None => found.entry(heading).or_default().push(line),
        }
    }
    found
}

/// Whether the cluster tests have a test of this name, `module::function`.
fn exists(test: &str) -> bool {
    let Some((module, function)) = test.split_once("::") else { return false };
    let files = [format!("tests/it/{module}.rs"), format!("tests/it/{module}/mod.rs")];
    let head = format!("fn {function}(");
    files.iter().map(|file| repository().join(file)).filter(|path| path.exists()).any(|path| {
        let text = read(&path);
        let before = text.split(&head).next().filter(|before| before.len() < text.len());
        // Its attributes stand behind the end of what comes before it.
        before.and_then(|before| before.rsplit("\n\n").next()).is_some_and(|lines| lines.contains("#[test]"))
    })
}

#[test]
fn each_promise_of_readme_has_a_test_in_the_core() {
    let text = read(&repository().join(CORE));
    let listed = listed(&text);
    let promises = promises(&read(&repository().join("README.md")));
    assert!(promises.len() >= 5, "README makes promises: {promises:?}");
    for promise in &promises {
        let tests = listed.get(promise.as_str());
        assert!(
            tests.is_some_and(|tests| !tests.is_empty()),
            "{CORE} has no test under this line, which repeats README:\n> {promise}"
        );
    }
    for heading in listed.keys() {
        assert!(
            *heading == OTHERS || promises.iter().any(|promise| promise == heading),
            "{CORE}: README does not promise \"{heading}\""
        );
    }
    for test in listed.values().flatten() {
        assert!(exists(test), "{CORE}: tests/it has no test {test}");
    }
}

#[test]
fn the_tests_that_get_a_cluster_first_are_there() {
    let text = read(&repository().join("tests/it/harness/pool.rs"));
    let list = text.split("const LONGEST").nth(1).and_then(|rest| rest.split("];").next());
    let quoted: Vec<&str> = list.unwrap_or_default().split('"').skip(1).step_by(2).collect();
    assert!(quoted.len() > 10, "the longest tests are listed: {quoted:?}");
    for test in quoted {
        assert!(exists(test), "tests/it/harness/pool.rs: tests/it has no test {test}");
    }
}

#[test]
fn promises_and_lists_are_read() {
    let readme = format!("{SECTION}\n- Do a\n  thing. More.\n- Else.\n\n## Next\n- Not this.\n");
    assert_eq!(promises(&readme), ["Do a thing", "Else"]);
    let listed = listed("# a comment\n> Else\na::b\n\nc::d\n> the rest\n");
    assert_eq!(listed["Else"], ["a::b", "c::d"]);
    assert!(listed[OTHERS].is_empty());
    assert!(exists("life::only_allowed_sizes_run") && !exists("life::rescale") && !exists("life::nothing"));
}
