//! Reads snapshots from Slurm's own commands with `--json`, where no slurmrestd can be asked. Their documents
//! are those of slurmrestd, so the same code reads them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::bad_records::MalleableJobs;
use super::failure::{FailureKind, RequestFailure};
use super::planned_starts::PlannedStarts;
use super::raw_reading::{self, ExitWatch, RawReading, SchedulerDiag};
use super::record::{SharedNames, WireRecord};
use super::record_list::{self, RecordList};
use super::response_body::MAX_BODY_BYTES;
use super::{MAX_READINGS, READING_DELAY, json_window, warn_of_inconsistency};
use crate::SlurmError;
use crate::command::read_bounded;
use infill_model::{BackfillState, Job, Node, Reservation, Snapshot};

/// Most bytes of a command's complaints that are kept.
const MAX_COMPLAINT_BYTES: u64 = 16 * 1024;

/// The programs of Slurm that are run, and how long each may take.
#[derive(Clone, Debug)]
pub struct SlurmCommands {
    /// `scontrol`, or its path.
    pub scontrol: PathBuf,
    /// `sdiag`, or its path.
    pub sdiag: PathBuf,
    /// Time for one of them. It is killed afterwards.
    pub limit: Duration,
}

/// Slurm through its commands, for reading alone. Any user may run these.
pub struct CommandSlurm {
    commands: SlurmCommands,
    exits: ExitWatch,
    ours: MalleableJobs,
    plans: PlannedStarts,
}

impl CommandSlurm {
    /// A reader. Jobs of this partition count as malleable. Runs nothing yet.
    pub fn new(commands: SlurmCommands, partition: &str) -> CommandSlurm {
        CommandSlurm {
            commands,
            exits: ExitWatch::default(),
            ours: MalleableJobs::for_partition(partition),
            plans: PlannedStarts::default(),
        }
    }

    /// One consistent reading of nodes, jobs, reservations and backfill. Its `doubts` say where it is not
    /// consistent.
    ///
    /// # Errors
    /// If a command cannot be run, fails, takes too long, or prints what is not Slurm's JSON.
    pub async fn read_snapshot(&mut self) -> Result<Snapshot, SlurmError> {
        let mut tries_left = MAX_READINGS;
        loop {
            tries_left -= 1;
            let before = self.read_diag().await?;
            // Reading all jobs is useless while backfill wipes their planned starts.
            if tries_left == 0 || before.active != Some(true) {
                let mut snapshot = self.read_all(before).await?;
                if tries_left == 0 || !raw_reading::are_transient(&snapshot.doubts) {
                    self.plans.restore_plans(&mut snapshot);
                    warn_of_inconsistency(&snapshot);
                    return Ok(snapshot);
                }
            }
            tokio::time::sleep(READING_DELAY).await;
        }
    }

    async fn read_all(&mut self, before: SchedulerDiag) -> Result<Snapshot, SlurmError> {
        // Nodes before jobs, as from slurmrestd: a job that starts in between is then seen on its node.
        let nodes = self.read_list::<Node>("nodes").await?;
        let jobs = self.read_list::<Job>("jobs").await?;
        let reservations = self.read_list::<Reservation>("reservations").await?;
        let after = self.read_diag().await?;
        let backfill = BackfillState { resolution_secs: None, ..self.exits.backfill_state(&after) };
        let reading = RawReading { before, nodes, jobs, reservations, after };
        Ok(reading.into_snapshot(backfill, &mut self.ours))
    }

    async fn read_list<M: WireRecord + Send + 'static>(
        &self,
        what: &'static str,
    ) -> Result<RecordList<M>, SlurmError> {
        let read = |pipe: BoundedPipe| record_list::read_list(pipe, &mut SharedNames::default());
        let SlurmCommands { scontrol, limit, .. } = &self.commands;
        read_output(scontrol, &["--all", "--json", "show", what], *limit, read)
            .await
            .map_err(|f| f.into_slurm_error(format!("reading {what} from scontrol --json")))
    }

    async fn read_diag(&self) -> Result<SchedulerDiag, SlurmError> {
        let SlurmCommands { sdiag, limit, .. } = &self.commands;
        let read = |pipe: BoundedPipe| {
            let diag = serde_json::from_reader(io::BufReader::new(pipe));
            diag.map_err(|e| json_window::unreadable_answer(&e, e.is_eof()))
        };
        let diag = read_output(sdiag, &["--json"], *limit, read).await;
        let diag = diag.map_err(|f| f.into_slurm_error("reading scheduler statistics from sdiag --json"))?;
        Ok(SchedulerDiag::new(&diag))
    }
}

/// Runs a program, and reads its output while it runs, on a thread that may block.
async fn read_output<T: Send + 'static>(
    program: &Path,
    args: &[&str],
    limit: Duration,
    read: impl FnOnce(BoundedPipe) -> Result<T, RequestFailure> + Send + 'static,
) -> Result<T, RequestFailure> {
    let name = program.display();
    let failed = |kind, what: String| RequestFailure::new(kind, what);
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed(FailureKind::Permanent, format!("cannot run {name}: {e}")))?;
    let lost = |e: io::Error| failed(FailureKind::Transient, format!("lost {name}: {e}"));
    let Some(stdout) = child.stdout.take() else {
        return Err(failed(FailureKind::Transient, format!("{name} has no output")));
    };
    let pipe = BoundedPipe { pipe: File::from(stdout.into_owned_fd().map_err(lost)?), left: MAX_BODY_BYTES };
    let complaints = read_bounded(child.stderr.take(), MAX_COMPLAINT_BYTES);
    let reading = tokio::task::spawn_blocking(move || read(pipe));
    let ended = tokio::time::timeout(limit, async { tokio::join!(complaints, child.wait(), reading) }).await;
    // Where the time is over, dropping the child kills it, and the thread meets the end of the pipe.
    let Ok((said, status, value)) = ended else {
        let what = format!("{name} gave no answer in {:.0} s and was killed", limit.as_secs_f64());
        return Err(failed(FailureKind::TimedOut, what));
    };
    let said = String::from_utf8_lossy(&said.map_err(lost)?).trim().to_owned();
    let value = value.map_err(|e| failed(FailureKind::Transient, format!("its output was not read: {e}")))?;
    if status.map_err(lost)?.success() {
        return value;
    }
    match said.lines().last() {
        Some(why) => Err(failed(FailureKind::Transient, why.to_owned())),
        // A reader that stops early ends the program by SIGPIPE.
        None => value.and(Err(failed(FailureKind::Transient, "it failed and says nothing".to_owned()))),
    }
}

/// The output of a program, up to a limit.
struct BoundedPipe {
    pipe: File,
    /// Bytes that may still come.
    left: usize,
}

impl Read for BoundedPipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.pipe.read(buffer)?;
        self.left = self.left.checked_sub(count).ok_or_else(|| io::Error::other("more than 512 MiB"))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{JobId, UnixTime};

    const DIAG: &str = r#"{"statistics": {"req_time": 1000, "req_time_start": 1, "bf_active": false,
        "bf_when_last_cycle": 900, "bf_cycle_counter": 1, "bf_exit": {"end_job_queue": 1}}}"#;

    /// Commands that print these documents. `extra` comes before.
    fn reader(dir: &Path, extra: &str) -> CommandSlurm {
        let scontrol = format!(
            "{extra}\ncase \"$*\" in\n*'show nodes'*) echo '{{\"nodes\": [{{\"name\": \"n1\", \"state\": [\"IDLE\"], \
             \"cpus\": 2}}]}}' ;;\n*'show jobs'*) echo '{{\"jobs\": [{{\"job_id\": 7, \"job_state\": [\"PENDING\"], \
             \"partition\": \"main\", \"user_id\": 1, \"user_name\": \"u\", \"start_time\": 1500, \"scheduled_nodes\": \
             \"n1\"}}], \"last_backfill\": 900}}' ;;\n*) echo '{{\"reservations\": []}}' ;;\nesac"
        );
        let scontrol = infill_testkit::write_script(dir.join("scontrol"), &scontrol);
        let sdiag = infill_testkit::write_script(dir.join("sdiag"), &format!("echo '{DIAG}'"));
        let limit = Duration::from_secs(10);
        CommandSlurm::new(SlurmCommands { scontrol, sdiag, limit }, "infill")
    }

    #[tokio::test]
    async fn a_snapshot_is_read_from_commands() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = reader(dir.path(), "").read_snapshot().await.unwrap();
        assert_eq!((snapshot.taken_at, snapshot.doubts.as_slice()), (UnixTime(1000), [].as_slice()));
        assert!(snapshot.backfill.complete);
        let job = &snapshot.jobs[0];
        assert_eq!((job.id, job.start_time, job.scheduled_nodes.len()), (JobId(7), Some(UnixTime(1500)), 1));
        assert_eq!(snapshot.nodes[0].name.as_str(), "n1");
    }

    #[tokio::test]
    async fn a_command_that_fails_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let old = "echo \"scontrol: unrecognized option '--json'\" >&2; exit 1";
        let error = reader(dir.path(), old).read_snapshot().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "reading nodes from scontrol --json: scontrol: unrecognized option '--json'"
        );
        let garbage = reader(dir.path(), "echo 'NodeName=n1'; exit 0").read_snapshot().await.unwrap_err();
        assert!(
            garbage.to_string().starts_with("reading nodes from scontrol --json: the answer"),
            "{garbage}"
        );
        // More than a pipe holds: the program is still writing when the reader gives up.
        let long = "head -c 204800 /dev/zero | tr '\\0' x; exit $?";
        let long = reader(dir.path(), long).read_snapshot().await.unwrap_err();
        assert!(long.to_string().starts_with("reading nodes from scontrol --json: the answer"), "{long}");
        let mut none = reader(dir.path(), "");
        none.commands.sdiag = PathBuf::from("/no/such/sdiag");
        let error = none.read_snapshot().await.unwrap_err();
        assert!(error.to_string().contains("cannot run /no/such/sdiag") && !error.is_transient(), "{error}");
    }

    #[tokio::test]
    async fn time_and_output_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut slow = reader(dir.path(), "exec sleep 60");
        slow.commands.limit = Duration::from_millis(300);
        let error = slow.read_snapshot().await.unwrap_err();
        assert!(error.to_string().ends_with("gave no answer in 0 s and was killed"), "{error}");
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"0123456789").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut pipe = BoundedPipe { pipe: file, left: 4 };
        assert!(pipe.read(&mut [0; 10]).is_err());
    }
}
