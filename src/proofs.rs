//! Proves to a daemon who uses the command line: by MUNGE, else by a Slurm token. The daemon's answer opens a
//! session, in which the daemon proves itself as well. A command makes one proof for each daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use infill_agent::identity::{
    IdentityError, IdentityProof, IdentityProvider as _, ProofPurpose, SlurmIdentity,
};
use infill_agent::signed_session::DaemonSession;
use infill_api::{addresses, headers};
use infill_model::error_causes;

/// The proof that a request carries.
#[derive(Clone, Debug, Default)]
pub enum RequestProof {
    /// No proof: none was tried yet, or none is available.
    #[default]
    Nothing,
    /// A fresh proof.
    Proof(IdentityProof),
    /// The session that an earlier proof opened.
    Session(Arc<DaemonSession>),
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
#[error(
    "the daemon answers only those who prove who they are, and no proof is available here:\n  \
     {munge}\n  {token}\n\
     Start munged on this machine, or let users run `scontrol token` (AuthAltTypes=auth/jwt, with a slurmrestd that \
     the daemon reaches over HTTP), or ask the administrator to set http.read = \"open\"."
)]
pub struct MissingProof {
    /// Why MUNGE gives no proof.
    munge: String,
    /// Why there is no token.
    token: String,
}

/// Makes proofs, and keeps the sessions that they open.
#[derive(Debug)]
pub struct ProofProvider {
    identity: SlurmIdentity,
    /// Open sessions, by the daemon's URL.
    sessions: BTreeMap<String, Arc<DaemonSession>>,
    /// Why MUNGE gave no proof the last time.
    munge_error: Option<IdentityError>,
}

impl ProofProvider {
    /// A provider without sessions. `identity` makes the proofs.
    pub fn new(identity: SlurmIdentity) -> ProofProvider {
        ProofProvider { identity, sessions: BTreeMap::new(), munge_error: None }
    }

    /// The caller's identity, which also knows the daemon's user.
    pub fn slurm_identity(&self) -> &SlurmIdentity {
        &self.identity
    }

    /// The first proof for the daemon at a URL: its session, else MUNGE. Without MUNGE there is none, since
    /// the daemon may not ask for one, and a token is a secret that is worth more than the answer.
    pub async fn first_proof(&mut self, url: &str) -> RequestProof {
        if let Some(session) = self.sessions.get(url) {
            return RequestProof::Session(session.clone());
        }
        let to = addresses::host_and_port(url).unwrap_or_default();
        match self.identity.munge_proof(&read_purpose(&to)).await {
            Ok(proof) => RequestProof::Proof(proof),
            Err(e) => {
                self.munge_error = Some(e);
                RequestProof::Nothing
            }
        }
    }

    /// The next proof to try after the daemon refused `refused`. `None` if there is no better one.
    ///
    /// # Errors
    /// When the daemon asks for a proof and none is available.
    pub async fn next_proof(
        &mut self,
        refused: &RequestProof,
        url: &str,
    ) -> Result<Option<RequestProof>, MissingProof> {
        match refused {
            RequestProof::Proof(_) => return Ok(None),
            RequestProof::Session(_) => {
                // The session has lapsed, or the daemon has restarted.
                self.sessions.remove(url);
                match self.first_proof(url).await {
                    RequestProof::Nothing => {}
                    proof => return Ok(Some(proof)),
                }
            }
            RequestProof::Nothing => {}
        }
        // A token is worth more than a proof, so it does not replace MUNGE where Slurm uses MUNGE.
        if let Some(e) = &self.munge_error
            && !self.identity.does_without_munge(e).await
        {
            return Err(self.missing_proof("Slurm uses MUNGE here, so no token is sent".to_owned()));
        }
        let proof = self.identity.token_proof().await;
        match proof.and_then(|proof| proof.require_private_channel(&[url.to_owned()])) {
            Ok(proof) => Ok(Some(RequestProof::Proof(proof))),
            Err(e) => Err(self.missing_proof(error_causes::error_chain(&e))),
        }
    }

    /// Why there is no proof. `token` says why there is no token.
    fn missing_proof(&self, token: String) -> MissingProof {
        let munge = self.munge_error.as_ref().map(|e| error_causes::error_chain(e)).unwrap_or_default();
        MissingProof { munge, token }
    }

    /// Keeps the session that a proof opened with the daemon at a URL.
    pub fn keep_session(&mut self, url: &str, session: DaemonSession) {
        self.sessions.insert(url.to_owned(), Arc::new(session));
    }

    /// A proof for the request that asks the daemon at a URL to prove itself.
    ///
    /// # Errors
    /// When MUNGE gives no proof.
    pub async fn health_proof(&self, url: &str) -> Result<IdentityProof, IdentityError> {
        let to = addresses::host_and_port(url).unwrap_or_default();
        let action = headers::HEALTH_PURPOSE;
        self.identity.munge_proof(&ProofPurpose { action, job: None, audience: &to, order: None }).await
    }

    /// A proof of who gives an order. It is valid only for the daemon at this URL and an order with this
    /// digest.
    ///
    /// # Errors
    /// When there is neither MUNGE nor a token.
    pub async fn order_proof(
        &self,
        action: &str,
        url: &str,
        digest: &str,
    ) -> Result<IdentityProof, IdentityError> {
        let to = addresses::host_and_port(url).unwrap_or_default();
        let proof = self
            .identity
            .make_proof(&ProofPurpose { action, job: None, audience: &to, order: Some(digest) })
            .await?;
        proof.require_private_channel(&[url.to_owned()])
    }
}

fn read_purpose(to: &str) -> ProofPurpose<'_> {
    ProofPurpose { action: headers::READ_PURPOSE, job: None, audience: to, order: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::Credential;
    use infill_testkit::write_script;

    const URL: &str = "https://ctl:6810";

    fn provider(dir: &std::path::Path, munge: &str, scontrol: &str) -> ProofProvider {
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
        let mut proofs = provider(dir.path(), "cat", "");
        let first = proofs.first_proof(URL).await;
        let RequestProof::Proof(IdentityProof { credential: Credential::Munge(secret), nonce }) = &first
        else {
            panic!("{first:?}")
        };
        assert_eq!(secret.0, format!("infill2 read 0 {nonce} ctl:6810 -"));
        assert!(proofs.next_proof(&first, URL).await.unwrap().is_none(), "a refused proof is not repeated");
        let order = proofs.order_proof("control", "https://ctl", "00ff").await.unwrap();
        let Credential::Munge(secret) = &order.credential else { panic!("{order:?}") };
        assert_eq!(secret.0, format!("infill2 control 0 {} ctl:443 00ff", order.nonce));
    }

    #[tokio::test]
    async fn a_token_is_sent_only_if_the_daemon_asks() {
        let dir = tempfile::tempdir().unwrap();
        let mut proofs = provider(dir.path(), "", "echo SLURM_JWT=abc");
        let first = proofs.first_proof(URL).await;
        assert!(matches!(first, RequestProof::Nothing));
        let second = proofs.next_proof(&first, URL).await.unwrap();
        assert!(
            matches!(&second, Some(RequestProof::Proof(IdentityProof { credential: Credential::Jwt(t), .. })) if t.0 == "abc")
        );
    }

    #[tokio::test]
    async fn a_token_goes_to_no_other_machine_in_plain_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut proofs = provider(dir.path(), "", "echo SLURM_JWT=abc");
        let text = proofs.next_proof(&RequestProof::Nothing, "http://ctl:1").await.unwrap_err().to_string();
        assert!(text.contains("daemon.tls_cert") && text.contains("http://ctl:1"), "{text}");
        let shown = proofs.next_proof(&RequestProof::Nothing, "https://ctl:1").await.unwrap();
        assert!(matches!(shown, Some(RequestProof::Proof(_))), "{shown:?}");
    }

    #[tokio::test]
    async fn a_token_does_not_replace_a_failed_munge() {
        let dir = tempfile::tempdir().unwrap();
        let scontrol = "[ $1 = token ] && echo SLURM_JWT=abc || echo 'AuthType                = auth/munge'";
        let mut proofs = provider(dir.path(), "echo munged is away >&2; exit 6", scontrol);
        let first = proofs.first_proof(URL).await;
        assert!(matches!(first, RequestProof::Nothing));
        let text = proofs.next_proof(&first, URL).await.unwrap_err().to_string();
        assert!(text.contains("munged is away") && text.contains("Slurm uses MUNGE here"), "{text}");
    }

    #[tokio::test]
    async fn without_any_proof_the_error_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let mut proofs = provider(dir.path(), "", "exit 1");
        let first = proofs.first_proof(URL).await;
        let text = proofs.next_proof(&first, URL).await.unwrap_err().to_string();
        for part in ["munge", "scontrol", "Start munged", "http.read = \"open\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
