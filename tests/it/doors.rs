//! The doors of the daemon: the port that outlives it, and TLS.

use std::io::ErrorKind;
use std::net::TcpListener;

use crate::harness::http;
use crate::harness::{Settings, Site, Train};

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
    // What is asked while there is no daemon waits for the next one.
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
