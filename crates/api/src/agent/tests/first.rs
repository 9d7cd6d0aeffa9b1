//! Messages of protocol 1 as commit 3970351 wrote them, and how it read messages: it ignored fields that it
//! did not know, and required all others.

use infill_model::{
    AgentEvent, Credential, Directive, JobId, ModelFacts, NodeName, ParallelStrategy, RunSpec, Secret,
    WingOrder,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::*;
use crate::{AgentDialect, Capability, CapabilitySet};

const RECORDED: &str = include_str!("../../../schema/first.json");

/// All recorded messages of one kind.
fn recorded<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let all: Value = serde_json::from_str(RECORDED).unwrap();
    let messages: Vec<T> = all[kind]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| {
            serde_json::from_value(message.clone()).unwrap_or_else(|e| panic!("{kind}: {e}: {message}"))
        })
        .collect();
    assert!(!messages.is_empty());
    messages
}

#[test]
fn messages_of_the_first_protocol_are_understood_in_full() {
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
    for received in recorded::<RawAssignment>("assignment") {
        let (assignment, unknown) = received.decode_known(&Directive::Finish { code: 99 });
        assert_eq!((unknown, assignment.wings.len()), (vec![], 1));
        let directive = serde_json::to_value(&assignment.directive).unwrap();
        let kind = match directive.as_str() {
            Some(name) => name.to_owned(),
            None => directive.as_object().unwrap().keys().next().unwrap().clone(),
        };
        kinds.insert(kind);
    }
    let all = ["finish", "hold", "leave", "part", "regroup", "rescue", "run", "stop", "warm"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
    let (report, unknown) = recorded::<RawReport>("report").remove(0).decode_known();
    let events: std::collections::BTreeSet<_> = report.events.iter().map(AgentEvent::kind).collect();
    assert_eq!((unknown, events.len()), (vec![], 14));
}

/// Nothing was renamed, and no default has changed.
#[test]
fn messages_of_the_first_protocol_are_still_written_in_the_same_form() {
    fn assert_same<T: DeserializeOwned + Serialize>(kind: &str) {
        let all: Value = serde_json::from_str(RECORDED).unwrap();
        for (message, original) in recorded::<T>(kind).iter().zip(all[kind].as_array().unwrap()) {
            assert_contains(&serde_json::to_value(message).unwrap(), original, kind);
        }
    }
    fn assert_contains(present: &Value, original: &Value, path: &str) {
        match (present, original) {
            (Value::Object(present), Value::Object(original)) => {
                for (key, value) in original {
                    assert_contains(&present[key], value, &format!("{path}.{key}"));
                }
            }
            _ => assert_eq!(present, original, "{path}"),
        }
    }
    assert_same::<AgentHello>("hello");
    assert_same::<AgentWelcome>("welcome");
    assert_same::<AgentPoll>("poll");
    assert_same::<AgentAssignment>("assignment");
    assert_same::<AgentReport>("report");
}

/// The messages as protocol 1 declared them. Decoding requires all fields.
mod protocol_1 {
    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "the test only decodes it")]
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

    /// The part of a lead's declaration that concerns execution plans.
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
    #[allow(dead_code, reason = "the test only decodes it")]
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
fn the_first_protocol_understands_present_messages() {
    let capabilities = CapabilitySet::from_iter([Capability::SealedSession]);
    let hello =
        AgentHello { protocol: PROTOCOL, capabilities: capabilities.clone(), ..recorded("hello").remove(0) };
    let welcome = AgentWelcome { protocol: PROTOCOL, capabilities, ..recorded("welcome").remove(0) };
    assert!(text(&hello).contains("sealed_session") && text(&welcome).contains("sealed_session"));
    serde_json::from_str::<protocol_1::Hello>(&text(&hello)).unwrap();
    serde_json::from_str::<protocol_1::Welcome>(&text(&welcome)).unwrap();
    for assignment in recorded::<AgentAssignment>("assignment") {
        let old: protocol_1::Assignment = serde_json::from_str(&text(&assignment)).unwrap();
        assert_eq!(
            (old.version, old.directive, old.wings, old.notice),
            (assignment.version, assignment.directive, assignment.wings, assignment.notice)
        );
    }
}

#[test]
fn new_fields_of_plans_and_models_leave_the_fields_of_the_first_protocol_as_they_were() {
    let mut hello: AgentHello = recorded("hello").remove(0);
    let spec = hello.spec.as_mut().unwrap();
    spec.model = Some(ModelFacts::from_params(1500.0));
    spec.gpus_per_node = Some(8);
    spec.plans[0].strategy = Some(ParallelStrategy { tp: 2, ..ParallelStrategy::default() });
    spec.plans[0].needs.cpus = Some(4);
    let encoded: Value = serde_json::from_str(&text(&hello)).unwrap();
    assert_eq!(
        (&encoded["spec"]["model"]["params_mi"], &encoded["spec"]["gpus_per_node"]),
        (&1500.0.into(), &8.into())
    );
    assert_eq!(
        (&encoded["spec"]["plans"][0]["strategy"]["tp"], &encoded["spec"]["plans"][0]["needs"]["cpus"]),
        (&2.into(), &4.into())
    );
    let protocol_1::Spec { plans } = serde_json::from_value(encoded["spec"].clone()).unwrap();
    let expected =
        protocol_1::Plan { name: "dp2".to_owned(), sizes: None, node_types: vec![], shards: false };
    assert_eq!(plans, [expected]);
    // A present daemon understands all fields.
    assert_eq!(serde_json::from_value::<AgentHello>(encoded).unwrap().spec, hello.spec);
}

#[test]
fn unknown_fields_are_ignored_everywhere() {
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
