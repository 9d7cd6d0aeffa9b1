//! `infill config check | show | default`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;

use super::command;
use super::doctor::check_token_secrecy;
use super::session::CliSession;
use infill_api::SCHEMA_VERSION;
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
    /// Check a configuration file for errors; nothing is started
    Check {
        /// The file [default: the one that --config or INFILL_CONFIG names]
        file: Option<PathBuf>,
    },
    /// Print the configuration in effect, without passwords
    Show {
        /// Print JSON
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
        output::print_text(&format!("warning: {}; {}", finding.what, finding.fix.unwrap_or_default()))?;
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
        return output::print_json(&ConfigDocument { schema: SCHEMA_VERSION, config });
    }
    Ok(output::print_text(&toml::to_string(config)?)?)
}

/// The configuration without the passwords that a URL may carry.
fn redact_config(mut config: Config) -> Config {
    // The URL for notices is often a secret itself: who knows it can post.
    config.notify.url = without_path(&config.notify.url);
    for url in [&mut config.store.database_url, &mut config.slurm.rest, &mut config.agent.url] {
        *url = without_password(url);
    }
    config
}

/// Replaces the path of a URL, if it has one, by `/redacted`.
fn without_path(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if path.len() > 1 { format!("{scheme}://{host}/redacted") } else { url.to_owned() }
}

/// Replaces the password in `scheme://user:password@host` by `redacted`.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    // A password may contain an @ or a slash that is not escaped: the last @ ends it.
    let at_sign = rest.rfind('@').filter(|at| *at < end || rest[..*at].contains(':'));
    let Some(at_sign) = at_sign else { return url.to_owned() };
    let (credentials, host) = rest.split_at(at_sign);
    match credentials.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:redacted{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_redacted() {
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
    fn the_path_of_the_url_for_notices_is_redacted() {
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
    fn the_printed_configuration_can_be_read_again() {
        let text = toml::to_string(&redact_config(Config::default())).unwrap();
        assert_eq!(Config::parse(&text, Path::new("x.toml")).unwrap(), Config::default());
    }
}
