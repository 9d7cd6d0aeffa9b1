//! From slurmrestd's records to the model. A field that cannot be read is told by name, never guessed at.

use std::borrow::Cow;

use super::field::{Number, Text, Words};
use super::record::{Field, Flaws, Record, Shared, natural};
use super::{shares, wire};
use crate::gres;
use infill_model::{
    BaseState, Job, JobId, JobRequirements, JobState, Node, NodeName, NodeState, Reservation, UnixTime,
    UserId, hostlist,
};

impl Record for Node {
    const LIST: &'static str = "nodes";
    const KIND: &'static str = "node";
    type Wire<'a> = wire::Node<'a>;

    fn name(wire: &wire::Node<'_>) -> Option<String> {
        value(&wire.name).map(str::to_owned)
    }
    fn convert(wire: &wire::Node<'_>, shared: &mut Shared, flaws: &mut Flaws) -> Self {
        node(wire, shared, flaws)
    }
}

impl Record for Job {
    const LIST: &'static str = "jobs";
    const KIND: &'static str = "job";
    type Wire<'a> = wire::Job<'a>;

    fn name(wire: &wire::Job<'_>) -> Option<String> {
        if let Number::Value(id) = wire.job_id { Some(id.to_string()) } else { None }
    }
    fn convert(wire: &wire::Job<'_>, shared: &mut Shared, flaws: &mut Flaws) -> Self {
        job(wire, shared, flaws)
    }
}

impl Record for Reservation {
    const LIST: &'static str = "reservations";
    const KIND: &'static str = "reservation";
    type Wire<'a> = wire::Reservation<'a>;

    fn name(wire: &wire::Reservation<'_>) -> Option<String> {
        value(&wire.name).map(str::to_owned)
    }
    fn convert(wire: &wire::Reservation<'_>, shared: &mut Shared, flaws: &mut Flaws) -> Self {
        reservation(wire, shared, flaws)
    }
}

/// A node of which something cannot be read takes no new work: Slurm's word for that is UNKNOWN.
fn node(w: &wire::Node<'_>, shared: &mut Shared, flaws: &mut Flaws) -> Node {
    let name = flaws.or_default(non_empty(&w.name, "name"));
    let mut state = NodeState::from_words(flaws.or_default(state_words(&w.state)));
    let features = flaws.or_default(words_or_none(&w.features, "features"));
    // What it could have after a reboot does not help anybody now.
    let active = flaws.or_default(words_or_none(&w.active_features, "active_features"));
    let has = if w.active_features == Words::Unset { features } else { active };
    let cpus = flaws.or_default(cpus(w.cpus));
    let gres = flaws.or_default(text(&w.gres, "gres"));
    let address = flaws.or_default(text(&w.address, "address"));
    let partitions = owned(flaws.or_default(words_or_none(&w.partitions, "partitions")));
    let reason = flaws.or_default(text(&w.reason, "reason"));
    if !flaws.0.is_empty() {
        state.insert("UNKNOWN");
    }
    Node {
        name: shared.name(name),
        address: if address.is_empty() { name.to_owned() } else { address.to_owned() },
        state,
        partitions,
        node_type: shared.node_type(gres::node_type(gres, cpus, features)),
        features: owned(has),
        reason: Some(reason).filter(|r| !r.is_empty()).map(str::to_owned),
        has: shares::has(w),
        used: shares::used(w),
        share: None,
    }
}

fn state_words<'w, 'a>(w: &'w Words<'a>) -> Field<&'w [Cow<'a, str>]> {
    words(w, "state").and_then(|words| if words.is_empty() { Err("state") } else { Ok(words) })
}

fn cpus(w: Number) -> Field<i64> {
    match w {
        Number::Value(n) => Ok(n),
        Number::Unset => Ok(0),
        Number::Infinite | Number::Bad => Err("cpus"),
    }
}

fn reservation(w: &wire::Reservation<'_>, shared: &mut Shared, flaws: &mut Flaws) -> Reservation {
    // A reservation without an end covers its nodes for good.
    let end = match w.end_time {
        Number::Infinite => Ok(UnixTime(i64::MAX)),
        _ => time(w.end_time, "end_time").and_then(|t| t.ok_or("end_time")),
    };
    Reservation {
        name: flaws.or_default(non_empty(&w.name, "name")).to_owned(),
        start_time: flaws.or_default(time(w.start_time, "start_time").and_then(|t| t.ok_or("start_time"))),
        end_time: flaws.or_default(end),
        nodes: flaws.or_default(host_list(shared, &w.node_list, "node_list")),
        flags: owned(flaws.or_default(words_or_none(&w.flags, "flags"))),
    }
}

fn job(w: &wire::Job<'_>, shared: &mut Shared, flaws: &mut Flaws) -> Job {
    let id = natural(w.job_id, "job_id").and_then(|id| id.filter(|id| *id > 0).ok_or("job_id"));
    let nodes = flaws.or_default(host_list(shared, &w.nodes, "nodes"));
    let node_count = natural(w.node_count, "node_count").map(|n| n.unwrap_or(nodes.len() as u32));
    let node_count = flaws.or_default(node_count);
    let state = words(&w.job_state, "job_state").and_then(job_state).unwrap_or_else(|field| {
        flaws.0.push(field);
        JobState::from_base(BaseState::Unknown(String::new()))
    });
    let mut string = |t: &Text<'_>, field| flaws.or_default(text(t, field)).to_owned();
    let (user_name, account) = (string(&w.user_name, "user_name"), string(&w.account, "account"));
    let (name, partition) = (string(&w.name, "name"), string(&w.partition, "partition"));
    let (qos, state_reason) = (string(&w.qos, "qos"), string(&w.state_reason, "state_reason"));
    let state_description = string(&w.state_description, "state_description");
    let (comment, admin_comment) = (string(&w.comment, "comment"), string(&w.admin_comment, "admin_comment"));
    let host = flaws.or_default(text(&w.batch_host, "batch_host"));
    let per_node = flaws.or_default(text(&w.tres_per_node, "tres_per_node"));
    let total = flaws.or_default(text(&w.tres_req_str, "tres_req_str"));
    let user_id = natural(w.user_id, "user_id").and_then(|id| id.ok_or("user_id"));
    let allocations = if state.occupies_nodes() { shares::allocations(w, shared) } else { Vec::new() };
    Job {
        id: JobId(flaws.or_default(id)),
        user_id: UserId(flaws.or_default(user_id)),
        user_name,
        account,
        name,
        partition,
        qos,
        held: flaws.or_default(held(w, &state)),
        state,
        state_reason,
        state_description,
        submit_time: flaws.or_default(time(w.submit_time, "submit_time")),
        start_time: flaws.or_default(time(w.start_time, "start_time")),
        end_time: flaws.or_default(time(w.end_time, "end_time")),
        preempt_time: flaws.or_default(time(w.preempt_time, "preempt_time")),
        time_limit_mins: flaws.or_default(time_limit(w.time_limit)),
        batch_host: Some(host).filter(|h| !h.is_empty()).map(|h| shared.name(h)),
        nodes,
        allocations,
        wants: shares::wants(w, node_count),
        scheduled_nodes: flaws.or_default(host_list(shared, &w.scheduled_nodes, "scheduled_nodes")),
        node_count,
        comment,
        admin_comment,
        gres: gres::per_node(per_node, total, node_count),
        asks: asks(w, flaws),
    }
}

fn asks(w: &wire::Job<'_>, flaws: &mut Flaws) -> JobRequirements {
    let mut string = |t: &Text<'_>, field| flaws.or_default(text(t, field)).to_owned();
    JobRequirements {
        constraint: string(&w.features, "features"),
        exclude: string(&w.excluded_nodes, "excluded_nodes"),
        pinned: string(&w.required_nodes, "required_nodes"),
        dependency: string(&w.dependency, "dependency"),
        reservation: string(&w.resv_name, "resv_name"),
        begin: flaws.or_default(time(w.eligible_time, "eligible_time")),
        requeues: flaws.or_default(natural(w.restart_cnt, "restart_cnt")).unwrap_or(0),
    }
}

fn held(w: &wire::Job<'_>, state: &JobState) -> Field<bool> {
    let priority_is_zero = match w.priority {
        Number::Value(n) => n == 0,
        Number::Unset | Number::Infinite => false,
        Number::Bad => return Err("priority"),
    };
    let flagged = match w.hold {
        Number::Value(n) => n != 0,
        Number::Unset => false,
        Number::Infinite | Number::Bad => return Err("hold"),
    };
    Ok(state.is_pending() && (priority_is_zero || flagged))
}

fn time_limit(w: Number) -> Field<Option<u64>> {
    match w {
        Number::Value(n) => u64::try_from(n).map(Some).map_err(|_| "time_limit"),
        Number::Unset | Number::Infinite => Ok(None),
        Number::Bad => Err("time_limit"),
    }
}

/// The first word that is a base state is the base; everything else is a flag.
fn job_state(words: &[Cow<'_, str>]) -> Field<JobState> {
    let at = words.iter().position(|w| base_state(w).is_some()).unwrap_or(0);
    let first = words.get(at).ok_or("job_state")?;
    let base = base_state(first).unwrap_or_else(|| BaseState::Unknown(first.to_ascii_uppercase()));
    let others = words.iter().enumerate().filter(|(i, _)| *i != at);
    Ok(JobState { base, flags: others.map(|(_, w)| w.to_ascii_uppercase()).collect() })
}

/// Slurm writes its words in upper case; others are read too.
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

fn value<'t>(t: &'t Text<'_>) -> Option<&'t str> {
    match t {
        Text::Value(s) => Some(s),
        Text::Unset | Text::Bad => None,
    }
}

fn text<'t>(t: &'t Text<'_>, field: &'static str) -> Field<&'t str> {
    match t {
        Text::Value(s) => Ok(s),
        Text::Unset => Ok(""),
        Text::Bad => Err(field),
    }
}

fn non_empty<'t>(t: &'t Text<'_>, field: &'static str) -> Field<&'t str> {
    value(t).filter(|s| !s.is_empty()).ok_or(field)
}

fn words<'w, 'a>(w: &'w Words<'a>, field: &'static str) -> Field<&'w [Cow<'a, str>]> {
    match w {
        Words::Value(words) => Ok(words),
        Words::Unset | Words::Bad => Err(field),
    }
}

fn words_or_none<'w, 'a>(w: &'w Words<'a>, field: &'static str) -> Field<&'w [Cow<'a, str>]> {
    if *w == Words::Unset { Ok(&[]) } else { words(w, field) }
}

/// Slurm writes 0 for a time that is not known; infinite is as good as unknown.
pub(super) fn time(n: Number, field: &'static str) -> Field<Option<UnixTime>> {
    match n {
        Number::Value(secs) => Ok(Some(UnixTime(secs)).filter(|t| t.0 > 0)),
        Number::Unset | Number::Infinite => Ok(None),
        Number::Bad => Err(field),
    }
}

fn owned(words: &[Cow<'_, str>]) -> Vec<String> {
    words.iter().map(|w| w.clone().into_owned()).collect()
}

fn host_list(shared: &mut Shared, t: &Text<'_>, field: &'static str) -> Field<Vec<NodeName>> {
    hostlist::expand_hostlist_with(text(t, field)?, |name| shared.name(name)).map_err(|_| field)
}
