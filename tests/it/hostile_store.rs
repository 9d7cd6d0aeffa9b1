//! A user who tries to fill the store with imports of profiles in a loop, several at a time. Without a
//! cluster, on the daemon's own loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use infill_api::{BodyProof, ImportRequest};
use infill_model::{Credential, ProfileFilter, Secret};
use infill_testkit::samples;
use reqwest::StatusCode;

use crate::load::{Daemon, STRANGER};

/// Importers at a time, profiles of each import, and how many refusals each gets before it gives up.
const IMPORTERS: usize = 8;
const PROFILES: usize = 64;
const REFUSALS: usize = 10;

/// The default of store.max_profiles_a_user.
const MOST: usize = 1000;

/// Imports new profiles each time until it was refused often enough. Returns how many were accepted.
async fn import(url: String, importer: usize, refused: Arc<AtomicUsize>) -> usize {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut taken = 0;
    let mut sent_away = 0;
    for turn in 0.. {
        let name = |i| format!("job-{importer}-{turn}-{i}");
        let profiles = (0..PROFILES).map(|i| samples::sample_profile(STRANGER, &name(i), "cpu")).collect();
        let credential = Some(Credential::Munge(Secret(STRANGER.to_owned())));
        let proof = BodyProof { credential, nonce: Some("n".to_owned()) };
        let request = ImportRequest { proof, profiles };
        let answer = http.post(format!("{url}/v1/profiles/import")).json(&request).send().await.unwrap();
        match answer.status() {
            StatusCode::OK => taken += PROFILES,
            StatusCode::TOO_MANY_REQUESTS => {
                assert!(answer.headers().contains_key("retry-after"));
                sent_away += 1;
            }
            // There is no space for this many.
            StatusCode::PAYLOAD_TOO_LARGE => {}
            other => panic!("{other}: {}", answer.text().await.unwrap()),
        }
        refused.fetch_add(usize::from(sent_away > 0), Ordering::Relaxed);
        assert!(taken <= MOST, "the store is filled");
        if sent_away >= REFUSALS {
            break;
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn no_user_fills_the_store_and_others_go_on_meanwhile() {
    // The second call is refused, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let daemon = Daemon::start(2).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    daemon.hello(&http, 1).await;
    let refused = Arc::new(AtomicUsize::new(0));
    let importers: Vec<_> =
        (0..IMPORTERS).map(|n| tokio::spawn(import(daemon.url.clone(), n, refused.clone()))).collect();
    // An agent comes meanwhile, and rounds go on.
    daemon.hello(&http, 2).await;
    let began = daemon.rounds().1;
    let end = Instant::now() + Duration::from_secs(60);
    while daemon.rounds().1 < began + 3.0 {
        assert!(Instant::now() < end, "rounds stand still");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut taken = 0;
    for importer in importers {
        taken += importer.await.unwrap();
    }
    assert!(refused.load(Ordering::Relaxed) >= IMPORTERS, "they did not come in a loop");
    let filter = ProfileFilter { user: Some(STRANGER.to_owned()), ..ProfileFilter::default() };
    let kept = daemon.context.store.find_profiles(&filter, 9999).await.unwrap().len();
    assert_eq!((kept, kept <= MOST), (taken, true));
}
