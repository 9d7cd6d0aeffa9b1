//! What only browsers have to be kept from: asking for a page that does not know it. A foreign page cannot
//! read what it gets from here, unless its own name leads here, too (rebinding); so names are checked, and
//! requests of other pages are refused. Programs, which send none of these headers, are asked for proof
//! alone; whoever gives none must come by a name of ours, too.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::context::DaemonContext;
use infill_api::daemon_urls;
use infill_model::config::Config;

use super::RequestDenial;

/// What a browser says of the page that asks.
const FETCH_SITE: &str = "sec-fetch-site";

/// And of what for.
const FETCH_DESTINATION: &str = "sec-fetch-dest";

/// Names of this very machine: a tunnel ends there.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Refuses browsers that came by a name that is not ours, and requests of other pages than ours.
pub(crate) async fn check_origin(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    check_headers(&context.config, request.headers())?;
    Ok(next.run(request).await)
}

/// Whether the name by which somebody came who proves nothing is one of ours, or a number: a page that has
/// led its own name here (rebinding) is told nothing, though its browser sends none of the headers above.
pub(crate) fn check_host_name(config: &Config, headers: &HeaderMap) -> Result<(), RequestDenial> {
    let host = headers.get(HOST).map(|value| value.to_str().unwrap_or_default()).unwrap_or_default();
    let bare = without_port(host);
    let is_number = bare.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    match is_number || is_own_name(config, bare) {
        true => Ok(()),
        false => Err(unknown_host_denial(host)),
    }
}

/// Refuses what another page asks for, but for a link to ours: behind a site's web server, whose names only
/// that knows.
pub(crate) fn refuse_cross_site(headers: &HeaderMap) -> Result<(), RequestDenial> {
    let is = |name: &str, words: &[&str]| headers.get(name).is_some_and(|v| words.iter().any(|w| v == w));
    match is(FETCH_SITE, &["cross-site", "same-site"]) && !is(FETCH_DESTINATION, &["document"]) {
        true => Err(cross_site_denial()),
        false => Ok(()),
    }
}

fn cross_site_denial() -> RequestDenial {
    RequestDenial::new(StatusCode::FORBIDDEN, "asked for by another page")
}

fn is_own_name(config: &Config, bare: &str) -> bool {
    own_names(config).iter().any(|name| name.eq_ignore_ascii_case(bare))
}

fn unknown_host_denial(host: &str) -> RequestDenial {
    let what = format!("{host:?} is no name of this daemon (http.hosts names more)");
    RequestDenial::new(StatusCode::MISDIRECTED_REQUEST, what)
}

fn check_headers(config: &Config, headers: &HeaderMap) -> Result<(), RequestDenial> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let site = text(FETCH_SITE);
    let origin = text(ORIGIN.as_str());
    if site.is_none() && origin.is_none() {
        return Ok(());
    }
    let host = text(HOST.as_str()).unwrap_or_default();
    if !is_own_name(config, without_port(host)) {
        return Err(unknown_host_denial(host));
    }
    let is_own_page =
        origin.is_none_or(|origin| origin.split_once("://").is_some_and(|(_, from)| from == host));
    if is_own_page && site.is_none_or(|site| matches!(site, "same-origin" | "none")) {
        return Ok(());
    }
    Err(cross_site_denial())
}

/// Names under which this daemon is known.
fn own_names(config: &Config) -> Vec<String> {
    let urls = daemon_urls(&config.agent.url);
    let of_url = |url: &String| url.split_once("://").map(|(_, rest)| without_port(rest).to_owned());
    let own = OWN_NAMES.iter().map(|name| (*name).to_owned());
    let listens = without_port(&config.daemon.listen).to_owned();
    own.chain(urls.iter().filter_map(of_url))
        .chain([listens])
        .chain(config.http.hosts.iter().cloned())
        .collect()
}

/// `ctl` of `ctl:6810/x`; an address of version 6 stands in brackets.
fn without_port(host: &str) -> &str {
    let host = host.split('/').next().unwrap_or_default();
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    fn answer(sent: &[(&'static str, &str)]) -> u16 {
        let mut config = Config::default();
        config.agent.url = "http://ctl:6810,http://[fd00::7]:6810".to_owned();
        config.http.hosts = vec!["infill.site.example".to_owned()];
        let headers = sent.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()));
        check_headers(&config, &headers.collect::<HeaderMap>())
            .map_or_else(|e: RequestDenial| e.into_response().status().as_u16(), |()| 200)
    }

    #[test]
    fn programs_are_not_asked_and_browsers_come_by_a_name_of_ours() {
        assert_eq!(answer(&[("host", "evil.example")]), 200);
        for host in [
            "localhost:8000",
            "127.0.0.1:1",
            "[::1]:6810",
            "CTL:6810",
            "[fd00::7]:6810",
            "infill.site.example",
        ] {
            assert_eq!(answer(&[("host", host), ("sec-fetch-site", "none")]), 200, "{host}");
        }
        for host in ["evil.example", "ctl.evil.example:6810", "", "localhost.evil.example"] {
            assert_eq!(answer(&[("host", host), ("sec-fetch-site", "same-origin")]), 421, "{host}");
            assert_eq!(answer(&[("host", host), ("origin", "http://x")]), 421, "{host}");
        }
    }

    #[test]
    fn who_proves_nothing_comes_by_a_name_of_ours_or_by_a_number() {
        let mut config = Config::default();
        config.agent.url = "http://ctl:6810".to_owned();
        let come = |host: &str| {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            check_host_name(&config, &headers).is_ok()
        };
        for host in ["ctl:6810", "localhost", "127.0.0.1:6810", "10.0.0.7:6810", "[fd00::7]:6810"] {
            assert!(come(host), "{host}");
        }
        assert!(!come("evil.example:6810") && !come("") && !come("ctl.evil.example"));
    }

    #[test]
    fn behind_a_web_server_other_pages_have_links_alone() {
        let asked = |site: &str, destination: &str| {
            let headers = [("sec-fetch-site", site), ("sec-fetch-dest", destination)];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            refuse_cross_site(&HeaderMap::from_iter(headers)).is_ok()
        };
        assert!(
            asked("same-origin", "empty") && asked("none", "document") && asked("cross-site", "document")
        );
        assert!(
            !asked("cross-site", "empty") && !asked("same-site", "image") && !asked("cross-site", "iframe")
        );
        assert!(refuse_cross_site(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn other_pages_are_refused() {
        let from = |origin: &str, site: &str| {
            answer(&[("host", "ctl:6810"), ("origin", origin), ("sec-fetch-site", site)])
        };
        assert_eq!(from("http://ctl:6810", "same-origin"), 200);
        assert_eq!(from("http://evil.example", "cross-site"), 403);
        assert_eq!(from("http://ctl:6810", "cross-site"), 403);
        assert_eq!(from("null", "same-origin"), 403);
        assert_eq!(
            answer(&[("host", "ctl:6810"), ("sec-fetch-site", "cross-site")]),
            403,
            "a link or a picture"
        );
    }
}
