//! Compares predicted memory with measured peaks, and with plans that did not fit (`INFILL_DATA`, else
//! `../shared/data`).

use std::collections::BTreeMap;
use std::path::Path;

use infill_advisor::plans::gpu_memory::{USABLE_MEMORY_SHARE, gpu_memory_gib};
use infill_model::{ModelFacts, ParallelStrategy, Parallelism, Precision};
use infill_testkit::data_files;

type Row = BTreeMap<String, String>;

fn rows(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| header.iter().map(|h| (*h).to_owned()).zip(line.split(',').map(str::to_owned)).collect())
        .collect()
}

fn number<T: std::str::FromStr + Default>(row: &Row, column: &str) -> T {
    row.get(column).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn strategy(row: &Row) -> ParallelStrategy {
    ParallelStrategy {
        tp: number::<u32>(row, "tp").max(1),
        pp: number::<u32>(row, "pp").max(1),
        zero: number(row, "zero"),
        offload: row["offload"] == "1",
        accumulate: number::<u32>(row, "ga").max(1),
        checkpointing: row["gc"] == "1",
    }
}

fn precision(word: &str) -> Precision {
    match word {
        "bf16" | "offload" => Precision::Half,
        "fp32" | "tf32" => Precision::Single,
        _ => Precision::Mixed,
    }
}

/// GPT-2 by its name in the tables.
fn gpt2(name: &str) -> ModelFacts {
    let (params_mi, layers, hidden) = match name {
        "gpt2-124m" => (124.44, 12, 768),
        "gpt2-350m" => (354.82, 24, 1024),
        "gpt2-774m" => (774.03, 36, 1280),
        other => panic!("{other}"),
    };
    ModelFacts {
        layers: Some(layers),
        hidden: Some(hidden),
        sequence: Some(1024),
        ..ModelFacts::from_params(params_mi)
    }
}

#[test]
fn measured_peaks_are_predicted() {
    let Some([path]) = data_files(["gpu/plans-h100.csv"]) else { return };
    let mut wrong: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    // A compiled model keeps other activations.
    for row in rows(&path).iter().filter(|row| row["compiled"] == "0") {
        let facts = ModelFacts { precision: precision(&row["precision"]), ..gpt2(&row["model"]) };
        let parallelism = Parallelism { dp: 1, strategy: strategy(row) };
        let predicted = gpu_memory_gib(&facts, parallelism, number(row, "global_batch")).unwrap();
        let measured: f64 = number(row, "peak_alloc_gib");
        wrong.entry(row["model"].clone()).or_default().push((predicted / measured - 1.0).abs());
    }
    assert_eq!(wrong.len(), 3);
    for (model, mut wrong) in wrong {
        wrong.sort_by(f64::total_cmp);
        let median = wrong[wrong.len() / 2];
        let worst = wrong[wrong.len() - 1];
        println!("{model}: {median:.3} in the median, {worst:.3} at worst, of {}", wrong.len());
        assert!(median < 0.05 && worst < 0.15, "{model}: {wrong:?}");
    }
}

#[test]
fn what_did_not_fit_is_not_predicted_to_fit() {
    let Some([h100, bigscience]) = data_files(["gpu/plans-h100-oom.csv", "plans/bigscience/oom.csv"]) else {
        return;
    };
    for row in rows(&h100) {
        // The names of its plans have all settings, such as `amp-ga2-b16`.
        let words: Vec<&str> = row["plan"].split('-').collect();
        let numbered =
            |letters: &str| words.iter().find_map(|word| word.strip_prefix(letters)?.parse::<u32>().ok());
        let batch = numbered("b").unwrap();
        let accumulate = numbered("ga").unwrap_or(1);
        let strategy = ParallelStrategy {
            accumulate,
            checkpointing: words.contains(&"gc"),
            ..ParallelStrategy::default()
        };
        let facts = ModelFacts { precision: precision(words[0]), ..gpt2(&row["model"]) };
        let global_batch = f64::from(batch * accumulate);
        let gib = gpu_memory_gib(&facts, Parallelism { dp: 1, strategy }, global_batch).unwrap();
        assert!(gib > 79.6 * USABLE_MEMORY_SHARE, "{} {}: {gib}", row["model"], row["plan"]);
    }
    for row in rows(&bigscience) {
        let facts = ModelFacts {
            layers: Some(number(&row, "layers")),
            hidden: Some(number(&row, "hidden")),
            sequence: Some(2048),
            ..ModelFacts::from_params(1e3 * number::<f64>(&row, "size_b"))
        };
        let batch: u32 = number(&row, "global_batch");
        let dp: u32 = number(&row, "dp");
        let accumulate = batch / (dp * number::<u32>(&row, "mbs"));
        let strategy = ParallelStrategy { accumulate, ..strategy(&row) };
        let gib = gpu_memory_gib(&facts, Parallelism { dp, strategy }, f64::from(batch)).unwrap();
        let has = if row["section"].starts_with("32GB") { 32.0 } else { 16.0 };
        assert!(gib > has * USABLE_MEMORY_SHARE, "{row:?}: {gib}");
    }
}
