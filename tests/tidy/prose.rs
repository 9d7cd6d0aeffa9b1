//! Text that people read: no phrase that reads like a translation, no sentence too long to take in at once,
//! and each term of the glossary defined once.
//!
//! `cargo test --test tidy prose` runs these. The banned phrases hold for documents, strings and comments.
//! The length of sentences is checked where users read: in documents, messages and help.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::style::{is_for_tests, prose, sentences};
use super::{all_files, assert_none, packages, program, read, relative, repository};

/// What reads like a translation, and what to write instead. Words match whole and in any case.
const BANNED: [(&str, &str); 38] = [
    ("so many", "as many, that number of"),
    ("of which", "split the sentence"),
    ("by which", "how, that"),
    ("of late", "recently"),
    ("at the least", "at least"),
    ("at the most", "at most"),
    ("for ever", "forever"),
    ("whoever", "anyone who"),
    ("whosoever", "anyone who"),
    ("anew", "again"),
    ("as many as may be", "as many as possible"),
    ("as long as may be", "as long as possible"),
    ("nobody", "no one, or say what happens"),
    ("is no positive", "must be positive"),
    ("is no finite", "must be finite"),
    ("is no valid", "is not a valid"),
    ("is no name", "is not a name"),
    ("is no number", "is not a number"),
    ("is no time", "is not a time"),
    ("is no size", "is not a size"),
    ("is no node", "is not a node"),
    ("is no job", "is not a job"),
    ("is no plan", "is not a plan"),
    ("is no loss", "loses nothing"),
    ("what is known of", "name the thing"),
    ("what is held", "name the thing"),
    ("what was held", "name the thing"),
    ("his", "its, their"),
    ("he", "it, they"),
    ("him", "it, them"),
    ("mend", "fix, repair"),
    ("mended", "fixed, repaired"),
    ("told", "reported, notified"),
    ("be it", "rephrase"),
    ("thereof", "rephrase"),
    ("in the place of", "instead of"),
    ("what comes of", "the result of"),
    ("see the module's text", "write the sentence"),
];

/// Most words of a sentence that users read. The mean is measured beside: see `style`.
const LONGEST_SENTENCE: usize = 25;

/// The domain terms that the glossary may have.
const MOST_TERMS: usize = 25;

/// A text with where it stands.
struct Passage {
    place: String,
    text: String,
}

/// The Markdown documents of the repository.
pub(super) fn documents() -> Vec<(String, String)> {
    let root = repository();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["", "docs", "slurm", "contrib", "contrib/ansible", "contrib/python", "examples"]
            .map(|name| root.join(name))
            .to_vec();
    let below_docs = std::fs::read_dir(root.join("docs")).into_iter().flatten();
    folders.extend(below_docs.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push((relative(&path), read(&path)));
            }
        }
    }
    found.sort();
    found
}

/// The strings that a program's source may print, and its doc comments, outside of tests.
#[derive(Default)]
struct SourceTexts {
    /// Line and text of each string literal.
    strings: Vec<(usize, String)>,
    /// The same of each paragraph of a doc comment.
    doc_comments: Vec<(usize, String)>,
}

impl SourceTexts {
    fn parse(source: &str) -> Result<SourceTexts, syn::Error> {
        let mut texts = SourceTexts::default();
        texts.visit_file(&syn::parse_file(source)?);
        Ok(texts)
    }

    fn take_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.take_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    let parsed: Result<syn::LitStr, _> = syn::parse_str(&literal.to_string());
                    if let Ok(text) = parsed {
                        self.strings.push((literal.span().start().line, text.value()));
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for SourceTexts {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return };
        if !pair.path.is_ident("doc") {
            return;
        }
        if let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value {
            self.doc_comments.push((text.span().start().line, text.value()));
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.strings.push((literal.span().start().line, literal.value()));
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.take_tokens(call.tokens.clone());
    }
}

/// Lines of comments in a source, `//!` and `///` among them.
fn comments(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.lines().enumerate().map(|(at, line)| (at + 1, line.trim_start()));
    lines.filter_map(|(at, line)| Some((at, line.strip_prefix("//")?)))
}

/// The text without code spans, in words without punctuation, lower case.
fn plain_words(text: &str) -> Vec<String> {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" X ");
    prose
        .split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// The banned phrases in a text.
fn banned_in(text: &str) -> Vec<&'static (&'static str, &'static str)> {
    let words = format!(" {} ", plain_words(text).join(" "));
    BANNED.iter().filter(|(phrase, _)| words.contains(&format!(" {phrase} "))).collect()
}

/// A text in lower case whose names are split into words: `ObservedJob` and `observed_job` read
/// "observed job".
fn words_of_names(text: &str) -> String {
    let mut words = String::new();
    let mut before = ' ';
    for letter in text.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            words.push(' ');
        }
        words.extend(if matches!(letter, '_' | '-' | '\n') {
            ' '.to_lowercase()
        } else {
            letter.to_lowercase()
        });
        before = letter;
    }
    words
}

/// Whether a string is a sentence or part of one. Names, markup, SQL and shell commands are not.
fn is_sentence(text: &str) -> bool {
    let words = text.split_whitespace().count();
    words >= 4 && !text.starts_with(['<', '{', '#']) && !text.contains('$')
}

/// Messages and help in the programs' sources.
fn messages() -> Vec<Passage> {
    let mut found = Vec::new();
    for path in program(&packages()) {
        let source = read(&path);
        let texts = SourceTexts::parse(&source).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let is_help = path.starts_with(repository().join("src"));
        let help = if is_help { texts.doc_comments } else { Vec::new() };
        let sentences = texts.strings.into_iter().filter(|(_, text)| is_sentence(text)).chain(help);
        found.extend(
            sentences.map(|(line, text)| Passage { place: format!("{}:{line}", relative(&path)), text }),
        );
    }
    found
}

/// All prose of the repository, by line where it has lines.
fn passages() -> Vec<Passage> {
    let mut found = messages();
    for path in all_files().iter().filter(|path| !path.ends_with("tests/tidy/prose.rs")) {
        let source = read(path);
        let place = relative(path);
        found.extend(
            comments(&source)
                .map(|(line, text)| Passage { place: format!("{place}:{line}"), text: text.to_owned() }),
        );
    }
    for (name, text) in documents() {
        for (at, line) in text.lines().enumerate() {
            found.push(Passage { place: format!("{name}:{}", at + 1), text: line.to_owned() });
        }
    }
    found
}

#[test]
fn no_phrase_reads_like_a_translation() {
    let mut found = Vec::new();
    for passage in passages() {
        for (phrase, better) in banned_in(&passage.text) {
            found.push(format!("{}: \"{phrase}\": write {better}", passage.place));
        }
    }
    assert_none(found, "phrases that a native writer would not use");
}

#[test]
fn sentences_that_users_read_are_short() {
    let texts = messages().into_iter().map(|passage| (passage.place, passage.text.replace('\n', "\n\n")));
    let guides = documents().into_iter().map(|(name, text)| (name, prose(&text)));
    let mut found = Vec::new();
    for (place, text) in texts.chain(guides) {
        for sentence in sentences(&text) {
            let words = sentence.split_whitespace().count();
            if words > LONGEST_SENTENCE {
                found.push(format!("{place}: {words} words: {sentence}"));
            }
        }
    }
    assert_none(found, &format!("a sentence that users read has at most {LONGEST_SENTENCE} words"));
}

/// The sentences in the prose of a document that begin with the name in lower case, each by its first words.
fn lower_case_beginnings(markdown: &str) -> Vec<String> {
    let prose = prose(markdown);
    let mut found = Vec::new();
    for paragraph in prose.split("\n\n") {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let before =
                at.checked_sub(1).map_or(".", |last| words[last].trim_end_matches(['*', '_', ')', '"', '`']));
            let name = word.trim_start_matches(['*', '_', '(', '"']);
            let is_name = name.starts_with("infill") && !name[6..].starts_with(char::is_alphanumeric);
            let is_file = name.starts_with("infill.") && name.len() > 7
                || ["infill-", "infill_"].iter().any(|start| name.starts_with(start));
            if before.ends_with(['.', '?', '!']) && is_name && !is_file {
                found.push(words[at..].iter().take(6).copied().collect::<Vec<_>>().join(" "));
            }
        }
    }
    found
}

#[test]
fn sentences_begin_with_a_capital_infill() {
    let places = documents().into_iter().flat_map(|(name, text)| {
        lower_case_beginnings(&text).into_iter().map(move |words| format!("{name}: {words}"))
    });
    assert_none(places.collect(), "sentences that begin with \"infill\": write \"Infill\"");
    let markdown = "# infill\n\nInfill is. **infill does** so. Use `infill run`. infill.toml has: infill\n\n- infill's\n";
    assert_eq!(lower_case_beginnings(markdown), ["**infill does** so. Use `infill run`.", "infill's"]);
}

/// The terms in the tables of a glossary, table by table.
fn glossary_terms(markdown: &str) -> Vec<Vec<String>> {
    let mut tables = Vec::new();
    let mut is_inside = false;
    for line in markdown.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            is_inside &= line.starts_with("|-");
            continue;
        };
        if !is_inside {
            is_inside = true;
            tables.push(Vec::new());
            continue;
        }
        let term = row.split(" |").next().unwrap_or_default();
        if let Some(table) = tables.last_mut() {
            table.push(term.to_owned());
        }
    }
    tables
}

#[test]
fn each_term_of_the_glossary_is_defined_once_and_used() {
    let glossary = read(&repository().join("docs/glossary.md"));
    let tables = glossary_terms(&glossary);
    assert!(tables[0].len() <= MOST_TERMS, "{} domain terms, at most {MOST_TERMS}", tables[0].len());
    let mut seen = BTreeSet::new();
    let twice = tables.iter().flatten().filter(|term| !seen.insert(term.as_str())).cloned().collect();
    assert_none(twice, "terms that the glossary defines twice");

    let sources: String = all_files().iter().map(|path| read(path)).collect();
    let guides = documents().into_iter().filter(|(name, _)| name != "docs/glossary.md");
    let elsewhere =
        words_of_names(&sources) + &guides.map(|(_, text)| words_of_names(&text)).collect::<String>();
    let is_used = |term: &str| elsewhere.contains(words_of_names(term).trim());
    let unused = seen.into_iter().filter(|term| !is_used(term)).map(str::to_owned).collect();
    assert_none(unused, "terms of the glossary that nothing uses");
}

#[test]
fn banned_phrases_are_found_as_words_outside_of_code() {
    let phrases = |text: &str| banned_in(text).iter().map(|(phrase, _)| *phrase).collect::<Vec<_>>();
    assert_eq!(
        phrases("The rate is no positive number, and so  many\nnodes."),
        ["so many", "is no positive"]
    );
    assert_eq!(phrases("The user `nobody` has history in the cache."), [""; 0]);
    assert_eq!(phrases("Told, he left."), ["he", "told"]);
}

#[test]
fn messages_are_found_and_tests_are_not() {
    let source = "/// Runs it.\nfn run() { fail!(\"the node must be idle\"); let a = \"x\"; }\n\
                  #[cfg(test)]\nmod tests { const A: &str = \"a test of the node\"; }\n";
    let texts = SourceTexts::parse(source).unwrap();
    assert_eq!(texts.strings, [(2, "the node must be idle".to_owned()), (2, "x".to_owned())]);
    assert_eq!(texts.doc_comments, [(1, " Runs it.".to_owned())]);
    assert!(is_sentence("the node must be idle") && !is_sentence("x") && !is_sentence("<p> a b c d"));
}

#[test]
fn prose_is_what_people_read_of_a_document() {
    let markdown = "# Title\n\nFirst line\nof two. Second: yes.\n\n- an item\n- another\n\n```\ncode here.\n```\n| a | b |\n";
    assert_eq!(sentences(&prose(markdown)), ["First line of two.", "Second:", "yes.", "an item", "another"]);
}

#[test]
fn terms_are_read_table_by_table() {
    let markdown =
        "| term | meaning |\n|---|---|\n| gap | idle |\n\n| term | here |\n|---|---|\n| lead | first |\n";
    let tables = glossary_terms(markdown);
    assert_eq!(tables.len(), 2);
    assert_eq!(tables[0].last().map(String::as_str), Some("gap"));
}
