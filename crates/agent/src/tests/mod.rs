//! Tests of the worker with a daemon that speaks the real protocol over a real socket, and with real
//! commands.

mod alive;
mod daemon;
mod impostor;
mod leaving;
mod rescaling;
mod staying;
mod submitting;
mod tokens;
mod versions;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use clap::Parser;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use infill_api::AgentRole;
use infill_model::{Credential, Directive, GenerationMember, JobId, NodeName, Secret};
use infill_testkit::clock::wait_real_time;

use super::args::CommandArgs;
use super::daemon_link::{DaemonLink, LinkConfig};
use super::identity::{IdentityError, IdentityProof, IdentityProvider, ProofPurpose};
use super::output::OutputForwarder;
use super::runtime_dir::RuntimeDir;
use super::signals::AgentSignal;
use super::slurm_programs::SlurmPrograms;
use super::wings::WingSubmitter;
use super::worker::{Worker, WorkerConfig, WorkerResult};

use daemon::FakeDaemon;

/// How long a test waits. It is enough for a loaded machine; only failing tests wait for all of it.
const PATIENCE: Duration = Duration::from_secs(60);

const LEAD: JobId = JobId(100);

/// Waits until `condition` holds, also while the clock stands still.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        wait_real_time().await;
    }
}

/// A port for the rendezvous that no other test checks: checking whether it is taken takes it for a moment.
/// It lies above the ports of test clusters, and below those that the kernel gives out.
fn own_port() -> u16 {
    static THREADS: AtomicU16 = AtomicU16::new(0);
    thread_local!(static THREAD: u16 = THREADS.fetch_add(1, Ordering::Relaxed));
    32_000 + THREAD.with(|thread| thread % 768)
}

fn member(generation: u64) -> GenerationMember {
    GenerationMember {
        generation,
        rank: 0,
        world: 1,
        master_addr: "127.0.0.1".to_owned(),
        master_port: own_port(),
        nodes: vec![NodeName::new("n1")],
        exec_plan: "default".to_owned(),
        meeting: None,
    }
}

fn run(generation: u64) -> Directive {
    Directive::Run(member(generation))
}

/// Trusts what [`sealed`] has made.
struct Trusted;

/// A payload as the fake daemon seals it.
fn sealed(payload: &Secret) -> Secret {
    Secret(format!("sealed:{}", payload.0))
}

#[async_trait]
impl IdentityProvider for Trusted {
    async fn make_proof(&self, _: &ProofPurpose<'_>) -> Result<IdentityProof, IdentityError> {
        Ok(IdentityProof { credential: Credential::Munge(Secret("me".to_owned())), nonce: "n".to_owned() })
    }

    async fn open_sealed(&self, sealed: &Secret) -> Result<Secret, IdentityError> {
        let opened = sealed.0.strip_prefix("sealed:").map(|payload| Secret(payload.to_owned()));
        opened.ok_or(IdentityError::Impostor { uid: 6102, daemon_user: "infill".to_owned() })
    }
}

/// Keeps the bytes that are written to it.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Prints the output of a command when its test fails.
struct ShownOnFailure(Kept);

impl Drop for ShownOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the command has printed:\n{}", self.0.text());
        }
    }
}

/// A fake MUNGE whose credentials are their payload in base64. `unmunge` reports the user `uid`, and ends
/// with `code`.
pub(crate) fn munge(dir: &Path, uid: u32, code: i32) -> SlurmPrograms {
    let seal = "echo \"$@\" >$0.args; printf MUNGE:; base64 -w0; echo";
    let open = format!("printf 'UID:             alice ({uid})\\n\\n'; cut -c7- | base64 -d; exit {code}");
    SlurmPrograms {
        munge: infill_testkit::write_script(dir.join("munge"), seal),
        unmunge: infill_testkit::write_script(dir.join("unmunge"), &open),
        ..SlurmPrograms::default()
    }
}

/// Whether a process lives; a zombie does not.
fn lives(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// A worker under test.
struct Subject {
    task: JoinHandle<anyhow::Result<WorkerResult>>,
    signals: mpsc::Sender<AgentSignal>,
    output: Kept,
    dir: tempfile::TempDir,
    _shown: ShownOnFailure,
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: CommandArgs,
}

impl Subject {
    /// Starts a lead whose command is this shell script, with these flags.
    fn lead(daemon: &FakeDaemon, flags: &str, script: &str) -> Subject {
        Subject::start(daemon, AgentRole::Lead, flags, script, |_| None)
    }

    fn start(
        daemon: &FakeDaemon,
        role: AgentRole,
        flags: &str,
        script: &str,
        submitter: impl Fn(&Path) -> Option<WingSubmitter>,
    ) -> Subject {
        Subject::with(daemon, role, flags, script, submitter, |_| {})
    }

    /// Starts a lead whose settings the test changes.
    fn lead_with(
        daemon: &FakeDaemon,
        flags: &str,
        script: &str,
        change: impl Fn(&mut WorkerConfig),
    ) -> Subject {
        Subject::with(daemon, AgentRole::Lead, flags, script, |_| None, change)
    }

    fn with(
        daemon: &FakeDaemon,
        role: AgentRole,
        flags: &str,
        script: &str,
        submitter: impl Fn(&Path) -> Option<WingSubmitter>,
        change: impl Fn(&mut WorkerConfig),
    ) -> Subject {
        let words =
            std::iter::once("infill").chain(flags.split_whitespace()).chain(["--", "sh", "-c", script]);
        let common = Flags::parse_from(words).common;
        let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
        let link = DaemonLink::new(LinkConfig {
            url: daemon.url(),
            ca: None,
            job: LEAD,
            node: NodeName::new("n1"),
            role,
            spec: None,
            identity: Box::new(Trusted),
        })
        .unwrap();
        let output = Kept::default();
        let mut config = WorkerConfig {
            alone: None,
            cpus: None,
            own: Vec::new(),
            left: None,
            job: LEAD,
            partition: Some("infill".to_owned()),
            node: NodeName::new("n1"),
            programs: SlurmPrograms::default(),
            lead: LEAD,
            role,
            grace: common.grace_period(),
            patience: common.daemon_patience(),
            output: OutputForwarder::to_writers(output.clone(), output.clone(), !common.no_prefix),
            home: RuntimeDir::open_given(dir.path()).unwrap(),
            common,
        };
        change(&mut config);
        let (signals, receiver) = mpsc::channel(4);
        let worker = Worker::new(config, link, submitter(dir.path())).unwrap();
        let _shown = ShownOnFailure(output.clone());
        Subject { task: tokio::spawn(worker.serve_until_done(receiver)), signals, output, dir, _shown }
    }

    async fn says(&self, text: &str) {
        until(text, || self.output.text().contains(text)).await;
    }

    /// The process whose id the command has printed after this word.
    async fn process(&self, word: &str) -> i32 {
        until(word, || self.printed_id(word).is_some()).await;
        self.printed_id(word).unwrap()
    }

    fn printed_id(&self, word: &str) -> Option<i32> {
        self.output.text().lines().find_map(|line| line.split_once(word)?.1.trim().parse().ok())
    }

    async fn code(self) -> i32 {
        until("the worker's end", || self.task.is_finished()).await;
        self.task.await.unwrap().unwrap().code
    }
}
