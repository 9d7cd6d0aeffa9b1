//! A store in PostgreSQL: a second daemon that takes over, one that comes back too late, and a database that
//! is down.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::jobs::{PROMPTLY_SECS, clock};
use crate::harness::{Daemon, Postgres, Settings, Site, Train};

/// Longest until the other daemon must lead, seconds.
const TAKEOVER_SECS: f64 = 10.0;

/// How long the database is down.
const AWAY_SECS: f64 = 8.0;

/// A cluster whose leader and second daemon share a database.
struct Pair {
    // Dropped in this order: daemons before their database, the database before the cluster.
    second: Daemon,
    _server: Postgres,
    site: Site,
}

impl Pair {
    /// Starts the first daemon, and lets the second stand by.
    fn new() -> Pair {
        let site = Site::bare();
        let (server, url) = site.postgres();
        let port = site.port();
        let settings = Settings::quick(port)
            .set("store.database_url", url)
            .set("agent.url", format!("http://127.0.0.1:{port},http://127.0.0.1:{}", port + 1));
        site.configure(&settings);
        site.start();
        let mut second = Daemon::second(site.cluster(), settings);
        second.stand_by(site.cluster());
        Pair { second, _server: server, site }
    }

    /// Waits until the second daemon leads. From then on the site asks it.
    fn until_second_leads(&mut self, since: f64) {
        self.site.swap_daemon(&mut self.second);
        self.site.until("the second daemon to lead", TAKEOVER_SECS, || {
            self.site.status().is_some_and(|s| s.last_round.is_some())
        });
        let secs = clock() - since;
        eprintln!("the second daemon led after {secs:.2} s");
        assert!(secs <= TAKEOVER_SECS, "it took {secs:.2} s");
    }
}

/// The parts of a job that hold nodes, by id, with the order that submitted each wing.
fn parts(site: &Site, job: u32) -> BTreeMap<u32, Option<u64>> {
    let running: Vec<u32> = site.parts(job).iter().map(|p| p.id).collect();
    let comments = site.run("root", &["squeue", "-h", "-a", "-o", "%A|%k"]);
    let order = |comment: &str| {
        let rest = comment.strip_prefix("infill:order=")?;
        rest.split(';').next()?.parse().ok()
    };
    let all = comments.lines().filter_map(|l| l.split_once('|'));
    let all = all.filter_map(|(id, comment)| Some((id.parse().ok()?, order(comment))));
    all.filter(|(id, _)| running.contains(id)).collect()
}

/// The second daemon has the job unchanged, rescales it, and brings it to its end. No order is given twice.
fn goes_on(site: &Site, job: u32, generation: u64, before: &BTreeMap<u32, Option<u64>>) {
    let view = site.until_trains_on(job, 6, 60.0);
    assert_eq!(&parts(site, job), before, "a wing was lost or doubled");
    assert_eq!((view.generation, view.restarts), (generation, 0), "it was disturbed: {view:?}");
    let main = site.main_job(120, &["--nodes=5", &format!("--exclude={}", view.nodes[0])]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains_on(job, 3, 40.0);
    site.must("root", &["scancel", &main.id.to_string()]);
    site.until_trains_on(job, 6, 40.0);
    let after = parts(site, job);
    let used: BTreeSet<u64> = before.values().flatten().copied().collect();
    let fresh: Vec<u64> =
        after.iter().filter(|(id, _)| !before.contains_key(id)).filter_map(|(_, order)| *order).collect();
    assert!(used.len() + 1 == before.len() && fresh.len() == 3, "{before:?}, {after:?}");
    assert!(
        fresh.iter().all(|order| !used.contains(order)),
        "an order was given twice: {before:?}, {after:?}"
    );
    site.until_nothing_leaks(10.0);
    site.completes(job);
    site.diary(job).assert_no_overlap();
}

#[test]
fn a_second_daemon_takes_over_from_one_that_was_killed() {
    let mut pair = Pair::new();
    let job = Train::on("1-6").submit(&pair.site);
    let generation = pair.site.until_trains_on(job, 6, 30.0).generation;
    let before = parts(&pair.site, job);
    let refused = pair.second.answer("/v1/status").expect("the second daemon answers");
    assert!(refused.status == 503 && refused.body.contains("standby"), "{refused:?}");
    assert_eq!(pair.site.exec("alice", &["infill", "status"]).status.code(), Some(0));
    let killed = clock();
    pair.site.kill_daemon();
    pair.until_second_leads(killed);
    assert_eq!(pair.site.exec("alice", &["infill", "status"]).status.code(), Some(0));
    goes_on(&pair.site, job, generation, &before);
}

#[test]
fn a_leader_that_was_stopped_for_a_while_does_nothing_more() {
    let mut pair = Pair::new();
    let job = Train::on("1-6").submit(&pair.site);
    let generation = pair.site.until_trains_on(job, 6, 30.0).generation;
    let before = parts(&pair.site, job);
    let frozen = clock();
    pair.site.freeze_daemon();
    pair.until_second_leads(frozen);
    // Agents may find it only after a while, because their requests first hang at the old one.
    pair.site.until_trains_on(job, 6, 60.0);
    let first = &mut pair.second;
    let written = first.log().len();
    first.thaw();
    let code = first.ends(5.0);
    assert!(code.is_some_and(|code| code != 0), "it ended with {code:?}: {}", &first.log()[written..]);
    let said = first.log()[written..].to_owned();
    assert!(said.contains("no longer leads"), "{said}");
    assert!(!said.contains(" did "), "it acted when it was no more the leader: {said}");
    goes_on(&pair.site, job, generation, &before);
}

#[test]
fn a_database_that_is_away_stops_no_job_and_loses_no_history() {
    let site = Site::bare();
    let (mut server, url) = site.postgres();
    site.configure(&Settings::quick(site.port()).set("store.database_url", url));
    site.start();
    let job = Train::on("1-4").submit(&site);
    let view = site.until_trains_on(job, 4, 30.0);
    server.crash();
    let away = clock();
    site.until("the daemon to notice", 15.0, || {
        site.status().is_some_and(|s| s.problems.iter().any(|p| p.contains("the store fails")))
    });
    assert!(site.metric("infill_store_up") == 0.0);
    // A job leaves nodes without anyone's permission.
    let main = site.main_job(1, &["--nodes=6", &format!("--exclude={}", view.nodes[0])]);
    site.starts_within(main, PROMPTLY_SECS);
    site.until_trains(job, 5, 30.0);
    site.until("the database to have been away long enough", AWAY_SECS, || clock() - away > AWAY_SECS);
    server.revive();
    let back = clock();
    site.until("all problems to be over", 20.0, || site.status().is_some_and(|s| s.problems.is_empty()));
    assert_eq!(site.metric("infill_store_up"), 1.0);
    site.until_trains_on(job, 4, 40.0);
    for (table, at, rows) in [("rounds", "planned_at", 4), ("generations", "started_at", 1)] {
        // Stored times are whole seconds.
        let between = format!("{at} BETWEEN {} AND {}", away.floor(), back.ceil());
        let kept = server.ask(&format!("SELECT count(*) >= {rows} FROM {table} WHERE {between}"));
        assert_eq!(kept, "t", "{table} of the time in which the database was away are lost");
    }
    for kind in ["rounds", "gaps", "measurements", "generations"] {
        assert_eq!(site.metric(&format!("infill_lost_rows_total{{kind=\"{kind}\"}}")), 0.0);
    }
    assert_eq!(site.logged(&["ERROR", "the store fails"]).len(), 1);
    site.completes(job);
}
