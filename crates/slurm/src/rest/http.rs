//! One request to slurmrestd: transport, token, time limit, and when it is sent again.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, Method};

use super::super::install_crypto;
use super::body::{Take, Whole};
use super::failure::{Failure, Kind, transport};
use super::token::Tokens;
use infill_model::error_causes;

/// Tries of one read, the first included. The next round reads again anyway.
const READ_TRIES: u32 = 3;

/// Wait before the second try; doubles for the third. Long enough for a rate limit to refill some calls.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// A request to be sent, perhaps more than once.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    pub method: Method,
    /// Path and query.
    pub path: &'a str,
    /// JSON.
    pub body: Option<&'a serde_json::Value>,
}

impl<'a> Request<'a> {
    pub(super) fn get(path: &'a str) -> Request<'a> {
        Request { method: Method::GET, path, body: None }
    }
}

/// Where slurmrestd is and how to speak to it.
pub(super) struct Http {
    client: Client,
    base: String,
    tokens: Option<Tokens>,
}

impl Http {
    /// For `unix:/path` or an HTTP(S) URL.
    pub(super) fn new(rest: &str, timeout: Duration, tokens: Option<Tokens>) -> Result<Http, String> {
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
        let client = builder.build().map_err(|e| error_causes::error_chain(&e))?;
        Ok(Http { client, base, tokens })
    }

    /// The token to hand to Slurm's own programs.
    pub(super) async fn token(&self) -> Option<infill_model::Secret> {
        match &self.tokens {
            Some(tokens) => tokens.token(false).await.ok(),
            None => None,
        }
    }

    /// Sends a read, again after failures that may pass. After a time-out there is no second try: slurmctld
    /// is overloaded, and the next round asks again.
    pub(super) async fn read<T: Take>(&self, path: &str, take: &T) -> Result<T::Out, Failure> {
        let mut delay = RETRY_DELAY;
        for _ in 1..READ_TRIES {
            match self.once(&Request::get(path), take).await {
                Err(f) if matches!(f.kind, Kind::Unsent | Kind::Transient) => {
                    tracing::debug!(path, what = f.what, "slurmrestd failed, trying again");
                    tokio::time::sleep(delay.mul_f64(rand::random_range(0.5..1.5))).await;
                    delay *= 2;
                }
                result => return result,
            }
        }
        self.once(&Request::get(path), take).await
    }

    /// Sends a change: a second time only if nothing was sent the first time.
    pub(super) async fn change(&self, request: &Request<'_>) -> Result<Vec<u8>, Failure> {
        match self.once(request, &Whole).await {
            Err(f) if f.kind == Kind::Unsent => {
                tokio::time::sleep(RETRY_DELAY).await;
                self.once(request, &Whole).await
            }
            result => result,
        }
    }

    /// Sends a request, and once more with a fresh token if the token was not taken (then nothing was done).
    async fn once<T: Take>(&self, request: &Request<'_>, take: &T) -> Result<T::Out, Failure> {
        match self.send(request, take, false).await {
            Err(f) if f.kind == Kind::Unauthenticated && self.tokens.is_some() => {
                self.send(request, take, true).await
            }
            result => result,
        }
    }

    async fn send<T: Take>(
        &self,
        request: &Request<'_>,
        take: &T,
        token_refused: bool,
    ) -> Result<T::Out, Failure> {
        let Some(tokens) = &self.tokens else { return self.send_as(request, take, None).await };
        let token = tokens.token(token_refused).await;
        let token = token.map_err(|e| Failure::new(Kind::Unauthenticated, e.to_string()))?;
        self.send_as(request, take, Some((tokens.user(), &token.0))).await
    }

    /// Sends a request under this user name and token.
    pub(super) async fn send_as<T: Take>(
        &self,
        request: &Request<'_>,
        take: &T,
        login: Option<(Option<&str>, &str)>,
    ) -> Result<T::Out, Failure> {
        let url = format!("{}{}", self.base, request.path);
        let mut builder = self.client.request(request.method.clone(), url);
        if let Some((user, token)) = login {
            let mut value = reqwest::header::HeaderValue::from_str(token)
                .map_err(|_| Failure::new(Kind::Unauthenticated, "the token is not printable"))?;
            value.set_sensitive(true);
            builder = builder.header("X-SLURM-USER-TOKEN", value);
            if let Some(user) = user {
                builder = builder.header("X-SLURM-USER-NAME", user);
            }
        }
        if let Some(body) = request.body {
            builder = builder.json(body);
        }
        take.take(builder.send().await.map_err(|e| transport(&e))?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_socket_is_told_apart_from_a_lost_answer() {
        let http = Http::new("unix:/no/such/socket", Duration::from_secs(1), None).unwrap();
        let failure = http.once(&Request::get("/slurm/v0.0.42/ping"), &Whole).await.unwrap_err();
        assert_eq!(failure.kind, Kind::Unsent, "{}", failure.what);
    }
}
