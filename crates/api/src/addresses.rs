//! The daemon as those see it that speak to it, agents and the command line: one address, or several of which
//! one leads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The daemons' addresses, and which of them answered last.
#[derive(Debug)]
pub struct DaemonAddresses {
    urls: Vec<String>,
    answers: AtomicUsize,
}

impl DaemonAddresses {
    /// Daemons at these URLs, as [`crate::daemon_urls`] reads them; `None` where there is none.
    pub fn new(urls: Vec<String>) -> Option<DaemonAddresses> {
        (!urls.is_empty()).then_some(DaemonAddresses { urls, answers: AtomicUsize::new(0) })
    }

    /// All URLs.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The URL of the daemon that answered last; before any did, of the first.
    pub fn preferred_url(&self) -> &str {
        self.in_preferred_order().next().map_or("", |(_, url)| url)
    }

    /// All daemons with their numbers, in the order in which they should be asked: the one that answered last
    /// first.
    pub fn in_preferred_order(&self) -> impl Iterator<Item = (usize, &str)> {
        let first = self.answers.load(Ordering::Relaxed);
        let count = self.urls.len();
        (0..count).map(move |turn| (first + turn) % count).map(|i| (i, self.urls[i].as_str()))
    }

    /// Notes that this one answered.
    pub fn record_answer(&self, number: usize) {
        self.answers.store(number, Ordering::Relaxed);
    }
}

/// The name of this machine; `None` where the kernel tells none.
pub fn this_host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Host and port that a URL leads to, as `HOST:PORT` in lower case; `None` where it is none of the daemon's.
pub fn host_and_port(url: &str) -> Option<String> {
    let url = url.parse::<http::Uri>().ok()?;
    let usual = match url.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    Some(format!("{}:{}", url.host()?, url.port_u16().unwrap_or(usual)).to_ascii_lowercase())
}

/// Whether what is sent to this URL can be read on its way: plain HTTP to another machine, and whatever is
/// not known to be anything else.
pub fn can_be_overheard(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return true };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let is_secret = url.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    !is_secret && !is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_answered_last_is_asked_first() {
        let daemons = DaemonAddresses::new(["a", "b", "c"].map(str::to_owned).to_vec()).unwrap();
        let order = || daemons.in_preferred_order().map(|(_, url)| url).collect::<String>();
        assert_eq!((order(), daemons.preferred_url()), ("abc".to_owned(), "a"));
        daemons.record_answer(1);
        assert_eq!((order(), daemons.preferred_url()), ("bca".to_owned(), "b"));
    }

    #[test]
    fn plain_http_to_another_machine_can_be_overheard() {
        for url in
            ["http://ctl:6810", "http://10.0.0.1", "http://[fd00::1]:1", "http://localhost.evil:1", "x", ""]
        {
            assert!(can_be_overheard(url), "{url}");
        }
        for url in ["HTTP://ctl", "http:ctl:6810", "http://ctl\\@127.0.0.1", "http://localhost@ctl", "//ctl"]
        {
            assert!(can_be_overheard(url), "{url}");
        }
        for url in ["https://ctl", "http://localhost:6810", "http://127.0.0.9:1", "http://[::1]:6810"] {
            assert!(!can_be_overheard(url), "{url}");
        }
    }

    #[test]
    fn no_address_is_no_daemon() {
        assert!(DaemonAddresses::new(Vec::new()).is_none());
    }

    #[test]
    fn where_a_url_leads() {
        for (url, expected) in [
            ("http://Ctl.Example:6810", Some("ctl.example:6810")),
            ("https://ctl/infill", Some("ctl:443")),
            ("http://[fd00::1]:6810/", Some("[fd00::1]:6810")),
            ("http://ctl", Some("ctl:80")),
            ("ftp://ctl", None),
            ("ctl:6810", None),
            ("", None),
        ] {
            assert_eq!(host_and_port(url).as_deref(), expected, "{url}");
        }
    }
}
