//! The map of node use: whose jobs it names to each reader, its packed shares, and refused requests.

use std::io::Read as _;

use serde_json::{Value, json};

use super::*;

/// Both jobs get a node: the owner's job the first, the other's the second.
async fn start_with_jobs() -> TestDaemon {
    let daemon = TestDaemon::start(ReadAccess::Proof).await;
    for (job, node) in [(424_201, "n1"), (424_302, "n2")] {
        daemon.slurm.launch_job(JobId(job), &NodeName::new(node), 10).await.unwrap();
    }
    daemon.slurm.advance_secs(30);
    look(&daemon.context).await;
    daemon
}

/// The half minute in which they had the nodes.
const WITH_JOBS: &str = "/v1/timeline?from=1000030&to=1000060";

async fn map(daemon: &mut TestDaemon, who: ReaderKind, asked: &str) -> Value {
    let (status, body) = daemon.get(who, asked).await;
    assert_eq!(status, 200, "{asked}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn a_map_names_to_a_reader_only_their_own_jobs() {
    let mut daemon = start_with_jobs().await;
    // A malleable job's code is its number plus 6. The code of a hidden job is 6.
    for (private, who, [first, second]) in [
        ("jobs", ReaderKind::Admin, [424_207, 424_308]),
        ("jobs", ReaderKind::Owner, [424_207, 6]),
        ("jobs", ReaderKind::Other, [6, 424_308]),
        ("users", ReaderKind::Other, [424_207, 424_308]),
    ] {
        daemon.keep_private(PrivateData::parse(private));
        let shown = map(&mut daemon, who, WITH_JOBS).await;
        let rows = json!([
            { "node": "n1", "runs": [[0, 30, first]] },
            { "node": "n2", "runs": [[0, 30, second]] },
            { "node": "n3", "runs": [[0, 30, 1]] },
            { "node": "n4", "runs": [[0, 30, 2]] },
        ]);
        assert_eq!(
            (&shown["detail"], &shown["rows"]),
            (&json!("nodes"), &rows),
            "{who:?}, {private}: {shown}"
        );
    }
}

#[tokio::test]
async fn private_nodes_are_one_row_of_a_map() {
    let mut daemon = start_with_jobs().await;
    daemon.keep_private(PrivateData::parse("nodes"));
    for who in [ReaderKind::Other, ReaderKind::Owner] {
        // A request for one of them gets all as well.
        for part in ["", "&first=0&count=1"] {
            let shown = map(&mut daemon, who, &format!("{WITH_JOBS}{part}")).await;
            assert_eq!(
                (&shown["detail"], &shown["rows"]),
                (&json!("mixtures"), &json!([4])),
                "{who:?}: {shown}"
            );
        }
    }
    let shown = map(&mut daemon, ReaderKind::Operator, WITH_JOBS).await;
    let names: Vec<&Value> = shown["rows"].as_array().unwrap().iter().map(|row| &row["node"]).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4"], "{shown}");
}

#[tokio::test]
async fn the_shares_of_a_mixture_are_in_fifteenths() {
    let mut daemon = start_with_jobs().await;
    daemon.keep_private(PrivateData::parse("nodes"));
    let shown = map(&mut daemon, ReaderKind::Other, &format!("{WITH_JOBS}&columns=2")).await;
    // One of four nodes has a main job, two have malleable ones, one is idle: 4, 8 and 4 of 15.
    assert_eq!((&shown["columns"], &shown["shares"]), (&json!(2), &json!("SEAASEAA")), "{shown}");
}

#[tokio::test]
async fn a_map_is_packed_for_those_who_can_unpack_it() {
    let mut daemon = start_with_jobs().await;
    let (_, plain) = daemon.get(ReaderKind::Admin, WITH_JOBS).await;
    let url = format!("{}{WITH_JOBS}", daemon.url);
    let get = async |encoding: Option<&str>| {
        let request = daemon.http.get(&url).header("authorization", "Slurm-JWT root's");
        let request = encoding.into_iter().fold(request, |r, value| r.header("accept-encoding", value));
        let answer = request.send().await.unwrap();
        let encoding = answer.headers().get("content-encoding").map(|v| v.to_str().unwrap().to_owned());
        (encoding, answer.bytes().await.unwrap())
    };
    for encoding in [None, Some("br")] {
        assert_eq!(get(encoding).await, (None, plain.clone().into()), "{encoding:?}");
    }
    let (encoding, packed) = get(Some("br, gzip")).await;
    assert_eq!(encoding.as_deref(), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_ref()).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain);
}

#[tokio::test]
async fn a_map_of_no_time_or_of_too_much_is_refused() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    // A map covers at most 48 hours.
    for (asked, expected) in [
        ("to=1000000", 400),
        ("to=1000001", 200),
        ("to=1172800", 200),
        ("to=1172801", 400),
        ("to=1000060&nodes_since=827260", 200),
        ("to=1000060&nodes_since=827259", 400),
        ("to=1000060&rows=0", 400),
        ("to=1000060&columns=0", 400),
        ("to=1000060&rows=4096&columns=1", 200),
        ("to=1000060&rows=4097&columns=1", 400),
        ("to=1000060&rows=1000&columns=1000", 200),
        ("to=1000060&rows=1001&columns=1000", 400),
        ("to=1000060&rows=4096&columns=4096", 400),
    ] {
        let (status, body) =
            daemon.get(ReaderKind::Admin, &format!("/v1/timeline?from=1000000&{asked}")).await;
        assert_eq!(status, expected, "{asked}: {body}");
    }
}
