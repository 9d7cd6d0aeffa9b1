//! The daemon's addresses, for agents and the command line: one address, or several. If there are several
//! daemons, one of them leads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The daemons' addresses, and which daemon answered last.
#[derive(Debug)]
pub struct DaemonAddresses {
    urls: Vec<String>,
    /// Index of the URL whose daemon answered last.
    last_answered: AtomicUsize,
}

impl DaemonAddresses {
    /// Daemons at these URLs, as [`crate::daemon_urls`] reads them; `None` if `urls` is empty.
    pub fn new(urls: Vec<String>) -> Option<DaemonAddresses> {
        if urls.is_empty() {
            return None;
        }
        Some(DaemonAddresses { urls, last_answered: AtomicUsize::new(0) })
    }

    /// All URLs, in the order of the configuration.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The URL of the daemon that answered last; the first URL before any daemon answered.
    pub fn preferred_url(&self) -> &str {
        self.in_preferred_order().next().map_or("", |(_, url)| url)
    }

    /// Index and URL of each daemon, in the order in which to ask them: the one that answered last comes
    /// first.
    pub fn in_preferred_order(&self) -> impl Iterator<Item = (usize, &str)> {
        let first = self.last_answered.load(Ordering::Relaxed);
        let count = self.urls.len();
        (0..count).map(move |turn| (first + turn) % count).map(|index| (index, self.urls[index].as_str()))
    }

    /// Records that the daemon with this index answered.
    pub fn record_answer(&self, index: usize) {
        self.last_answered.store(index, Ordering::Relaxed);
    }
}

/// The name of this machine; `None` if the kernel reports none.
pub fn this_host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Host and port of a URL, as `HOST:PORT` in lower case; `None` if it is not an HTTP or HTTPS URL.
pub fn host_and_port(url: &str) -> Option<String> {
    let url = url.parse::<http::Uri>().ok()?;
    let default_port = match url.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    Some(format!("{}:{}", url.host()?, url.port_u16().unwrap_or(default_port)).to_ascii_lowercase())
}

/// Whether others can read what is sent to this URL: plain HTTP to another machine. A URL that cannot be
/// parsed counts as readable, too.
pub fn can_be_overheard(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return true };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let is_encrypted = url.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    !is_encrypted && !is_local
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
    fn an_empty_list_of_addresses_is_refused() {
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
