//! The messages of the HTTP API under `/v1`, shared by the daemon, the agents and the command line.
//!
//! Unknown fields are ignored on both sides, so that a daemon and agents of neighbouring versions understand
//! each other.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{
    BatchMode, Curve, JobId, NodeName, Plan, Profile, ProfileFilter, Report, RescaleCosts, Sizes, UnixTime,
};

/// Version of every JSON document that infill prints or serves.
pub const SCHEMA: u32 = 1;

/// Longest time that the daemon keeps a long poll open. Below the idle time-outs of common proxies (60 s).
pub const MAX_POLL_SECS: u64 = 30;

/// The daemons that `agent.url` names: one or, separated by commas, several of which one leads.
pub fn daemon_urls(list: &str) -> Vec<String> {
    let urls = list.split(',').map(|url| url.trim().trim_end_matches('/').to_owned());
    urls.filter(|url| !url.is_empty()).collect()
}

/// A secret that never shows in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// Proof of who speaks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// A MUNGE credential whose payload is [`hello_payload`].
    Munge(Secret),
    /// A Slurm JWT of the user (`scontrol token`), checked by asking slurmrestd in his name.
    Jwt(Secret),
}

/// What a MUNGE credential must carry: it is worth something for this purpose, job and nonce only.
pub fn hello_payload(purpose: &str, job: Option<JobId>, nonce: &str) -> String {
    format!("infill1 {purpose} {} {nonce}", job.map_or(0, |j| j.0))
}

/// Which part of a malleable job an agent serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// `infill run` on the lead's node.
    Lead,
    /// `infill worker` in a wing of this lead.
    Wing {
        /// The lead's job id.
        lead: JobId,
    },
}

/// What the lead's agent declares about the job, from the flags of `infill run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpec {
    /// Allowed sizes; `None` leaves what the submission said.
    pub sizes: Option<Sizes>,
    /// Declared throughput curve.
    pub curve: Option<Curve>,
    /// Declared rescale costs.
    pub costs: Option<RescaleCosts>,
    /// Failures that are retried before the job fails. Scaling events never count.
    pub max_restarts: u32,
    /// Seconds that the command gets to save and exit after the rescale signal.
    pub grace_secs: u32,
    /// Name of the profile, if the user gave one.
    pub profile: Option<String>,
    /// Hash of the normalised command line, to recognise a recurring job.
    pub command_hash: String,
    /// How the work of a step grows with the number of nodes.
    pub batch: BatchMode,
}

/// Longest grace time that a job may ask for, seconds: a shrinking job holds its nodes for so long.
pub const MAX_GRACE_SECS: u32 = 3600;

/// Longest name of a profile or hash of a command.
pub const MAX_NAME_CHARS: usize = 200;

impl RunSpec {
    /// The same with every value inside its bounds: what comes over the wire may hold anything.
    pub fn bounded(self) -> Self {
        let short =
            |s: String| s.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect::<String>();
        let sound = |secs: f64| (0.0..=86_400.0).contains(&secs);
        RunSpec {
            costs: self.costs.filter(|c| sound(c.up_secs) && sound(c.down_secs) && sound(c.start_secs)),
            grace_secs: self.grace_secs.min(MAX_GRACE_SECS),
            profile: self.profile.map(short),
            command_hash: short(self.command_hash),
            ..self
        }
    }
}

impl Default for RunSpec {
    fn default() -> Self {
        RunSpec {
            sizes: None,
            curve: None,
            costs: None,
            max_restarts: 3,
            grace_secs: 60,
            profile: None,
            command_hash: String::new(),
            batch: BatchMode::Auto,
        }
    }
}

/// An agent's first message: `POST /v1/agent/hello`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Proof of who speaks; its purpose is `hello`.
    pub credential: Credential,
    /// Random text, bound into the credential.
    pub nonce: String,
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// Lead or wing.
    pub role: Role,
    /// Slurm's name of the agent's node.
    pub node: NodeName,
    /// A TCP port that was free on the node a moment ago, for rank 0's rendezvous.
    pub port: u16,
    /// The generation whose command runs now (an agent that outlived a daemon), if any.
    pub running: Option<u64>,
    /// From a lead only.
    pub spec: Option<RunSpec>,
    /// The agent's version.
    pub version: String,
}

/// Answer to a [`Hello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Bearer token for `poll` and `report` of this agent. Good until the daemon restarts: on 401, say hello
    /// again.
    pub secret: Secret,
    /// How long a preempted worker may take to save before it is killed, seconds.
    pub preempt_leave_secs: f64,
}

/// A long poll: `POST /v1/agent/poll`. Answered when the assignment's version exceeds `seen`, or after
/// `wait_secs` with the present assignment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Poll {
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// The agent's node.
    pub node: NodeName,
    /// Version of the last assignment that the agent has taken up; 0 at first.
    pub seen: u64,
    /// Seconds to wait, at most [`MAX_POLL_SECS`].
    pub wait_secs: u64,
}

/// What one worker shall do now. A level, not an edge: getting it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Grows with every change; unique to this worker while the daemon runs.
    pub version: u64,
    /// What to do with the command.
    pub directive: Directive,
    /// Wings that the lead shall submit and has not reported yet. Empty for a wing.
    pub wings: Vec<WingOrder>,
}

/// What to do with the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// Stay, run nothing.
    Hold,
    /// Run the command as this member of this generation (start it if that generation does not run here yet).
    Run(Member),
    /// Stop the command of this generation with the rescale signal (SIGKILL past the grace time), report,
    /// stay.
    Stop {
        /// The generation to stop.
        generation: u64,
    },
    /// As `Stop` if anything runs; then exit with code 0. For wings.
    Leave,
    /// Exit; the lead with this code.
    Finish {
        /// Exit code of the malleable job.
        code: i32,
    },
}

/// One worker's place in a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Number of the generation, growing from 1.
    pub generation: u64,
    /// This worker's node rank; 0 is the lead.
    pub rank: u32,
    /// Number of workers (one per node).
    pub world: u32,
    /// Host of rank 0.
    pub master_addr: String,
    /// Rendezvous port on that host.
    pub master_port: u16,
    /// All nodes by rank.
    pub nodes: Vec<NodeName>,
    /// Execution plan.
    pub exec_plan: String,
}

/// A wing that the lead's agent shall submit with `sbatch`. Submitting the same order twice is an error of
/// the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WingOrder {
    /// Unique over the life of the store.
    pub order: u64,
    /// Nodes to pin it to: all of them, exclusively.
    pub nodes: Vec<NodeName>,
    /// Time limit.
    pub time_limit_mins: u32,
    /// Partition.
    pub partition: String,
    /// QOS, if the site names one.
    pub qos: Option<String>,
    /// Account of the lead, so that usage is booked alike.
    pub account: Option<String>,
    /// Generic resources per node, as for `--gres`.
    pub gres: Option<String>,
}

/// What happened at a worker: `POST /v1/agent/report`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentReport {
    /// The Slurm job in which the agent runs.
    pub job: JobId,
    /// The agent's node.
    pub node: NodeName,
    /// Events in order. At most [`MAX_EVENTS`].
    pub events: Vec<AgentEvent>,
}

/// Most events that one report may carry.
pub const MAX_EVENTS: usize = 256;

/// One event. Reporting an event again is harmless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentEvent {
    /// The command of this generation was started.
    Started {
        /// Its generation.
        generation: u64,
    },
    /// The command of this generation is gone.
    Stopped {
        /// Its generation.
        generation: u64,
        /// Why and how it ended.
        exit: Exit,
        /// Seconds from the rescale signal to the exit; 0 when none was sent.
        stop_secs: f64,
        /// A port that is free now, for the next rendezvous.
        port: u16,
    },
    /// Slurm wants the node: this worker will be gone within the preemption leave time.
    Leaving,
    /// Progress since the last report of this kind.
    Progress {
        /// Its generation.
        generation: u64,
        /// Samples done since the last report.
        samples: f64,
        /// Seconds between the command's last word in the last report and its last word in this one, by the
        /// node's monotonic clock. In the first report of a generation, since its start.
        secs: f64,
        /// Last step that the command named.
        step: Option<u64>,
        /// Last loss that it named.
        loss: Option<f64>,
        /// In the first report of a generation: how it came about.
        #[serde(default)]
        opening: Option<Opening>,
    },
    /// `sbatch` accepted a wing.
    WingSubmitted {
        /// The order.
        order: u64,
        /// Slurm's job id.
        job: JobId,
    },
    /// `sbatch` refused a wing.
    WingRefused {
        /// The order.
        order: u64,
        /// What sbatch said.
        error: String,
    },
}

/// How a generation came about on one worker, seconds by its monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// From the last generation's rescale signal until its command said that the checkpoint was saved, if it
    /// did.
    pub saved_secs: Option<f64>,
    /// From that signal until that command had exited. `None` when nothing was stopped here: a first start.
    pub stop_secs: Option<f64>,
    /// From there, or from the agent's own start, until the command was started.
    pub idle_secs: f64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + signal when a signal killed it, as a shell says it.
    pub code: i32,
    /// Whether the agent had asked it to stop (rescale signal, or Slurm's SIGTERM).
    pub asked: bool,
    /// Whether it had to be killed after the grace time: work since its last checkpoint is lost.
    pub killed: bool,
}

/// Operating mode of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Look and plan, touch nothing.
    Observe,
    /// Carry plans out.
    Act,
}

/// A passing order of an administrator, kept over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Work as the mode says.
    #[default]
    Normal,
    /// Start nothing and grow nothing; what runs, runs on and still leaves in time.
    Paused,
    /// Save and park everything.
    Draining,
}

/// An administrator's order: `POST /v1/control`. The credential's purpose is `control`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Proof of who speaks.
    pub credential: Credential,
    /// Bound into the credential.
    pub nonce: String,
    /// What to do from now on.
    pub control: Control,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// infill's version.
    pub version: String,
    /// Slurm's version, once known.
    pub slurm: Option<String>,
    /// REST version in use, such as `v0.0.42`.
    pub rest: Option<String>,
    /// Mode from the configuration.
    pub mode: Mode,
    /// Order of an administrator.
    pub control: Control,
    /// Start of the daemon.
    pub started_at: UnixTime,
    /// Last round that ended; `None` before the first.
    pub last_round: Option<UnixTime>,
    /// What is wrong now, each a sentence: doubtful snapshots, unreachable parts, open circuit breakers.
    pub problems: Vec<String>,
    /// All nodes of the malleable partition.
    pub nodes: Vec<NodeView>,
    /// All malleable jobs.
    pub jobs: Vec<JobView>,
}

/// A node as `infill gaps` and `infill status` show it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// Name.
    pub node: NodeName,
    /// Node type.
    pub node_type: String,
    /// Slurm's state words joined by `+`.
    pub state: String,
    /// What it is for the main queue: `busy` (a main job runs), `gap`, `held` (a gap that infill uses),
    /// `refused`.
    pub kind: NodeKind,
    /// The malleable job that holds it.
    pub job: Option<JobId>,
    /// The main job that runs on it.
    pub main_job: Option<JobId>,
    /// Since when it is a gap.
    pub since: Option<UnixTime>,
    /// When the main queue wants it back, if planned.
    pub window_end: Option<UnixTime>,
    /// Who wants it back, in words.
    pub wanted_by: Option<String>,
    /// Until when the planner counts on it.
    pub usable_until: Option<UnixTime>,
    /// Why it is refused.
    pub why: Option<String>,
}

/// What a node is for the main queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A main job runs on it.
    Busy,
    /// Idle and usable.
    Gap,
    /// Used by infill.
    Held,
    /// Not usable.
    Refused,
}

/// A malleable job as `infill jobs` shows it. Carries nothing of the user's environment or command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobView {
    /// Lead's job id.
    pub job: JobId,
    /// Job name.
    pub name: String,
    /// Owner.
    pub user: String,
    /// `queued`, `launching`, `running`, `rescaling`, `parked`, `ending`, `done`, `failed`.
    pub state: String,
    /// Allowed sizes.
    pub sizes: String,
    /// Nodes held, lead first.
    pub nodes: Vec<NodeName>,
    /// Present generation; 0 before the first.
    pub generation: u64,
    /// Rescales so far.
    pub rescales: u32,
    /// Restarts after failures so far.
    pub restarts: u32,
    /// Times that it had to be killed at a rescale.
    pub kills: u32,
    /// Last step reported.
    pub step: Option<u64>,
    /// Last loss reported.
    pub loss: Option<f64>,
    /// Samples reported in all.
    pub samples: f64,
    /// Samples a second now.
    pub rate: Option<f64>,
    /// The wings' Slurm job ids.
    pub wings: Vec<JobId>,
    /// Why it has what it has, from the last round.
    pub why: String,
    /// Its rate as a share of what proportional scaling from its smallest size would give.
    #[serde(default)]
    pub efficiency: Option<f64>,
    /// What the advisor knows of it, and why it will or will not try another size.
    #[serde(default)]
    pub advice: String,
}

/// A round: `GET /v1/round` (the last one) and `GET /v1/plan` (a new one, computed without acting).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundView {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The plan.
    pub plan: Plan,
    /// Why.
    pub report: Report,
    /// Whether the plan is carried out.
    pub acting: bool,
    /// Seconds the round took, by stage (`snapshot`, `gaps`, `plan`, `check`).
    pub secs: BTreeMap<String, f64>,
}

/// Most profiles that one answer lists.
pub const MAX_PROFILES: u32 = 1000;

/// Most profiles that one request may bring; an import of more is sent in parts.
pub const MAX_IMPORTED: usize = 64;

/// `GET /v1/profiles`, with `user`, `name`, `node_type` and `exec_plan` to choose some.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProfilesView {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The last changed first.
    pub profiles: Vec<ProfileView>,
}

/// A profile with the curve that follows from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProfileView {
    /// What was measured.
    #[serde(flatten)]
    pub profile: Profile,
    /// The batch mode as declared or recognised.
    pub batch_seen: BatchMode,
    /// The fitted curve; empty while nothing was measured.
    pub curve: Vec<CurveRow>,
    /// The formula of the best model.
    pub model: String,
}

/// What is believed of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveRow {
    /// Number of nodes.
    pub nodes: u32,
    /// Samples a second.
    pub rate: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Deletes profiles: `POST /v1/profiles/forget`. The credential's purpose is `profiles`. Users may name their
/// own profiles, administrators any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForgetRequest {
    /// Proof of who speaks.
    pub credential: Credential,
    /// Bound into the credential.
    pub nonce: String,
    /// Which: all that agree with every field that is given.
    pub filter: ProfileFilter,
}

/// Takes profiles in, in place of those with the same key: `POST /v1/profiles/import`. The credential's
/// purpose is `profiles`. Users may bring their own profiles, administrators any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportRequest {
    /// Proof of who speaks.
    pub credential: Credential,
    /// Bound into the credential.
    pub nonce: String,
    /// The profiles.
    pub profiles: Vec<Profile>,
}

/// How many profiles a request concerned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// [`SCHEMA`].
    pub schema: u32,
    /// So many.
    pub profiles: u64,
}

/// Any failed request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What was wrong.
    pub error: String,
}
