//! Tokens of Slurm's, which are good for everything that their user may do: who gets to see them.

use std::io::Read as _;
use std::net::TcpListener;

use super::*;

/// A token, where there is no MUNGE.
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

/// What a listener at any address of this machine hears of an agent that speaks to it under the name `host`,
/// and what the agent says of that.
async fn heard(host: &str, identity: Box<dyn IdentityProvider>) -> (String, String) {
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
    let said = tokio::time::timeout(PATIENCE, link.poll_assignment(|_| 0)).await.unwrap().unwrap_err();
    let said = infill_model::error_causes::error_chain(&said);
    // Whoever was told nothing hears at last that nothing came.
    drop(std::net::TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap());
    (recorded.await.unwrap(), said)
}

#[tokio::test]
async fn a_token_goes_to_no_other_machine_in_plain_text() {
    // To the agent that is another machine: the name of none that is known to be this one.
    const ELSEWHERE: &str = "0.0.0.0";
    let (heard_there, said) = heard(ELSEWHERE, Box::new(ByToken)).await;
    assert_eq!(heard_there, "", "{said}");
    for part in ["http://0.0.0.0:", "MUNGE", "daemon.tls_cert", "https://"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("a.b.c"), "{said}");
    let (heard_here, _) = heard("127.0.0.1", Box::new(ByToken)).await;
    assert!(heard_here.contains("a.b.c"), "the token is shown to a daemon on this machine: {heard_here}");
    let (by_munge, _) = heard(ELSEWHERE, Box::new(Trusted)).await;
    assert!(by_munge.contains("/v1/agent/hello"), "MUNGE is shown to all: {by_munge}");
}

#[tokio::test]
async fn one_plain_url_of_several_is_enough_to_keep_a_token_back() {
    let link = link("https://127.0.0.1:1,http://ctl:6810".to_owned(), Box::new(ByToken));
    let said = infill_model::error_causes::error_chain(&link.poll_assignment(|_| 0).await.unwrap_err());
    assert!(said.contains("is not sent to http://ctl:6810"), "{said}");
}
