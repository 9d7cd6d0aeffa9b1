//! Containers around the user's command: `--container IMAGE`, or a command that is itself `apptainer exec …`.
//!
//! The command's processes need three things inside: the agent's sockets, infill's variables, and the
//! signals. The sockets are in the agent's private directory, which is mounted at its own path. Variables
//! pass by themselves unless a flag clears them. Signals reach all processes of the command, inside and
//! outside: these runtimes have no daemon, so that all processes are ours, and marked by a variable.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Args, ValueEnum};

use super::command::{EnvVariable, LaunchSpec};
use super::launcher_detection;
use super::processes::MARK_VARIABLE;
use super::program_search::is_in_path;

/// Flags of Apptainer and Singularity with which only variables with a prefix get inside.
const CLEARING_FLAGS: [&str; 6] = ["-e", "--cleanenv", "-C", "--containall", "--compat", "--no-env"];

/// Devices that show which GPUs a node has, with the flag that brings them into an Apptainer container.
const GPU_DEVICES: [(&str, &str); 2] = [("/dev/nvidiactl", "--nv"), ("/dev/kfd", "--rocm")];

/// A program that runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContainerRuntime {
    /// Apptainer.
    Apptainer,
    /// SingularityCE, or an Apptainer under its old name.
    Singularity,
    /// Enroot, which Pyxis uses.
    Enroot,
}

/// The container in which the command runs.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Container")]
pub struct ContainerArgs {
    /// Run the command in a container of this image, on all nodes
    #[arg(long, value_name = "IMAGE")]
    pub container: Option<String>,
    /// The program that runs the container [default: the first of these that is installed]
    #[arg(long, value_name = "RUNTIME", value_enum, requires = "container")]
    pub container_runtime: Option<ContainerRuntime>,
    /// A further option for that program, such as --container-option=--bind=/data; may be repeated
    #[arg(long, value_name = "OPTION", requires = "container", allow_hyphen_values = true)]
    pub container_option: Vec<String>,
}

impl ContainerRuntime {
    const ALL: [ContainerRuntime; 3] =
        [ContainerRuntime::Apptainer, ContainerRuntime::Singularity, ContainerRuntime::Enroot];

    fn program(self) -> &'static str {
        match self {
            ContainerRuntime::Apptainer => "apptainer",
            ContainerRuntime::Singularity => "singularity",
            ContainerRuntime::Enroot => "enroot",
        }
    }

    /// The beginning of the runtime's own variables; `None` if it reads none.
    fn variable_prefix(self) -> Option<&'static str> {
        match self {
            ContainerRuntime::Apptainer => Some("APPTAINER"),
            ContainerRuntime::Singularity => Some("SINGULARITY"),
            ContainerRuntime::Enroot => None,
        }
    }

    /// The first runtime in one of these directories (`PATH`); Apptainer if there is none, so that the error
    /// names it.
    fn find_installed(path: &OsStr) -> ContainerRuntime {
        let installed = ContainerRuntime::ALL.into_iter().find(|runtime| is_in_path(path, runtime.program()));
        installed.unwrap_or(ContainerRuntime::Apptainer)
    }

    /// The runtime that a command starts itself.
    fn of_command(command: &[String]) -> Option<ContainerRuntime> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let program = launcher_detection::program_name(&words)?;
        ContainerRuntime::ALL.into_iter().find(|runtime| runtime.program() == program)
    }
}

impl ContainerArgs {
    /// The arguments that give a wing's worker the same container.
    pub(crate) fn to_worker_args(&self) -> Vec<String> {
        let mut words: Vec<String> = self.container.iter().map(|i| format!("--container={i}")).collect();
        words.extend(self.container_runtime.map(|r| format!("--container-runtime={}", r.program())));
        words.extend(self.container_option.iter().map(|o| format!("--container-option={o}")));
        words
    }

    /// The start of a command in this container, or in the container that the command starts itself. `home`:
    /// the agent's private directory.
    pub(crate) fn wrap_launch(&self, mut launch: LaunchSpec, home: &Path) -> LaunchSpec {
        let given = self.container.as_ref().map(|image| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            (self.container_runtime.unwrap_or_else(|| ContainerRuntime::find_installed(&path)), image)
        });
        let Some(runtime) = given.map(|(runtime, _)| runtime).or(ContainerRuntime::of_command(&launch.words))
        else {
            return launch;
        };
        let clears = self.container_option.iter().chain(&launch.words).any(|word| clears_variables(word));
        let bind = bind_variable(runtime, home);
        for (_, variables) in &mut launch.ranks {
            let inside = inside_variables(runtime, variables, &launch.mark, clears);
            variables.extend(inside);
            variables.extend(bind.clone());
        }
        if let Some((runtime, image)) = given {
            let names: Vec<&str> = launch
                .ranks
                .first()
                .into_iter()
                .flat_map(|(_, all)| all)
                .map(|(name, _)| name.as_ref())
                .collect();
            let mut words = self.runtime_words(runtime, home, &names);
            words.push(image.clone());
            words.append(&mut launch.words);
            launch.words = words;
        }
        launch
    }

    /// The words before the image. `names`: the variables that the command must find.
    fn runtime_words(&self, runtime: ContainerRuntime, home: &Path, names: &[&str]) -> Vec<String> {
        let mut words = vec![runtime.program().to_owned()];
        if runtime == ContainerRuntime::Enroot {
            words.push("start".to_owned());
            let here = std::env::current_dir().ok();
            for dir in std::iter::once(home).chain(here.as_deref()) {
                words.push("--mount".to_owned());
                words.push(format!("{0}:{0}:none:x-create=dir,rbind", dir.display()));
            }
            for name in names.iter().copied().chain([MARK_VARIABLE]) {
                words.extend(["--env".to_owned(), name.to_owned()]);
            }
        } else {
            words.push("exec".to_owned());
            let found = GPU_DEVICES.iter().filter(|(device, _)| Path::new(device).exists());
            words.extend(found.map(|(_, flag)| (*flag).to_owned()));
        }
        words.extend(self.container_option.iter().cloned());
        words
    }
}

/// Whether this word of a command line clears the environment. Words behind the image are the program's own,
/// and a variable too many does no harm.
fn clears_variables(word: &str) -> bool {
    CLEARING_FLAGS.contains(&word.split_once('=').map_or(word, |(flag, _)| flag))
}

/// The variables once more under the names with which they pass a cleared environment.
fn inside_variables(
    runtime: ContainerRuntime,
    variables: &[EnvVariable],
    mark: &str,
    clears: bool,
) -> Vec<EnvVariable> {
    let Some(prefix) = runtime.variable_prefix().filter(|_| clears) else { return Vec::new() };
    let marked = (MARK_VARIABLE, mark);
    let all = variables.iter().map(|(name, value)| (name.as_ref(), value.as_str())).chain([marked]);
    all.map(|(name, value)| (format!("{prefix}ENV_{name}").into(), value.to_owned())).collect()
}

/// The variable that mounts the agent's private directory, in addition to what the user mounts by it.
fn bind_variable(runtime: ContainerRuntime, home: &Path) -> Option<EnvVariable> {
    let name = format!("{}_BIND", runtime.variable_prefix()?);
    let user = std::env::var(&name).unwrap_or_default();
    let comma = if user.is_empty() { "" } else { "," };
    Some((name.into(), format!("{user}{comma}{}", home.display())))
}

#[cfg(test)]
mod tests {
    use super::super::output::OutputForwarder;
    use super::super::progress::ProgressTally;
    use super::*;

    fn launch(command: &str) -> LaunchSpec {
        LaunchSpec {
            words: command.split_whitespace().map(str::to_owned).collect(),
            ranks: vec![
                (0, vec![("RANK".into(), "0".to_owned())]),
                (1, vec![("RANK".into(), "1".to_owned())]),
            ],
            remote: None,
            mark: "m.1".to_owned(),
            signal: libc::SIGUSR1,
            output: OutputForwarder::to_writers(tokio::io::sink(), tokio::io::sink(), false),
            regex: None,
            tally: ProgressTally::new(),
            kills: None,
        }
    }

    fn wrap(args: &ContainerArgs, command: &str) -> (String, String) {
        let wrapped = args.wrap_launch(launch(command), Path::new("/tmp/infill-7"));
        let variables = &wrapped.ranks[1].1;
        let text: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (wrapped.words.join(" "), text.join(" "))
    }

    fn container(runtime: ContainerRuntime, options: &[&str]) -> ContainerArgs {
        ContainerArgs {
            container: Some("a.sif".to_owned()),
            container_runtime: Some(runtime),
            container_option: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }

    #[test]
    fn a_plain_command_stays_as_it_is() {
        let expected = ("python train.py -e 3".to_owned(), "RANK=1".to_owned());
        assert_eq!(wrap(&ContainerArgs::default(), "python train.py -e 3"), expected);
    }

    #[test]
    fn the_command_runs_in_the_container_with_sockets_and_variables() {
        let (words, variables) =
            wrap(&container(ContainerRuntime::Apptainer, &["--bind=/data"]), "python t.py");
        let words = words.replace(" --nv", "").replace(" --rocm", "");
        assert_eq!(words, "apptainer exec --bind=/data a.sif python t.py");
        assert_eq!(variables, "RANK=1 APPTAINER_BIND=/tmp/infill-7");
        let (_, variables) = wrap(&container(ContainerRuntime::Singularity, &["--cleanenv"]), "python t.py");
        assert_eq!(
            variables,
            "RANK=1 SINGULARITYENV_RANK=1 SINGULARITYENV_INFILL_COMMAND=m.1 SINGULARITY_BIND=/tmp/infill-7"
        );
        let (words, _) = wrap(&container(ContainerRuntime::Enroot, &[]), "python t.py");
        let start = "enroot start --mount /tmp/infill-7:/tmp/infill-7:none:x-create=dir,rbind --mount ";
        assert!(words.starts_with(start), "{words}");
        assert!(words.ends_with("--env RANK --env INFILL_COMMAND a.sif python t.py"), "{words}");
    }

    #[test]
    fn a_container_that_the_command_starts_gets_them_too() {
        let command = "env A=1 /usr/bin/apptainer exec -C img.sif python train.py";
        let (words, variables) = wrap(&ContainerArgs::default(), command);
        assert_eq!(words, command);
        assert_eq!(
            variables,
            "RANK=1 APPTAINERENV_RANK=1 APPTAINERENV_INFILL_COMMAND=m.1 APPTAINER_BIND=/tmp/infill-7"
        );
    }

    #[test]
    fn the_runtime_that_is_installed_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("/no/such:{}", dir.path().display());
        assert_eq!(ContainerRuntime::find_installed(OsStr::new(&path)), ContainerRuntime::Apptainer);
        for (program, runtime) in
            [("enroot", ContainerRuntime::Enroot), ("singularity", ContainerRuntime::Singularity)]
        {
            std::fs::write(dir.path().join(program), "").unwrap();
            assert_eq!(ContainerRuntime::find_installed(OsStr::new(&path)), runtime);
        }
    }
}
