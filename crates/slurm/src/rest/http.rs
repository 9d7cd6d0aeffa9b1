//! Sends single requests to slurmrestd: transport, token, time limit, and retries.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, Method};

use super::super::install_crypto;
use super::failure::{FailureKind, RequestFailure, transport_failure};
use super::response_body::{BodyReader, WholeBody};
use super::token_source::TokenSource;
use infill_model::error_causes;

/// Most tries of one read, the first included. The next round reads again in any case.
const READ_TRIES: u32 = 3;

/// Wait before the second try; doubles for the third. Long enough for a rate limit to refill some calls.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// A request, which may be sent more than once.
#[derive(Clone, Debug)]
pub(super) struct RestRequest<'a> {
    pub method: Method,
    /// Path and query.
    pub path: &'a str,
    /// The body to send as JSON, if any.
    pub body: Option<&'a serde_json::Value>,
}

impl<'a> RestRequest<'a> {
    pub(super) fn get(path: &'a str) -> RestRequest<'a> {
        RestRequest { method: Method::GET, path, body: None }
    }
}

/// The HTTP client for one slurmrestd, with its address and the source of tokens.
pub(super) struct RestTransport {
    client: Client,
    base: String,
    tokens: Option<TokenSource>,
}

impl RestTransport {
    /// A client for `unix:/path` or an HTTP(S) URL.
    pub(super) fn new(
        rest: &str,
        timeout: Duration,
        tokens: Option<TokenSource>,
    ) -> Result<RestTransport, String> {
        install_crypto();
        let builder = Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        let (builder, base) = match rest.strip_prefix("unix:") {
            Some(path) => (builder.unix_socket(PathBuf::from(path)), "http://localhost".to_owned()),
            None => (builder, rest.trim_end_matches('/').to_owned()),
        };
        // Without TLS no authorities are needed, and a minimal system has none.
        let builder = if base.starts_with("https:") { builder } else { builder.tls_certs_only([]) };
        let client = builder.build().map_err(|e| error_causes::error_chain(&e))?;
        Ok(RestTransport { client, base, tokens })
    }

    /// The token to hand to Slurm's own programs; `None` without a token file, or if it cannot be read.
    pub(super) async fn current_token(&self) -> Option<infill_model::Secret> {
        match &self.tokens {
            Some(tokens) => tokens.current_token(false).await.ok(),
            None => None,
        }
    }

    /// Sends a read, and tries again after transient failures. After a time-out there is no second try:
    /// slurmctld is overloaded, and the next round asks again.
    pub(super) async fn send_read<T: BodyReader>(
        &self,
        path: &str,
        reader: &T,
    ) -> Result<T::Out, RequestFailure> {
        let mut delay = RETRY_DELAY;
        for _ in 1..READ_TRIES {
            match self.send_with_renewal(&RestRequest::get(path), reader).await {
                Err(f) if matches!(f.kind, FailureKind::Unsent | FailureKind::Transient) => {
                    tracing::debug!(path, what = f.what, "slurmrestd failed, trying again");
                    tokio::time::sleep(delay.mul_f64(rand::random_range(0.5..1.5))).await;
                    delay *= 2;
                }
                result => return result,
            }
        }
        self.send_with_renewal(&RestRequest::get(path), reader).await
    }

    /// Sends a change. Tries again only if the first try did not send it.
    pub(super) async fn send_change(&self, request: &RestRequest<'_>) -> Result<Vec<u8>, RequestFailure> {
        match self.send_with_renewal(request, &WholeBody).await {
            Err(f) if f.kind == FailureKind::Unsent => {
                tokio::time::sleep(RETRY_DELAY).await;
                self.send_with_renewal(request, &WholeBody).await
            }
            result => result,
        }
    }

    /// Sends a request. If Slurm refuses the token, it did nothing: then sends once more with a fresh token.
    async fn send_with_renewal<T: BodyReader>(
        &self,
        request: &RestRequest<'_>,
        reader: &T,
    ) -> Result<T::Out, RequestFailure> {
        match self.send_once(request, reader, false).await {
            Err(f) if f.kind == FailureKind::Unauthenticated && self.tokens.is_some() => {
                self.send_once(request, reader, true).await
            }
            result => result,
        }
    }

    async fn send_once<T: BodyReader>(
        &self,
        request: &RestRequest<'_>,
        reader: &T,
        token_refused: bool,
    ) -> Result<T::Out, RequestFailure> {
        let Some(tokens) = &self.tokens else { return self.send_as(request, reader, None).await };
        let token = tokens.current_token(token_refused).await;
        let token = token.map_err(|e| RequestFailure::new(FailureKind::Unauthenticated, e.to_string()))?;
        self.send_as(request, reader, Some((tokens.token_user(), &token.0))).await
    }

    /// Sends a request with this user name and token, or without any.
    pub(super) async fn send_as<T: BodyReader>(
        &self,
        request: &RestRequest<'_>,
        reader: &T,
        login: Option<(Option<&str>, &str)>,
    ) -> Result<T::Out, RequestFailure> {
        let url = format!("{}{}", self.base, request.path);
        let mut builder = self.client.request(request.method.clone(), url);
        if let Some((user, token)) = login {
            let mut value = reqwest::header::HeaderValue::from_str(token).map_err(|_| {
                RequestFailure::new(FailureKind::Unauthenticated, "the token is not printable")
            })?;
            value.set_sensitive(true);
            builder = builder.header("X-SLURM-USER-TOKEN", value);
            if let Some(user) = user {
                builder = builder.header("X-SLURM-USER-NAME", user);
            }
        }
        if let Some(body) = request.body {
            builder = builder.json(body);
        }
        reader.read_body(builder.send().await.map_err(|e| transport_failure(&e))?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_socket_is_distinguished_from_a_lost_answer() {
        let http = RestTransport::new("unix:/no/such/socket", Duration::from_secs(1), None).unwrap();
        let failure =
            http.send_with_renewal(&RestRequest::get("/slurm/v0.0.42/ping"), &WholeBody).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unsent, "{}", failure.what);
    }
}
