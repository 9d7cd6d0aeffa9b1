//! How the command line proves to the daemon who uses it: by MUNGE, else by a token of Slurm's; and by the
//! ticket that the first answer brings after that, so that one command makes one proof.

use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, HeaderValue};

use infill_agent::identity::{IdentityError, Proof, Slurm};
use infill_api::headers;
use infill_model::{Credential, Secret, causes};

/// What is shown to the daemon with one request.
#[derive(Clone, Debug, Default)]
pub enum Pass {
    /// Nothing was shown yet, or there is nothing to show.
    #[default]
    Nothing,
    /// A fresh proof.
    Proof(Proof),
    /// What a former proof was answered with.
    Ticket(Secret),
}

impl Pass {
    /// Puts it on a request.
    pub fn on(&self, request: RequestBuilder) -> RequestBuilder {
        let (scheme, secret, nonce) = match self {
            Pass::Nothing => return request,
            Pass::Ticket(secret) => (headers::TICKET_SCHEME, secret, None),
            Pass::Proof(Proof { credential: Credential::Munge(secret), nonce }) => {
                (headers::MUNGE_SCHEME, secret, Some(nonce))
            }
            Pass::Proof(Proof { credential: Credential::Jwt(secret), .. }) => {
                (headers::JWT_SCHEME, secret, None)
            }
        };
        // What is no header's value is no credential either: the daemon asks for one then.
        let Ok(mut value) = HeaderValue::from_str(&format!("{scheme} {}", secret.0)) else { return request };
        value.set_sensitive(true);
        let request = request.header(AUTHORIZATION, value);
        match nonce {
            Some(nonce) => request.header(headers::NONCE, nonce),
            None => request,
        }
    }
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
#[error(
    "the daemon shows nothing to those who do not prove who they are, and nothing here proves it:\n  \
     {munge}\n  {token}\n\
     Start munged on this machine, or let users run `scontrol token` (AuthAltTypes=auth/jwt, with a slurmrestd that \
     the daemon reaches over HTTP), or have the administrator set http.read = \"open\"."
)]
pub struct NoProof {
    /// Why not by MUNGE.
    munge: String,
    /// Why not by a token.
    token: String,
}

/// Makes proofs, and keeps what they brought.
#[derive(Debug, Default)]
pub struct Passes {
    by: Slurm,
    ticket: Option<Secret>,
    no_munge: Option<String>,
}

impl Passes {
    /// What to show first. Without MUNGE that is nothing: perhaps nobody asks, and a token is worth more than
    /// what it would buy.
    pub async fn first(&mut self) -> Pass {
        if let Some(ticket) = &self.ticket {
            return Pass::Ticket(ticket.clone());
        }
        match self.by.munge_proof(headers::READ_PURPOSE, None).await {
            Ok(proof) => Pass::Proof(proof),
            Err(e) => {
                self.no_munge = Some(causes::chain(&e));
                Pass::Nothing
            }
        }
    }

    /// What to show after `shown` was refused; `None` where nothing better is to be had.
    ///
    /// # Errors
    /// When nothing was shown, and there is nothing to show.
    pub async fn after(&mut self, shown: &Pass, urls: &[String]) -> Result<Option<Pass>, NoProof> {
        match shown {
            Pass::Proof(_) => return Ok(None),
            // It has lapsed, or another daemon leads.
            Pass::Ticket(_) => self.ticket = None,
            Pass::Nothing => {}
        }
        if matches!(shown, Pass::Ticket(_)) {
            match self.first().await {
                Pass::Nothing => {}
                pass => return Ok(Some(pass)),
            }
        }
        let proof = self.by.token_proof().await;
        match proof.and_then(|proof| proof.only_where_unheard(urls)) {
            Ok(proof) => Ok(Some(Pass::Proof(proof))),
            Err(e) => {
                let munge = self.no_munge.clone().unwrap_or_default();
                Err(NoProof { munge, token: causes::chain(&e) })
            }
        }
    }

    /// Takes in what an answer brought.
    pub fn keep(&mut self, ticket: Option<Secret>) {
        self.ticket = ticket.or_else(|| self.ticket.take());
    }
}

/// What a proof in the body of a request could not be made for, as a sentence.
pub async fn prove(purpose: &str, urls: &[String]) -> Result<Proof, IdentityError> {
    use infill_agent::identity::Identity as _;
    Slurm::default().prove(purpose, None).await?.only_where_unheard(urls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::script;

    fn passes(dir: &std::path::Path, munge: &str, scontrol: &str) -> Passes {
        let program = |name: &str, body: &str| match body {
            "" => dir.join("none"),
            body => script(dir.join(name), body),
        };
        let by = Slurm { munge: program("munge", munge), scontrol: program("scontrol", scontrol) };
        Passes { by, ..Passes::default() }
    }

    #[tokio::test]
    async fn munge_comes_first_and_a_ticket_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "cat", "");
        let first = passes.first().await;
        let Pass::Proof(Proof { credential: Credential::Munge(secret), nonce }) = &first else {
            panic!("{first:?}")
        };
        assert_eq!(secret.0, format!("infill1 read 0 {nonce}"));
        assert!(passes.after(&first, &[]).await.unwrap().is_none(), "what is not believed is not repeated");
        passes.keep(Some(Secret("t".to_owned())));
        passes.keep(None);
        let second = passes.first().await;
        assert!(matches!(&second, Pass::Ticket(t) if t.0 == "t"));
        let third = passes.after(&second, &[]).await.unwrap();
        assert!(matches!(third, Some(Pass::Proof(_))), "a lapsed ticket is replaced: {third:?}");
    }

    #[tokio::test]
    async fn a_token_is_shown_only_to_who_asks() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "", "echo SLURM_JWT=abc");
        let first = passes.first().await;
        assert!(matches!(first, Pass::Nothing));
        let second = passes.after(&first, &[]).await.unwrap();
        assert!(
            matches!(&second, Some(Pass::Proof(Proof { credential: Credential::Jwt(t), .. })) if t.0 == "abc")
        );
    }

    #[tokio::test]
    async fn a_token_goes_to_no_other_machine_in_plain_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "", "echo SLURM_JWT=abc");
        let text = passes.after(&Pass::Nothing, &["http://ctl:1".to_owned()]).await.unwrap_err().to_string();
        assert!(text.contains("daemon.tls_cert") && text.contains("http://ctl:1"), "{text}");
        let shown = passes.after(&Pass::Nothing, &["https://ctl:1".to_owned()]).await.unwrap();
        assert!(matches!(shown, Some(Pass::Proof(_))), "{shown:?}");
    }

    #[tokio::test]
    async fn without_any_proof_it_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "echo munged is away >&2; exit 6", "exit 1");
        let first = passes.first().await;
        let text = passes.after(&first, &[]).await.unwrap_err().to_string();
        for part in ["munged is away", "scontrol", "Start munged", "http.read = \"open\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
