//! Pictures of the page for people who judge it: `target/browser/pictures-*.png`. An empty site, 10,000 nodes
//! and a site with problems come from a Slurm in memory. The site with jobs is a real cluster.

use std::sync::Arc;

use infill_model::{
    EndedJob, GenerationRecord, JobId, MainDelay, NodeName, NodeTimeKey, NodeTimeRow, NodeTimeUsage, UnixTime,
};
use infill_slurm::{SlurmError, fake::FakeSlurm};
use infill_testkit::ended_job;

use crate::harness::{Browser, Screen, Site, Train};
use crate::page_speed::{self, Daemon};

/// The screen of a desktop in the dark.
const DARK: Screen = Screen { dark: true, ..Screen::DESK };

/// Number of malleable jobs on the map of the large machine.
const JOBS: u32 = 50;

fn clock() -> i64 {
    crate::harness::jobs::clock() as i64
}

/// Opens the page of a planted daemon, and waits for its charts.
fn opened(daemon: &Daemon) -> Browser {
    let browser = Browser::open("pictures", Screen::DESK);
    browser.go_to(&daemon.url());
    browser.until("the charts", 60.0, "return document.querySelectorAll('#figures figure').length === 3");
    browser
}

fn words(browser: &Browser, selector: &str) -> String {
    browser.text(selector).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_empty_site_says_what_will_be_there() {
    let daemon = Daemon::start_on(Arc::new(FakeSlurm::new(0, "infill")), Vec::new(), 1.0);
    let browser = opened(&daemon);
    for (selector, expected) in [
        ("#tiles", "No main job has waited for infill today."),
        ("#map-empty", "Slurm shows no node in the malleable partition."),
        ("#jobs-empty", "Each will have a line here"),
        ("#figures", "Each bar here will be an hour"),
        ("#figures", "Each dot here will be a main job"),
    ] {
        let found = words(&browser, selector);
        assert!(found.contains(expected), "{selector}: {found}");
    }
    assert_eq!(browser.run("return document.querySelectorAll('#figures svg').length"), 0, "no empty axes");
    browser.keep_whole("empty", Screen::DESK);
    browser.keep_whole("empty-phone", Screen::LARGE_PHONE);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Fills the store with what fits to the uses of nodes: delays, node-time, and jobs with their generations.
async fn remember(daemon: &Daemon) {
    let store = &daemon.context.store;
    let now = clock();
    let delays: Vec<MainDelay> = (0..400)
        .map(|n| MainDelay {
            job: JobId(50_000 + n),
            at: UnixTime(now - i64::from(n) * 200),
            secs: f64::from((n * 37) % 100) / 60.0,
            planned: n % 3 == 0,
        })
        .collect();
    store.add_delays(&delays).await.expect("stored");
    let hour = now - now.rem_euclid(3600);
    let rows: Vec<NodeTimeRow> = (0..24)
        .map(|ago| NodeTimeRow {
            key: NodeTimeKey {
                from: UnixTime(hour - ago * 3600),
                account: "physics".to_owned(),
                user: "alice".to_owned(),
                node_type: "cpu2".to_owned(),
            },
            spent: NodeTimeUsage {
                useful_secs: 3_600_000.0,
                probing_secs: 90_000.0,
                rescale_secs: 200_000.0,
                preempted_secs: 80_000.0,
                gpu_secs: 0.0,
            },
        })
        .collect();
    store.put_node_time(&rows).await.expect("stored");
    let ended: Vec<EndedJob> = (0..JOBS)
        .map(|n| EndedJob { name: format!("train-{n}"), ..ended_job(JobId(1000 + n), UnixTime(now - 60)) })
        .collect();
    store.add_ended_jobs(&ended).await.expect("stored");
    let generations: Vec<GenerationRecord> = (0..JOBS * 4)
        .map(|n| GenerationRecord {
            job: JobId(1000 + n / 4),
            generation: u64::from(n % 4 + 1),
            started_at: UnixTime(now - 20_000 + i64::from(n % 4) * 4000),
            nodes: (0..8).map(|i| NodeName::new(format!("n{i}"))).collect(),
            why: "grows: the nodes became idle".to_owned(),
        })
        .collect();
    store.add_generations(&generations).await.expect("stored");
}

#[test]
fn ten_thousand_nodes_have_a_legible_page() {
    let daemon = Daemon::start_on(Arc::new(FakeSlurm::new(10_000, "infill")), page_speed::day(), 5.0);
    daemon.runtime.block_on(remember(&daemon));
    let browser = opened(&daemon);
    browser.until(
        "the day",
        30.0,
        "return document.querySelector('#tiles').innerText.includes('longest wait')",
    );
    let found = words(&browser, "#tiles");
    assert!(found.contains("Nodes now 10,000"), "{found}");
    browser.until("the lanes", 30.0, "return document.querySelectorAll('.lane').length === 25");
    assert_eq!(browser.text("#more-jobs"), format!("Show all of {JOBS} jobs"));
    browser.keep_whole("large", Screen::DESK);
    browser.run("document.querySelector('[data-span=\"86400\"]').click()");
    // The search finds a node that no row of the map shows alone.
    browser.run(
        "document.getElementById('query').value = 'n7777';
         document.getElementById('query').dispatchEvent(new Event('input'));
         document.getElementById('search').requestSubmit()",
    );
    browser.until("the node", 30.0, "return document.querySelectorAll('#detail-figure svg').length === 1");
    browser.run("[...document.querySelectorAll('#detail button')].find(b => b.innerText.startsWith('show its')).click()");
    browser.until(
        "its neighbours",
        30.0,
        "return document.getElementById('map-words').innerText.startsWith('24 of')",
    );
    browser.keep_whole("large-node", Screen::DESK);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn problems_are_red_and_in_words() {
    let slurm = Arc::new(FakeSlurm::new(40, "infill"));
    let daemon = Daemon::start_on(slurm.clone(), Vec::new(), 0.5);
    let late = MainDelay { job: JobId(77), at: UnixTime(clock() - 5), secs: 95.0, planned: false };
    let quick = MainDelay { job: JobId(78), secs: 0.4, ..late };
    daemon.runtime.block_on(daemon.context.store.add_delays(&[late, quick])).expect("stored");
    let browser = opened(&daemon);
    browser.until(
        "the delay",
        30.0,
        "return document.querySelector('#problems').innerText.includes('A main job waited')",
    );
    for _ in 0..10_000 {
        let doing = "reading nodes".to_owned();
        slurm.fail_next(SlurmError::Transient { doing, what: "no answer within 20 s".to_owned() });
    }
    browser.until(
        "the outage",
        60.0,
        "return document.querySelector('#problems').innerText.includes('Slurm does not answer')",
    );
    assert_eq!(words(&browser, "#problems-title"), "2 problems");
    let red = "const colour = getComputedStyle(document.querySelector('#problems-title')).color.match(/\\d+/g).map(Number);
               return colour[0] > 2 * colour[1] && colour[0] > 2 * colour[2]";
    assert_eq!(browser.run(red), true);
    browser.keep_whole("problems", Screen::DESK);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Jobs of two users on eight nodes for six minutes, with main jobs between them. `pictures-jobs.png` is the
/// picture for the documentation.
#[test]
#[ignore = "takes seven minutes: cargo test --test it -- --ignored page_pictures"]
fn a_site_with_jobs() {
    let site = Site::with(|s| s.set("advisor.probe", true));
    let job =
        Train::on("1-6").run("--grace 10 --profile llama-8b").option("--job-name=llama-8b-sft").submit(&site);
    site.until("the first job to grow", 120.0, || site.nodes_of(job).len() >= 3);
    std::thread::sleep(std::time::Duration::from_secs(50));
    let second = Train::on("1-3")
        .user("bob")
        .run("--grace 10 --profile vit")
        .option("--job-name=vit-imagenet")
        .submit(&site);
    site.until("the second job to run", 120.0, || !site.nodes_of(second).is_empty());
    std::thread::sleep(std::time::Duration::from_secs(50));
    for (secs, nodes) in [(60, "--nodes=3"), (50, "--nodes=2"), (300, "--nodes=3")] {
        let main = site.main_job(secs, &[nodes]);
        site.wait("a main job to start", 60.0, || site.started_at(main));
        std::thread::sleep(std::time::Duration::from_secs(70));
    }
    Train::on("8").option("--job-name=gpt-small").submit(&site);
    std::thread::sleep(std::time::Duration::from_secs(15));
    let browser = Browser::open("pictures", Screen::DESK);
    let text = site.must("alice", &["infill", "web"]);
    let link = text.lines().find(|line| line.contains("#ticket=")).expect("a link").trim().to_owned();
    browser.go_to(&link);
    browser.until("the lanes", 60.0, "return document.querySelectorAll('.lane').length >= 2");
    browser.until("the charts", 60.0, "return document.querySelectorAll('#figures figure').length === 3");
    browser.keep_whole("jobs", Screen::DESK);
    browser.keep_whole("jobs-dark", DARK);
    browser.keep_whole("jobs-phone", Screen::LARGE_PHONE);
    browser.show_on(Screen::DESK);
    browser.run(&format!(
        "[...document.querySelectorAll('#jobs button')].find(b => b.innerText === '{job}').click()"
    ));
    browser.until(
        "the job's charts",
        30.0,
        "return document.querySelectorAll('#detail-figure svg').length >= 1",
    );
    browser.keep_whole("job", Screen::DESK);
    browser.keep_whole("job-phone", Screen::LARGE_PHONE);
    assert_eq!(browser.complaints(), [""; 0]);
}
