//! Commands in containers. `containers/apptainer` stands for Apptainer: Debian has no package of it.

use crate::harness::jobs::PROMPTLY_SECS;
use crate::harness::{Site, Train};

/// Finds the stand-in, and makes an image.
pub const WITH_APPTAINER: &str = "export PATH=/opt/infill/tests/it/containers:$PATH; mkdir -p /scratch/image";

impl Site {
    /// Checks that a job in a container grows, reports progress, and saves when a main job takes its nodes.
    fn contained_job_is_malleable(&self, job: u32) {
        self.until_trains_on(job, 4, 40.0);
        self.until("progress to come out of the containers", 10.0, || {
            self.view(job).is_some_and(|view| view.samples > 0.0 && view.step.is_some())
        });
        let main = self.main_job(600, &["--nodes=6"]);
        self.starts_within(main, PROMPTLY_SECS);
        self.until_trains_on(job, 2, 40.0);
        self.must("root", &["scancel", &main.id.to_string()]);
        let diary = self.diary(job);
        assert!(
            diary.lost().iter().all(|lost| *lost == 0),
            "the signal did not get inside: {:?}",
            diary.lost()
        );
        assert_eq!(diary.all("untold").len(), 0, "the progress socket cannot be reached");
        self.completes(job);
    }
}

#[test]
fn a_command_in_a_container_grows_reports_and_saves() {
    let site = Site::acting();
    let job = Train::on("1-4")
        .before(WITH_APPTAINER)
        .run(
            "--grace 10 --container /scratch/image --container-option=--bind=/scratch \
             --container-option=--containall",
        )
        .submit(&site);
    site.contained_job_is_malleable(job);
}

#[test]
fn a_container_around_the_command_works_as_well() {
    let site = Site::acting();
    let script = format!(
        "{WITH_APPTAINER}; mkdir -p /scratch/$SLURM_JOB_ID; infill run --grace 10 -- \
         apptainer exec --contain --bind=/scratch /scratch/image sh -c 'test -e /.singularity.d && exec \"$@\"' sh \
         python3 /opt/infill/tests/it/trainee.py --dir /scratch/$SLURM_JOB_ID"
    );
    let job = site.sbatch("alice", &["-p", "infill", "-J", "train", "--nodes=1-4"], &script);
    site.contained_job_is_malleable(job);
}
