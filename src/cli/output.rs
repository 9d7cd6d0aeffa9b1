//! Standard output: text that may be cut off by a closed pipe, tables, colours, and times as Slurm writes
//! them.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use chrono::{FixedOffset, TimeZone};
use ratatui::crossterm::terminal;
use serde::Serialize;

use crate::clock;
use crate::model::{UnixTime, duration};

/// Prints text and a final newline. A reader that went away (`| head`) is no error.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{newline}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Says something beside what is printed, where there is something to say: tables stay what they are.
pub fn note(text: Option<String>) {
    if let Some(text) = text {
        eprintln!("{text}");
    }
}

/// Prints a document as indented JSON.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(&serde_json::to_string_pretty(document)?)?)
}

/// Refuses a file that could not be written because its folder is none: better before long work than after
/// it.
///
/// # Errors
/// When there is no such folder.
pub fn check_folder(path: &Path) -> anyhow::Result<()> {
    let folder = folder_of(path);
    if path.file_name().is_none() || !folder.is_dir() {
        anyhow::bail!("cannot write {}: {} is not a folder", path.display(), folder.display());
    }
    Ok(())
}

/// Writes a file as a whole: whoever reads it sees the old one or the new one, never a part. What was begun
/// is removed when it fails.
///
/// # Errors
/// When the folder cannot be written to, or is full.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let name = path.file_name().with_context(failed)?.to_string_lossy();
    let part = folder_of(path).join(format!(".{name}.{}.part", std::process::id()));
    let write = || {
        let mut file = File::create_new(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().inspect_err(|_| _ = std::fs::remove_file(&part)).with_context(failed)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether colours may be written to this stream: a terminal, and `NO_COLOR` unset or empty.
pub fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Columns of a drawing where stdout is no terminal.
pub const DEFAULT_WIDTH: usize = 80;

/// Columns of the terminal at stdout; `None` where stdout is none.
pub fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
}

/// The moment that a page is about and the zone that its times are shown in.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// Durations count from here.
    pub now: UnixTime,
    /// Distance of the user's zone from UTC.
    pub zone: FixedOffset,
}

impl When {
    /// Now, here.
    pub fn now() -> When {
        let now = clock::now();
        let local = chrono::Local.timestamp_opt(now.0, 0).single();
        let utc = FixedOffset::east_opt(0).expect("0 is a valid offset");
        When { now, zone: local.map_or(utc, |t| *t.offset()) }
    }

    /// `2026-11-20T22:10:16`, as squeue writes it.
    pub fn moment(&self, t: UnixTime) -> String {
        match self.zone.timestamp_opt(t.0, 0).single() {
            Some(t) => t.format("%Y-%m-%dT%H:%M:%S").to_string(),
            None => t.to_string(),
        }
    }

    /// `22:10:16`, with the date in front if it is not today's.
    pub fn clock(&self, t: UnixTime) -> String {
        let (moment, today) = (self.moment(t), self.moment(self.now));
        match (moment.split_once('T'), today.split_once('T')) {
            (Some((day, time)), Some((this_day, _))) if day == this_day => time.to_owned(),
            _ => moment,
        }
    }

    /// Time from now to `t`; `0:00` when it has passed.
    pub fn until(&self, t: UnixTime) -> String {
        duration::show(t.secs_since(self.now))
    }

    /// Time from `t` to now.
    pub fn ago(&self, t: UnixTime) -> String {
        duration::show(self.now.secs_since(t))
    }
}

/// A number with three significant digits and a unit prefix: `0.512`, `12.3`, `4.56k`.
pub fn number(x: f64) -> String {
    let (scaled, unit) = match x.abs() {
        a if a >= 1e9 => (x / 1e9, "G"),
        a if a >= 1e6 => (x / 1e6, "M"),
        a if a >= 1e4 => (x / 1e3, "k"),
        _ => (x, ""),
    };
    let decimals = match scaled.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        _ => 3,
    };
    format!("{scaled:.decimals$}{unit}")
}

/// A number of things: `1 job`, `2 jobs`.
pub fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
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
        // A folder cannot be replaced by a file: nothing is left of the attempt.
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
        let all = [0.0, 0.5123, 3.4567, 12.34, 999.6, 12_345.0, 3.2e6, 7.25e9].map(number);
        assert_eq!(all, ["0", "0.512", "3.46", "12.3", "1000", "12.3k", "3.20M", "7.25G"]);
    }

    #[test]
    fn a_time_of_another_day_carries_its_date() {
        let when = When { now: UnixTime(1_795_212_617), zone: FixedOffset::east_opt(3600).unwrap() };
        assert_eq!(when.clock(UnixTime(1_795_212_617)), "23:10:17");
        assert_eq!(when.clock(UnixTime(1_795_212_617 + 3600)), "2026-11-21T00:10:17");
    }
}
