//! Records can be read again, and so can records from before they had a version.

use std::sync::Arc;

use serde_json::json;

use crate::job_lifecycle::JobLifecycle;
use crate::phase::JobPhase;
use infill_model::{
    DeclaredPlan, ExecPlan, LayerProfile, ModelFacts, ParallelStrategy, PlanNeeds, ProfiledLayer,
    RequestedSize, RunSpec, UnixTime,
};

use super::rig::running;
use super::table::PHASES;

/// Records without a version, as old programs wrote them.
const UNVERSIONED: [(&str, &str); 4] = [
    ("launching", include_str!("unversioned/launching.json")),
    ("running on two nodes, with a wing ordered for a third", include_str!("unversioned/running.json")),
    ("stopping because a member failed", include_str!("unversioned/failing.json")),
    ("stopping because Slurm takes a node back", include_str!("unversioned/losing.json")),
];

#[test]
fn a_record_restores_its_lifecycle() {
    for (name, phase) in PHASES {
        let mut lifecycle = phase().m;
        let mut read = JobLifecycle::from_record(lifecycle.to_record()).unwrap();
        // The target comes with the next round.
        lifecycle.resume_after_restart(UnixTime(5000));
        read.resume_after_restart(UnixTime(5000));
        assert_eq!(read, lifecycle, "{name}");
    }
}

fn profiled() -> LayerProfile {
    let layer =
        ProfiledLayer { forward_secs: 0.01, backward_secs: 0.02, parameters: 1000, activation_bytes: 4096 };
    LayerProfile { version: 1, device: "a100".to_owned(), batch: 4, element_bytes: 2, layers: vec![layer; 2] }
}

/// A job whose owner describes its plans and its model.
fn described() -> JobLifecycle {
    let mut lifecycle = running("1-8", &[1]).m;
    let plan = DeclaredPlan {
        name: ExecPlan("tp2".to_owned()),
        sizes: None,
        node_types: Vec::new(),
        shards: true,
        strategy: Some(ParallelStrategy { tp: 2, ..ParallelStrategy::default() }),
        needs: PlanNeeds { memory_mib: Some(65_536), ..PlanNeeds::default() },
    };
    lifecycle.spec = RunSpec {
        plans: vec![plan],
        model: Some(ModelFacts { layers: Some(48), ..ModelFacts::from_params(1500.0) }),
        layers: Some(Arc::new(profiled())),
        gpus_per_node: Some(8),
        as_asked: Some(RequestedSize { nodes: Some(4) }),
        ..lifecycle.spec
    };
    lifecycle
}

#[test]
fn descriptions_of_plans_and_model_are_stored() {
    let lifecycle = described();
    let record = lifecycle.to_record();
    let spec = &record["spec"];
    assert_eq!(spec["plans"][0]["strategy"]["tp"], json!(2));
    assert_eq!(spec["plans"][0]["needs"], json!({ "memory_mib": 65_536 }));
    assert_eq!(spec["model"], json!({ "params_mi": 1500.0, "layers": 48 }));
    assert_eq!(spec["gpus_per_node"], json!(8));
    assert_eq!(
        (&spec["layers"]["batch"], &spec["layers"]["layers"][1]["parameters"]),
        (&json!(4), &json!(1000))
    );
    assert_eq!(spec["as_asked"], json!({ "nodes": 4 }));
    assert_eq!(JobLifecycle::from_record(record).unwrap().spec, lifecycle.spec);
}

/// The new fields did not change the version, so an older daemon reads the rest of the record.
#[test]
fn a_record_without_a_model_is_read() {
    let mut record = described().to_record();
    assert_eq!(record["version"], json!(5), "older daemons read it, too");
    for key in ["model", "layers", "gpus_per_node", "as_asked"] {
        record["spec"].as_object_mut().unwrap().remove(key).unwrap();
    }
    for key in ["strategy", "needs"] {
        record["spec"]["plans"][0].as_object_mut().unwrap().remove(key).unwrap();
    }
    let spec = JobLifecycle::from_record(record).unwrap().spec;
    assert_eq!((spec.model, spec.layers, spec.gpus_per_node, spec.as_asked), (None, None, None, None));
    let plan = &spec.plans[0];
    assert_eq!((plan.shards, plan.strategy, plan.needs), (true, None, PlanNeeds::default()));
}

#[test]
fn when_a_rate_was_promised_is_kept() {
    let mut machine = running("1-8", &[1]).m;
    machine.counts.promised_at = Some(UnixTime(900));
    let mut record = machine.to_record();
    assert_eq!(record["version"], json!(5), "a daemon before the field reads the record as well");
    let read =
        |record: &serde_json::Value| JobLifecycle::from_record(record.clone()).unwrap().counts.promised_at;
    assert_eq!(read(&record), Some(UnixTime(900)));
    assert_eq!(record["counts"].as_object_mut().unwrap().remove("promised_at"), Some(json!(900)));
    assert_eq!(read(&record), None, "nothing was promised before the field");
}

#[test]
fn only_known_versions_are_read() {
    let record = |version| {
        let mut record = running("1-8", &[1]).m.to_record();
        record["version"] = version;
        JobLifecycle::from_record(record).map_or_else(|e| e.to_string(), |_| "read".to_owned())
    };
    let results = [json!(2), json!(3), json!(5), json!(6), json!("2"), json!(null)].map(record).join("\n");
    insta::assert_snapshot!(results, @r#"
    read
    read
    read
    it has version 6, which a newer infill wrote; this infill reads versions up to 5
    it has version "2", which a newer infill wrote; this infill reads versions up to 5
    it has version null, which a newer infill wrote; this infill reads versions up to 5
    "#);
    let error = JobLifecycle::from_record(json!({"job": 7})).unwrap_err();
    insta::assert_snapshot!(error, @"it is not a record of a malleable job: missing field `phase`");
}

#[test]
fn records_of_earlier_versions_are_read() {
    fn remove(value: &mut serde_json::Value, key: &str) -> serde_json::Value {
        value.as_object_mut().unwrap().remove(key).unwrap()
    }
    for version in [2, 3, 4] {
        let mut record = running("1-8", &[1, 2]).m.to_record();
        record["version"] = json!(version);
        assert_eq!(remove(&mut record["generation"], "away"), json!(null));
        assert_eq!(remove(&mut record["submitted"], "block"), json!(1));
        assert_eq!(remove(&mut record["submitted"], "cpus"), json!(null));
        assert_eq!(remove(&mut record["counts"], "warm_secs"), json!(0));
        if version == 2 {
            remove(&mut record["generation"], "store");
            remove(&mut record["generation"], "roll");
            for worker in record["workers"].as_object_mut().unwrap().values_mut() {
                assert_eq!(remove(worker, "live"), json!("no"));
            }
        }
        let m = JobLifecycle::from_record(record).unwrap();
        assert_eq!((m.phase.members().len(), m.generation.number, m.submitted.places_per_worker), (2, 1, 1));
        assert_eq!((m.generation.store.is_none(), m.generation.lead_absence.is_none()), (version == 2, true));
    }
}

#[test]
fn records_without_a_version_are_read() {
    let mut text = String::new();
    for (name, record) in UNVERSIONED {
        let m = JobLifecycle::from_record(serde_json::from_str(record).unwrap()).unwrap();
        let reason = match &m.phase {
            JobPhase::Stopping { reason, .. } => format!(" ({reason:?})"),
            _ => String::new(),
        };
        let wings: Vec<String> =
            m.wings.iter().map(|(o, w)| format!("{o} on {:?} as {:?}", w.order.nodes, w.job)).collect();
        let members = m.phase.members();
        text += &format!(
            "{name}:\n  {}{reason} on {members:?}, next {:?}\n",
            m.malleable_state(),
            m.phase.next_generation().why
        );
        text += &format!("  {:?}\n  {:?}, sizes {}\n", m.generation, m.workers.keys(), m.allowed_sizes());
        text += &format!("  changed {:?}, wings {wings:?}\n", m.rescaled_at);
    }
    insta::assert_snapshot!(text, @r#"
    launching:
      launching on [], next "first start"
      Generation { number: 0, exec_plan: ExecPlan("default"), master: None, store: None, secret: None, last_roll_call: None, lead_absence: None }
      [], sizes 1-8
      changed None, wings []
    running on two nodes, with a wing ordered for a third:
      running on [n1, n2], next ""
      Generation { number: 1, exec_plan: ExecPlan("default"), master: Some(("n1.cluster", 4000)), store: None, secret: None, last_roll_call: None, lead_absence: None }
      [n1, n2], sizes 1-8
      changed Some(UnixTime(1000)), wings ["1 on [n2] as Some(JobId(101))", "2 on [n3] as None"]
    stopping because a member failed:
      rescaling (Failed { code: 3 }) on [n1, n2], next "the command failed with code 3 on n2"
      Generation { number: 1, exec_plan: ExecPlan("default"), master: Some(("n1.cluster", 4000)), store: None, secret: None, last_roll_call: None, lead_absence: None }
      [n1, n2], sizes 1,2,4
      changed Some(UnixTime(1000)), wings ["1 on [n2] as Some(JobId(101))"]
    stopping because Slurm takes a node back:
      rescaling (Lost) on [n1, n2], next "Slurm took n2 back"
      Generation { number: 1, exec_plan: ExecPlan("default"), master: Some(("n1.cluster", 4000)), store: None, secret: None, last_roll_call: None, lead_absence: None }
      [n1, n2], sizes 1-8
      changed Some(UnixTime(1000)), wings ["1 on [n2] as Some(JobId(101))", "2 on [n3] as None"]
    "#);
}
