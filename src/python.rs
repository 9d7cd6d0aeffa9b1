//! `infill python`: installs infill's Python package from the wheel that the packages of this infill have.
//! No name is looked up in an index, where others may own it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Deserialize;

use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    output,
};

/// The version of this infill, and of the wheel that belongs to it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The oldest Python that the package runs with.
const OLDEST_PYTHON: PythonVersion = PythonVersion(3, 9);

/// Where the wheel lies, seen from the folder of the program, and where packages put it.
const WHEEL_FOLDERS: [&str; 2] = ["../share/infill", "/usr/share/infill"];

/// Prints what [`PythonFacts`] holds. A Python that is too old says only its version.
const PROBE: &str = r#"
import json, sys
facts = {"version": sys.version_info[:2]}
if sys.version_info >= (3, 9):
    import importlib.metadata, importlib.util, os, sysconfig
    in_venv = sys.prefix != sys.base_prefix
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    facts["has_pip"] = importlib.util.find_spec("pip") is not None
    facts["is_environment"] = in_venv or os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
    facts["is_managed"] = not in_venv and os.path.exists(marker)
    facts["has_namesake"] = bool(list(importlib.metadata.distributions(name="infill")))
print(json.dumps(facts))
"#;

/// Flags of `infill python`.
#[derive(Clone, Debug, Args)]
pub struct PythonArgs {
    #[command(subcommand)]
    task: PythonTask,
}

#[derive(Clone, Debug, Subcommand)]
enum PythonTask {
    /// Install the Python package that belongs to this infill
    #[command(
        after_help = "It goes into the active virtual or conda environment, else into your home directory \
        (pip install --user).\n\n\
        No index is asked. `pip install infill` would install another project."
    )]
    Install(InstallArgs),
}

#[derive(Clone, Debug, Args)]
struct InstallArgs {
    /// The Python to install it for
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// The wheel to install [default: the one that came with this infill]
    #[arg(long, value_name = "FILE")]
    wheel: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd)]
struct PythonVersion(u32, u32);

/// What a Python says of itself.
#[derive(Debug, Deserialize)]
struct PythonFacts {
    version: PythonVersion,
    #[serde(default)]
    has_pip: bool,
    /// Whether it is a virtual or conda environment.
    #[serde(default)]
    is_environment: bool,
    /// Whether the system's package manager alone may install into it.
    #[serde(default)]
    is_managed: bool,
    /// Whether a distribution named `infill` has the package's files, or is another project.
    #[serde(default)]
    has_namesake: bool,
}

/// Runs `infill python`.
///
/// # Errors
/// When there is no wheel, or Python or its pip cannot install it.
pub fn run(args: &PythonArgs) -> CommandResult {
    let PythonTask::Install(args) = &args.task;
    let wheel = match &args.wheel {
        Some(wheel) => given_wheel(wheel)?,
        None => find_wheel(&wheel_folders())?,
    };
    let facts = ask_python(&args.python)?;
    facts.check(&args.python)?;
    let mut command = pip_command(&args.python, &facts, &wheel);
    let status = command.status().with_context(|| format!("cannot run {}", args.python.display()))?;
    if !status.success() {
        return Err(
            anyhow::anyhow!("pip has not installed {}: see its messages above", wheel.display()).into()
        );
    }
    output::print_text(&format!("installed {} for {}", wheel.display(), args.python.display()))?;
    Ok(ProgramExit::Ok.code())
}

fn given_wheel(wheel: &Path) -> Result<PathBuf, CommandFailure> {
    if wheel.is_file() {
        return Ok(wheel.to_owned());
    }
    Err(ProgramExit::Input.caused_by(anyhow::anyhow!("there is no file {}", wheel.display())))
}

fn wheel_folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    WHEEL_FOLDERS.iter().filter_map(|folder| Some(beside?.join(folder))).collect()
}

/// The wheel of this version in one of `folders`.
fn find_wheel(folders: &[PathBuf]) -> Result<PathBuf, CommandFailure> {
    let name = format!("infill_slurm-{VERSION}-py3-none-any.whl");
    if let Some(wheel) = folders.iter().map(|folder| folder.join(&name)).find(|wheel| wheel.is_file()) {
        return Ok(wheel);
    }
    let searched: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(ProgramExit::Input.caused_by(anyhow::anyhow!(
        "cannot find {name} in {}. The packages of infill bring it. From a checkout, run \
         `python3 -m pip install contrib/python`, or name a wheel with --wheel",
        searched.join(" or ")
    )))
}

fn ask_python(python: &Path) -> Result<PythonFacts, CommandFailure> {
    let program = python.display();
    let asked = Command::new(python)
        .args(["-c", PROBE])
        .output()
        .with_context(|| format!("cannot run {program}: --python must name a Python interpreter"))?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr);
        let last = said.lines().last().unwrap_or_default();
        return Err(anyhow::anyhow!("{program} cannot say what it is ({}): {last}", asked.status).into());
    }
    let facts = serde_json::from_slice(&asked.stdout)
        .with_context(|| format!("{program} does not answer as a Python interpreter does"))?;
    Ok(facts)
}

impl PythonFacts {
    /// Refuses a Python for which pip could not install the package, or would do harm.
    fn check(&self, python: &Path) -> Result<(), CommandFailure> {
        let program = python.display();
        let PythonVersion(major, minor) = self.version;
        let in_venv = format!(
            "make an environment that also sees its packages, and try again in it:\n  \
             {program} -m venv --system-site-packages ~/infill-venv\n  . ~/infill-venv/bin/activate"
        );
        let wrong = if self.version < OLDEST_PYTHON {
            let PythonVersion(oldest_major, oldest_minor) = OLDEST_PYTHON;
            format!(
                "{program} is Python {major}.{minor}, and the package needs {oldest_major}.{oldest_minor} or \
                 later: name another one with --python"
            )
        } else if self.is_managed {
            format!("the system manages {program}, and lets pip install nothing: {in_venv}")
        } else if !self.has_pip {
            format!("{program} has no pip: install it (python3-pip in most distributions), or {in_venv}")
        } else if self.has_namesake {
            format!(
                "{program} has a package named `infill`, which is an older form of this one or another project: \
                 run `{program} -m pip uninstall infill` first"
            )
        } else {
            return Ok(());
        };
        Err(anyhow::anyhow!(wrong).into())
    }
}

fn pip_command(python: &Path, facts: &PythonFacts, wheel: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--no-index", "--no-deps", "--force-reinstall"]);
    command.arg("--disable-pip-version-check");
    if !facts.is_environment {
        command.arg("--user");
    }
    command.arg(wheel);
    command
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const GOOD: &str = r#"{"version": [3, 11], "has_pip": true, "is_environment": true}"#;

    /// A folder with a wheel and a program that answers the probe with `facts` and notes other calls.
    fn scene(facts: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let notes = dir.path().join("notes");
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = -c ]; then echo '{facts}'; else echo \"$@\" >>{}; fi\n",
            notes.display()
        );
        fs::write(dir.path().join("python"), script).unwrap();
        fs::set_permissions(dir.path().join("python"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("some.whl"), "").unwrap();
        dir
    }

    fn install(dir: &Path) -> Result<String, String> {
        let args = InstallArgs { python: dir.join("python"), wheel: Some(dir.join("some.whl")) };
        run(&PythonArgs { task: PythonTask::Install(args) }).map_err(|failure| failure.to_string())?;
        Ok(fs::read_to_string(dir.join("notes")).unwrap())
    }

    #[test]
    fn pip_gets_the_wheel_and_asks_no_index() {
        let dir = scene(GOOD);
        let wheel = dir.path().join("some.whl");
        let flags = "-m pip install --no-index --no-deps --force-reinstall --disable-pip-version-check";
        assert_eq!(install(dir.path()), Ok(format!("{flags} {}\n", wheel.display())));
        let dir = scene(&GOOD.replace("\"is_environment\": true", "\"is_environment\": false"));
        assert!(install(dir.path()).unwrap().contains(" --user "));
    }

    #[test]
    fn a_python_that_cannot_install_it_is_refused_with_a_way_out() {
        for (facts, expected) in [
            (r#"{"version": [3, 8]}"#, "is Python 3.8, and the package needs 3.9 or later"),
            (r#"{"version": [2, 7]}"#, "is Python 2.7, and the package needs 3.9"),
            (r#"{"version": [3, 13], "is_managed": true}"#, "-m venv --system-site-packages"),
            (r#"{"version": [3, 13]}"#, "has no pip: install it"),
            (r#"{"version": [3, 13], "has_pip": true, "has_namesake": true}"#, "pip uninstall infill` first"),
            ("no facts", "does not answer as a Python interpreter does"),
        ] {
            let dir = scene(facts);
            let error = install(dir.path()).unwrap_err();
            assert!(error.contains(expected), "{facts}: {error}");
            assert!(!dir.path().join("notes").exists(), "{facts}: pip was called");
        }
    }

    #[test]
    fn a_program_that_fails_is_named() {
        let dir = scene(GOOD);
        fs::write(dir.path().join("python"), "#!/bin/sh\necho oh >&2\necho no >&2\nexit 3\n").unwrap();
        let error = install(dir.path()).unwrap_err();
        assert!(error.contains("cannot say what it is (exit status: 3): no"), "{error}");
        fs::remove_file(dir.path().join("python")).unwrap();
        assert!(install(dir.path()).unwrap_err().contains("--python must name a Python interpreter"));
        let dir = scene(GOOD);
        fs::remove_file(dir.path().join("some.whl")).unwrap();
        assert!(install(dir.path()).unwrap_err().contains("there is no file"));
    }

    #[test]
    fn the_wheel_of_this_version_is_found_or_its_source_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [dir.path().join("none"), dir.path().to_owned()];
        fs::write(dir.path().join("infill_slurm-0.0.1-py3-none-any.whl"), "").unwrap();
        let error = find_wheel(&folders).unwrap_err().to_string();
        assert!(error.contains("pip install contrib/python") && error.contains(VERSION), "{error}");
        let wheel = dir.path().join(format!("infill_slurm-{VERSION}-py3-none-any.whl"));
        fs::write(&wheel, "").unwrap();
        assert_eq!(find_wheel(&folders).unwrap(), wheel);
        assert_eq!(wheel_folders()[1], Path::new(WHEEL_FOLDERS[1]));
    }

    #[test]
    fn the_probe_understands_the_python_here() {
        let facts = ask_python(Path::new("python3")).unwrap();
        assert!(facts.version >= PythonVersion(3, 0), "{facts:?}");
    }

    #[test]
    fn the_package_has_the_same_version() {
        let source = include_str!("../contrib/python/src/infill/_version.py");
        assert!(source.contains(&format!("__version__ = \"{VERSION}\"")), "{source}");
    }
}
