//! Measures the cost of the proofs between agents and the daemon: `cargo bench --bench proof`.
//!
//! It measures polls that are answered at once, over loopback. One agent has a session, and its requests and
//! answers carry a MAC. The other has a bearer secret, as agents of the first protocol do. They alternate, on
//! one daemon with a Slurm in memory. Goal: a poll with a session takes at most 5 % longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infill_agent::http_client::http_client;
use infill_api::{
    AgentHello, AgentPoll, AgentRole, AgentWelcome, BodyProof, Capability, CapabilitySet, FIRST_PROTOCOL,
    PROTOCOL, headers, routes,
    seal::{OpenSession, SessionSeal, parse_seal_payload, request_digest},
};
use infill_daemon::{
    context::{DaemonContext, DaemonServices},
    http::{self, ConnectionLimits},
    state::DaemonState,
};
use infill_model::{
    Credential, JobId, NodeName, Secret, UnixTime, UserId, bound_payload, clock::now, config::Config,
};
use infill_slurm::{SlurmApi as _, fake::FakeSlurm, identity::FakeIdentity};
use infill_store as store;
use infill_store::LeadStanding;

/// Polls in one measurement.
const POLLS: u32 = 250;

/// Number of measurements of each agent.
const BLOCKS: usize = 60;

/// The jobs of the agent with a session and of the agent without. Each runs on the node with its number.
const SEALED: u32 = 1;
const BEARER: u32 = 2;

/// The user that owns both jobs.
const OWNER: u32 = 6000;

/// The daemon's address in the agents' requests, as in the default configuration.
const TO: &str = "127.0.0.1:6810";

const NONCE: &str = "n";

struct Agent<'a> {
    http: &'a reqwest::Client,
    url: &'a str,
    job: u32,
    proof: AgentProof,
}

/// How an agent proves itself.
enum AgentProof {
    Session(OpenSession),
    Bearer(Secret),
}

impl<'a> Agent<'a> {
    async fn hello(http: &'a reqwest::Client, url: &'a str, job: u32) -> anyhow::Result<Agent<'a>> {
        let sealed = job == SEALED;
        let credential = Credential::Munge(Secret(OWNER.to_string()));
        let in_body = BodyProof { credential: Some(credential), nonce: Some(NONCE.to_owned()) };
        let hello = AgentHello {
            proof: if sealed { BodyProof::default() } else { in_body },
            job: JobId(job),
            role: AgentRole::Lead,
            node: NodeName::new(format!("n{job}")),
            port: 29_500,
            running: None,
            spec: None,
            version: "bench".to_owned(),
            protocol: if sealed { PROTOCOL } else { FIRST_PROTOCOL },
            capabilities: CapabilitySet::from_iter(sealed.then_some(Capability::SealedSession)),
        };
        let body = serde_json::to_vec(&hello)?;
        let payload = bound_payload(
            "hello",
            Some(JobId(job)),
            NONCE,
            TO,
            Some(&request_digest(routes::AGENT_HELLO, &body)),
        );
        let mut request = http.post(format!("{url}{}", routes::AGENT_HELLO));
        if sealed {
            request = request.header("authorization", format!("Munge {OWNER}|{payload}"));
            request = request.header(headers::NONCE, NONCE).header(headers::TO, TO);
        }
        let answer = request.header("content-type", "application/json").body(body).send().await?;
        let answer = answer.error_for_status()?;
        let seal = answer
            .headers()
            .get(headers::SEAL)
            .and_then(|value| SessionSeal::from_header(value.to_str().ok()?));
        let welcome: AgentWelcome = answer.json().await?;
        let proof = match seal {
            Some(SessionSeal::Munge(Secret(text))) => {
                let payload = text.split_once('|').map(|(_, payload)| Secret(payload.to_owned()));
                let opened =
                    payload.and_then(|payload| parse_seal_payload(&payload, Some(JobId(job)), NONCE));
                AgentProof::Session(opened.ok_or_else(|| anyhow::anyhow!("the session cannot be read"))?)
            }
            _ => AgentProof::Bearer(welcome.secret.ok_or_else(|| anyhow::anyhow!("no secret"))?),
        };
        Ok(Agent { http, url, job, proof })
    }

    /// Polls once. The answer comes at once, because the agent has not seen its assignment yet.
    async fn poll(&self, counter: u64) -> anyhow::Result<()> {
        let node = NodeName::new(format!("n{}", self.job));
        let body = serde_json::to_vec(&AgentPoll { job: JobId(self.job), node, seen: 0, wait_secs: 0 })?;
        let request = self.http.post(format!("{}{}", self.url, routes::AGENT_POLL));
        let request = request.header("content-type", "application/json");
        let request = match &self.proof {
            AgentProof::Bearer(secret) => request.bearer_auth(&secret.0),
            AgentProof::Session(OpenSession { session, key }) => request
                .header(headers::SESSION, session)
                .header(headers::COUNTER, counter)
                .header(headers::MAC, key.sign_request(routes::AGENT_POLL, counter, &body)),
        };
        let answer = request.body(body).send().await?.error_for_status()?;
        let mac = answer.headers().get(headers::MAC).cloned();
        let body = answer.bytes().await?;
        if let AgentProof::Session(OpenSession { key, .. }) = &self.proof {
            let mac = mac.as_ref().and_then(|mac| mac.to_str().ok()).unwrap_or_default();
            anyhow::ensure!(
                key.verify_answer(mac, routes::AGENT_POLL, counter, 200, &body),
                "an answer without proof"
            );
        }
        Ok(())
    }

    /// Mean time of a poll in one measurement, microseconds.
    async fn measure(&self, block: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        for number in 0..POLLS {
            self.poll(block as u64 * u64::from(POLLS) + u64::from(number) + 1).await?;
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(POLLS))
    }
}

async fn daemon() -> anyhow::Result<String> {
    let slurm = FakeSlurm::new(2, "infill");
    for job in [SEALED, BEARER] {
        slurm.submit_held(job, OWNER, "infill:nodes=1");
        slurm.launch_job(JobId(job), &NodeName::new(format!("n{job}")), 600).await?;
    }
    let users = BTreeMap::from([(OWNER.to_string(), UserId(OWNER))]);
    let services = DaemonServices {
        slurm: Arc::new(slurm),
        store: store::open_store("sqlite::memory:", || ()).await?,
        identity: Arc::new(FakeIdentity { users }),
    };
    let at: UnixTime = now();
    let state = DaemonState::new(Arc::new(Config::default()), at);
    let (context, _queues) = DaemonContext::new(services, state, LeadStanding::Alone, at);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = http::build_router(Arc::new(context));
    let limits = ConnectionLimits { connections: 64, per_host: 64 };
    tokio::spawn(async move { http::serve_plain(listener, router, limits, std::future::pending()).await });
    Ok(url)
}

/// The lower quartile, the median and the upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> anyhow::Result<()> {
    let url = daemon().await?;
    let http = http_client(Duration::from_secs(3), None)?.timeout(Duration::from_secs(10)).build()?;
    let sealed = Agent::hello(&http, &url, SEALED).await?;
    let bearer = Agent::hello(&http, &url, BEARER).await?;
    let mut with = Vec::new();
    let mut without = Vec::new();
    for block in 0..BLOCKS {
        // The two agents take turns in who comes first.
        if block % 2 == 0 {
            with.push(sealed.measure(block).await?);
            without.push(bearer.measure(block).await?);
        } else {
            without.push(bearer.measure(block).await?);
            with.push(sealed.measure(block).await?);
        }
    }
    let ratios = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let [low, ratio, high] = quartiles(ratios);
    println!(
        "poll with a session {:.0} µs, with a secret {:.0} µs",
        quartiles(with)[1],
        quartiles(without)[1]
    );
    println!("ratio {ratio:.3} (quartiles {low:.3} to {high:.3}) over {BLOCKS} pairs of {POLLS} polls");
    Ok(())
}
