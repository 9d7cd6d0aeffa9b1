//! Recognises launchers: commands that start the processes of a node themselves. infill starts one launcher
//! on each node.

use std::path::Path;

/// Programs that are launchers.
const LAUNCHER_PROGRAMS: [&str; 4] = ["torchrun", "accelerate", "accelerate-launch", "deepspeed"];

/// Python modules that are launchers.
const LAUNCHER_MODULES: [&str; 4] = [
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
];

/// The flag that tells `torchrun` how many processes to start on its node, in both spellings.
const PROCESSES_FLAGS: [&str; 2] = ["--nproc-per-node", "--nproc_per_node"];

/// Options of Python whose value is the next word.
const PYTHON_WITH_VALUE: [&str; 3] = ["-X", "-W", "--check-hash-based-pycs"];

/// The name of the launcher that the command is; `None` for other commands. A launcher behind another
/// program, such as a container's, is not recognised.
pub(crate) fn launcher_name(command: &[String]) -> Option<&str> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let (program, rest) = skip_env(&words).split_first()?;
    let program = file_name(program);
    if program.starts_with("python") {
        return python_module(rest).filter(|module| LAUNCHER_MODULES.contains(module));
    }
    Some(program).filter(|program| LAUNCHER_PROGRAMS.contains(program))
}

/// The file name of the program that a command starts, behind `env NAME=VALUE …`.
pub(crate) fn program_name<'a>(words: &'a [&'a str]) -> Option<&'a str> {
    skip_env(words).first().map(|program| file_name(program))
}

/// How many processes the launcher starts on each node according to its own flag, if that is a number.
pub(crate) fn processes_per_node(command: &[String]) -> Option<u32> {
    launcher_name(command)?;
    let at = command.iter().position(|word| PROCESSES_FLAGS.contains(&flag_of(word)))?;
    let value = command[at].split_once('=').map(|(_, value)| value);
    value.or_else(|| command.get(at + 1).map(String::as_str))?.parse().ok()
}

fn flag_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(flag, _)| flag)
}

/// The command without `env NAME=VALUE …` before it.
pub(crate) fn skip_env<'a, 'w>(words: &'w [&'a str]) -> &'w [&'a str] {
    match words.split_first() {
        Some((program, rest)) if file_name(program) == "env" => {
            let set = rest.iter().take_while(|word| !word.starts_with('-') && word.contains('=')).count();
            &rest[set..]
        }
        _ => words,
    }
}

/// The module that Python runs with these arguments, if it runs one.
fn python_module<'a>(args: &[&'a str]) -> Option<&'a str> {
    let mut args = args.iter();
    loop {
        match *args.next()? {
            "-m" => return args.next().copied(),
            option if PYTHON_WITH_VALUE.contains(&option) => drop(args.next()),
            option if option.starts_with('-') => {}
            _script => return None,
        }
    }
}

fn file_name(program: &str) -> &str {
    Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn launchers_are_recognised_by_program_or_module() {
        for line in [
            "torchrun train.py",
            "/opt/venv/bin/torchrun --nproc-per-node=2 train.py",
            "env NCCL_DEBUG=INFO OMP_NUM_THREADS=1 torchrun train.py",
            "python -m torch.distributed.run train.py",
            "/usr/bin/python3.13 -u -X dev -W ignore -m torch.distributed.launch train.py",
            "accelerate launch train.py",
            "accelerate-launch train.py",
            "deepspeed train.py",
        ] {
            assert!(launcher_name(&words(line)).is_some(), "{line}");
        }
        for line in [
            "",
            "python train.py",
            "python train.py -m torch.distributed.run",
            "python -m train torchrun",
            "python -X -m",
            "sh -c torchrun",
            "train --with torchrun",
            "env",
            "my-torchrun train.py",
        ] {
            assert_eq!(launcher_name(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn a_launchers_own_number_of_processes_is_read() {
        for (line, want) in [
            ("torchrun --nproc-per-node=2 train.py", Some(2)),
            ("torchrun --nnodes 4 --nproc_per_node 8 train.py", Some(8)),
            ("python -m torch.distributed.run --nproc-per-node 2 train.py", Some(2)),
            ("torchrun --nproc-per-node=gpu train.py", None),
            ("torchrun --nproc-per-node", None),
            ("torchrun train.py", None),
            ("python train.py --nproc-per-node=2", None),
        ] {
            assert_eq!(processes_per_node(&words(line)), want, "{line}");
        }
    }
}
