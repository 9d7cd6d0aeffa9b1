//! Output of text, JSON and files, with the width and the colours of the terminal. A reader may close the
//! pipe at any time.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use ratatui::crossterm::terminal;
use serde::Serialize;

pub use crate::charts::format_number;
pub use crate::phrases::{DisplayClock, counted_noun};

/// Prints text and a final newline. A reader that closed the pipe (`| head`) is not an error.
pub fn print_text(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{newline}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints a note to stderr if there is one, so that tables on stdout keep their form.
pub fn print_note(text: Option<String>) {
    if let Some(text) = text {
        eprintln!("{text}");
    }
}

/// Prints a document as indented JSON.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    Ok(print_text(&serde_json::to_string_pretty(document)?)?)
}

/// Checks, before long work begins, that the folder of a file to be written exists.
///
/// # Errors
/// When the folder does not exist or `path` has no file name.
pub fn check_folder(path: &Path) -> anyhow::Result<()> {
    let folder = parent_folder(path);
    if path.file_name().is_none() || !folder.is_dir() {
        anyhow::bail!("cannot write {}: {} is not a folder", path.display(), folder.display());
    }
    Ok(())
}

/// Replaces a file atomically: readers see the old content or the new one, never a part. A failed attempt
/// leaves no temporary file.
///
/// # Errors
/// When the folder cannot be written to, or the file system is full.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    replace_file(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a temporary file beside `path` and renames it.
fn replace_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.file_name().context("the path has no file name")?.to_string_lossy();
    let temporary = parent_folder(path).join(format!(".{name}.{}.part", std::process::id()));
    let written = write_new_file(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    Ok(written?)
}

/// Creates a file and waits until its content is on the disk.
fn write_new_file(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The folder of a file; `.` for a bare name.
fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether colours may be written to this stream: a terminal, and `NO_COLOR` unset or empty.
pub fn wants_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// The width of a drawing, in columns, where stdout is not a terminal.
pub const DEFAULT_WIDTH: usize = 80;

/// The width of the terminal at stdout, in columns. `None` where stdout is not a terminal.
pub fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        write_file(&path, "old").unwrap();
        write_file(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        // A file cannot replace a folder. The attempt leaves nothing behind.
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let error = write_file(&dir.path().join("folder"), "x").unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error:#}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_absent_folder_is_refused_at_once() {
        assert!(check_folder(Path::new("page.html")).is_ok());
        assert!(check_folder(Path::new("/nonexistent/page.html")).is_err());
        assert!(check_folder(Path::new("/")).is_err());
    }

    #[test]
    fn numbers_keep_three_digits() {
        let all = [0.0, 0.5123, 3.4567, 12.34, 999.6, 12_345.0, 3.2e6, 7.25e9].map(format_number);
        assert_eq!(all, ["0", "0.512", "3.46", "12.3", "1000", "12.3k", "3.20M", "7.25G"]);
    }
}
