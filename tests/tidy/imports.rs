//! Which paths of the crate a file names: in `use`, with braces, and in the middle of code.

/// The module that a file of a package's `src/` is: `a/b.rs` is `a`, `b`, and so is `a/b/mod.rs`.
pub fn module(path: &str) -> Vec<String> {
    let name = path.trim_end_matches(".rs").trim_end_matches("/mod");
    name.split('/').map(str::to_owned).collect()
}

/// Paths from the root of the crate that lines of code in the module `own` name, with the lines' numbers.
pub fn named<'a>(own: &[String], lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, Vec<String>)> {
    let mut text = String::new();
    let mut starts = Vec::new();
    for (number, line) in lines {
        starts.push((text.len(), number));
        text.push_str(line);
        text.push('\n');
    }
    let line_of = |at: usize| starts[starts.partition_point(|(start, _)| *start <= at) - 1].1;
    let mut found = Vec::new();
    for (at, _) in text.match_indices("::") {
        let word = text[..at].rsplit(|c| !is_in_name(c)).next().unwrap_or_default();
        let begins = !text[..at - word.len()].ends_with("::");
        let Some(root) = root(own, word).filter(|_| begins) else { continue };
        let mut paths = Vec::new();
        tree(&text[at + 2..], root, &mut paths);
        found.extend(paths.into_iter().map(|path| (line_of(at), path)));
    }
    found
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where a path begins that begins with this word; `None` where that is no path of the crate.
fn root(own: &[String], word: &str) -> Option<Vec<String>> {
    match word {
        "crate" => Some(Vec::new()),
        "self" => Some(own.to_vec()),
        "super" => own.split_last().map(|(_, parent)| parent.to_vec()),
        _ => None,
    }
}

/// Follows a path, into its braces; returns what stands behind it.
fn tree<'t>(text: &'t str, path: Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = tree(rest, path.clone(), found);
            // `as name` is no part of it.
            let Some(at) = rest.find([',', '}']) else { return "" };
            let end = rest[at..].starts_with('}');
            rest = rest[at + 1..].trim_start();
            if end || rest.starts_with('}') {
                return rest.strip_prefix('}').filter(|_| !end).unwrap_or(rest);
            }
        }
    }
    let length = text.find(|c| !is_in_name(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    let mut longer = path;
    match word {
        "super" => drop(longer.pop()),
        "self" | "" => {}
        _ => longer.push(word.to_owned()),
    }
    match rest.strip_prefix("::") {
        Some(rest) => tree(rest, longer, found),
        None => {
            found.push(longer);
            rest
        }
    }
}

#[test]
fn paths_are_found_in_all_their_forms() {
    let text = "use crate::a::{B, c::{D as E, self}, f};\nuse super::g;\nlet x = crate::h::I::j(super::super::k::L);";
    let own = ["m".to_owned(), "n".to_owned()];
    let lines = text.lines().enumerate().map(|(i, l)| (i + 1, l));
    let said: Vec<String> =
        named(&own, lines).into_iter().map(|(n, p)| format!("{n} {}", p.join("::"))).collect();
    assert_eq!(said, ["1 a::B", "1 a::c::D", "1 a::c", "1 a::f", "2 m::g", "3 h::I::j", "3 k::L"]);
    assert_eq!(module("a/b.rs"), ["a", "b"]);
    assert_eq!(module("a/mod.rs"), ["a"]);
    assert_eq!(module("serve.rs"), ["serve"]);
}
