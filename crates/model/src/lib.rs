//! Pure values that all other crates use: ids, time, nodes, jobs, snapshots, gaps, profiles, plans, traces.
//!
//! This crate does no I/O, reads no clock and draws no random numbers, except in `clock` and `config`.

#![warn(clippy::disallowed_types)]

mod agent_event;
mod allowed_sizes;
mod blackout;
mod change_kind;
#[expect(clippy::disallowed_types, reason = "the only place that reads the clock, for the edges")]
pub mod clock;
mod closed_machine;
mod collectives;
mod command_exit;
pub mod config;
mod constraint;
mod contention;
mod counted_noun;
mod cpu_memory;
mod credential;
mod daemon_mode;
mod declared_plan;
pub mod dependency;
mod directive;
pub mod duration;
mod ended_job;
pub mod error_causes;
mod excluded_nodes;
mod exec_plan;
mod gap;
mod gap_refusal;
mod generation;
mod generation_stop;
mod gpu_use;
mod host_shortage;
pub mod hostlist;
mod ids;
mod job;
mod job_activity;
mod job_array;
mod job_facts;
mod job_progress;
mod job_request;
mod job_run;
mod keep_idle;
mod layers;
mod lead_record;
mod main_delay;
pub mod malleable;
mod malleable_state;
mod memory_size;
pub mod moment;
pub mod munge;
mod node;
mod node_count;
mod node_reason;
mod node_strike;
mod node_time;
mod node_usage;
mod objective;
mod past_job;
mod plan;
mod plan_bounds;
mod private_data;
mod probe;
pub mod profile;
mod progress_report;
mod rate_guarantee;
mod rate_source;
mod reason;
mod report_config;
mod resources;
mod round;
mod round_note;
mod round_report;
mod run_spec;
mod sentence;
mod snapshot;
mod start_blocker;
mod status_comment;
mod time;
mod topology;
pub mod trace;
mod turn_state;
mod window;
mod wing_order;
pub mod words;

pub use agent_event::{AgentEvent, AgentEventKind, FaultSource, WorkerStartup};
pub(crate) use allowed_sizes::SizesError;
pub use allowed_sizes::{AllowedSizes, MAX_NODES_A_JOB};
pub use blackout::{BlackoutError, BlackoutSpan, WeeklyBlackout, next_blackout};
pub use change_kind::ChangeKind;
pub use closed_machine::{ClosedJob, EstimateRow, SpeedRow};
pub use collectives::{
    CollectiveOp, CollectiveRow, CollectivesError, MAX_COLLECTIVE_RANKS, MAX_COLLECTIVE_ROWS,
    SiteCollectives, TypeCollectives,
};
pub use command_exit::CommandExit;
pub use constraint::{Constraint, ConstraintError};
pub use contention::{SAVE_CLASSES, SaveContention, save_class};
pub use counted_noun::counted_noun;
pub use cpu_memory::{CpuMemory, PlaceShare};
pub use credential::{Credential, Secret, bound_payload, hello_payload};
pub use daemon_mode::{ControlState, DaemonMode, LendingMode, MetricsAccess, ReadAccess};
pub use declared_plan::{DeclaredPlan, MOST_PLAN_CHARS, MOST_PLAN_TYPES, MOST_PLANS, PlanNeeds};
pub use directive::{Directive, GenerationMember, GenerationRendezvous};
pub use ended_job::{EndedJob, strip_digits};
pub use excluded_nodes::ExcludedNodes;
pub use exec_plan::{ModelFacts, ParallelStrategy, Parallelism, PlanMeasurement, Precision};
pub use gap::{EndedGap, Gap, GapSet};
pub use gap_refusal::GapRefusal;
pub use generation::{GenerationRecord, generations_of_last_job};
pub use generation_stop::{GenerationStop, StopOutcome};
pub use gpu_use::GpuUse;
pub use host_shortage::{HostPart, HostShortage};
pub use ids::{JobId, NodeName, NodeType, UserId};
pub use job::{BaseState, Job, JobRequirements, JobState, is_waiting_for_nodes};
pub use job_activity::JobActivity;
pub use job_array::{ArrayPart, MAX_LISTED_TASKS, UnsplitTasks, is_task_name};
pub use job_facts::{ChangePause, JobDeclaration, JobFacts, JobLocation, ProgramIdentity, ResizeState};
pub use job_progress::{JobProgress, OWNER_WEIGHTS, UserEstimate};
pub use job_request::{
    CommentOptions, JobRequest, RequestError, WorkerShare, lead_from_wing_name, lead_of_wing,
    order_from_comment, place_from_comment, wing_comment, wing_name,
};
pub use job_run::JobRun;
pub use keep_idle::KeepIdle;
pub use layers::{LAYERS_VERSION, LayerProfile, LayersError, MOST_PROFILED_LAYERS, ProfiledLayer};
pub use lead_record::LeadRecord;
pub use main_delay::MainDelay;
pub use malleable::{HeldNode, MalleableJob, SchedulingState};
pub use malleable_state::MalleableState;
pub use memory_size::{MOST_MEMORY_MIB, MemorySize, MemorySizeError};
pub use moment::MomentError;
pub use node::{Node, NodeState};
pub use node_count::NodeCount;
pub use node_reason::{NodeReason, NodeReasonKind, WantedAt};
pub use node_strike::NodeStrike;
pub use node_time::{NodeTimeKey, NodeTimeRow, NodeTimeUsage};
pub use node_usage::{NodeUsageSecs, PackedHour};
pub use objective::PlanningObjective;
pub use past_job::{PastJob, Submission};
pub use plan::{BoundSource, JobPlan, OptimalityProof, Plan, PlannedNode, SolveStatus, SolveStatusKind};
pub use plan_bounds::{
    MOST_BATCH, MOST_HIDDEN, MOST_LAYERS, MOST_SEQUENCE, MOST_WAYS, MOST_ZERO, OutOfBounds,
};
pub use private_data::PrivateData;
pub use probe::Probe;
pub use profile::{
    BatchMode, ChangeCost, CurvePoint, ExecPlan, LiveChange, LiveCosts, MeasuredCosts, Profile,
    ProfileFilter, ProfileKey, RescaleCosts, RescaleMode, ScalingCurve, SizePoint, Spread,
};
pub use progress_report::{GenerationStartup, ProgressReport};
pub use rate_guarantee::{
    GuaranteeProspect, GuaranteeReason, GuaranteedRate, MinimumRate, RateGuarantee, RequestedRun,
    SufficientSizes,
};
pub use rate_source::RateSource;
pub use reason::{JobReason, JobReasonKind, LeavingNodes, NodeShortage, RatedSize};
pub use report_config::ReportConfig;
pub use resources::{AllocatedResources, GpuCounts, GpuShare, LendingRules, LendingUnit, Resources};
pub use round::RoundSummary;
pub use round_note::RoundNote;
pub use round_report::{JobVerdict, NodeVerdict, RoundReport};
pub use run_spec::{MAX_NAME_CHARS, MAX_SETUP_SECS, MOST_GPUS_A_NODE, RequestedSize, RunSpec, is_valid_rate};
pub use snapshot::{BackfillState, LAUNCH_SECS, MIN_TIME_LIMIT_SECS, Reservation, Snapshot, SnapshotDoubt};
pub use start_blocker::{HoldKind, StartBlocker};
pub use status_comment::comment_with_status;
pub use time::UnixTime;
pub use topology::{SwitchId, SwitchRecord, Topology, TopologyError, TopologyWarning};
pub use trace::{
    EndedLog, IdleInterval, IdleLog, JobLog, LoggedJob, MalformedLine, NamedCurve, ParsedFile, WorkloadJob,
};
pub use turn_state::{QueuePosition, TurnState};
pub use window::{WindowCause, WindowEnd};
pub use wing_order::WingOrder;
pub use words::UnknownWord;
