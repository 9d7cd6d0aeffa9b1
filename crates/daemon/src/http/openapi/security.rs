//! The proofs that the daemon takes, and the headers that belong to them.

use serde_json::{Value, json};

use infill_api::headers;

use crate::http::route_access::RouteAccess;

/// How the document names the proofs.
const MUNGE: &str = "munge";
const SLURM_TOKEN: &str = "slurmToken";
const TICKET: &str = "ticket";
const BROWSER_SESSION: &str = "browserSession";
const AGENT_SECRET: &str = "agentSecret";
const SESSION_PARTS: [&str; 3] = ["sessionName", "sessionCounter", "sessionMac"];

/// The proof that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredProof {
    /// None: the answer names no user, or the body carries a ticket.
    Nothing,
    /// A credential, from clients that want proof of the daemon's identity.
    DaemonsIdentity,
    /// That of a reader; none where `http.read` is `open`.
    Reader,
    /// That of a reader, even where `http.read` is `open`.
    ProvedReader,
    /// A credential for this request alone.
    Request,
    /// The secret of a browser session.
    BrowserSession,
    /// The session or the secret that an agent got for its hello.
    Agent,
}

impl RequiredProof {
    /// What a route with this access usually needs.
    pub(super) fn for_access(access: RouteAccess) -> RequiredProof {
        match access {
            RouteAccess::Open => RequiredProof::Nothing,
            RouteAccess::Reads => RequiredProof::Reader,
            RouteAccess::Computes => RequiredProof::ProvedReader,
            RouteAccess::Changes => RequiredProof::Request,
            RouteAccess::Agents => RequiredProof::Agent,
        }
    }

    /// The proofs that are accepted. One is enough.
    pub(super) fn requirements(self) -> Value {
        let single = |scheme: &str| json!({ scheme: [] });
        let session: Value = SESSION_PARTS
            .iter()
            .map(|part| ((*part).to_owned(), json!([])))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let credentials = [single(MUNGE), single(SLURM_TOKEN)];
        let reader = [&credentials[..], &[session.clone(), single(TICKET), single(BROWSER_SESSION)]].concat();
        let accepted = match self {
            RequiredProof::Nothing => vec![],
            RequiredProof::DaemonsIdentity => [&[json!({})], &credentials[..]].concat(),
            RequiredProof::Reader => [&reader[..], &[json!({})]].concat(),
            RequiredProof::ProvedReader => reader,
            RequiredProof::Request => credentials.to_vec(),
            RequiredProof::BrowserSession => vec![single(BROWSER_SESSION)],
            RequiredProof::Agent => vec![session, single(AGENT_SECRET)],
        };
        accepted.into()
    }

    /// Whether a credential may prove the sender, so that the headers for it are read.
    pub(super) fn takes_credential(self) -> bool {
        matches!(
            self,
            RequiredProof::DaemonsIdentity
                | RequiredProof::Reader
                | RequiredProof::ProvedReader
                | RequiredProof::Request
        )
    }

    /// Whether the answer may carry a ticket, for clients without sessions.
    pub(super) fn gives_ticket(self) -> bool {
        matches!(self, RequiredProof::Reader | RequiredProof::ProvedReader)
    }
}

/// The schemes of the document.
pub(super) fn schemes() -> Value {
    let bearer =
        |description: &str| json!({ "type": "http", "scheme": "bearer", "description": description });
    let header = |name: &str, text: &str| {
        let mut scheme = json!({ "type": "apiKey", "in": "header", "name": name });
        scheme["description"] = text.into();
        scheme
    };
    let [name, counter, mac] = SESSION_PARTS;
    json!({
        MUNGE: { "type": "http", "scheme": headers::MUNGE_SCHEME, "description": MUNGE_TEXT },
        SLURM_TOKEN: { "type": "http", "scheme": headers::JWT_SCHEME, "description": TOKEN_TEXT },
        TICKET: bearer(TICKET_TEXT),
        BROWSER_SESSION: bearer(BROWSER_TEXT),
        AGENT_SECRET: bearer(AGENT_TEXT),
        name: header(headers::SESSION, "The session's public name. All three headers belong together."),
        counter: header(headers::COUNTER, COUNTER_TEXT),
        mac: header(headers::MAC, MAC_TEXT),
    })
}

const MUNGE_TEXT: &str = "\
A MUNGE credential of the user. Its payload has these words, separated by single spaces: `infill2`, the \
purpose (`x-infill-purpose` of the operation), the job's number or 0, the nonce, the daemon's `HOST:PORT` \
as in the header `infill-to`, and the digest of the request. A read has `-` as its digest. The digest is \
the SHA-256 of path and body in hexadecimal digits, each after its length in bytes as a 64-bit number with \
the high byte first. Without `infill-to`, a reader's payload is `infill1`, the purpose, 0 and the nonce.";

const TOKEN_TEXT: &str = "\
A token of the user from `scontrol token`. The daemon asks slurmrestd whether it is valid. Send it over \
TLS only, because it is bound to nothing.";

const TICKET_TEXT: &str = "\
The ticket from the header `infill-ticket` of the answer to a proof. It replaces the proof for ten \
minutes, for clients that send no `infill-to`.";

const BROWSER_TEXT: &str = "The secret of `WebSession`, with which the web page reads.";

const AGENT_TEXT: &str = "The secret of `AgentWelcome`, for agents without sessions.";

const COUNTER_TEXT: &str = "The request's number in its session, from 1. On each route, numbers only grow.";

const MAC_TEXT: &str = "\
HMAC-SHA256 of the request with the session's key, in hexadecimal digits. The text is `request`, path and \
query, counter and body, each after its length in bytes as a 64-bit number with the high byte first. The \
answer carries the same header over `answer`, path and query, counter, status and body.";

/// Headers of requests that carry a credential.
pub(super) fn parameters() -> Value {
    let header = |name: &str, description: &str| {
        json!({
            "name": name, "in": "header", "required": false, "description": description,
            "schema": { "type": "string" },
        })
    };
    json!({
        "Nonce": header(headers::NONCE, "The nonce in the credential: one word of at most 128 characters."),
        "To": header(headers::TO, TO_TEXT),
    })
}

const TO_TEXT: &str = "\
The daemon that the credential is for, as `HOST:PORT`. With it, the answer opens a session and proves the \
daemon. Requests that change something need it, unless their body carries the proof.";

/// Headers of answers.
pub(super) fn answer_headers() -> Value {
    let header = |description: &str| json!({ "description": description, "schema": { "type": "string" } });
    json!({
        "Seal": header(SEAL_TEXT),
        "Mac": header("The daemon's signature, if the request belongs to a session or opens one."),
        "Ticket": header("A ticket that replaces the proof, if the request has no `infill-to`."),
    })
}

const SEAL_TEXT: &str = "\
If the request has `infill-to`: `munge` and a credential that only the sender can open, or `open` and its \
payload. The payload is `infill1 welcome JOB NONCE SESSION KEY`.";
