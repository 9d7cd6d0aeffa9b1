//! The daemon's port: systemd keeps it open between daemons, and it can speak TLS.

use std::io::ErrorKind;
use std::net::TcpListener;

use infill_testkit::certificates::{CertificateAuthority, CertificateFiles, LOCALHOST_NAMES};

use crate::harness::http;
use crate::harness::{Settings, Site, Slurm, Train};

#[test]
fn a_port_that_systemd_holds_outlives_the_daemon() {
    let site = Site::bare();
    let port = site.port();
    site.configure(&Settings::quick(port));
    site.bind_port();
    site.start();
    let job = Train::on("1-2").submit(&site);
    let generation = site.until_trains_on(job, 2, 30.0).generation;
    site.kill_daemon();
    let taken = TcpListener::bind(("127.0.0.1", port)).expect_err("the port stays bound");
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let bind = format!("import socket; socket.create_server(('127.0.0.1', {port}), reuse_port=True)");
    let output = site.exec("bob", &["python3", "-c", &bind]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Address already in use"), "{output:?}");
    // Requests that come while no daemon runs wait for the next one.
    let asked = std::thread::spawn(move || http::get(port, "/healthz"));
    site.start();
    let answer = asked.join().expect("the request ends").expect("it is answered");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(site.until_trains_on(job, 2, 30.0).generation, generation, "the job was disturbed");
    site.completes(job);
}

#[test]
fn a_socket_at_another_address_than_the_configured_is_refused() {
    let site = Site::bare();
    let settings =
        Settings::quick(site.port()).set("daemon.listen", format!("127.0.0.1:{}", site.port() + 1));
    site.configure(&settings);
    site.bind_port();
    let said = site.refuses_to_start();
    assert!(said.contains("systemd listens on") && said.contains("systemctl daemon-reload"), "{said}");
}

/// A site whose daemon speaks TLS. This authority signed its certificate, which lies where the daemon reads
/// it.
struct Encrypted {
    site: Site,
    authority: CertificateAuthority,
}

impl Encrypted {
    fn on(slurm: &Slurm) -> Encrypted {
        let site = Site::bare_on(slurm);
        let authority = CertificateAuthority::new(&site.cluster().dir.join("etc/authority"));
        let port = site.port();
        let settings = Settings::quick(port)
            .set("http.read", "proof")
            .set("daemon.tls_cert", "/etc/infill/daemon.pem")
            .set("daemon.tls_key", "/etc/infill/daemon.key")
            .set("agent.url", format!("https://localhost:{port}"))
            .set("agent.ca", "/etc/infill/authority/ca.pem");
        site.configure(&settings);
        let encrypted = Encrypted { site, authority };
        encrypted.shows(&encrypted.authority.issue_certificate("daemon", LOCALHOST_NAMES));
        encrypted
    }

    /// Puts a certificate where the daemon reads it from now on.
    fn shows(&self, CertificateFiles { cert, key }: &CertificateFiles) {
        let etc = self.site.cluster().dir.join("etc");
        for (file, name) in [(key, "daemon.key"), (cert, "daemon.pem")] {
            let new = etc.join(format!("{name}.new"));
            std::fs::copy(file, &new).expect("a file of the cluster");
            self.site.must("root", &["chown", "infill", &format!("/etc/infill/{name}.new")]);
            std::fs::rename(&new, etc.join(name)).expect("a file of the cluster");
        }
    }

    /// The output of `infill status` when it ends with this code.
    #[track_caller]
    fn status(&self, code: i32) -> String {
        let output = self.site.exec("alice", &["infill", "status"]);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    }

    fn until_status(&self, what: &str, says: impl Fn(&str) -> bool) {
        let said = || {
            let output = self.site.exec("alice", &["infill", "status"]);
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        self.site.until(what, 40.0, || says(&said()));
    }

    /// A job that has grown onto both nodes: its agents and the daemon have spoken.
    fn until_grown(&self, job: u32) {
        self.site.until("the job to grow", 60.0, || self.site.nodes_of(job).len() == 2);
        self.site.until_trains(job, 3, 30.0);
    }
}

/// Exit code of a command that reaches no daemon that it trusts.
const UNREACHABLE: i32 = 3;

#[test]
fn agents_and_commands_trust_only_the_configured_certificate() {
    let encrypted = Encrypted::on(&Slurm::default().nodes(2));
    let site = &encrypted.site;
    site.start_in_tls();
    encrypted.until_status("the daemon to answer", |said| said.contains("observe") || said.contains("act"));
    assert_eq!(http::get(site.port(), "/healthz"), None, "plain HTTP is answered");
    let job = Train::on("1-2").submit(site);
    encrypted.until_grown(job);

    // A wrong certificate: to new clients the daemon is away.
    let stranger = CertificateAuthority::new(&site.cluster().dir.join("etc/stranger"));
    for (wrong, why) in [
        (stranger.issue_certificate("stranger", LOCALHOST_NAMES), "UnknownIssuer"),
        (encrypted.authority.issue_expired("expired", LOCALHOST_NAMES), "xpired"),
        (encrypted.authority.issue_certificate("elsewhere", "DNS:elsewhere.example"), "not valid for name"),
    ] {
        encrypted.shows(&wrong);
        encrypted.until_status(why, |said| said.contains(why));
        encrypted.status(UNREACHABLE);
    }
    site.until_trains(job, 3, 30.0);

    // A correct certificate: no restart is needed.
    encrypted.shows(&encrypted.authority.issue_certificate("renewed", LOCALHOST_NAMES));
    encrypted.until_status("the daemon to be believed again", |said| {
        said.contains("observe") || said.contains("act")
    });
    site.until_trains(job, 3, 30.0);
    site.completes(job);
}

#[test]
fn an_agent_without_the_daemons_authority_trains_alone_and_sends_nothing() {
    let encrypted = Encrypted::on(&Slurm::default().nodes(2));
    let site = &encrypted.site;
    let stranger = CertificateAuthority::new(&site.cluster().dir.join("etc/stranger"));
    let written = std::fs::read(stranger.certificate_path()).expect("the authority's certificate");
    std::fs::write(site.cluster().dir.join("etc/authority/ca.pem"), written).expect("a file of the cluster");
    site.start_in_tls();
    let job = Train::on("1-2").run("--grace 10 --daemon-patience 3 --alone").submit(site);
    site.until_trains(job, 3, 60.0);
    let said = encrypted.status(UNREACHABLE);
    assert!(said.contains("UnknownIssuer"), "{said}");
    assert_eq!(site.nodes_of(job).len(), 1, "it trains alone");
    site.completes(job);
}
