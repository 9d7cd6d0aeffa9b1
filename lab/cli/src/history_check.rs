//! `infill history check`: predicts the length of each job of a log at its submission, from the jobs that had
//! ended by then.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use infill_advisor::length::{BacktestConfig, LengthScore, run_backtest, score_predictions};
use infill_api::SCHEMA_VERSION;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    input::parsed_with_warnings,
    output,
    progress::{ProgressLines, ProgressMeasure},
};
use infill_traces as traces;

/// Flags of `infill history check`.
#[derive(Clone, Debug, Args)]
pub struct HistoryCheckArgs {
    /// CSV with the column `duration_s` and, if available, submit_s, user, name, nodes, gpus, limit_s and
    /// wait_s
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Share of the jobs that only train the prediction
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = parse_share)]
    train: f64,
    /// Read only the first jobs
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// Seed of the random forests: with the same one, the output is the same
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `infill history check --json`.
#[derive(Serialize)]
struct HistoryCheckDocument {
    schema: u32,
    #[serde(flatten)]
    score: LengthScore,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|s| (0.0..1.0).contains(s));
    share.ok_or_else(|| "expected a share from 0 to less than 1".to_owned())
}

/// Runs `infill history check`.
pub fn run(args: &HistoryCheckArgs) -> CommandResult {
    let mut jobs = parsed_with_warnings(&args.log, traces::read_history(&args.log))?;
    jobs.truncate(args.rows.map_or(usize::MAX, |rows| rows as usize));
    let how = BacktestConfig { train: args.train, seed: args.seed, ..BacktestConfig::default() };
    let progress = ProgressLines::new(ProgressMeasure::Jobs(jobs.len() - how.training_jobs(jobs.len())));
    let mut line = progress.add_line("predicting");
    let predicted = run_backtest(&jobs, &how, &mut |share| line.set_share(share))
        .map_err(|e| ProgramExit::Failed.caused_by(e))?;
    drop(line);
    let score = score_predictions(&jobs, &predicted).ok_or_else(|| {
        ProgramExit::Failed.caused_by(anyhow::anyhow!("{}: no job is left to predict", args.log.display()))
    })?;
    if args.json {
        output::print_json(&HistoryCheckDocument { schema: SCHEMA_VERSION, score })?;
    } else {
        output::print_text(&score_text(&score))?;
    }
    Ok(ProgramExit::Ok.code())
}

fn score_text(score: &LengthScore) -> String {
    let mut text = String::new();
    let gain = 100.0 * (1.0 - score.pinball / score.pinball_of_history);
    let lines = [
        format!(
            "{} jobs were predicted when they were submitted, from those that had ended by then",
            score.jobs
        ),
        format!("mean error {:.0} s; median error {:.0} %", score.mae_s, score.median_ape),
        format!("right within a factor of two: {:.1} %", score.within_2x),
        format!("rank correlation {:.3}", score.spearman),
        format!("the interval from 10 to 90 % held {:.1} %", score.coverage_80),
        format!(
            "{:.1} % are predictable, and of these {:.1} % were right within a factor of two",
            score.predictable.share, score.predictable.within_2x
        ),
        format!("pinball loss {:.3} ({gain:.1} % less than without the forest)", score.pinball),
    ];
    for line in lines {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text
}
