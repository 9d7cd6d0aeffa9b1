//! Commands that set keys of infill.toml and keep the rest of the file, and commands that take them back.

use super::step::{SED, append_lines, shell_word, write_lines};

/// A file that changes line by line.
#[derive(Clone, Debug)]
pub struct TomlFile {
    path: String,
    /// The text as it will be. `None` if there is no file yet.
    text: Option<String>,
    commands: Vec<String>,
    undo: Vec<String>,
}

/// A value for a key of a table.
#[derive(Clone, Copy, Debug)]
pub struct TomlSetting<'a> {
    /// The table, without brackets.
    pub table: &'a str,
    /// The key.
    pub key: &'a str,
    /// The value as TOML.
    pub value: &'a str,
}

impl TomlFile {
    /// The file at `path`, which has this text.
    pub fn new(path: &str, text: Option<&str>) -> TomlFile {
        TomlFile {
            path: path.to_owned(),
            text: text.map(str::to_owned),
            commands: Vec::new(),
            undo: Vec::new(),
        }
    }

    /// Sets these keys. Afterwards [`TomlFile::take`] has the commands for it.
    pub fn set_all(&mut self, settings: &[TomlSetting<'_>]) {
        let Some(text) = self.text.take() else {
            self.create(settings);
            return;
        };
        self.text = Some(settings.iter().fold(text, |text, setting| self.set(&text, *setting)));
    }

    /// The commands since the last call, and those that take them back.
    pub fn take(&mut self) -> TomlCommands {
        let mut undo = std::mem::take(&mut self.undo);
        undo.reverse();
        TomlCommands { run: std::mem::take(&mut self.commands), undo }
    }

    /// The commands that remove the file.
    pub fn removal(&self) -> Vec<String> {
        let file = format!("rm -f {}", shell_word(&self.path));
        vec![file, format!("rmdir --ignore-fail-on-non-empty {}", shell_word(self.folder()))]
    }

    fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or(".", |(folder, _)| folder)
    }

    fn create(&mut self, settings: &[TomlSetting<'_>]) {
        let mut lines: Vec<String> = Vec::new();
        for TomlSetting { table, key, value } in settings {
            let header = format!("[{table}]");
            if !lines.contains(&header) {
                lines.push(header.clone());
            }
            let end = lines.iter().skip_while(|line| **line != header).skip(1);
            let last = lines.len() - end.skip_while(|line| !line.starts_with('[')).count();
            lines.insert(last, format!("{key} = {value}"));
        }
        self.commands.push(format!("mkdir -p -m 755 {}", shell_word(self.folder())));
        self.commands.push(write_lines(&lines, &self.path));
        self.undo.extend(self.removal().into_iter().rev());
        self.text = Some(lines.join("\n") + "\n");
    }

    /// Sets a key in `text`, and returns the text with it.
    fn set(&mut self, text: &str, TomlSetting { table, key, value }: TomlSetting<'_>) -> String {
        let header = format!("[{table}]");
        let new = format!("{key} = {value}");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let path = shell_word(&self.path);
        let within = format!(r"/^\[{table}\]/,/^\[/");
        let Some(start) = lines.iter().position(|line| line.trim_end() == header) else {
            self.commands.push(append_lines(&[header.clone(), new.clone()], &self.path));
            let pattern = |line: &str| format!("/^{}$/d", escape_pattern(line));
            let script = format!("-e {} -e {}", quoted(&pattern(&header)), quoted(&pattern(&new)));
            self.undo.push(format!("{SED} {script} {path}"));
            lines.extend([header, new]);
            return lines.join("\n") + "\n";
        };
        let is_key = |line: &&String| line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
        let table_lines = lines.iter().skip(start + 1).take_while(|line| !line.starts_with('['));
        match table_lines.clone().find(is_key).cloned() {
            Some(old) if old == new => {}
            Some(old) => {
                let replace =
                    |by: &str| quoted(&format!("{within}s|^{key} *=.*|{}|", escape_replacement(by)));
                self.commands.push(format!("{SED} {} {path}", replace(&new)));
                self.undo.push(format!("{SED} {} {path}", replace(&old)));
                let at = start + 1 + table_lines.take_while(|line| !is_key(line)).count();
                lines[at] = new;
            }
            None => {
                let add = quoted(&format!(r"/^\[{table}\]/a {new}"));
                self.commands.push(format!("{SED} {add} {path}"));
                let delete = quoted(&format!("{within}{{/^{}$/d}}", escape_pattern(&new)));
                self.undo.push(format!("{SED} {delete} {path}"));
                lines.insert(start + 1, new);
            }
        }
        lines.join("\n") + "\n"
    }
}

/// Commands that change a file, and those that take the change back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlCommands {
    /// The change.
    pub run: Vec<String>,
    /// The way back.
    pub undo: Vec<String>,
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Escapes a text for a basic regular expression between slashes.
pub fn escape_pattern(text: &str) -> String {
    escape(text, r"\/[]*.^$")
}

fn escape_replacement(text: &str) -> String {
    escape(text, r"\|&")
}

fn escape(text: &str, special: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: [TomlSetting<'_>; 3] = [
        TomlSetting { table: "daemon", key: "mode", value: "\"act\"" },
        TomlSetting { table: "safety", key: "nodes", value: "\"n[1-2]\"" },
        TomlSetting { table: "daemon", key: "listen", value: "\"0.0.0.0:6810\"" },
    ];

    fn shell(commands: &[String]) {
        for command in commands {
            let done = std::process::Command::new("sh").args(["-c", command]).status().expect("a shell");
            assert!(done.success(), "{command}");
        }
    }

    /// Runs the commands in a shell on this text. Returns the text after them, and after the way back.
    fn changed(text: Option<&str>) -> [Option<String>; 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("conf/infill.toml");
        if let Some(text) = text {
            std::fs::create_dir(folder.path().join("conf")).expect("a folder");
            std::fs::write(&path, text).expect("a file");
        }
        let mut file = TomlFile::new(path.to_str().expect("a name"), text);
        file.set_all(&SETTINGS);
        let TomlCommands { run, undo } = file.take();
        shell(&run);
        let after = std::fs::read_to_string(&path).ok();
        assert_eq!(after, file.text, "the text that it believes to be there");
        shell(&undo);
        [after, std::fs::read_to_string(&path).ok()]
    }

    #[test]
    fn a_file_that_is_missing_is_made_and_taken_away() {
        let made = "[daemon]\nmode = \"act\"\nlisten = \"0.0.0.0:6810\"\n[safety]\nnodes = \"n[1-2]\"\n";
        assert_eq!(changed(None), [Some(made.to_owned()), None]);
    }

    #[test]
    fn a_file_of_the_site_keeps_what_it_has() {
        let text =
            "# ours\n[daemon]\nmode = \"observe\"   # for now\nadmins = [\"a|b&c\"]\n[web]\nmode = 1\n";
        let [after, back] = changed(Some(text));
        let made = "# ours\n[daemon]\nlisten = \"0.0.0.0:6810\"\nmode = \"act\"\nadmins = [\"a|b&c\"]\n[web]\nmode = 1\n\
                    [safety]\nnodes = \"n[1-2]\"\n";
        assert_eq!(after.as_deref(), Some(made));
        assert_eq!(back.as_deref(), Some(text));
    }

    #[test]
    fn a_symlink_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("target");
        let link = folder.path().join("infill.toml");
        std::fs::write(&target, "[daemon]\nmode = \"observe\"\n").expect("a file");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        let mut file = TomlFile::new(link.to_str().expect("a name"), Some("[daemon]\nmode = \"observe\"\n"));
        file.set_all(&SETTINGS[..1]);
        shell(&file.take().run);
        assert!(std::fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(std::fs::read_to_string(&target).expect("a file"), "[daemon]\nmode = \"act\"\n");
    }

    #[test]
    fn the_packages_file_can_be_changed_too() {
        let text = include_str!("../../../config/infill.toml");
        let [after, back] = changed(Some(text));
        let after = after.expect("a file");
        assert!(after.contains("\nmode = \"act\"\n") && after.contains("\nnodes = \"n[1-2]\"\n"), "{after}");
        assert_eq!(back.as_deref(), Some(text));
    }
}
