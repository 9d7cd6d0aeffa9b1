//! Waiting times of the lifecycle, and its settings from the configuration.

/// Seconds after which an effect is emitted again if Slurm does not show its result.
pub(crate) const RETRY_SECS: f64 = 5.0;

/// Seconds after which a launch is tried again if Slurm could not accept it. Slurm cleans up a requeued job
/// for about a second.
pub(crate) const RELAUNCH_SECS: f64 = 1.0;

/// How long a lead that could start waits for pending wings, seconds, to avoid a rescale at once. A wing
/// takes 1–2 s from its order to its hello.
pub(crate) const SETTLE_SECS: f64 = 4.0;

/// How long after the grace time a worker that has not stopped is given up, seconds.
pub(crate) const STOP_MARGIN_SECS: f64 = 5.0;

/// Seconds without a sign of life after which an agent counts as gone while others wait for it. An agent's
/// back-off is at most 5 s, so a restarted daemon has heard from all agents by then.
pub(crate) const SILENT_SECS: f64 = 12.0;

/// Seconds without a sign of life after which an agent counts as gone that has reported that Slurm takes its
/// node: it has little time left to report.
pub(crate) const LEAVING_SECS: f64 = 4.0;

/// How long an agent takes at most to report Slurm's preemption notice, seconds. Slurm sends the notice once
/// and shows its time in whole seconds. On some sites the agent must ask Slurm about the signal.
pub(crate) const HEARS_SECS: f64 = 5.0;

/// Seconds after which a silent worker is given up although Slurm shows it running. The other workers must
/// have made no progress for as long: silence alone is not a reason, because the command may run on.
pub(crate) const LOST_SECS: f64 = 60.0;

/// First back-off of a job that Slurm preempted, seconds; doubles up to [`PREEMPTED_BACKOFF_MAX_SECS`]. It is
/// short because the planner looks at the gaps anyway. It only keeps Slurm from preempting a job in the same
/// gap again and again.
pub const PREEMPTED_BACKOFF_SECS: f64 = 2.0;

/// Longest back-off after preemptions, seconds. A few seconds show what the main queue does next.
pub const PREEMPTED_BACKOFF_MAX_SECS: f64 = 8.0;

/// First pause before a failed command is started again, seconds; doubles up to [`FAILED_BACKOFF_MAX_SECS`].
/// The job keeps its nodes meanwhile.
pub(crate) const FAILED_BACKOFF_SECS: f64 = 1.0;

/// Longest pause before a failed command is started again, seconds.
pub(crate) const FAILED_BACKOFF_MAX_SECS: f64 = 30.0;

/// A generation that ran for longer than this before it failed ends a series of failures, seconds.
pub(crate) const FAILURES_END_SECS: f64 = 3600.0;

/// How long a generation must run on a node to prove that it can run there, if it does not report progress,
/// seconds.
pub(crate) const PROOF_SECS: f64 = 120.0;

/// How long after its launch a lead counts as holding all planned nodes, beyond the usual start time,
/// seconds. After that it holds only its own node: its script may never reach `infill run`.
pub(crate) const CLAIM_SECS: f64 = 20.0;

/// The claim grows by its initial length for each late start, up to this many times.
pub(crate) const MAX_CLAIMS: u32 = 9;

/// How long after its release a lead may be called back, seconds, if its node is idle and backfill has
/// considered the lead without starting it.
pub(crate) const START_SECS: f64 = 4.0;

/// Two times must differ by this many seconds so that one is certainly later: Slurm shows whole seconds.
pub(crate) const LATER_SECS: f64 = 1.0;

/// Seconds after its launch from which a lead that Slurm shows held or deferred counts as requeued. By then
/// Slurm has handled the launch, and its answer is not older than that.
pub(crate) const UNDONE_SECS: f64 = 10.0;

/// How long a job must run without preemption so that its preemption back-off restarts, seconds.
pub const CALM_SECS: f64 = 120.0;

/// How long a requeued lead waits before its next launch, seconds. Nodes use times in whole seconds, and the
/// next second has begun by then.
pub(crate) const BACK_SECS: f64 = 1.0;

/// How long an order or submission may take to appear in Slurm's answers, seconds.
pub(crate) const SHOW_SECS: f64 = 3.0;

/// Shortest time that a newcomer's command gets to be ready, seconds. A large model takes minutes to build,
/// and its node is idle meanwhile.
pub(crate) const WARM_SECS: f64 = 300.0;

/// A newcomer's command gets this many times the longest time that the job's command took before.
pub(crate) const WARM_TIMES: f64 = 3.0;

/// Longest time that a newcomer's command gets to be ready, seconds.
pub(crate) const MAX_WARM_SECS: f64 = 3600.0;

/// How long ready newcomers wait for others, seconds: a change for each newcomer would cost more.
pub const JOIN_SECS: f64 = 5.0;

/// How long agents have to answer a roll call, seconds. An agent polls again at once. Times are whole
/// seconds, so up to a second less may have passed.
pub(crate) const ROLL_SECS: f64 = 3.0;

/// Seconds from a failed step until the members meet again, if no lost member was found meanwhile. An agent
/// reports a process that has died within milliseconds, and the roll call finds agents that do not answer.
pub(crate) const DOUBT_SECS: f64 = ROLL_SECS;

/// How long members have to meet, over all tries, seconds. A restart takes less.
pub(crate) const REGROUP_SECS: f64 = 30.0;

/// Largest number of tries to meet, with fewer members or at another store.
pub(crate) const MAX_TRIES: u32 = 5;

/// Seconds after which infill requeues a lost lead, unless Slurm has done so. Slurm requeues at once if it
/// takes a node back, but only after minutes if a node has died.
pub(crate) const LEAVES_SECS: f64 = 5.0;

/// Seconds after its release from which an absent lead that Slurm shows held counts as requeued.
pub(crate) const RETURN_SECS: f64 = UNDONE_SECS;

/// How long a lead may be away, beyond the usual start time, seconds. Slurm delays requeued jobs by as much.
pub(crate) const AWAY_SECS: f64 = 120.0;

/// The lifecycle's settings from the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct LifecycleSettings {
    /// The malleable partition.
    pub partition: String,
    /// QOS of wings; `None` for that of the lead.
    pub qos: Option<String>,
    /// How long after its order a wing must have said hello, seconds.
    pub wing_start_secs: f64,
    /// How long after its order a wing that Slurm shows running must have said hello, seconds: it may be in
    /// its prolog.
    pub prolog_secs: f64,
    /// How long after its launch a lead claims all planned nodes, seconds.
    pub claim_secs: f64,
    /// How long after its release a lead must run, seconds.
    pub lead_start_secs: f64,
    /// First back-off after a failed start, seconds.
    pub backoff_secs: f64,
    /// Longest back-off after failed starts, seconds.
    pub backoff_max_secs: f64,
}
