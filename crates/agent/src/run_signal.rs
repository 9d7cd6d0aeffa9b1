//! The rescale signal, as people name it.

use std::str::FromStr;

/// A signal by name or number, for `--signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSignal(pub i32);

/// The signals that a program can catch and that make sense as a request to save and exit.
const STOP_SIGNALS: [(&str, i32); 6] = [
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("TERM", libc::SIGTERM),
    ("INT", libc::SIGINT),
    ("HUP", libc::SIGHUP),
    ("QUIT", libc::SIGQUIT),
];

impl FromStr for RunSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        STOP_SIGNALS
            .iter()
            .find(|(known, number)| *known == name || number.to_string() == name)
            .map(|(_, number)| RunSignal(*number))
            .ok_or_else(|| "expected USR1, USR2, TERM, INT, HUP or QUIT".to_owned())
    }
}

impl std::fmt::Display for RunSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match STOP_SIGNALS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}
