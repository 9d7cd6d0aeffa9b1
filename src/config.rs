//! `infill config check | show | default`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;

use super::command;
use super::doctor::check_token_secrecy;
use super::session::CliSession;
use infill_api::SCHEMA;
use infill_model::{
    config::{Config, DEFAULT_FILE, DEFAULT_PATH},
    error_causes,
};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// `infill config …`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read a file and say what is wrong with it, starting nothing
    Check {
        /// The file [default: what --config or INFILL_CONFIG says]
        file: Option<PathBuf>,
    },
    /// Print the configuration in effect, without passwords
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the commented default file
    Default,
}

/// `infill config show --json`.
#[derive(Serialize)]
struct ConfigDocument<'a> {
    schema: u32,
    config: &'a Config,
}

/// Runs `infill config`.
pub fn run(command: ConfigCommand, session: &CliSession) -> CommandResult {
    match command {
        ConfigCommand::Check { file } => check_file(file.or_else(|| session.config.clone()).as_deref())?,
        ConfigCommand::Show { json } => show_config(&redact_config(session.load_config()?), json)?,
        ConfigCommand::Default => output::print_text(DEFAULT_FILE)?,
    }
    Ok(ProgramExit::Ok.code())
}

fn check_file(file: Option<&Path>) -> Result<(), infill_present::exit::CommandFailure> {
    let (config, removed) = Config::load_with_removed(file)?;
    for key in removed {
        output::print_text(&format!("warning: {key}"))?;
    }
    let urls = infill_api::daemon_urls(&config.agent.url);
    if let Some(finding) = check_token_secrecy(command::is_installed("munge"), &urls) {
        output::print_text(&format!("warning: {}; {}", finding.what, finding.mend.unwrap_or_default()))?;
    }
    match config.check_secrets() {
        Err(e) if e.is_others_secret() => {
            output::print_text(&format!("not checked: {}", error_causes::error_chain(&e)))?
        }
        checked => checked?,
    }
    let text = match file {
        Some(file) => format!("{}: ok", file.display()),
        None if Path::new(DEFAULT_PATH).exists() => format!("{DEFAULT_PATH}: ok"),
        None => format!("{DEFAULT_PATH} does not exist: the defaults are in effect"),
    };
    Ok(output::print_text(&text)?)
}

fn show_config(config: &Config, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(&ConfigDocument { schema: SCHEMA, config });
    }
    Ok(output::print_text(&toml::to_string(config)?)?)
}

/// The configuration without the passwords that a URL may carry.
fn redact_config(mut config: Config) -> Config {
    // What a notice is posted to is often all that it takes to post.
    config.notify.url = without_path(&config.notify.url);
    for url in [&mut config.store.database_url, &mut config.slurm.rest, &mut config.agent.url] {
        *url = without_password(url);
    }
    config
}

/// `scheme://host` of an address that says more.
fn without_path(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if path.len() > 1 { format!("{scheme}://{host}/redacted") } else { url.to_owned() }
}

/// `scheme://user:password@host` with the password blotted out.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    // A password may itself hold an @ or a slash that nobody escaped: the last @ ends it.
    let at = rest.rfind('@').filter(|at| *at < end || rest[..*at].contains(':'));
    match at.and_then(|at| rest[..at].split_once(':').map(|(user, _)| (user, &rest[at..]))) {
        Some((user, host)) => format!("{scheme}://{user}:redacted{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_blotted_out() {
        let all = [
            "sqlite:/var/lib/infill/infill.db",
            "postgres://db/infill",
            "postgres://infill@db/infill",
            "postgres://infill:pa@ss@db/infill",
            "postgres://infill:pa/ss@db/infill",
            "http://host:6810",
        ]
        .map(without_password);
        insta::assert_snapshot!(all.join("\n"), @r"
        sqlite:/var/lib/infill/infill.db
        postgres://db/infill
        postgres://infill@db/infill
        postgres://infill:redacted@db/infill
        postgres://infill:redacted@db/infill
        http://host:6810
        ");
    }

    #[test]
    fn what_a_notice_is_posted_to_is_blotted_out() {
        let all = [
            "",
            "https://hooks.example/T0/hunter2",
            "http://hooks.example?key=hunter2",
            "http://hooks.example/",
        ];
        let shown =
            ["", "https://hooks.example/redacted", "http://hooks.example/redacted", "http://hooks.example/"];
        assert_eq!(all.map(without_path), shown);
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let text = toml::to_string(&redact_config(Config::default())).unwrap();
        assert_eq!(Config::parse(&text, Path::new("x.toml")).unwrap(), Config::default());
    }
}
