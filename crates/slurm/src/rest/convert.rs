//! Converts slurmrestd's records to the model. A field that cannot be read is reported by name and never
//! guessed.

use std::borrow::Cow;

use super::field::{WireNumber, WireText, WireWords};
use super::record::{FieldResult, RecordFlaws, SharedNames, WireRecord, whole_number};
use super::{node_resources, wire};
use crate::gres;
use infill_model::{
    ArrayPart, BaseState, Job, JobId, JobRequirements, JobState, Node, NodeName, NodeState, Reservation,
    UnixTime, UserId, hostlist,
};

impl WireRecord for Node {
    const LIST: &'static str = "nodes";
    const KIND: &'static str = "node";
    type Wire<'a> = wire::WireNode<'a>;

    fn record_name(wire: &wire::WireNode<'_>) -> Option<String> {
        text_value(&wire.name).map(str::to_owned)
    }
    fn from_wire(wire: &wire::WireNode<'_>, shared: &mut SharedNames, flaws: &mut RecordFlaws) -> Self {
        convert_node(wire, shared, flaws)
    }
}

impl WireRecord for Job {
    const LIST: &'static str = "jobs";
    const KIND: &'static str = "job";
    type Wire<'a> = wire::WireJob<'a>;

    fn record_name(wire: &wire::WireJob<'_>) -> Option<String> {
        if let WireNumber::Value(id) = wire.job_id { Some(id.to_string()) } else { None }
    }
    fn from_wire(wire: &wire::WireJob<'_>, shared: &mut SharedNames, flaws: &mut RecordFlaws) -> Self {
        convert_job(wire, shared, flaws)
    }
}

impl WireRecord for Reservation {
    const LIST: &'static str = "reservations";
    const KIND: &'static str = "reservation";
    type Wire<'a> = wire::WireReservation<'a>;

    fn record_name(wire: &wire::WireReservation<'_>) -> Option<String> {
        text_value(&wire.name).map(str::to_owned)
    }
    fn from_wire(
        wire: &wire::WireReservation<'_>,
        shared: &mut SharedNames,
        flaws: &mut RecordFlaws,
    ) -> Self {
        convert_reservation(wire, shared, flaws)
    }
}

/// A node with unreadable fields takes no new work: it gets Slurm's state UNKNOWN.
fn convert_node(w: &wire::WireNode<'_>, shared: &mut SharedNames, flaws: &mut RecordFlaws) -> Node {
    let name = flaws.or_default(non_empty(&w.name, "name"));
    let mut state = NodeState::from_words(flaws.or_default(state_words(&w.state)));
    let features = flaws.or_default(words_or_none(&w.features, "features"));
    // Features that need a reboot are not available now, so the active ones count where Slurm lists them.
    let active = flaws.or_default(words_or_none(&w.active_features, "active_features"));
    let present_features = if w.active_features == WireWords::Unset { features } else { active };
    let cpus = flaws.or_default(cpus(w.cpus));
    let gres = flaws.or_default(text_or_empty(&w.gres, "gres"));
    let address = flaws.or_default(text_or_empty(&w.address, "address"));
    let partitions = owned_words(flaws.or_default(words_or_none(&w.partitions, "partitions")));
    let reason = flaws.or_default(text_or_empty(&w.reason, "reason"));
    if !flaws.0.is_empty() {
        state.insert("UNKNOWN");
    }
    Node {
        name: shared.intern_name(name),
        address: if address.is_empty() { name.to_owned() } else { address.to_owned() },
        state,
        partitions,
        node_type: shared.intern_node_type(gres::node_type(gres, cpus, features)),
        features: owned_words(present_features),
        reason: Some(reason).filter(|r| !r.is_empty()).map(str::to_owned),
        has: node_resources::node_capacity(w),
        used: node_resources::node_usage(w),
        share: None,
    }
}

fn state_words<'w, 'a>(w: &'w WireWords<'a>) -> FieldResult<&'w [Cow<'a, str>]> {
    require_words(w, "state").and_then(|words| if words.is_empty() { Err("state") } else { Ok(words) })
}

fn cpus(w: WireNumber) -> FieldResult<i64> {
    match w {
        WireNumber::Value(n) => Ok(n),
        WireNumber::Unset => Ok(0),
        WireNumber::Infinite | WireNumber::Bad => Err("cpus"),
    }
}

fn convert_reservation(
    w: &wire::WireReservation<'_>,
    shared: &mut SharedNames,
    flaws: &mut RecordFlaws,
) -> Reservation {
    // A reservation without an end covers its nodes forever.
    let end = match w.end_time {
        WireNumber::Infinite => Ok(UnixTime(i64::MAX)),
        _ => unix_time(w.end_time, "end_time").and_then(|t| t.ok_or("end_time")),
    };
    Reservation {
        name: flaws.or_default(non_empty(&w.name, "name")).to_owned(),
        start_time: flaws
            .or_default(unix_time(w.start_time, "start_time").and_then(|t| t.ok_or("start_time"))),
        end_time: flaws.or_default(end),
        nodes: flaws.or_default(host_list(shared, &w.node_list, "node_list")),
        flags: owned_words(flaws.or_default(words_or_none(&w.flags, "flags"))),
    }
}

fn convert_job(w: &wire::WireJob<'_>, shared: &mut SharedNames, flaws: &mut RecordFlaws) -> Job {
    let id = whole_number(w.job_id, "job_id").and_then(|id| id.filter(|id| *id > 0).ok_or("job_id"));
    let nodes = flaws.or_default(host_list(shared, &w.nodes, "nodes"));
    let node_count = whole_number(w.node_count, "node_count").map(|n| n.unwrap_or(nodes.len() as u32));
    let node_count = flaws.or_default(node_count);
    let state = require_words(&w.job_state, "job_state").and_then(job_state).unwrap_or_else(|field| {
        flaws.0.push(field);
        JobState::from_base(BaseState::Unknown(String::new()))
    });
    let user_name = owned_text(flaws, &w.user_name, "user_name");
    let account = owned_text(flaws, &w.account, "account");
    let name = owned_text(flaws, &w.name, "name");
    let partition = owned_text(flaws, &w.partition, "partition");
    let qos = owned_text(flaws, &w.qos, "qos");
    let state_reason = owned_text(flaws, &w.state_reason, "state_reason");
    let state_description = owned_text(flaws, &w.state_description, "state_description");
    let comment = owned_text(flaws, &w.comment, "comment");
    let admin_comment = owned_text(flaws, &w.admin_comment, "admin_comment");
    let host = flaws.or_default(text_or_empty(&w.batch_host, "batch_host"));
    let per_node = flaws.or_default(text_or_empty(&w.tres_per_node, "tres_per_node"));
    let total = flaws.or_default(text_or_empty(&w.tres_req_str, "tres_req_str"));
    let user_id = whole_number(w.user_id, "user_id").and_then(|id| id.ok_or("user_id"));
    let allocations =
        if state.occupies_nodes() { node_resources::job_allocations(w, shared) } else { Vec::new() };
    Job {
        id: JobId(flaws.or_default(id)),
        user_id: UserId(flaws.or_default(user_id)),
        user_name,
        account,
        name,
        partition,
        qos,
        held: flaws.or_default(is_held(w, &state)),
        state,
        state_reason,
        state_description,
        submit_time: flaws.or_default(unix_time(w.submit_time, "submit_time")),
        start_time: flaws.or_default(unix_time(w.start_time, "start_time")),
        end_time: flaws.or_default(unix_time(w.end_time, "end_time")),
        preempt_time: flaws.or_default(unix_time(w.preempt_time, "preempt_time")),
        time_limit_mins: flaws.or_default(time_limit(w.time_limit)),
        batch_host: Some(host).filter(|h| !h.is_empty()).map(|h| shared.intern_name(h)),
        nodes,
        allocations,
        wants: node_resources::job_request(w, node_count),
        scheduled_nodes: flaws.or_default(host_list(shared, &w.scheduled_nodes, "scheduled_nodes")),
        node_count,
        comment,
        admin_comment,
        gres: gres::gres_per_node(per_node, total, node_count),
        asks: job_requirements(w, flaws),
        array: array_part(w, flaws),
    }
}

/// The part of an array that the record stands for. Where that cannot be read, it stands for an unknown
/// number of tasks, so that no one starts all of them.
fn array_part(w: &wire::WireJob<'_>, flaws: &mut RecordFlaws) -> Option<ArrayPart> {
    let known = flaws.0.len();
    let array = flaws.or_default(whole_number(w.array_job_id, "array_job_id")).unwrap_or(0);
    let task = flaws.or_default(whole_number(w.array_task_id, "array_task_id"));
    let limit = flaws.or_default(whole_number(w.array_max_tasks, "array_max_tasks")).unwrap_or(0);
    let text = flaws.or_default(text_or_empty(&w.array_task_string, "array_task_string"));
    if flaws.0.len() > known {
        let id = whole_number(w.job_id, "job_id").ok().flatten().unwrap_or(0);
        return ArrayPart::from_record(id, None, "", 0);
    }
    ArrayPart::from_record(array, task, text, limit)
}

fn job_requirements(w: &wire::WireJob<'_>, flaws: &mut RecordFlaws) -> JobRequirements {
    JobRequirements {
        constraint: owned_text(flaws, &w.features, "features"),
        exclude: owned_text(flaws, &w.excluded_nodes, "excluded_nodes"),
        pinned: owned_text(flaws, &w.required_nodes, "required_nodes"),
        dependency: owned_text(flaws, &w.dependency, "dependency"),
        reservation: owned_text(flaws, &w.resv_name, "resv_name"),
        begin: flaws.or_default(unix_time(w.eligible_time, "eligible_time")),
        requeues: flaws.or_default(whole_number(w.restart_cnt, "restart_cnt")).unwrap_or(0),
    }
}

fn owned_text(flaws: &mut RecordFlaws, text: &WireText<'_>, field: &'static str) -> String {
    flaws.or_default(text_or_empty(text, field)).to_owned()
}

fn is_held(w: &wire::WireJob<'_>, state: &JobState) -> FieldResult<bool> {
    let priority_is_zero = match w.priority {
        WireNumber::Value(n) => n == 0,
        WireNumber::Unset | WireNumber::Infinite => false,
        WireNumber::Bad => return Err("priority"),
    };
    let flagged = match w.hold {
        WireNumber::Value(n) => n != 0,
        WireNumber::Unset => false,
        WireNumber::Infinite | WireNumber::Bad => return Err("hold"),
    };
    Ok(state.is_pending() && (priority_is_zero || flagged))
}

fn time_limit(w: WireNumber) -> FieldResult<Option<u64>> {
    match w {
        WireNumber::Value(n) => u64::try_from(n).map(Some).map_err(|_| "time_limit"),
        WireNumber::Unset | WireNumber::Infinite => Ok(None),
        WireNumber::Bad => Err("time_limit"),
    }
}

/// The first word that is a base state is the base; all others are flags.
fn job_state(words: &[Cow<'_, str>]) -> FieldResult<JobState> {
    let at = words.iter().position(|w| base_state(w).is_some()).unwrap_or(0);
    let first = words.get(at).ok_or("job_state")?;
    let base = base_state(first).unwrap_or_else(|| BaseState::Unknown(first.to_ascii_uppercase()));
    let others = words.iter().enumerate().filter(|(i, _)| *i != at);
    Ok(JobState { base, flags: others.map(|(_, w)| w.to_ascii_uppercase()).collect() })
}

/// Slurm writes these words in upper case; other cases are accepted too.
fn base_state(word: &str) -> Option<BaseState> {
    let upper;
    let word = if word.bytes().any(|b| b.is_ascii_lowercase()) {
        upper = word.to_ascii_uppercase();
        upper.as_str()
    } else {
        word
    };
    Some(match word {
        "PENDING" => BaseState::Pending,
        "RUNNING" => BaseState::Running,
        "SUSPENDED" => BaseState::Suspended,
        "COMPLETED" => BaseState::Completed,
        "CANCELLED" => BaseState::Cancelled,
        "FAILED" => BaseState::Failed,
        "TIMEOUT" => BaseState::Timeout,
        "NODE_FAIL" => BaseState::NodeFail,
        "PREEMPTED" => BaseState::Preempted,
        "BOOT_FAIL" => BaseState::BootFail,
        "DEADLINE" => BaseState::Deadline,
        "OUT_OF_MEMORY" => BaseState::OutOfMemory,
        _ => return None,
    })
}

fn text_value<'t>(t: &'t WireText<'_>) -> Option<&'t str> {
    match t {
        WireText::Value(s) => Some(s),
        WireText::Unset | WireText::Bad => None,
    }
}

fn text_or_empty<'t>(t: &'t WireText<'_>, field: &'static str) -> FieldResult<&'t str> {
    match t {
        WireText::Value(s) => Ok(s),
        WireText::Unset => Ok(""),
        WireText::Bad => Err(field),
    }
}

fn non_empty<'t>(t: &'t WireText<'_>, field: &'static str) -> FieldResult<&'t str> {
    text_value(t).filter(|s| !s.is_empty()).ok_or(field)
}

fn require_words<'w, 'a>(w: &'w WireWords<'a>, field: &'static str) -> FieldResult<&'w [Cow<'a, str>]> {
    match w {
        WireWords::Value(words) => Ok(words),
        WireWords::Unset | WireWords::Bad => Err(field),
    }
}

fn words_or_none<'w, 'a>(w: &'w WireWords<'a>, field: &'static str) -> FieldResult<&'w [Cow<'a, str>]> {
    if *w == WireWords::Unset { Ok(&[]) } else { require_words(w, field) }
}

/// A time, or `None` if it is unknown. Slurm writes 0 for an unknown time; an infinite one counts as unknown.
pub(super) fn unix_time(n: WireNumber, field: &'static str) -> FieldResult<Option<UnixTime>> {
    match n {
        WireNumber::Value(secs) => Ok(Some(UnixTime(secs)).filter(|t| t.0 > 0)),
        WireNumber::Unset | WireNumber::Infinite => Ok(None),
        WireNumber::Bad => Err(field),
    }
}

fn owned_words(words: &[Cow<'_, str>]) -> Vec<String> {
    words.iter().map(|w| w.clone().into_owned()).collect()
}

fn host_list(shared: &mut SharedNames, t: &WireText<'_>, field: &'static str) -> FieldResult<Vec<NodeName>> {
    hostlist::expand_hostlist_with(text_or_empty(t, field)?, |name| shared.intern_name(name))
        .map_err(|_| field)
}
