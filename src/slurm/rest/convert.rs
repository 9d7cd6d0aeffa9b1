//! From slurmrestd's records to the model. A record that cannot be read is told by name, never guessed at.

use std::borrow::Cow;

use super::field::{Number, Text, Words};
use super::record::{Field, Record, Shared};
use super::wire;
use crate::model::{
    BaseState, Job, JobId, JobState, Node, NodeName, NodeState, Reservation, UnixTime, UserId, hostlist,
};
use crate::slurm::gres;

impl Record for Node {
    const LIST: &'static str = "nodes";
    const KIND: &'static str = "node";
    type Wire<'a> = wire::Node<'a>;

    fn name(wire: &wire::Node<'_>) -> Option<String> {
        value(&wire.name).map(str::to_owned)
    }
    fn convert(wire: &wire::Node<'_>, shared: &mut Shared) -> Field<Self> {
        node(wire, shared)
    }
}

impl Record for Job {
    const LIST: &'static str = "jobs";
    const KIND: &'static str = "job";
    type Wire<'a> = wire::Job<'a>;

    fn name(wire: &wire::Job<'_>) -> Option<String> {
        if let Number::Value(id) = wire.job_id { Some(id.to_string()) } else { None }
    }
    fn convert(wire: &wire::Job<'_>, shared: &mut Shared) -> Field<Self> {
        job(wire, shared)
    }
}

impl Record for Reservation {
    const LIST: &'static str = "reservations";
    const KIND: &'static str = "reservation";
    type Wire<'a> = wire::Reservation<'a>;

    fn name(wire: &wire::Reservation<'_>) -> Option<String> {
        value(&wire.name).map(str::to_owned)
    }
    fn convert(wire: &wire::Reservation<'_>, shared: &mut Shared) -> Field<Self> {
        reservation(wire, shared)
    }
}

fn node(w: &wire::Node<'_>, shared: &mut Shared) -> Field<Node> {
    let name = non_empty(&w.name, "name")?;
    let words = words(&w.state, "state")?;
    if words.is_empty() {
        return Err("state");
    }
    let cpus = match w.cpus {
        Number::Value(n) => n,
        Number::Unset => 0,
        Number::Infinite | Number::Bad => return Err("cpus"),
    };
    let features = words_or_none(&w.features, "features")?;
    let address = text(&w.address, "address")?;
    Ok(Node {
        name: shared.name(name),
        address: if address.is_empty() { name.to_owned() } else { address.to_owned() },
        state: NodeState::from_words(words),
        partitions: owned(words_or_none(&w.partitions, "partitions")?),
        node_type: shared.node_type(gres::node_type(text(&w.gres, "gres")?, cpus, features)),
        reason: Some(text(&w.reason, "reason")?).filter(|r| !r.is_empty()).map(str::to_owned),
    })
}

fn reservation(w: &wire::Reservation<'_>, shared: &mut Shared) -> Field<Reservation> {
    // A reservation without an end covers its nodes for good.
    let end = match w.end_time {
        Number::Infinite => UnixTime(i64::MAX),
        _ => time(w.end_time, "end_time")?.ok_or("end_time")?,
    };
    Ok(Reservation {
        name: non_empty(&w.name, "name")?.to_owned(),
        start_time: time(w.start_time, "start_time")?.ok_or("start_time")?,
        end_time: end,
        nodes: host_list(shared, &w.node_list, "node_list")?,
        flags: owned(words_or_none(&w.flags, "flags")?),
    })
}

fn job(w: &wire::Job<'_>, shared: &mut Shared) -> Field<Job> {
    let id = natural(w.job_id, "job_id")?.filter(|id| *id > 0).ok_or("job_id")?;
    let nodes = host_list(shared, &w.nodes, "nodes")?;
    let node_count = natural(w.node_count, "node_count")?.unwrap_or(nodes.len() as u32);
    let string = |t: &Text<'_>, field| text(t, field).map(str::to_owned);
    let state = job_state(words(&w.job_state, "job_state")?)?;
    let host = text(&w.batch_host, "batch_host")?;
    let gres = gres::per_node(
        text(&w.tres_per_node, "tres_per_node")?,
        text(&w.tres_req_str, "tres_req_str")?,
        node_count,
    );
    Ok(Job {
        id: JobId(id),
        user_id: UserId(natural(w.user_id, "user_id")?.ok_or("user_id")?),
        user_name: string(&w.user_name, "user_name")?,
        account: string(&w.account, "account")?,
        name: string(&w.name, "name")?,
        partition: string(&w.partition, "partition")?,
        qos: string(&w.qos, "qos")?,
        held: held(w, &state)?,
        state,
        state_reason: string(&w.state_reason, "state_reason")?,
        submit_time: time(w.submit_time, "submit_time")?,
        start_time: time(w.start_time, "start_time")?,
        end_time: time(w.end_time, "end_time")?,
        time_limit_mins: time_limit(w.time_limit)?,
        batch_host: Some(host).filter(|h| !h.is_empty()).map(|h| shared.name(h)),
        nodes,
        scheduled_nodes: host_list(shared, &w.scheduled_nodes, "scheduled_nodes")?,
        node_count,
        comment: string(&w.comment, "comment")?,
        admin_comment: string(&w.admin_comment, "admin_comment")?,
        gres,
    })
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

fn natural(n: Number, field: &'static str) -> Field<Option<u32>> {
    match n {
        Number::Value(n) => u32::try_from(n).map(Some).map_err(|_| field),
        Number::Unset => Ok(None),
        Number::Infinite | Number::Bad => Err(field),
    }
}

fn owned(words: &[Cow<'_, str>]) -> Vec<String> {
    words.iter().map(|w| w.clone().into_owned()).collect()
}

fn host_list(shared: &mut Shared, t: &Text<'_>, field: &'static str) -> Field<Vec<NodeName>> {
    hostlist::expand_as(text(t, field)?, |name| shared.name(name)).map_err(|_| field)
}
