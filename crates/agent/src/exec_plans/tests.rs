//! Tests of files of plans: how they are read, and which are refused.

use super::*;
use infill_model::Precision;

const FILE: &str = r#"
[[plan]]
name = "ddp"
args = ["--fp16"]

[[plan]]
name = "tp2"
nodes = "2-8"
types = ["a100"]
tp = 2
zero = 1
accumulate = 4
checkpointing = true
env = { NCCL_ALGO = "Ring" }
"#;

#[test]
fn a_file_gives_the_daemon_sizes_and_the_command_variables() {
    let plans = ExecPlans::parse(FILE).unwrap();
    assert_eq!(plans.first_name(), "ddp");
    let sizes = |local_ranks| -> Vec<Option<String>> {
        let declared = plans.declared_plans(local_ranks, None).unwrap();
        declared.iter().map(|p| p.sizes.as_ref().map(ToString::to_string)).collect()
    };
    assert_eq!(sizes(1), [None, Some("2,4,6,8".to_owned())]);
    assert_eq!(sizes(4), [None, Some("2-8".to_owned())]);
    let variables: Vec<String> =
        plans.plan_named("tp2").unwrap().env_variables(8).iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(
        variables.join(" "),
        "NCCL_ALGO=Ring INFILL_DP=4 INFILL_TP=2 INFILL_PP=1 INFILL_ZERO=1 INFILL_OFFLOAD=0 INFILL_GA=4 INFILL_GC=1"
    );
    assert_eq!(ExecPlans::from_argument(&plans.to_json()).unwrap().plan, plans.plan, "a wing gets the same");
}

#[test]
fn a_plan_that_divides_the_model_has_sizes_that_it_can_divide() {
    let plan = |text: &str| ExecPlans::parse(&format!("[[plan]]\nname='x'\n{text}")).unwrap();
    let sizes = |plans: &ExecPlans, ranks, named: Option<&str>| {
        let named = named.map(|text| AllowedSizes::parse(text).unwrap());
        plans.declared_plans(ranks, named.as_ref()).unwrap()[0].sizes.as_ref().map(ToString::to_string)
    };
    let four = plan("tp=2\npp=2");
    assert_eq!(sizes(&four, 1, Some("1-9")).as_deref(), Some("4,8"));
    assert_eq!(sizes(&four, 2, Some("1-5")).as_deref(), Some("2,4"));
    assert_eq!(sizes(&four, 4, Some("1-5")), None, "all");
    let unnamed = four.declared_plans(1, None).unwrap()[0].sizes.clone().unwrap();
    assert_eq!((unnamed.min(), unnamed.max()), (4, MAX_DIVIDED_SIZE));
}

#[test]
fn a_plan_that_can_run_at_no_size_is_refused_with_its_line() {
    let plans = ExecPlans::parse("[[plan]]\nname='ddp'\n\n[[plan]]\nname='tp8'\ntp=8").unwrap();
    let sizes = AllowedSizes::parse("1-4").unwrap();
    let expected = "plan \"tp8\": tp × pp = 8 processes share a model. With 1 on each node, none of the sizes 1-4 \
                    has a multiple of that. --workers-per-node sets the processes of a node; the default is one for \
                    each of its GPUs";
    let refused = plans.declared_plans(1, Some(&sizes)).unwrap_err().to_string();
    assert_eq!(refused, format!("line 4: {expected}"));
    let from_json = ExecPlans::from_argument(&plans.to_json()).unwrap();
    assert_eq!(from_json.declared_plans(1, Some(&sizes)).unwrap_err().to_string(), expected);
    // With torchrun as the command and eight GPUs on each node.
    assert!(plans.declared_plans(8, Some(&sizes)).is_ok());
    assert!(plans.declared_plans(1, None).is_ok());
}

#[test]
fn an_error_names_its_line() {
    let error = |text: &str| ExecPlans::parse(text).unwrap_err().to_string();
    assert_eq!(error(""), "line 1: expected at least one [[plan]]");
    assert_eq!(
        error("[[plan]]\nname = 'a'\n\n[[plan]]\nname = 'a'"),
        "line 4: there is a plan \"a\" already"
    );
    for (text, want) in [
        ("tp = 0", "line 1: plan \"a\": tp = 0: expected 1 to 4096"),
        ("zero = 4", "zero = 4: expected 0 to 3"),
        ("cpus = 0", "line 1: plan \"a\": cpus = 0: expected 1 to 65536"),
        ("memory = '64X'", "memory \"64X\": not a number (expected a number with K, M, G or T, such as 64G)"),
        ("gpu_memory = '2000T'", "no host has that much"),
        ("memory = 64", "line 3"),
        ("[model]\nlayers = 4", "missing field `params_mi`"),
        ("[model]\nparams_mi = nan", "line 3: model: params_mi = NaN: expected 0.000001 to 1000000000"),
        ("[model]\nparams_mi = 1\nlayers = 0", "line 3: model: layers = 0: expected 1 to 100000"),
        ("[model]\nparams_mi = 1\nparams = 1", "line 5"),
        ("[model]\nparams_mi = 1\nprecision = 'odd'", "expected one of `mixed`, `half`, `single`"),
        ("types = ['']", "type of nodes \"\""),
        ("env = { '1X' = 'a' }", "not a variable name"),
        ("env = { SLURM_JOB_ID = '1' }", "are set for you"),
        ("args = [\"a\\u0000\"]", "args contain a NUL"),
        ("nodes = '8-2'", "the minimum exceeds the maximum"),
        ("tensor = 2", "unknown field `tensor`"),
        ("tp = 'two'", "line 3"),
    ] {
        let error = error(&format!("[[plan]]\nname = \"a\"\n{text}"));
        assert!(error.contains(want), "{text}: {error}");
    }
    let many: String = (0..17).map(|i| format!("[[plan]]\nname = 'p{i}'\n")).collect();
    assert_eq!(error(&many), "line 33: there may be at most 16 plans");
    assert!(ExecPlans::from_argument("{\"plan\":[]}").is_err() && ExecPlans::from_argument("{").is_err());
    assert!(
        ExecPlans::from_argument("/no/such/file")
            .unwrap_err()
            .to_string()
            .starts_with("cannot read /no/such/file")
    );
}

/// A file with all fields that are declared to the daemon.
const WHOLE: &str = r#"
[model]
params_mi = 1500
layers = 48
hidden = 1600
heads = 25
sequence = 1024
global_batch = 64
precision = "half"

[[plan]]
name = "tp2"
tp = 2
zero = 1
accumulate = 4
checkpointing = true
cpus = 8
memory = "64G"
gpu_memory = "19.5GiB"

[[plan]]
name = "offload"
pp = 2
zero = 2
offload = true
"#;

#[test]
fn strategies_needs_and_the_model_are_declared_to_the_daemon() {
    let plans = ExecPlans::parse(WHOLE).unwrap();
    let model = ModelFacts {
        params_mi: 1500.0,
        layers: Some(48),
        hidden: Some(1600),
        heads: Some(25),
        sequence: Some(1024),
        global_batch: Some(64),
        precision: Precision::Half,
    };
    assert_eq!(plans.model_facts(), Some(model));
    let declared = plans.declared_plans(2, None).unwrap();
    let usual = ParallelStrategy::default();
    let strategies: Vec<_> = declared.iter().map(|p| p.strategy.unwrap()).collect();
    assert_eq!(
        strategies,
        [
            ParallelStrategy { tp: 2, zero: 1, accumulate: 4, checkpointing: true, ..usual },
            ParallelStrategy { pp: 2, zero: 2, offload: true, ..usual },
        ]
    );
    let needs = PlanNeeds { cpus: Some(8), memory_mib: Some(64 * 1024), gpu_memory_mib: Some(39 * 512) };
    assert_eq!([declared[0].needs, declared[1].needs], [needs, PlanNeeds::default()]);
    assert_eq!(ExecPlans::parse(FILE).unwrap().model_facts(), None);
}

/// A wing's infill may be of a version that refuses fields that it does not know.
#[test]
fn a_wing_gets_only_the_fields_that_its_command_needs() {
    let plans = ExecPlans::parse(WHOLE).unwrap();
    let sent: serde_json::Value = serde_json::from_str(&plans.to_json()).unwrap();
    assert_eq!(sent.as_object().unwrap().keys().collect::<Vec<_>>(), ["plan"]);
    let fields = ["accumulate", "checkpointing", "name", "offload", "pp", "tp", "zero"];
    for plan in sent["plan"].as_array().unwrap() {
        assert_eq!(plan.as_object().unwrap().keys().collect::<Vec<_>>(), fields);
    }
    let read = ExecPlans::from_argument(&plans.to_json()).unwrap();
    for (read, original) in read.iter().zip(plans.iter()) {
        assert_eq!(read.parallel_strategy(), original.parallel_strategy());
        assert_eq!(read.env_variables(8), original.env_variables(8));
    }
}

/// A program may start `infill run` with JSON.
#[test]
fn plans_as_json_may_have_all_fields_of_a_file() {
    let json = |model: &str| {
        format!(r#"{{"model":{model},"plan":[{{"name":"a","tp":2,"memory":"64G","cpus":4}}]}}"#)
    };
    let plans = ExecPlans::from_argument(&json(r#"{"params_mi":7000}"#)).unwrap();
    assert_eq!(plans.model_facts(), Some(ModelFacts::from_params(7000.0)));
    assert_eq!(plans.declared_plans(2, None).unwrap()[0].needs.memory_mib, Some(64 * 1024));
    let refused = |model: &str| ExecPlans::from_argument(&json(model)).unwrap_err().to_string();
    assert!(refused(r#"{"params_mi":0}"#).starts_with("model: params_mi = 0: expected"));
    assert!(refused(r#"{"params":7}"#).contains("unknown field `params`"));
}
