//! Measures how fast the page is on a large machine: 10,000 nodes and a day of their use, in a real browser.
//! Without a cluster: the daemon's own loops on a Slurm in memory. `tests/run.sh --page` runs it, optimised.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infill_daemon::{
    context::{DaemonContext, DaemonServices},
    executor,
    http::{self, ConnectionLimits},
    rounds,
    state::DaemonState,
    ticks,
    timeline::{self, HourRecorder, NodeUse, ObservedUse, UsageHour},
};
use infill_model::{JobId, NodeName, PrivateData, ReadAccess, UnixTime, config::Config};
use infill_slurm::{PrivacyRules, fake::FakeSlurm, identity::FakeIdentity};
use infill_store as store;
use infill_store::LeadStanding;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::harness::{Browser, Screen};

const NODES: u32 = 10_000;
const HOURS: i64 = 24;

/// Changes of node use in a day.
const CHANGES: u32 = 250_000;

/// Number of times that the page is opened.
const OPENED: usize = 5;

/// Numbers of zooms, and of answers that are requested.
const TIMES: usize = 60;

/// Number of page updates over which its memory is watched.
const UPDATES: usize = 120;

/// Number of pages that watch at a time.
const WATCHERS: usize = 50;

/// Number of times that the daemon is alone for a while and then watched, and the length of each, seconds.
const TURNS: usize = 8;
const TURN_SECS: u64 = 30;

/// Prefix of the names of the tested daemon's threads.
const THREADS: &str = "daemon";

fn now() -> UnixTime {
    UnixTime(crate::harness::jobs::clock() as i64)
}

/// The use of each node until now, hour by hour. The last hour is not over.
pub fn day() -> Vec<UsageHour> {
    let end = now().0;
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u32
    };
    let mut uses = vec![NodeUse::Main; NODES as usize];
    let names: Vec<NodeName> = (1..=NODES).map(|n| NodeName::new(format!("n{n}"))).collect();
    let mut recorder = HourRecorder::default();
    let mut hours = Vec::new();
    let begin = end - HOURS * 3600;
    for at in (begin..end).step_by(60) {
        for _ in 0..CHANGES / (HOURS as u32 * 60) {
            uses[(next() % NODES) as usize] = match next() % 8 {
                0..=4 => NodeUse::Main,
                5 => NodeUse::Idle,
                6 => NodeUse::Wanted,
                _ => NodeUse::Job(JobId(1000 + next() % 50)),
            };
        }
        let seen = names.iter().zip(&uses);
        let seen = seen.map(|(node, used)| ObservedUse { node: node.clone(), used: *used, since: None });
        hours.extend(recorder.record_uses(UnixTime(at), seen));
    }
    hours.push(recorder.current_hour().clone());
    hours
}

/// A daemon on a Slurm in memory.
pub struct Daemon {
    /// What its loops share.
    pub context: Arc<DaemonContext>,
    port: u16,
    /// The daemon's loops, which end with it.
    pub runtime: Runtime,
}

impl Daemon {
    fn start(interval_secs: f64) -> Daemon {
        Daemon::start_on(Arc::new(FakeSlurm::new(NODES, "infill")), day(), interval_secs)
    }

    /// Starts on this Slurm with these uses of nodes. The last hour is not over.
    pub fn start_on(slurm: Arc<FakeSlurm>, hours: Vec<UsageHour>, interval_secs: f64) -> Daemon {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name(THREADS).build();
        let runtime = runtime.expect("no runtime");
        let (context, port) = runtime.block_on(begin(slurm, hours, interval_secs));
        Daemon { context, port, runtime }
    }

    /// The address of its page.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Seconds of rounds so far, and their number.
    fn rounds(&self) -> (f64, f64) {
        let text = self.context.metrics.encode_text();
        let value = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{text}"));
            line.trim().parse::<f64>().expect("a number")
        };
        (value("infill_round_seconds_sum"), value("infill_round_seconds_count"))
    }
}

async fn begin(
    slurm: Arc<FakeSlurm>,
    mut hours: Vec<UsageHour>,
    interval_secs: f64,
) -> (Arc<DaemonContext>, u16) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = store::open_store("sqlite::memory:", || ()).await.expect("a store");
    let under_way = hours.pop();
    for hour in &hours {
        let packed = hour.pack().expect("packed");
        store.put_hour(&packed, &timeline::sum_hour(hour)).await.expect("stored");
    }
    let mut config = Config::default();
    config.daemon.poll_interval_secs = interval_secs;
    config.http.read = ReadAccess::Open;
    let mut state = DaemonState::new(Arc::new(config), now());
    if let Some(hour) = under_way {
        state.usage_recorder.resume_hour(hour);
    }
    let identity = Arc::new(FakeIdentity { users: BTreeMap::new() });
    let services = DaemonServices { slurm, store, identity };
    let (context, queues) = DaemonContext::new(services, state, LeadStanding::Alone, now());
    let context = Arc::new(context);
    context.access.set_privacy(PrivacyRules { private: PrivateData::default(), operators: [].into() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let router = http::build_router(context.clone());
    let room = ConnectionLimits { connections: 4096, per_host: 1024 };
    tokio::spawn(async move { http::serve_plain(listener, router, room, std::future::pending()).await });
    tokio::spawn(executor::run(context.clone(), queues));
    tokio::spawn(ticks::run(context.clone()));
    tokio::spawn(rounds::run(context.clone()));
    (context, port)
}

/// Processor seconds of the daemon's threads.
fn cpu_secs() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let of_one = |dir: std::path::PathBuf| {
        let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let ticks = words.get(11)?.parse::<f64>().ok()? + words.get(12)?.parse::<f64>().ok()?;
        head.ends_with(THREADS).then_some(ticks / 100.0)
    };
    tasks.filter_map(|task| of_one(task.path())).sum()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn p95(values: &[f64]) -> f64 {
    values.get((values.len() * 95).div_ceil(100).max(1) - 1).copied().unwrap_or(0.0)
}

const DRAWN: &str = "return Number(document.getElementById('map').dataset.drawn ?? 0)";

/// Milliseconds from a click until the map is drawn again, and the part of them for drawing.
fn zoom(browser: &Browser, button: &str) -> (f64, f64) {
    let script = format!(
        "const map = document.getElementById('map'); const before = map.dataset.view; const begun = performance.now();
         document.getElementById('{button}').click();
         return new Promise((done) => {{
           const look = () => map.dataset.view !== before
             ? done([Number(map.dataset.drawn) - begun, Number(map.dataset.took)]) : setTimeout(look, 2);
           look();
         }})"
    );
    let found = browser.run(&script);
    let number = |i: usize| found[i].as_f64().unwrap_or_else(|| panic!("no number: {found}"));
    (number(0), number(1))
}

fn heap(browser: &Browser) -> f64 {
    browser.command("HeapProfiler.collectGarbage", &json!({}));
    let used = browser.command("Runtime.getHeapUsage", &json!({}));
    used["usedSize"].as_f64().expect("a size") / 1e6
}

/// Milliseconds and kilobytes of answers, each for another time range.
async fn answers(url: &str) -> (Vec<f64>, Vec<f64>) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut millis = Vec::new();
    let mut kilobytes = Vec::new();
    for i in 0..TIMES as i64 {
        let to = now().0 - i * 600;
        let hours = 1 + i % HOURS;
        let query =
            format!("v1/timeline?from={}&to={to}&rows=225&columns=1200&first={}", to - hours * 3600, i * 20);
        let begun = Instant::now();
        let answer = client.get(format!("{url}{query}")).header("accept-encoding", "gzip").send().await;
        let answer = answer.expect("an answer").error_for_status().expect("a good one");
        let body = answer.bytes().await.expect("a body");
        millis.push(begun.elapsed().as_secs_f64() * 1000.0);
        kilobytes.push(body.len() as f64 / 1000.0);
    }
    (sorted(millis), sorted(kilobytes))
}

/// Requests updates as an open page does, forever.
async fn watch(url: String) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut seen = now().0;
    loop {
        let to = (now().0 + 2700).div_euclid(30) * 30;
        let from = to - 21_600;
        let begin = seen.div_euclid(30) * 30;
        let columns = (to - begin) / 30;
        let query =
            format!("from={begin}&to={to}&rows=135&columns={columns}&nodes_since={from}&after={seen}");
        let day = now().0 - now().0.rem_euclid(86_400);
        for path in [
            format!("v1/timeline?{query}"),
            "v1/status?nodes=false&shared=true".to_owned(),
            format!("v1/summary?day={day}"),
            format!("v1/lanes?from={from}&to={to}"),
        ] {
            let answer = client.get(format!("{url}{path}")).header("accept-encoding", "gzip").send().await;
            let answer = answer.expect("an answer").error_for_status().expect("a good one");
            assert!(answer.bytes().await.is_ok());
        }
        // As of the round that was just announced.
        seen = now().0;
    }
}

/// Processor seconds a second, and seconds of a round, over a while.
fn cost(daemon: &Daemon) -> (f64, f64) {
    let cpu = cpu_secs();
    let rounds = daemon.rounds();
    std::thread::sleep(Duration::from_secs(TURN_SECS));
    let after = daemon.rounds();
    let round = (after.0 - rounds.0) / (after.1 - rounds.1).max(1.0);
    ((cpu_secs() - cpu) / TURN_SECS as f64, round)
}

/// The cost without watchers and with them. They take turns, so that both include the machine's other work.
fn costs(daemon: &Daemon) -> [(f64, f64); 2] {
    let watchers = Runtime::new().expect("a runtime");
    let turns = (0..TURNS).map(|_| {
        let alone = cost(daemon);
        let pages: Vec<_> = (0..WATCHERS).map(|_| watchers.spawn(watch(daemon.url()))).collect();
        let watched = cost(daemon);
        assert!(pages.iter().all(|page| !page.is_finished()), "a watcher was not answered");
        pages.iter().for_each(|page| page.abort());
        [alone, watched]
    });
    let turns: Vec<_> = turns.collect();
    [0, 1].map(|i| {
        let median_of =
            |part: fn(&(f64, f64)) -> f64| median(&sorted(turns.iter().map(|t| part(&t[i])).collect()));
        (median_of(|cost| cost.0), median_of(|cost| cost.1))
    })
}

#[test]
#[ignore = "takes long: tests/run.sh --page"]
fn how_quick_the_page_is() {
    let mut text = String::new();
    let mut line = |what: &str, found: String, goal: &str| {
        let _ = writeln!(text, "{what:<44} {found:<40} {goal}");
    };
    let daemon = Daemon::start(0.5);
    let browser = Browser::open("speed", Screen::DESK);
    let opened = (0..OPENED).map(|_| {
        browser.go_to(&daemon.url());
        browser.until("the map", 30.0, &format!("{DRAWN} > 0"));
        browser.run(DRAWN).as_f64().expect("a moment")
    });
    let opened = sorted(opened.collect());
    line(
        "first picture, ms",
        format!("median {:.0}, most {:.0}", median(&opened), opened[OPENED - 1]),
        "2000",
    );
    let zooms: Vec<(f64, f64)> =
        (0..TIMES).map(|i| zoom(&browser, ["closer", "closer", "wider", "wider"][i % 4])).collect();
    let fetched = sorted(zooms.iter().map(|(fetched, _)| *fetched).collect());
    let drawn = sorted(zooms.iter().map(|(_, drawn)| *drawn).collect());
    line(
        "zoom with its answer, ms",
        format!("median {:.0}, p95 {:.0}", median(&fetched), p95(&fetched)),
        "p95 300",
    );
    line("drawing, ms", format!("median {:.1}, most {:.1}", median(&drawn), drawn[TIMES - 1]), "100");
    let (millis, kilobytes) = daemon.runtime.block_on(answers(&daemon.url()));
    line("an answer, ms", format!("median {:.0}, p95 {:.0}", median(&millis), p95(&millis)), "p95 100");
    line(
        "the same, kB, packed",
        format!("median {:.0}, most {:.0}", median(&kilobytes), kilobytes[TIMES - 1]),
        "400",
    );
    let before = heap(&browser);
    for _ in 0..UPDATES {
        let last = browser.run(DRAWN);
        browser.until(
            "an update",
            30.0,
            &format!("return Number(document.getElementById('map').dataset.drawn) > {last}"),
        );
    }
    line("heap after 120 updates, MB more", format!("{:.1}", heap(&browser) - before), "5");
    assert_eq!(browser.complaints(), [""; 0]);
    drop(browser);
    drop(daemon);
    let daemon = Daemon::start(5.0);
    let [alone, watched] = costs(&daemon);
    line("50 watchers, % of a core", format!("{:.1}", (watched.0 - alone.0) * 100.0), "5");
    let before = alone.1 * 1000.0;
    let with = watched.1 * 1000.0;
    line(
        "a round, ms, without and with them",
        format!("{before:.0}, {with:.0} ({:+.1} %)", (with / before - 1.0) * 100.0),
        "5 %",
    );
    println!("{:<44} {:<40} GOAL\n{text}", "OF 10,000 NODES AND 24 HOURS", "FOUND");
}
