//! Tests of a trial, from the table to the output.

use std::path::Path;

use super::*;

fn table() -> MeasuredThroughputs {
    let rates = [(1, 100.0), (2, 190.0), (4, 350.0), (8, 600.0), (16, 900.0), (32, 1100.0)];
    let points = rates.map(|(nodes, rate)| infill_model::CurvePoint { nodes, rate });
    MeasuredThroughputs { points: points.to_vec(), unmeasured: 2 }
}

fn args(seed: u64) -> AdviseArgs {
    AdviseArgs {
        curve: None,
        plans: plans::PlanTrialArgs::default(),
        types: types::TypeTrialArgs::default(),
        noise: 0.05,
        seed,
        max_nodes: 32,
        draw: false,
        json: false,
    }
}

/// A fixed result, so that the page does not change with the fitting of curves.
fn sample() -> CurveTrialResult {
    let probe = |nodes, seconds, rate| TriedSize { nodes, seconds, rate };
    let row = |nodes, truth, predicted: f64| {
        let low = predicted * 0.9;
        let high = predicted * 1.1;
        ComparedSize { nodes, truth, predicted, low, high }
    };
    CurveTrialResult {
        start: probe(1, 22.0, 99.4),
        probes: vec![probe(32, 10.0, 1079.0), probe(8, 16.0, 602.0)],
        probe_secs: 26.0,
        curve: vec![row(1, 100.0, 99.4), row(2, 190.0, 187.6), row(8, 600.0, 601.5), row(32, 1100.0, 1079.0)],
        mape: 0.0102,
        model: "n/rate = 1.033e-2 + 1.218e-4·n·log2(n)".to_owned(),
    }
}

#[test]
fn the_page() {
    insta::assert_snapshot!(render_trial(&sample(), &table()).unwrap(), @r"
    sizes   6 (2 more without a measurement)
    probes  2, 26.0 s in all
    model   n/rate = 1.033e-2 + 1.218e-4·n·log2(n)
    error   1.0 % on average over all sizes

    SIZE  NODES SECONDS RATE
    start     1    22.0 99.4
    probe    32    10.0 1079
    probe     8    16.0  602

    NODES TRUE PREDICTED  LOW HIGH ERROR
        1  100      99.4 89.5  109 -0.6%
        2  190       188  169  206 -1.3%
        8  600       602  541  662 +0.2%
       32 1100      1079  971 1187 -1.9%
    ");
}

#[test]
fn a_seed_decides_everything() {
    let run = |seed| run_curve_trial(&args(seed), &Config::default(), &table()).unwrap();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    assert!(run(7).mape < 0.1, "{:?}", run(7));
}

#[test]
fn a_site_that_allows_one_probe_gets_one() {
    let probes = |file: &str| {
        let config = Config::parse(file, Path::new("infill.toml")).unwrap();
        run_curve_trial(&args(1), &config, &table()).unwrap().probes.len()
    };
    assert!(probes("") > 1);
    assert_eq!(probes("[advisor]\nmax_probes = 1"), 1);
    assert_eq!(probes("[advisor]\nprobe = false"), 0);
}

#[test]
fn the_document() {
    let table = table();
    let verdict = run_curve_trial(&args(1), &Config::default(), &table).unwrap();
    let document = AdviseDocument { schema: SCHEMA_VERSION, verdict: &verdict, unmeasured: table.unmeasured };
    let json = serde_json::to_value(&document).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["curve", "mape", "model", "probe_secs", "probes", "schema", "start", "unmeasured"]);
    let row: Vec<&String> = json["curve"][0].as_object().unwrap().keys().collect();
    assert_eq!(row, ["high", "low", "nodes", "predicted", "true"]);
    let start: Vec<&String> = json["start"].as_object().unwrap().keys().collect();
    assert_eq!(start, ["nodes", "rate", "seconds"]);
}

#[test]
fn the_drawing_has_the_truth_in_it() {
    let drawn = terminal_curve::draw_terminal_curve(
        &curve_picture(&run_curve_trial(&args(1), &Config::default(), &table()).unwrap()),
        72,
        false,
    );
    assert!(drawn.contains('○') && drawn.contains('●'), "{drawn}");
}
