//! `[http]`: who may read, and how many connections there may be.

use serde::{Deserialize, Serialize};

use super::rule::ConfigRule;
use crate::{MetricsAccess, ReadAccess};

/// `[http]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Whether readers must prove their identity.
    pub read: ReadAccess,
    /// Names under which browsers may ask for the page, besides `localhost` and those in `agent.url` and
    /// `daemon.listen`.
    pub hosts: Vec<String>,
    /// Who may read `/metrics`.
    pub metrics: MetricsAccess,
    /// Whether metrics name accounts, if no data about users is private.
    pub account_metrics: bool,
    /// Most connections at a time, in total.
    pub max_connections: u32,
    /// Most connections at a time from one other host.
    pub max_connections_a_host: u32,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            read: ReadAccess::Proof,
            hosts: Vec::new(),
            metrics: MetricsAccess::Open,
            account_metrics: false,
            max_connections: 16_384,
            max_connections_a_host: 1024,
        }
    }
}

impl HttpConfig {
    pub(super) const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::within_bounds(
            "http.max_connections",
            |c| f64::from(c.max_connections),
            64.0..=1_000_000.0,
            "expected 64 to 1000000 connections",
        ),
        ConfigRule::within_bounds(
            "http.max_connections_a_host",
            |c| f64::from(c.max_connections_a_host),
            16.0..=1_000_000.0,
            "expected 16 to 1000000 connections",
        ),
    ];
}
