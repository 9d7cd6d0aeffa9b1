//! The command line in a form that can be shared: names of files without their folders.

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// The command with file names only, and always with the seed. Words are quoted for a shell.
pub(crate) fn shareable_command(arguments: impl IntoIterator<Item = String>, seed: u64) -> String {
    let mut words: Vec<String> =
        arguments.into_iter().map(|word| quote_word(&without_folders(&word))).collect();
    if !words.iter().any(|word| word == "--seed" || word.starts_with("--seed=")) {
        words.push(format!("--seed {seed}"));
    }
    words.join(" ")
}

fn without_folders(word: &str) -> String {
    match word.split_once('=').filter(|_| word.starts_with('-')) {
        Some((flag, value)) => format!("{flag}={}", file_name(value)),
        None => file_name(word).to_owned(),
    }
}

fn quote_word(word: &str) -> String {
    if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=.,:@%+/".contains(c)) {
        return word.to_owned();
    }
    let shown: String = word.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("'{}'", shown.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &[&str], expected: &str) {
        assert_eq!(shareable_command(line.iter().map(|w| (*w).to_owned()), 7), expected);
    }

    #[test]
    fn folders_go_and_the_seed_comes() {
        check(
            &["/usr/bin/infill", "simulate", "--idle", "/home/me/a.csv", "--curves=../b.csv"],
            "infill simulate --idle a.csv --curves=b.csv --seed 7",
        );
        check(&["infill", "--seed", "3"], "infill --seed 3");
        check(&["infill", "--seed=3"], "infill --seed=3");
    }

    #[test]
    fn what_a_shell_would_read_is_quoted() {
        check(&["a b", "", "it's", "<x>", "$(x)\n"], r"'a b' '' 'it'\''s' '<x>' '$(x)?' --seed 7");
    }
}
