//! Protection against requests that a browser sends for a foreign page.
//!
//! A foreign page cannot read the daemon's answers, unless its own host name resolves to the daemon too (DNS
//! rebinding). So the host name of each request is checked, and requests of other pages are refused. Programs
//! send none of these headers, and only need a proof. Requests without a proof must use one of the daemon's
//! names as well.

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

/// The header in which a browser describes the page that sends the request.
const FETCH_SITE: &str = "sec-fetch-site";

/// The header in which a browser says what the request is for.
const FETCH_DESTINATION: &str = "sec-fetch-dest";

/// Names of the local host, which readers use through a tunnel.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Refuses browsers that use a host name that is not the daemon's, and requests of foreign pages.
pub(crate) async fn check_origin(
    State(context): State<Arc<DaemonContext>>,
    request: Request,
    next: Next,
) -> Result<Response, RequestDenial> {
    check_headers(&context.config, request.headers())?;
    Ok(next.run(request).await)
}

/// Checks the host name of a request without a proof. It must be one of the daemon's names, or an IP address.
/// So a page with DNS rebinding gets nothing, even if its browser sends none of the headers above.
pub(crate) fn check_host_name(config: &Config, headers: &HeaderMap) -> Result<(), RequestDenial> {
    let host = header_value(headers, HOST.as_str()).unwrap_or_default();
    let bare = without_port(host);
    let is_address = bare.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if is_address || is_own_name(config, bare) {
        return Ok(());
    }
    Err(unknown_host_denial(host))
}

/// Refuses requests of foreign pages, except for links to the page. This is for requests through the site's
/// web server, because the daemon does not know that server's names.
pub(crate) fn refuse_cross_site(headers: &HeaderMap) -> Result<(), RequestDenial> {
    let site = headers.get(FETCH_SITE);
    let is_foreign = site.is_some_and(|site| site == "cross-site" || site == "same-site");
    let is_link = headers.get(FETCH_DESTINATION).is_some_and(|destination| destination == "document");
    if is_foreign && !is_link {
        return Err(cross_site_denial());
    }
    Ok(())
}

fn cross_site_denial() -> RequestDenial {
    RequestDenial::new(StatusCode::FORBIDDEN, "another site's page sent this request")
}

fn is_own_name(config: &Config, bare: &str) -> bool {
    own_names(config).iter().any(|name| name.eq_ignore_ascii_case(bare))
}

fn unknown_host_denial(host: &str) -> RequestDenial {
    let what = format!("{host:?} is not a name of this daemon (add it to http.hosts if it should be)");
    RequestDenial::new(StatusCode::MISDIRECTED_REQUEST, what)
}

/// The value of a header; empty where it is not text.
fn header_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

fn check_headers(config: &Config, headers: &HeaderMap) -> Result<(), RequestDenial> {
    let site = header_value(headers, FETCH_SITE);
    let origin = header_value(headers, ORIGIN.as_str());
    if site.is_none() && origin.is_none() {
        return Ok(());
    }
    let host = header_value(headers, HOST.as_str()).unwrap_or_default();
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

/// All host names of this daemon.
fn own_names(config: &Config) -> Vec<String> {
    let mut names: Vec<String> = OWN_NAMES.iter().map(|name| (*name).to_owned()).collect();
    for url in daemon_urls(&config.agent.url) {
        names.extend(url.split_once("://").map(|(_, rest)| without_port(rest).to_owned()));
    }
    names.push(without_port(&config.daemon.listen).to_owned());
    names.extend(config.http.hosts.iter().cloned());
    names
}

/// `ctl` of `ctl:6810/x`. An IPv6 address must be in brackets.
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
            .map_or_else(|e| e.into_response().status().as_u16(), |()| 200)
    }

    #[test]
    fn programs_pass_and_browsers_must_use_a_name_of_the_daemon() {
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
    fn a_request_without_proof_uses_a_name_of_the_daemon_or_an_address() {
        let mut config = Config::default();
        config.agent.url = "http://ctl:6810".to_owned();
        for (host, is_accepted) in [
            ("ctl:6810", true),
            ("localhost", true),
            ("127.0.0.1:6810", true),
            ("10.0.0.7:6810", true),
            ("[fd00::7]:6810", true),
            ("evil.example:6810", false),
            ("", false),
            ("ctl.evil.example", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            assert_eq!(check_host_name(&config, &headers).is_ok(), is_accepted, "{host}");
        }
    }

    #[test]
    fn behind_a_web_server_foreign_pages_may_only_link_here() {
        for (site, destination, is_accepted) in [
            ("same-origin", "empty", true),
            ("none", "document", true),
            ("cross-site", "document", true),
            ("cross-site", "empty", false),
            ("same-site", "image", false),
            ("cross-site", "iframe", false),
        ] {
            let headers = [("sec-fetch-site", site), ("sec-fetch-dest", destination)];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let found = refuse_cross_site(&HeaderMap::from_iter(headers));
            assert_eq!(found.is_ok(), is_accepted, "{site} {destination}");
        }
        assert!(refuse_cross_site(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn foreign_pages_are_refused() {
        for (origin, site, status) in [
            ("http://ctl:6810", "same-origin", 200),
            ("http://evil.example", "cross-site", 403),
            ("http://ctl:6810", "cross-site", 403),
            ("null", "same-origin", 403),
        ] {
            let found = answer(&[("host", "ctl:6810"), ("origin", origin), ("sec-fetch-site", site)]);
            assert_eq!(found, status, "{origin} {site}");
        }
        assert_eq!(
            answer(&[("host", "ctl:6810"), ("sec-fetch-site", "cross-site")]),
            403,
            "a link or a picture"
        );
    }
}
