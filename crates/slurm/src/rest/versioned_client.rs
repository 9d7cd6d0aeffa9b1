//! Chooses the REST version once, and again when slurmrestd no longer knows it.

use reqwest::Method;
use serde_json::Value;
use tokio::sync::Mutex;

use super::failure::{FailureKind, RequestFailure};
use super::field::{WireObject, WireText};
use super::http::{RestRequest, RestTransport};
use super::response_body::{BodyReader, WholeBody};
use super::wire::ResponseEnvelope;
use crate::RestEndpoint;

/// The versions that infill speaks, newest first. Each was tested against a real slurmrestd. The oldest is
/// that of Slurm 24.05: in earlier releases, a job that leaves within the grace time of its preemption is
/// FAILED instead of requeued.
const VERSIONS: [&str; 5] = ["v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41"];

/// In this version a job's record does not show that the job wants its nodes for itself.
const SILENT_ON_SHARES: &str = "v0.0.45";

/// A client of slurmrestd that remembers which version to use.
pub(super) struct VersionedClient {
    http: RestTransport,
    endpoint: Mutex<Option<RestEndpoint>>,
    /// A version that is used only if there is no other.
    avoided: Option<&'static str>,
}

impl VersionedClient {
    pub(super) fn new(http: RestTransport) -> VersionedClient {
        VersionedClient { http, endpoint: Mutex::new(None), avoided: None }
    }

    /// Prefers a version whose records show shares of nodes.
    pub(super) fn with_share_records(self) -> VersionedClient {
        VersionedClient { avoided: Some(SILENT_ON_SHARES), ..self }
    }

    /// The token to hand to Slurm's own programs.
    pub(super) async fn current_token(&self) -> Option<infill_model::Secret> {
        self.http.current_token().await
    }

    /// The release and the version that answer. Asks slurmrestd only the first time.
    pub(super) async fn find_endpoint(&self) -> Result<RestEndpoint, RequestFailure> {
        let mut cached = self.endpoint.lock().await;
        if let Some(endpoint) = &*cached {
            return Ok(endpoint.clone());
        }
        let found = self.discover_endpoint().await?;
        tracing::info!(rest = found.rest_version, slurm = found.slurm_version, "slurmrestd found");
        *cached = Some(found.clone());
        Ok(found)
    }

    async fn discover_endpoint(&self) -> Result<RestEndpoint, RequestFailure> {
        let mut available = Vec::new();
        let mut release_and_cluster = None;
        let mut last_failure = None;
        for version in VERSIONS {
            match self.http.send_read(&format!("/slurm/{version}/ping/"), &WholeBody).await {
                Ok(body) => {
                    available.push(version.to_owned());
                    release_and_cluster = release_and_cluster.or_else(|| parse_meta(&body));
                }
                Err(f) if matches!(f.kind, FailureKind::NoSuchUrl | FailureKind::Permanent) => {
                    last_failure = Some(f.what)
                }
                Err(f) => return Err(f),
            }
        }
        let Some(newest) = available
            .iter()
            .find(|version| Some(version.as_str()) != self.avoided)
            .or(available.first())
            .cloned()
        else {
            let oldest = VERSIONS.last().copied().unwrap_or_default();
            let what = format!(
                "it speaks no version from {oldest} (Slurm 24.05) to {}: {}",
                VERSIONS[0],
                last_failure.unwrap_or_default()
            );
            return Err(RequestFailure::new(FailureKind::Permanent, what));
        };
        let (slurm_version, cluster) = release_and_cluster.unwrap_or_default();
        Ok(RestEndpoint { slurm_version, rest_version: newest, available, cluster })
    }

    /// Forgets the version, unless another call has found a different one meanwhile.
    async fn forget_version(&self, version: &str) {
        let mut cached = self.endpoint.lock().await;
        if cached.as_ref().is_some_and(|e| e.rest_version == version) {
            *cached = None;
        }
    }

    /// Reads `/slurm/VERSION/tail`.
    pub(super) async fn get_tail<T: BodyReader>(
        &self,
        tail: &str,
        reader: &T,
    ) -> Result<T::Out, RequestFailure> {
        let version = self.find_endpoint().await?.rest_version;
        match self.http.send_read(&format!("/slurm/{version}/{tail}"), reader).await {
            Err(f) if f.kind == FailureKind::NoSuchUrl => {
                self.forget_version(&version).await;
                let version = self.find_endpoint().await?.rest_version;
                self.http.send_read(&format!("/slurm/{version}/{tail}"), reader).await
            }
            result => result,
        }
    }

    /// Reads `/slurm/VERSION/tail` with this user's name and token instead of infill's.
    pub(super) async fn get_as(&self, tail: &str, user: &str, token: &str) -> Result<(), RequestFailure> {
        let version = self.find_endpoint().await?.rest_version;
        let path = format!("/slurm/{version}/{tail}");
        self.http.send_as(&RestRequest::get(&path), &WholeBody, Some((Some(user), token))).await.map(drop)
    }

    /// Sends a change. If slurmrestd no longer knows the version, it did nothing, so a second try is safe.
    pub(super) async fn send_change(
        &self,
        method: Method,
        tail: &str,
        body: Option<&Value>,
    ) -> Result<(), RequestFailure> {
        let version = self.find_endpoint().await?.rest_version;
        let send = async |version: &str| {
            let path = format!("/slurm/{version}/{tail}");
            self.http.send_change(&RestRequest { method: method.clone(), path: &path, body }).await.map(drop)
        };
        match send(&version).await {
            Err(f) if f.kind == FailureKind::NoSuchUrl => {
                self.forget_version(&version).await;
                send(&self.find_endpoint().await?.rest_version).await
            }
            result => result,
        }
    }
}

/// Slurm's release and the cluster's name, from the `meta` member of an answer.
fn parse_meta(body: &[u8]) -> Option<(String, String)> {
    let envelope: ResponseEnvelope<'_> = serde_json::from_slice(body).ok()?;
    let WireObject::Value(meta) = envelope.meta else { return None };
    let WireObject::Value(slurm) = meta.slurm else { return None };
    Some((text_or_empty(slurm.release), text_or_empty(slurm.cluster)))
}

fn text_or_empty(text: WireText<'_>) -> String {
    if let WireText::Value(text) = text { text.into_owned() } else { String::new() }
}
