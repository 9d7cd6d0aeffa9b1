//! Load at the daemon's port: silent sockets, polling agents, and a user whose agents report leaving in a
//! loop. Without a cluster: the daemon's own loops on a Slurm in memory that counts its dumps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use infill_api::{
    AgentHello, AgentReport, AgentRole, BodyProof, Capability, CapabilitySet, PROTOCOL, headers, routes,
    seal::{OpenSession, SessionSeal, parse_seal_payload, request_digest},
};
use infill_daemon::{
    context::{DaemonContext, DaemonServices},
    executor,
    http::{self, ConnectionLimits},
    rounds,
    state::DaemonState,
    ticks,
};
use infill_model::{
    AgentEvent, Job, JobId, NodeName, Secret, Snapshot, Topology, UnixTime, UserId, bound_payload,
    config::Config,
};
use infill_slurm::{
    PartitionSharing, PrivacyRules, RestEndpoint, SlurmApi, SlurmError,
    fake::FakeSlurm,
    identity::{FakeIdentity, uid_of},
};
use infill_store as store;
use infill_store::LeadStanding;
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpStream;

/// Number of agents. Each has its own job with an open poll.
const AGENTS: u32 = 1000;

/// Time limit for their hellos, one after the other.
const HELLOS: Duration = Duration::from_secs(20);

/// The daemon's address in the agents' requests, as in its configuration.
const TO: &str = "127.0.0.1:6810";

/// Number of silent sockets: more than the 1,024 descriptors that a process has by default.
const IDLE_SOCKETS: usize = 1100;

/// Time of a dump here.
const DUMP: Duration = Duration::from_millis(40);

/// Time in which rounds are watched, without the load and with it.
const WATCHED: Duration = Duration::from_secs(8);

/// Time limit for a new lead's hello. The goal is a second, but the test machine may be busy.
const HELLO: Duration = Duration::from_secs(3);

/// Time that a busy test machine may add to a round, seconds. Apart from that the goal is twice the time
/// without load.
const HICCUP_SECS: f64 = 0.5;

/// Counts dumps.
struct Counting {
    slurm: FakeSlurm,
    dumps: Mutex<Vec<Instant>>,
}

impl Counting {
    fn dumps(&self) -> Vec<Instant> {
        self.dumps.lock().unwrap().clone()
    }
}

#[async_trait]
impl SlurmApi for Counting {
    async fn rest_endpoint(&self) -> Result<RestEndpoint, SlurmError> {
        self.slurm.rest_endpoint().await
    }
    async fn read_snapshot(&self) -> Result<Snapshot, SlurmError> {
        self.dumps.lock().unwrap().push(Instant::now());
        tokio::time::sleep(DUMP).await;
        self.slurm.read_snapshot().await
    }
    async fn has_new_main_jobs(&self) -> Result<bool, SlurmError> {
        self.slurm.has_new_main_jobs().await
    }
    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        self.slurm.find_job(id).await
    }
    async fn read_privacy(&self) -> Result<PrivacyRules, SlurmError> {
        self.slurm.read_privacy().await
    }
    async fn read_partitions(&self) -> Result<Vec<PartitionSharing>, SlurmError> {
        self.slurm.read_partitions().await
    }
    async fn read_topology(&self) -> Result<Topology, SlurmError> {
        self.slurm.read_topology().await
    }
    async fn launch_job(&self, id: JobId, node: &NodeName, limit_mins: u32) -> Result<(), SlurmError> {
        self.slurm.launch_job(id, node, limit_mins).await
    }
    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError> {
        self.slurm.set_time_limit(id, limit_mins).await
    }
    async fn shrink_job(&self, id: JobId, keep: &[NodeName]) -> Result<(), SlurmError> {
        self.slurm.shrink_job(id, keep).await
    }
    async fn cancel_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.cancel_job(id).await
    }
    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.requeue_hold(id).await
    }
    async fn hold_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.hold_job(id).await
    }
    async fn unpin_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.unpin_job(id).await
    }
    async fn split_array(&self, array: JobId, tasks: &[u32]) -> Result<(), SlurmError> {
        self.slurm.split_array(array, tasks).await
    }

    async fn write_status(&self, id: JobId, status: &str) -> Result<(), SlurmError> {
        self.slurm.write_status(id, status).await
    }
}

/// A user of this machine who is not an administrator.
pub const STRANGER: &str = "nobody";

/// An agent's session.
#[derive(Clone)]
pub struct Talk {
    http: reqwest::Client,
    url: String,
    opened: OpenSession,
    last: Arc<AtomicU64>,
}

impl Talk {
    /// Sends a message. Returns the status of the answer, which must carry a valid proof.
    async fn say(&self, route: &str, body: &impl Serialize) -> u16 {
        let OpenSession { session, key } = &self.opened;
        let body = serde_json::to_vec(body).unwrap();
        let counter = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let request = self.http.post(format!("{}{route}", self.url));
        let request = request.header(headers::SESSION, session).header(headers::COUNTER, counter);
        let request = request.header(headers::MAC, key.sign_request(route, counter, &body));
        let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        let mac = answer.headers().get(headers::MAC).cloned();
        let body = answer.bytes().await.unwrap();
        let mac = mac.expect("a proved answer");
        assert!(key.verify_answer(mac.to_str().unwrap(), route, counter, status, &body), "{route} {status}");
        status
    }
}

/// A daemon with its loops, and running leads, each on its own node.
pub struct Daemon {
    /// The daemon's context.
    pub context: Arc<DaemonContext>,
    slurm: Arc<Counting>,
    /// The address at which it answers.
    pub url: String,
    address: std::net::SocketAddr,
}

fn now() -> UnixTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    UnixTime(since.as_secs() as i64)
}

fn node(job: u32) -> NodeName {
    NodeName::new(format!("n{job}"))
}

impl Daemon {
    /// A daemon with this many leads, and one more that says hello later.
    pub async fn start(leads: u32) -> Daemon {
        let fake = FakeSlurm::new(leads, "infill");
        for job in 1..=leads {
            fake.submit_held(job, 6000 + job % 50, "infill:nodes=1");
            fake.launch_job(JobId(job), &node(job), 600).await.unwrap();
        }
        let slurm = Arc::new(Counting { slurm: fake, dumps: Mutex::default() });
        let mut users: BTreeMap<String, UserId> = (6000..6050).map(|u| (u.to_string(), UserId(u))).collect();
        // A user without a job.
        users.extend(uid_of(STRANGER).await.map(|uid| (STRANGER.to_owned(), uid)));
        let services = DaemonServices {
            slurm: slurm.clone(),
            store: store::open_store("sqlite::memory:", || ()).await.unwrap(),
            identity: Arc::new(FakeIdentity { users }),
        };
        let mut config = Config::default();
        config.daemon.poll_interval_secs = 1.0;
        let state = DaemonState::new(Arc::new(config), now());
        let (context, queues) = DaemonContext::new(services, state, LeadStanding::Alone, now());
        let context = Arc::new(context);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let room = ConnectionLimits { connections: 16_384, per_host: 1024 };
        let router = http::build_router(context.clone());
        tokio::spawn(async move { http::serve_plain(listener, router, room, std::future::pending()).await });
        tokio::spawn(executor::run(context.clone(), queues));
        tokio::spawn(ticks::run(context.clone()));
        tokio::spawn(rounds::run(context.clone()));
        Daemon { context, slurm, url: format!("http://{address}"), address }
    }

    /// The session that a new lead gets.
    pub async fn hello(&self, http: &reqwest::Client, job: u32) -> Talk {
        let hello = AgentHello {
            proof: BodyProof::default(),
            job: JobId(job),
            role: AgentRole::Lead,
            node: node(job),
            port: 29_500,
            running: None,
            spec: None,
            version: "test".to_owned(),
            protocol: PROTOCOL,
            capabilities: CapabilitySet::from_iter([Capability::SealedSession]),
        };
        let user = 6000 + job % 50;
        let body = serde_json::to_vec(&hello).unwrap();
        let digest = request_digest(routes::AGENT_HELLO, &body);
        let payload = bound_payload("hello", Some(JobId(job)), "n", TO, Some(&digest));
        let request = http.post(format!("{}{}", self.url, routes::AGENT_HELLO));
        let request = request.header("authorization", format!("Munge {user}|{payload}"));
        let request = request.header(headers::NONCE, "n").header(headers::TO, TO);
        let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
        assert_eq!(answer.status(), 200, "the hello of {job}");
        let Some(SessionSeal::Munge(sealed)) =
            SessionSeal::from_header(answer.headers()[headers::SEAL].to_str().unwrap())
        else {
            panic!("the answer to {job} brings no session")
        };
        let payload = sealed.0.strip_prefix(&format!("for {user}|")).expect("it is for the lead's owner");
        let opened = parse_seal_payload(&Secret(payload.to_owned()), Some(JobId(job)), "n").unwrap();
        Talk { http: http.clone(), url: self.url.clone(), opened, last: Arc::default() }
    }

    /// Seconds of the rounds so far, and their number.
    pub fn rounds(&self) -> (f64, f64) {
        let text = self.context.metrics.encode_text();
        let value = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{text}"));
            line.trim().parse::<f64>().unwrap()
        };
        (value("infill_round_seconds_sum"), value("infill_round_seconds_count"))
    }

    /// Mean seconds of a round while it is watched, and the shortest distance of two dumps.
    async fn watch(&self) -> (f64, Duration) {
        let before = self.rounds();
        let seen = self.slurm.dumps().len();
        tokio::time::sleep(WATCHED).await;
        let after = self.rounds();
        assert!(after.1 > before.1 + 2.0, "rounds go on");
        let dumps = self.slurm.dumps().split_off(seen);
        let shortest = dumps.windows(2).map(|w| w[1] - w[0]).min().unwrap_or(WATCHED);
        ((after.0 - before.0) / (after.1 - before.1), shortest)
    }
}

/// Polls forever. Each answer other than a standing assignment is a failure.
async fn poll(talk: Talk, job: u32) {
    loop {
        let body = json!({ "job": job, "node": node(job), "seen": u64::MAX, "wait_secs": 30 });
        assert_eq!(talk.say(routes::AGENT_POLL, &body).await, 200, "a poll of {job}");
    }
}

/// Reports leaving again and again. Returns how often it was accepted.
async fn leave(talk: Talk, job: u32, until: Instant) -> u64 {
    let report = AgentReport {
        job: JobId(job),
        node: node(job),
        events: vec![AgentEvent::Leaving],
        gpus: None,
        number: None,
    };
    let mut said = 0;
    while Instant::now() < until {
        // In a loop it is refused most of the time.
        match talk.say(routes::AGENT_REPORT, &report).await {
            204 => said += 1,
            status => assert_eq!(status, 429),
        }
    }
    said
}

/// The test is both ends of all connections.
fn raise_open_files() {
    // SAFETY: both calls only read or write the structure that they are given.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_and_a_loop_delay_no_one() {
    raise_open_files();
    // The second call is refused, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let daemon = Daemon::start(AGENTS + 1).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut talks = Vec::new();
    let began = Instant::now();
    for job in 1..=AGENTS {
        talks.push(daemon.hello(&http, job).await);
    }
    let hellos = began.elapsed();
    let (alone, _) = daemon.watch().await;

    let mut idle = Vec::new();
    for _ in 0..IDLE_SOCKETS {
        idle.push(TcpStream::connect(daemon.address).await.unwrap());
    }
    let mut polls = tokio::task::JoinSet::new();
    for (job, talk) in (1..=AGENTS).zip(&talks) {
        polls.spawn(poll(talk.clone(), job));
    }
    // Jobs 50, 100, … belong to one user.
    let until = Instant::now() + WATCHED + HELLO;
    let leavers: Vec<_> =
        (1..=4).map(|n| leave(talks[50 * n as usize - 1].clone(), 50 * n, until)).map(tokio::spawn).collect();
    let (crowded, shortest) = daemon.watch().await;

    let began = Instant::now();
    let newcomer = reqwest::Client::builder().no_proxy().build().unwrap();
    daemon.hello(&newcomer, AGENTS + 1).await;
    let hello = began.elapsed();
    let mut said = 0;
    for leaver in leavers {
        said += leaver.await.unwrap();
    }
    println!(
        "a round took {alone:.3} s alone and {crowded:.3} s in the crowd; {said} reports of leaving; dumps were {shortest:?} \
         apart at least; {AGENTS} hellos took {hellos:?}, one in the crowd {hello:?}"
    );
    assert!(hellos < HELLOS, "{AGENTS} hellos took {hellos:?}");
    assert!(
        crowded < 2.0 * alone + HICCUP_SECS,
        "a round took {alone:.3} s alone and {crowded:.3} s in the crowd"
    );
    assert!(shortest >= Duration::from_millis(950), "slurmctld is dumped every {shortest:?}");
    assert!(hello < HELLO, "a new lead's hello took {hello:?}");
    assert!(polls.try_join_next().is_none(), "an agent's poll ended");
    assert!(said > 100, "{said} reports are no loop");
}
