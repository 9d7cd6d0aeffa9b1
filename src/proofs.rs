//! How the command line proves to a daemon who uses it: by MUNGE, else by a token of Slurm's. The answer
//! opens a session, in which the daemon proves itself as well: one command makes one proof for each daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use infill_agent::identity::{
    IdentityError, IdentityProof, IdentityProvider as _, ProofPurpose, SlurmIdentity,
};
use infill_agent::session::DaemonSession;
use infill_api::{addresses, headers};
use infill_model::error_causes;

/// What is shown to the daemon with one request.
#[derive(Clone, Debug, Default)]
pub enum RequestProof {
    /// Nothing was shown yet, or there is nothing to show.
    #[default]
    Nothing,
    /// A fresh proof.
    Proof(IdentityProof),
    /// The session that a former proof has opened.
    Session(Arc<DaemonSession>),
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
#[error(
    "the daemon shows nothing to those who do not prove who they are, and nothing here proves it:\n  \
     {munge}\n  {token}\n\
     Start munged on this machine, or let users run `scontrol token` (AuthAltTypes=auth/jwt, with a slurmrestd that \
     the daemon reaches over HTTP), or have the administrator set http.read = \"open\"."
)]
pub struct MissingProof {
    /// Why not by MUNGE.
    munge: String,
    /// Why not by a token.
    token: String,
}

/// Makes proofs, and keeps what they brought.
#[derive(Debug)]
pub struct ProofProvider {
    by: SlurmIdentity,
    /// With each daemon, by its URL.
    sessions: BTreeMap<String, Arc<DaemonSession>>,
    no_munge: Option<IdentityError>,
}

impl ProofProvider {
    /// None yet; `by` makes proofs.
    pub fn new(by: SlurmIdentity) -> ProofProvider {
        ProofProvider { by, sessions: BTreeMap::new(), no_munge: None }
    }

    /// Who knows the daemon's user.
    pub fn slurm_identity(&self) -> &SlurmIdentity {
        &self.by
    }

    /// What to show first to the daemon at a URL. Without MUNGE that is nothing: perhaps nobody asks, and a
    /// token is worth more than what it would buy.
    pub async fn first_proof(&mut self, url: &str) -> RequestProof {
        if let Some(session) = self.sessions.get(url) {
            return RequestProof::Session(session.clone());
        }
        let to = addresses::host_and_port(url).unwrap_or_default();
        match self.by.munge_proof(&read_purpose(&to)).await {
            Ok(proof) => RequestProof::Proof(proof),
            Err(e) => {
                self.no_munge = Some(e);
                RequestProof::Nothing
            }
        }
    }

    /// What to show after `shown` was refused; `None` where nothing better is to be had.
    ///
    /// # Errors
    /// When nothing was shown, and there is nothing to show.
    pub async fn next_proof(
        &mut self,
        shown: &RequestProof,
        url: &str,
    ) -> Result<Option<RequestProof>, MissingProof> {
        match shown {
            RequestProof::Proof(_) => return Ok(None),
            // It has lapsed, or the daemon has restarted.
            RequestProof::Session(_) => drop(self.sessions.remove(url)),
            RequestProof::Nothing => {}
        }
        if matches!(shown, RequestProof::Session(_)) {
            match self.first_proof(url).await {
                RequestProof::Nothing => {}
                pass => return Ok(Some(pass)),
            }
        }
        let munge = self.no_munge.as_ref();
        let no_proof = |token: String| MissingProof {
            munge: munge.map(|e| error_causes::error_chain(e)).unwrap_or_default(),
            token,
        };
        // A token is worth more than a proof: where MUNGE is in use it is not shown in its place.
        if let Some(e) = munge
            && !self.by.does_without_munge(e).await
        {
            return Err(no_proof("Slurm uses MUNGE here, so no token is shown".to_owned()));
        }
        let proof = self.by.token_proof().await;
        match proof.and_then(|proof| proof.require_private_channel(&[url.to_owned()])) {
            Ok(proof) => Ok(Some(RequestProof::Proof(proof))),
            Err(e) => Err(no_proof(error_causes::error_chain(&e))),
        }
    }

    /// Keeps the session that a proof has opened.
    pub fn keep_session(&mut self, url: &str, session: DaemonSession) {
        self.sessions.insert(url.to_owned(), Arc::new(session));
    }

    /// Proof of who asks the daemon at a URL to prove itself.
    ///
    /// # Errors
    /// When there is no MUNGE.
    pub async fn health_proof(&self, url: &str) -> Result<IdentityProof, IdentityError> {
        let to = addresses::host_and_port(url).unwrap_or_default();
        let what = headers::HEALTH_PURPOSE;
        self.by.munge_proof(&ProofPurpose { what, job: None, to: &to, order: None }).await
    }

    /// Proof of who gives an order, for the daemon at a URL and with this digest alone.
    ///
    /// # Errors
    /// When there is neither MUNGE nor a token.
    pub async fn order_proof(
        &self,
        what: &str,
        url: &str,
        digest: &str,
    ) -> Result<IdentityProof, IdentityError> {
        let to = addresses::host_and_port(url).unwrap_or_default();
        let proof =
            self.by.make_proof(&ProofPurpose { what, job: None, to: &to, order: Some(digest) }).await?;
        proof.require_private_channel(&[url.to_owned()])
    }
}

fn read_purpose(to: &str) -> ProofPurpose<'_> {
    ProofPurpose { what: headers::READ_PURPOSE, job: None, to, order: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::Credential;
    use infill_testkit::write_script;

    const URL: &str = "https://ctl:6810";

    fn passes(dir: &std::path::Path, munge: &str, scontrol: &str) -> ProofProvider {
        let program = |name: &str, body: &str| match body {
            "" => dir.join("none"),
            body => write_script(dir.join(name), body),
        };
        let munge = program("munge", munge);
        let scontrol = program("scontrol", scontrol);
        ProofProvider::new(SlurmIdentity { munge, scontrol, ..SlurmIdentity::default() })
    }

    #[tokio::test]
    async fn munge_comes_first_and_names_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "cat", "");
        let first = passes.first_proof(URL).await;
        let RequestProof::Proof(IdentityProof { credential: Credential::Munge(secret), nonce }) = &first
        else {
            panic!("{first:?}")
        };
        assert_eq!(secret.0, format!("infill2 read 0 {nonce} ctl:6810 -"));
        assert!(
            passes.next_proof(&first, URL).await.unwrap().is_none(),
            "what is not believed is not repeated"
        );
        let order = passes.order_proof("control", "https://ctl", "00ff").await.unwrap();
        let Credential::Munge(secret) = &order.credential else { panic!("{order:?}") };
        assert_eq!(secret.0, format!("infill2 control 0 {} ctl:443 00ff", order.nonce));
    }

    #[tokio::test]
    async fn a_token_is_shown_only_to_who_asks() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "", "echo SLURM_JWT=abc");
        let first = passes.first_proof(URL).await;
        assert!(matches!(first, RequestProof::Nothing));
        let second = passes.next_proof(&first, URL).await.unwrap();
        assert!(
            matches!(&second, Some(RequestProof::Proof(IdentityProof { credential: Credential::Jwt(t), .. })) if t.0 == "abc")
        );
    }

    #[tokio::test]
    async fn a_token_goes_to_no_other_machine_in_plain_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "", "echo SLURM_JWT=abc");
        let text = passes.next_proof(&RequestProof::Nothing, "http://ctl:1").await.unwrap_err().to_string();
        assert!(text.contains("daemon.tls_cert") && text.contains("http://ctl:1"), "{text}");
        let shown = passes.next_proof(&RequestProof::Nothing, "https://ctl:1").await.unwrap();
        assert!(matches!(shown, Some(RequestProof::Proof(_))), "{shown:?}");
    }

    #[tokio::test]
    async fn a_munge_that_fails_is_no_reason_to_show_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = "[ $1 = token ] && echo SLURM_JWT=abc || echo 'AuthType                = auth/munge'";
        let mut passes = passes(dir.path(), "echo munged is away >&2; exit 6", scontrol);
        let first = passes.first_proof(URL).await;
        assert!(matches!(first, RequestProof::Nothing));
        let text = passes.next_proof(&first, URL).await.unwrap_err().to_string();
        assert!(text.contains("munged is away") && text.contains("Slurm uses MUNGE here"), "{text}");
    }

    #[tokio::test]
    async fn without_any_proof_it_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let mut passes = passes(dir.path(), "", "exit 1");
        let first = passes.first_proof(URL).await;
        let text = passes.next_proof(&first, URL).await.unwrap_err().to_string();
        for part in ["munge", "scontrol", "Start munged", "http.read = \"open\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
