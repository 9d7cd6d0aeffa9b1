//! `infill explain`: why a job or a node has what it has.

use clap::Args;

use super::client::{Client, ClientError};
use super::session::Session;
use infill_api::{Generations, RoundView, Status, routes};
use infill_model::{GenerationRecord, JobId, UnixTime, generations_of_last_job};
use infill_present::{
    exit::{CommandResult, Exit},
    output::{self, When},
    values,
    words::explain,
};

/// Flags of `infill explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// A job's id, or a node's name
    #[arg(value_name = "JOB|NODE")]
    subject: String,
    /// As of this moment, from the round that was the last one then: HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS]],
    /// now-10minutes, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    at: Option<UnixTime>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs `infill explain`.
pub async fn run(args: ExplainArgs, session: &Session) -> CommandResult {
    let client = session.client()?;
    let status: Status = client.get(routes::STATUS).await?;
    let job = args.subject.parse().ok().map(JobId);
    let generations = match job {
        Some(id) => generations(&client, explain::lead_of(id, &status)).await?,
        None => vec![],
    };
    let explanation = match args.at {
        None => {
            let round: Option<RoundView> = found(client.get(routes::ROUND).await)?;
            match job {
                Some(id) => explain::of_job(id, &status, round, generations_of_last_job(generations)),
                None => explain::of_node(&args.subject, status, round),
            }
        }
        Some(at) => {
            let round: RoundView = client.get(&routes::round_at(at)).await?;
            explain::of_moment(at, &args.subject, &status, round, generations)
        }
    };
    let Some(explanation) = explanation else {
        return Err(Exit::NotFound.because(anyhow::anyhow!("infill knows no job or node {}", args.subject)));
    };
    if args.json {
        output::print_json(&explanation)?;
    } else {
        output::print(&explain::lines(&explanation, &args.subject, When::now()).join("\n"))?;
    }
    Ok(Exit::Ok.code())
}

async fn generations(client: &Client, id: JobId) -> Result<Vec<GenerationRecord>, ClientError> {
    let answer: Option<Generations> = found(client.get(&routes::generations(id)).await)?;
    Ok(answer.map(|a| a.generations).unwrap_or_default())
}

/// What is not there yet is no failure here.
fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(document) => Ok(Some(document)),
        Err(ClientError::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}
