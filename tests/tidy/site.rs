//! The documentation site: pictures are used, small, made by a script, and load nothing from elsewhere. Each
//! page has short sentences.

use std::path::{Path, PathBuf};

use super::prose::documents;
use super::style::{percentile, prose, sentences};
use super::{assert_none, read, repository};

/// Most bytes of all pictures together.
const MOST_PICTURE_BYTES: u64 = 2 * 1024 * 1024;

/// Pictures that the site has at least.
const FEWEST_PICTURES: usize = 15;

/// Most words of a page's median sentence.
const MEDIAN_SENTENCE: usize = 17;

/// Sentences of a page from which on its median is one.
const FEWEST_SENTENCES: usize = 8;

/// The files of a folder of the repository, in order.
fn files_of(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found
}

fn pictures() -> Vec<PathBuf> {
    files_of("docs/images")
}

/// The name of a file without its ending.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The targets of the pictures in a document.
fn picture_links(markdown: &str) -> Vec<String> {
    let starts = markdown.split("![").skip(1);
    starts
        .filter_map(|rest| rest.split_once("](")?.1.split_once(')').map(|(target, _)| target.to_owned()))
        .collect()
}

/// Whether a text has this name as a word of its own. Hyphens and underscores count as the same.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '-';
    text.replace('_', "-").split(|c| !is_part(c)).any(|word| word == name)
}

#[test]
fn each_picture_is_used_and_each_that_is_used_exists() {
    let mut used = Vec::new();
    let mut missing = Vec::new();
    for (name, text) in documents() {
        let page = repository().join(&name);
        for link in picture_links(&text) {
            match page.parent().and_then(|folder| folder.join(&link).canonicalize().ok()) {
                Some(path) => used.push(path),
                None => missing.push(format!("{name}: there is no picture {link}")),
            }
        }
    }
    assert_none(missing, "pictures of documents exist");
    let pictures = pictures();
    assert!(pictures.len() >= FEWEST_PICTURES, "{} pictures", pictures.len());
    let unused = pictures.iter().filter(|path| path.canonicalize().is_ok_and(|path| !used.contains(&path)));
    assert_none(unused.map(|path| stem(path)).collect(), "each picture of docs/images is in a document");
}

#[test]
fn each_picture_is_made_by_a_script_of_the_repository() {
    let scripts: Vec<String> = files_of("contrib/site/pictures").iter().map(|path| read(path)).collect();
    let lacks_script = |name: &String| !scripts.iter().any(|script| names(script, name));
    let without: Vec<String> = pictures().iter().map(|path| stem(path)).filter(lacks_script).collect();
    assert_none(without, "a script in contrib/site/pictures makes each picture");
}

#[test]
fn pictures_are_small_and_load_nothing() {
    let sizes = pictures().into_iter().map(|path| std::fs::metadata(path).map_or(0, |data| data.len()));
    let bytes: u64 = sizes.sum();
    assert!(bytes <= MOST_PICTURE_BYTES, "docs/images has {bytes} bytes, at most {MOST_PICTURE_BYTES}");
    let drawings = pictures().into_iter().filter(|path| path.extension().is_some_and(|end| end == "svg"));
    let loads = |path: &PathBuf| {
        let text = read(path);
        ["href=", "src=", "url(", "@import", "<image", "<script"].iter().any(|word| text.contains(word))
    };
    assert_none(drawings.filter(loads).map(|path| stem(&path)).collect(), "a drawing loads nothing");
}

#[test]
fn the_median_sentence_of_each_page_is_short() {
    let mut found = Vec::new();
    for (name, text) in documents() {
        let is_of_site = name.starts_with("docs/") && !name.starts_with("docs/decisions/");
        let mut lengths: Vec<usize> =
            sentences(&prose(&text)).iter().map(|sentence| sentence.split_whitespace().count()).collect();
        lengths.sort_unstable();
        let median = percentile(&lengths, 0.5);
        if is_of_site && lengths.len() >= FEWEST_SENTENCES && median > MEDIAN_SENTENCE {
            found.push(format!("{name}: {median} words"));
        }
    }
    assert_none(found, &format!("the median sentence of a page has at most {MEDIAN_SENTENCE} words"));
}

#[test]
fn pictures_are_found_in_markdown() {
    assert_eq!(picture_links("a ![one](x.svg) and [a link](y.md) ![two](../z.png)"), ["x.svg", "../z.png"]);
    assert!(names("browse \"$link\" page page-dark:dark", "page-dark"));
    assert!(!names("browse page-dark", "page"));
}
