//! Tests of where Slurm's tokens are sent. A token allows everything that its user may do.

use std::io::Read as _;
use std::net::TcpListener;

use super::*;

/// Proves identity by a token, as without MUNGE.
struct ByToken;

#[async_trait]
impl IdentityProvider for ByToken {
    async fn make_proof(&self, _: &ProofPurpose<'_>) -> Result<IdentityProof, IdentityError> {
        Ok(IdentityProof { credential: Credential::Jwt(Secret("a.b.c".to_owned())), nonce: "n".to_owned() })
    }

    async fn open_sealed(&self, sealed: &Secret) -> Result<Secret, IdentityError> {
        Ok(sealed.clone())
    }
}

fn link(url: String, identity: Box<dyn IdentityProvider>) -> DaemonLink {
    let job = LEAD;
    let node = NodeName::new("n1");
    let role = AgentRole::Lead;
    DaemonLink::new(LinkConfig { url, ca: None, job, node, role, spec: None, identity }).unwrap()
}

/// The request that a listener on this machine receives from an agent that calls it `host`, and the agent's
/// error.
async fn received(host: &str, identity: Box<dyn IdentityProvider>) -> (String, String) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let link = link(format!("http://{host}:{}", listener.local_addr().unwrap().port()), identity);
    let recorded = tokio::task::spawn_blocking({
        let listener = listener.try_clone().unwrap();
        move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 4096];
            let mut text = String::new();
            while !text.contains("capabilities") {
                match stream.read(&mut bytes) {
                    Ok(count) if count > 0 => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
                    _ => break,
                }
            }
            text
        }
    });
    let error = tokio::time::timeout(PATIENCE, link.poll_assignment(|_| 0)).await.unwrap().unwrap_err();
    let error = infill_model::error_causes::error_chain(&error);
    // If no request came, this empty connection ends the listener.
    drop(std::net::TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap());
    (recorded.await.unwrap(), error)
}

#[tokio::test]
async fn a_token_is_not_sent_to_another_machine_in_plain_text() {
    // The agent takes this for another machine, because it is not a known name of its own.
    const ELSEWHERE: &str = "0.0.0.0";
    let (sent_elsewhere, error) = received(ELSEWHERE, Box::new(ByToken)).await;
    assert_eq!(sent_elsewhere, "", "{error}");
    for part in ["http://0.0.0.0:", "MUNGE", "daemon.tls_cert", "https://"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("a.b.c"), "{error}");
    let (sent_here, _) = received("127.0.0.1", Box::new(ByToken)).await;
    assert!(sent_here.contains("a.b.c"), "a daemon on this machine gets the token: {sent_here}");
    let (by_munge, _) = received(ELSEWHERE, Box::new(Trusted)).await;
    assert!(by_munge.contains("/v1/agent/hello"), "every daemon gets a MUNGE credential: {by_munge}");
}

#[tokio::test]
async fn one_plain_url_of_several_is_enough_to_keep_a_token_back() {
    let link = link("https://127.0.0.1:1,http://ctl:6810".to_owned(), Box::new(ByToken));
    let error = infill_model::error_causes::error_chain(&link.poll_assignment(|_| 0).await.unwrap_err());
    assert!(error.contains("is not sent to http://ctl:6810"), "{error}");
}
