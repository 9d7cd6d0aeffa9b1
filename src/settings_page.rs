//! The manual page of the configuration, made from the commented file with all defaults.

use roff::{Roff, bold, roman};

/// The commented file with all defaults.
pub(crate) const SETTINGS: &str = include_str!("../config/infill.toml");

/// The page infill.toml(5).
pub fn settings_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["INFILL.TOML", "5", "", concat!("infill ", env!("CARGO_PKG_VERSION")), "infill"]);
    page.control("SH", ["NAME"]).text([roman("infill.toml - configuration of infill(1)")]);
    page.control("SH", ["SYNOPSIS"]).text([roman("/etc/infill/infill.toml")]);
    page.control("SH", ["DESCRIPTION"]);
    let mut comment = Vec::new();
    for line in SETTINGS.lines() {
        match SettingsLine::parse_line(line) {
            SettingsLine::Section(name) => {
                flush_comment(&mut page, &mut comment);
                page.control("SH", [format!("[{name}]").as_str()]);
            }
            SettingsLine::Key(setting) => {
                page.control("TP", []).text([bold(setting)]);
                flush_comment(&mut page, &mut comment);
            }
            SettingsLine::Example(setting) => {
                page.control("TP", []).text([bold(setting), roman(" (example)")]);
                flush_comment(&mut page, &mut comment);
            }
            SettingsLine::Comment(words) => comment.push(words),
            SettingsLine::Blank => flush_comment(&mut page, &mut comment),
        }
    }
    flush_comment(&mut page, &mut comment);
    page.control("SH", ["SEE ALSO"]).text([roman("infill(1), infill-config(1), infill-serve(1)")]);
    page.render()
}

/// Writes the lines of comment gathered so far. Each item of a list begins a line.
fn flush_comment(page: &mut Roff, comment: &mut Vec<&str>) {
    for (at, block) in comment_blocks(comment).into_iter().enumerate() {
        if at > 0 {
            page.control("br", []);
        }
        page.text([roman(block)]);
    }
    comment.clear();
}

/// The paragraphs and list items of a comment, each without line breaks. Items begin with "- ".
pub(crate) fn comment_blocks(lines: &[&str]) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for line in lines {
        let goes_on = match blocks.last() {
            Some(block) if block.starts_with("- ") => line.starts_with("  "),
            last => last.is_some() && !line.starts_with("- "),
        };
        match blocks.last_mut().filter(|_| goes_on) {
            Some(block) => {
                block.push(' ');
                block.push_str(line.trim_start());
            }
            None => blocks.push((*line).to_owned()),
        }
    }
    blocks
}

/// A line of the file.
pub(crate) enum SettingsLine<'l> {
    /// The name of a section.
    Section(&'l str),
    /// A key with its default.
    Key(&'l str),
    /// A key with an example, which stands in a comment.
    Example(&'l str),
    /// The words of a comment, without the space before them. Lines of a list are indented.
    Comment(&'l str),
    /// An empty line.
    Blank,
}

impl<'l> SettingsLine<'l> {
    /// Reads one line.
    pub(crate) fn parse_line(line: &'l str) -> SettingsLine<'l> {
        let comment = line.trim().strip_prefix('#').map(|words| words.strip_prefix(' ').unwrap_or(words));
        let words = comment.unwrap_or(line).trim();
        let name = words.trim_start_matches('[').split([']', '=']).next().unwrap_or_default().trim();
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._\"".contains(c));
        match words {
            "" => SettingsLine::Blank,
            _ if words.starts_with('[') && words.ends_with(']') && is_name => SettingsLine::Section(name),
            _ => match comment {
                Some(_) if is_name && words.contains(" = ") => SettingsLine::Example(words),
                Some(comment) => SettingsLine::Comment(comment),
                None => SettingsLine::Key(words),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_an_entry_with_its_comment() {
        let page = settings_page();
        for key in ["\\fBmode = \"observe\"\\fR", "\\fBkeep_node_days = 14\\fR", "\\fBtoken_file = "] {
            assert!(page.contains(key), "{key}: {page}");
        }
        let settings = SETTINGS.lines().filter(|line| !line.starts_with('#') && line.contains(" = ")).count();
        assert!(page.matches(".TP").count() >= settings, "{settings} settings");
        for section in ["[daemon]", "[http]", "[slurm]", "[gaps]", "[store]"] {
            assert!(page.contains(&format!(".SH {section}")), "{section}");
        }
        assert!(page.contains("Days for which the use of each node is kept"));
    }

    #[test]
    fn comments_are_paragraphs_and_lists() {
        let lines = ["What it", "does.", "- one: a", "  b", "- two", "The rest."];
        assert_eq!(comment_blocks(&lines), ["What it does.", "- one: a b", "- two", "The rest."]);
    }
}
