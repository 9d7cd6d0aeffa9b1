//! Refused time spans and time zones.

use super::*;

/// The end of the year 9999.
const LATEST: i64 = 253_402_300_799;

/// The longest span that may be requested: 400 days.
const LONGEST: i64 = 34_560_000;

#[tokio::test]
async fn a_span_must_have_a_length_and_lie_between_1970_and_9999() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    for (from, to, expected) in [
        (0, 1, 200),
        (0, LONGEST, 200),
        (LATEST - 3600, LATEST, 200),
        (1000, 1000, 400),
        (1000, 999, 400),
        (0, LONGEST + 1, 400),
        (-1, 1000, 400),
        (LATEST - 3600, LATEST + 1, 400),
    ] {
        for path in [paths::REPORT, "/v1/figures/nodes"] {
            let asked = format!("{path}?from={from}&to={to}");
            let (status, answer) = daemon.get(ReaderKind::Admin, &asked).await;
            assert_eq!(status, expected, "{asked}: {answer}");
            assert_eq!(answer.contains("expected 1 to 34560000 seconds"), expected == 400, "{answer}");
        }
    }
}

#[tokio::test]
async fn a_zone_is_at_most_fourteen_hours_from_utc() {
    let mut daemon = TestDaemon::start(ReadAccess::Proof).await;
    for (zone, expected) in [(0, 200), (50_400, 200), (-50_400, 200), (50_401, 400), (-50_401, 400)] {
        let asked = format!("/v1/figures/nodes?from=997200&to=1000800&zone={zone}");
        let (status, answer) = daemon.get(ReaderKind::Admin, &asked).await;
        assert_eq!(status, expected, "{asked}: {answer}");
    }
}
