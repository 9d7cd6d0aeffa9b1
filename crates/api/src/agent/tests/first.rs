//! Messages of protocol 1, as commit 3970351 wrote them, and its rules of reading: fields that it does not
//! know it ignores, everything else it must find.

use infill_model::{
    AgentEvent, Credential, Directive, JobId, ModelFacts, NodeName, ParallelStrategy, RunSpec, Secret,
    WingOrder,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::*;
use crate::{AgentDialect, Capability, CapabilitySet};

const RECORDED: &str = include_str!("../../../schema/first.json");

/// All recorded messages of this kind.
fn recorded<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let all: Value = serde_json::from_str(RECORDED).unwrap();
    let messages: Vec<T> = all[kind]
        .as_array()
        .unwrap()
        .iter()
        .map(|message: &Value| {
            serde_json::from_value(message.clone()).unwrap_or_else(|e| panic!("{kind}: {e}: {message}"))
        })
        .collect();
    assert!(!messages.is_empty());
    messages
}

#[test]
fn what_the_first_protocol_said_is_understood_whole() {
    let hellos: Vec<AgentHello> = recorded("hello");
    assert!(hellos.iter().all(|hello| AgentDialect::from_hello(hello) == AgentDialect::first_protocol()));
    assert_eq!([hellos[0].role, hellos[1].role], [AgentRole::Lead, AgentRole::Wing { lead: JobId(6) }]);
    let spec = hellos[0].spec.as_ref().unwrap();
    assert!(spec.sizes.is_some() && spec.curve.is_some() && spec.costs.is_some() && spec.plans.len() == 1);
    let plan = &spec.plans[0];
    assert_eq!(
        (plan.strategy, plan.needs.is_empty(), spec.model, spec.gpus_per_node),
        (None, true, None, None)
    );
    let welcomes: Vec<AgentWelcome> = recorded("welcome");
    assert!(welcomes.iter().all(|welcome| welcome.protocol == FIRST_PROTOCOL));
    assert_eq!(recorded::<AgentPoll>("poll")[0].wait_secs, 30);
    let mut kinds = std::collections::BTreeSet::new();
    for heard in recorded::<RawAssignment>("assignment") {
        let (assignment, unknown) = heard.decode_known(&Directive::Finish { code: 99 });
        assert_eq!((unknown, assignment.wings.len()), (vec![], 1));
        let word = serde_json::to_value(&assignment.directive).unwrap();
        kinds.insert(
            word.as_str()
                .map_or_else(|| word.as_object().unwrap().keys().next().unwrap().clone(), str::to_owned),
        );
    }
    let all = ["finish", "hold", "leave", "part", "regroup", "rescue", "run", "stop", "warm"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
    let (report, unknown) = recorded::<RawReport>("report").remove(0).decode_known();
    let events: std::collections::BTreeSet<_> = report.events.iter().map(AgentEvent::kind).collect();
    assert_eq!((unknown, events.len()), (vec![], 14));
}

/// What it wrote is what it means now: nothing was renamed, and no default has changed.
#[test]
fn what_the_first_protocol_said_is_said_in_the_same_words() {
    fn same<T: DeserializeOwned + Serialize>(kind: &str) {
        let all: Value = serde_json::from_str(RECORDED).unwrap();
        for (message, was) in recorded::<T>(kind).iter().zip(all[kind].as_array().unwrap()) {
            contains(&serde_json::to_value(message).unwrap(), was, kind);
        }
    }
    fn contains(is: &Value, was: &Value, at: &str) {
        match (is, was) {
            (Value::Object(is), Value::Object(was)) => {
                was.iter().for_each(|(key, value)| contains(&is[key], value, &format!("{at}.{key}")));
            }
            _ => assert_eq!(is, was, "{at}"),
        }
    }
    same::<AgentHello>("hello");
    same::<AgentWelcome>("welcome");
    same::<AgentPoll>("poll");
    same::<AgentAssignment>("assignment");
    same::<AgentReport>("report");
}

/// The messages as they were declared then. Each must find all its fields.
mod then {
    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "that it can be read is what is looked at")]
    pub struct Hello {
        credential: Credential,
        nonce: String,
        job: JobId,
        role: AgentRole,
        node: NodeName,
        port: u16,
        running: Option<u64>,
        spec: Option<RunSpec>,
        version: String,
    }

    /// What a lead declared of its job, as far as plans go.
    #[derive(Deserialize)]
    pub struct Spec {
        pub plans: Vec<Plan>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    pub struct Plan {
        pub name: String,
        #[serde(default)]
        pub sizes: Option<infill_model::AllowedSizes>,
        #[serde(default)]
        pub node_types: Vec<String>,
        #[serde(default)]
        pub shards: bool,
    }

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "that it can be read is what is looked at")]
    pub struct Welcome {
        secret: Secret,
        preempt_leave_secs: f64,
        #[serde(default)]
        place: Option<NodeName>,
    }

    #[derive(Deserialize)]
    pub struct Assignment {
        pub version: u64,
        pub directive: Directive,
        pub wings: Vec<WingOrder>,
        #[serde(default)]
        pub notice: Option<String>,
    }
}

fn text(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap()
}

#[test]
fn what_is_said_now_is_understood_by_the_rules_of_then() {
    let capabilities = CapabilitySet::from_iter([Capability::SealedSession]);
    let hello =
        AgentHello { protocol: PROTOCOL, capabilities: capabilities.clone(), ..recorded("hello").remove(0) };
    let welcome = AgentWelcome { protocol: PROTOCOL, capabilities, ..recorded("welcome").remove(0) };
    assert!(text(&hello).contains("sealed_session") && text(&welcome).contains("sealed_session"));
    serde_json::from_str::<then::Hello>(&text(&hello)).unwrap();
    serde_json::from_str::<then::Welcome>(&text(&welcome)).unwrap();
    for assignment in recorded::<AgentAssignment>("assignment") {
        let then: then::Assignment = serde_json::from_str(&text(&assignment)).unwrap();
        assert_eq!(
            (then.version, then.directive, then.wings, then.notice),
            (assignment.version, assignment.directive, assignment.wings, assignment.notice)
        );
    }
}

#[test]
fn what_is_said_now_of_plans_and_models_leaves_what_was_said_then_as_it_was() {
    let mut hello: AgentHello = recorded("hello").remove(0);
    let spec = hello.spec.as_mut().unwrap();
    spec.model = Some(ModelFacts::from_params(1500.0));
    spec.gpus_per_node = Some(8);
    spec.plans[0].strategy = Some(ParallelStrategy { tp: 2, ..ParallelStrategy::default() });
    spec.plans[0].needs.cpus = Some(4);
    let said: Value = serde_json::from_str(&text(&hello)).unwrap();
    assert_eq!(
        (&said["spec"]["model"]["params_mi"], &said["spec"]["gpus_per_node"]),
        (&1500.0.into(), &8.into())
    );
    assert_eq!(
        (&said["spec"]["plans"][0]["strategy"]["tp"], &said["spec"]["plans"][0]["needs"]["cpus"]),
        (&2.into(), &4.into())
    );
    let then::Spec { plans } = serde_json::from_value(said["spec"].clone()).unwrap();
    let was = then::Plan { name: "dp2".to_owned(), sizes: None, node_types: vec![], shards: false };
    assert_eq!(plans, [was]);
    // A daemon of now hears it all.
    assert_eq!(serde_json::from_value::<AgentHello>(said).unwrap().spec, hello.spec);
}

#[test]
fn a_field_that_comes_later_is_ignored_wherever_it_stands() {
    let all: Value = serde_json::from_str(RECORDED).unwrap();
    let mut hello = all["hello"][0].clone();
    hello["later"] = Value::from(1);
    hello["spec"]["later"] = Value::from(1);
    hello["spec"]["plans"][0]["later"] = Value::from(1);
    serde_json::from_value::<AgentHello>(hello).unwrap();
    let mut report = all["report"][0].clone();
    for event in report["events"].as_array_mut().unwrap().iter_mut().filter_map(Value::as_object_mut) {
        event.values_mut().filter_map(Value::as_object_mut).for_each(|fields| {
            fields.insert("later".to_owned(), Value::from(1));
        });
    }
    let (_, unknown) = serde_json::from_value::<RawReport>(report).unwrap().decode_known();
    assert_eq!(unknown, Vec::<String>::new());
    for mut assignment in all["assignment"].as_array().unwrap().clone() {
        assignment["later"] = Value::from(1);
        assignment["wings"][0]["later"] = Value::from(1);
        if let Some(fields) = assignment["directive"].as_object_mut() {
            fields.values_mut().for_each(|fields| fields["later"] = Value::from(1));
        }
        let (_, unknown) =
            serde_json::from_value::<RawAssignment>(assignment).unwrap().decode_known(&Directive::Hold);
        assert_eq!(unknown, Vec::<String>::new());
    }
}
