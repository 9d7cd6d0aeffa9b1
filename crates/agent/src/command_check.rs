//! Commands that cannot be malleable as they are written. They would hang, or train wrongly, without a word.

use super::launcher_detection;

/// Programs that start the processes of a job themselves, or submit one.
const JOB_PROGRAMS: [&str; 3] = ["srun", "sbatch", "salloc"];

/// Flags of torchrun that fix the size or the meeting point, which infill sets again at each size.
const FIXED_FLAGS: [&str; 8] = [
    "--nnodes",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--standalone",
];

/// What to change in a command that infill cannot run as it is; `None` for all other commands. `command`: the
/// words behind `--`. `step_tasks`: how many tasks of a job step run `infill run`, if srun has started it.
pub(crate) fn find_obstacle(command: &[String], step_tasks: Option<u32>) -> Option<String> {
    if let Some(tasks) = step_tasks.filter(|tasks| *tasks > 1) {
        return Some(format!(
            "srun has started `infill run` {tasks} times, and it must run once: leave out srun, and use \
             --workers-per-node={tasks} for several processes on each node"
        ));
    }
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let program = launcher_detection::program_name(&words)?;
    if JOB_PROGRAMS.contains(&program) {
        return Some(job_program_obstacle(program, &words));
    }
    let is_torchrun =
        matches!(launcher_detection::launcher_name(command), Some("torchrun" | "torch.distributed.run"));
    let given = if is_torchrun { fixed_flags(&words) } else { Vec::new() };
    (!given.is_empty()).then(|| {
        format!(
            "leave out {} of torchrun: infill sets the number of nodes and where they meet at each size",
            given.join(", ")
        )
    })
}

fn job_program_obstacle(program: &str, words: &[&str]) -> String {
    let has_image = words.iter().any(|word| word.starts_with("--container-image"));
    match program {
        "srun" if has_image => "leave out srun: infill starts the command on each node itself. Instead of \
             --container-image use `infill run --container IMAGE --container-runtime enroot -- CMD`"
            .to_owned(),
        "srun" => {
            "leave out srun: infill starts the command on each node itself. For several processes on each \
             node use `infill run --workers-per-node=N -- CMD`"
                .to_owned()
        }
        _ => format!("infill run needs the training command itself, and {program} only submits one"),
    }
}

/// The flags of torchrun itself that fix what infill sets, in the order in which they are given.
fn fixed_flags<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let own = words.iter().take_while(|word| !word.ends_with(".py"));
    let flags = own.map(|word| word.split_once('=').map_or(*word, |(flag, _)| flag));
    flags.filter(|flag| FIXED_FLAGS.contains(&flag.replace('_', "-").as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacle(command: &str) -> Option<String> {
        find_obstacle(&command.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), None)
    }

    #[test]
    fn commands_that_cannot_be_malleable_are_refused_with_what_to_change() {
        for (command, expected) in [
            ("srun python train.py", "--workers-per-node=N"),
            ("env A=1 /opt/slurm/bin/srun -n 4 python train.py", "leave out srun"),
            ("srun --container-image=x.sqsh python train.py", "--container IMAGE"),
            ("sbatch train.sh", "sbatch only submits"),
            ("torchrun --nnodes=4 --nproc-per-node=4 train.py", "leave out --nnodes of torchrun"),
            (
                "torchrun --nnodes 2 --rdzv_backend=c10d --rdzv-endpoint=$H:29500 train.py --nnodes 3",
                "leave out --nnodes, --rdzv_backend, --rdzv-endpoint of torchrun",
            ),
            ("python -m torch.distributed.run --standalone train.py", "--standalone"),
        ] {
            let said = obstacle(command).unwrap_or_default();
            assert!(said.contains(expected), "{command}: {said}");
        }
    }

    #[test]
    fn all_other_commands_pass() {
        for command in [
            "python train.py",
            "torchrun --nproc-per-node=4 train.py --nnodes 2",
            "python -m torch.distributed.run train.py --standalone",
            "accelerate launch --num_machines 1 train.py",
            "bash -c srun",
            "apptainer exec img.sif srun",
        ] {
            assert_eq!(obstacle(command), None, "{command}");
        }
    }

    #[test]
    fn infill_run_must_not_run_several_times_in_one_step() {
        let command = ["python".to_owned()];
        assert_eq!(find_obstacle(&command, Some(1)), None);
        assert!(find_obstacle(&command, Some(4)).is_some_and(|said| said.contains("--workers-per-node=4")));
    }
}
