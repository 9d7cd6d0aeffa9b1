//! The administrator's limits (`[safety]`), and the emergency stop without the daemon.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use crate::harness::{Site, Slurm, Train};
use infill_model::ControlState;

#[test]
fn a_delayed_main_job_pauses_infill_until_an_administrator_resumes() {
    let site =
        Site::with(|settings| settings.set("safety.max_delay_secs", 0.5).set("safety.max_delayed_jobs", 1));
    let job = Train::on("1-4").run("--grace 3").flags("--ignore-signal 1").submit(&site);
    site.until_trains_on(job, 4, 40.0);
    // The worker ignores its signal, so the main job waits until the agent kills it.
    let main = site.main_job(5, &["--nodes=7"]);
    site.starts_within(main, 10.0);
    site.until("the daemon to pause", 15.0, || {
        site.status().is_some_and(|status| status.control == ControlState::Paused)
    });
    let problems = site.status().expect("a status").problems;
    assert!(problems.iter().any(|p| p.contains("main jobs waited longer than")), "{problems:?}");
    // A restart keeps the order.
    site.kill_daemon();
    site.start();
    site.rounds_go_by(2);
    assert_eq!(site.status().expect("a status").control, ControlState::Paused);
    site.must("root", &["infill", "resume"]);
    site.until_trains_on(job, 4, 60.0);
    assert!(site.status().expect("a status").problems.iter().all(|p| !p.contains("main jobs waited")));
    site.completes(job);
}

#[test]
fn jobs_keep_to_the_allowed_nodes_and_to_their_number() {
    let site = Site::on(&Slurm::default().nodes(4), |settings| {
        settings.set("safety.nodes", "n[2-4]").set("safety.max_nodes", 2)
    });
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 2, 40.0);
    site.rounds_go_by(5);
    let nodes = site.nodes_of(job);
    assert!(nodes.len() == 2 && !nodes.contains(&"n1".to_owned()), "{nodes:?}");
    let why = site.must("root", &["infill", "explain", "n1"]);
    assert!(why.contains("not among the nodes that infill may use (safety.nodes)"), "{why}");
    site.completes(job);
}

#[test]
fn users_keep_to_their_limits() {
    let site = Site::on(&Slurm::default().nodes(6), |settings| {
        settings.set("safety.max_nodes_a_user", 2).set("safety.max_jobs", 2)
    });
    let first = Train::on("1-4").submit(&site);
    site.until_trains_on(first, 2, 40.0);
    let other = Train::on("1-4").user("bob").submit(&site);
    site.until_trains_on(other, 2, 40.0);
    let third = Train::on("1-4").user("bob").submit(&site);
    site.rounds_go_by(5);
    let held = [first, other, third].map(|job| site.nodes_of(job).len());
    assert_eq!(held, [2, 2, 0], "two of six nodes stay idle");
    let why = site.must("root", &["infill", "explain", &third.to_string()]);
    assert!(why.contains("no more than 2 train at a time (safety.max_jobs)"), "{why}");
    // The place of a job that ends goes to the next one. Its owner's jobs share the owner's nodes.
    site.must("alice", &["scancel", &first.to_string()]);
    site.until_trains_on(third, 1, 60.0);
    site.until_trains_on(other, 1, 60.0);
    site.must("bob", &["scancel", &other.to_string(), &third.to_string()]);
}

#[test]
fn a_blackout_ends_all_use_of_nodes() {
    // Every moment of the week.
    let site =
        Site::with(|settings| settings.set("safety.blackouts", vec!["Mon-Sun 00:00-24:00".to_owned()]));
    let job = Train::on("1-4").submit(&site);
    site.rounds_go_by(5);
    assert!(site.nodes_of(job).is_empty());
    let why = site.must("root", &["infill", "explain", "n1"]);
    assert!(why.contains("this is a blackout (safety.blackouts)"), "{why}");
    site.must("alice", &["scancel", &job.to_string()]);
}

/// A port of loopback that is as good as filtered: its queue of connections is full, so Linux drops what
/// asks for another one.
struct SilentPort {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl SilentPort {
    fn open() -> SilentPort {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        // SAFETY: the descriptor is that of the listener above, which is open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr().expect("an address");
        let soon = Duration::from_millis(300);
        let waiting: Vec<TcpStream> =
            (0..8).map_while(|_| TcpStream::connect_timeout(&address, soon).ok()).collect();
        assert!(waiting.len() < 8, "the port still answers");
        SilentPort { listener, _waiting: waiting }
    }

    fn url(&self) -> String {
        let port = self.listener.local_addr().expect("an address").port();
        format!("http://{}", SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
    }
}

/// Stops everything, and checks that the job is off its nodes, has lost no step, and trains again afterwards.
fn stops_and_goes_on(site: &Site, job: u32, words: &[&str]) {
    let said = site.must("root", words);
    assert!(said.contains("1 job requeued"), "{said}");
    site.until("all nodes to be free of malleable jobs", 40.0, || {
        site.queue().iter().all(|row| row.partition != "infill" || !row.runs())
    });
    site.must("root", &["scontrol", "update", "PartitionName=infill", "State=UP"]);
    if site.daemon_pid().is_none() {
        site.start();
    }
    site.until_trains_on(job, 4, 90.0);
    let lost = site.diary(job).lost();
    assert!(lost.iter().all(|steps| *steps <= 1), "{lost:?}");
}

#[test]
fn the_emergency_stop_needs_no_daemon() {
    let site = Site::acting();
    let job = Train::on("1-4").submit(&site);
    site.until_trains_on(job, 4, 40.0);
    site.kill_daemon();
    stops_and_goes_on(&site, job, &["infill", "stop-all"]);
    // An Operator of Slurm cannot close the partition. The job is held, and released by the printed command.
    site.kill_daemon();
    let stopped = site.exec("infill", &["infill", "stop-all", "--now"]);
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert_eq!(stopped.status.code(), Some(1), "{said}");
    let release = said.split("To undo: ").nth(1).map(str::trim).expect("a way back");
    assert_eq!(release, format!("scontrol release {job}"), "{said}");
    let state = || site.run("root", &["squeue", "--noheader", "--format=%T %Q", &format!("--jobs={job}")]);
    site.until("the job to be held", 40.0, || state().trim() == "PENDING 0");
    site.must("infill", &["scontrol", "release", &job.to_string()]);
    site.start();
    site.until_trains_on(job, 4, 90.0);
    let lost = site.diary(job).lost();
    assert!(lost.iter().all(|steps| *steps <= 1), "{lost:?}");
    // A daemon that hangs.
    site.freeze_daemon();
    let said = site.must("root", &["infill", "stop-all", "--dry-run"]);
    assert!(said.is_empty(), "{said}");
    let stopped = site.exec("root", &["infill", "stop-all"]);
    assert!(stopped.status.success(), "{stopped:?}");
    site.thaw_daemon();
    site.must("root", &["scontrol", "update", "PartitionName=infill", "State=UP"]);
    site.until_trains_on(job, 4, 90.0);
    // A daemon whose address never answers: neither a connection nor a refusal comes back.
    let silent = SilentPort::open();
    let begun = Instant::now();
    stops_and_goes_on(&site, job, &["infill", "--url", &silent.url(), "stop-all"]);
    drop(silent);
    assert!(begun.elapsed() < Duration::from_secs(150), "{:?}", begun.elapsed());
    // With a daemon that works, the daemon does it.
    let said = site.must("root", &["infill", "stop-all"]);
    assert!(said.contains("the daemon drains"), "{said}");
    site.until("the job to be off its nodes", 60.0, || site.nodes_of(job).is_empty());
    site.must("root", &["infill", "resume"]);
    site.until_trains_on(job, 4, 60.0);
    site.completes(job);
}
