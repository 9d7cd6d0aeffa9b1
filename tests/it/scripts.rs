//! Job scripts as users write them for other clusters. Each works, or is refused with a sentence that says
//! what to change.

use crate::containers::WITH_APPTAINER;
use crate::harness::Site;

/// The trainee in the job's folder.
const TRAINEE: &str = "python3 /opt/infill/tests/it/trainee.py --dir /scratch/$SLURM_JOB_ID";

impl Site {
    /// Submits a job of one to four nodes with this script.
    fn script(&self, script: &str) -> u32 {
        let script = format!("mkdir -p /scratch/$SLURM_JOB_ID; cd /scratch/$SLURM_JOB_ID\n{script}");
        self.sbatch("alice", &["-p", "infill", "-J", "train", "--nodes=1-4"], &script)
    }

    /// Checks that a script trains on all four nodes without losing a step.
    fn script_works(&self, script: &str) {
        let job = self.script(script);
        self.until_trains_on(job, 4, 40.0);
        assert!(
            self.diary(job).lost().iter().all(|lost| *lost == 0),
            "{script}: {:?}",
            self.diary(job).lost()
        );
        self.completes(job);
    }

    /// Checks that a script fails at once, and that its output says what to change.
    fn script_is_refused(&self, script: &str, what_to_change: &str) {
        let job = self.script(script);
        assert_eq!(self.end_of(job, 40.0), "FAILED 1:0", "{script}");
        let printed = self.printed(job);
        assert!(printed.contains(what_to_change), "{script}: {printed}");
    }
}

#[test]
fn torchrun_with_a_fixed_size_is_refused_and_says_which_flags_to_leave_out() {
    let site = Site::acting();
    site.script_is_refused(
        "infill run -- torchrun --nnodes=$SLURM_JOB_NUM_NODES --nproc-per-node=1 --rdzv-backend=c10d \
         --rdzv-endpoint=$(hostname):29500 train.py",
        "leave out --nnodes, --rdzv-backend, --rdzv-endpoint of torchrun",
    );
}

#[test]
fn srun_inside_and_around_is_refused_and_says_how_to_start_several_processes() {
    let site = Site::acting();
    site.script_is_refused("infill run -- srun python3 train.py", "leave out srun");
    site.script_is_refused(
        "srun --overlap -n 2 infill run -- python3 train.py",
        "--workers-per-node=2 for several processes on each node",
    );
}

#[test]
fn what_module_load_sets_reaches_all_nodes() {
    let site = Site::acting();
    let module = "module() { mkdir -p /scratch/modules; touch /scratch/modules/loaded.py; \
                  export PYTHONPATH=/scratch/modules; }\nmodule load pytorch\n";
    let command = format!("sh -c 'python3 -c \"import loaded\" && exec {TRAINEE}'");
    site.script_works(&format!("{module}infill run --grace 10 -- {command}"));
}

#[test]
fn data_are_staged_to_the_disk_of_each_node() {
    let site = Site::acting();
    let stage = "mkdir -p /tmp/$INFILL_JOB_ID.$SLURMD_NODENAME && cp /etc/hostname /tmp/$INFILL_JOB_ID.$SLURMD_NODENAME/data";
    let command =
        format!("sh -c 'test -e /tmp/$INFILL_JOB_ID.$SLURMD_NODENAME/data || exit 9; exec {TRAINEE}'");
    site.script_works(&format!("infill run --grace 10 --on-node '{stage}' -- {command}"));
}

/// `arrays` has what happens to the tasks.
#[test]
fn each_task_of_an_array_trains() {
    let site = Site::acting();
    let options = ["-p", "infill", "--nodes=1-2", "--array=0-1", "--output=/scratch/task-%a.out"];
    site.sbatch("alice", &options, &format!("infill run --grace 10 -- {TRAINEE}"));
    site.until("both tasks to run", 60.0, || {
        site.queue()
            .iter()
            .filter(|row| row.partition == "infill" && row.lead().is_none() && row.runs())
            .count()
            == 2
    });
    site.must("alice", &["scancel", "-u", "alice"]);
}

#[test]
fn a_container_needs_only_a_bind_for_the_data() {
    let site = Site::acting();
    site.script_works(&format!(
        "{WITH_APPTAINER}\ninfill run --grace 10 --container /scratch/image \
         --container-option=--bind=/scratch -- {TRAINEE}"
    ));
}

/// Hydra names its folder by the time of the start, so that the next start does not find the checkpoint.
#[test]
fn hydra_works_with_a_folder_of_the_job_and_a_rehearsal_says_so() {
    let site = Site::acting();
    let hydra = "python3 /opt/infill/tests/it/hydra_stand_in.py";
    site.script_works(&format!("infill run --grace 10 -- {hydra} hydra.run.dir=/scratch/$SLURM_JOB_ID"));
    let rehearse = |more: &str| {
        let script = format!(
            "mkdir -p /scratch/hydra && cd /scratch/hydra && \
             exec infill rehearse --sizes 1,2 --train-secs 1 -- {hydra} {more}"
        );
        let output = site.exec("alice", &["bash", "-c", &script]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, said) = rehearse("");
    assert!(code == Some(1) && said.contains("It found no checkpoint"), "{code:?} {said}");
    let (code, said) = rehearse("hydra.run.dir=/scratch/hydra/mine");
    assert!(code == Some(0) && said.contains("ready"), "{code:?} {said}");
}
