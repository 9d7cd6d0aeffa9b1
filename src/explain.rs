//! `infill explain`: why a job has its nodes, or why a node has its job.

use clap::Args;

use super::client::{ClientError, DaemonClient};
use super::session::CliSession;
use infill_api::{DaemonStatus, GenerationsView, RoundView, routes};
use infill_model::{GenerationRecord, JobId, UnixTime, generations_of_last_job};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output::{self, DisplayClock},
    phrases::{self, explain},
    values,
};

/// Flags of `infill explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// A job's id, a task of an array such as 123_4, or a node's name
    #[arg(value_name = "JOB|NODE")]
    subject: String,
    /// Explain an earlier moment, by the last round before it: HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS]],
    /// now-10minutes, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = values::parse_moment)]
    at: Option<UnixTime>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `infill explain`.
pub async fn run(args: ExplainArgs, session: &CliSession) -> CommandResult {
    let client = session.daemon_client()?;
    let status: DaemonStatus = client.get(routes::STATUS).await?;
    let subject = phrases::resolve_task(&args.subject, &status);
    let job = subject.parse().ok().map(JobId);
    let generations = match job {
        Some(id) => fetch_generations(&client, explain::resolve_lead(id, &status)).await?,
        None => vec![],
    };
    let explanation = match args.at {
        None => {
            let round: Option<RoundView> = none_if_not_found(client.get(routes::ROUND).await)?;
            match job {
                Some(id) => explain::explain_job(id, &status, round, generations_of_last_job(generations)),
                None => explain::explain_node(&subject, status, round),
            }
        }
        Some(at) => {
            let round: RoundView = client.get(&routes::round_path(at)).await?;
            explain::explain_moment(at, &subject, &status, round, generations)
        }
    };
    let Some(explanation) = explanation else {
        return Err(
            ProgramExit::NotFound.caused_by(anyhow::anyhow!("infill has no job or node {}", args.subject))
        );
    };
    if args.json {
        output::print_json(&explanation)?;
    } else {
        output::print_text(
            &explain::explanation_lines(&explanation, &subject, DisplayClock::now()).join("\n"),
        )?;
    }
    Ok(ProgramExit::Ok.code())
}

async fn fetch_generations(client: &DaemonClient, id: JobId) -> Result<Vec<GenerationRecord>, ClientError> {
    let answer: Option<GenerationsView> = none_if_not_found(client.get(&routes::generations_path(id)).await)?;
    Ok(answer.map(|a| a.generations).unwrap_or_default())
}

/// Turns status 404 into `None`: a round or a history that does not exist yet is not a failure.
fn none_if_not_found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(document) => Ok(Some(document)),
        Err(ClientError::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}
