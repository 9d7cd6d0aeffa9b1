//! `infill completions` and `infill man`: both come from the grammar, so that they are always up to date.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

use super::settings_page;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// Flags of `infill completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell to print completions for
    shell: Shell,
}

/// Flags of `infill man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write the pages of all subcommands into this directory instead
    dir: Option<PathBuf>,
}

/// Runs `infill completions`.
pub fn run_completions(args: &CompletionsArgs, grammar: &mut Command) -> CommandResult {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, grammar, "infill", &mut text);
    output::print_text(&String::from_utf8_lossy(&text))?;
    Ok(ProgramExit::Ok.code())
}

/// Runs `infill man`.
pub fn run_man(args: &ManArgs, grammar: Command) -> CommandResult {
    match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .and_then(|()| clap_mangen::generate_to(grammar, dir))
                .and_then(|()| std::fs::write(dir.join("infill.toml.5"), settings_page::settings_page()))
                .with_context(|| format!("cannot write man pages into {}", dir.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(grammar).render(&mut page)?;
            output::print_text(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ProgramExit::Ok.code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help::grammar;

    #[test]
    fn every_subcommand_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let pages = dir.path().join("man1");
        assert_eq!(run_man(&ManArgs { dir: Some(pages.clone()) }, grammar()).unwrap(), 0);
        for name in ["infill", "infill-run", "infill-status", "infill-doctor", "infill-config-check"] {
            assert!(pages.join(format!("{name}.1")).exists(), "{name}");
        }
        assert!(pages.join("infill.toml.5").exists());
        let main = std::fs::read_to_string(pages.join("infill.1")).unwrap();
        assert!(main.contains("Exit codes:"), "{main}");
    }

    #[test]
    fn a_shell_learns_the_subcommands() {
        let mut text = Vec::new();
        clap_complete::generate(Shell::Bash, &mut grammar(), "infill", &mut text);
        assert!(String::from_utf8(text).unwrap().contains("infill__subcmd__explain"));
    }
}
