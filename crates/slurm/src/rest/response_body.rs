//! What becomes of the body of an answer: read whole, or record by record while it arrives. Bounded either
//! way.

use std::future::Future;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Response;
use tokio::sync::mpsc;

use super::failure::{FailureKind, RequestFailure, check_response, transport_failure};
use super::json_repair;
use super::record::{SharedNames, WireRecord};
use super::record_list::{self, RecordList};

/// Largest answer that is read: 40,000 jobs at 5 to 9 kB each have 200 to 360 MB.
const MAX_BODY_BYTES: usize = 512 * 1024 * 1024;

/// Pieces of an answer that wait to be read. They have tens of kilobytes each.
const MAX_PIECES: usize = 32;

/// A piece of a body.
type BodyChunk = bytes::Bytes;

/// Takes the body of an answer.
pub(super) trait BodyReader: Sync {
    /// What it becomes.
    type Out: Send;
    /// Reads it. Called again if the request is sent again.
    fn read_body(&self, response: Response)
    -> impl Future<Output = Result<Self::Out, RequestFailure>> + Send;
}

/// The bytes of an answer in which Slurm tells of no error.
pub(super) struct WholeBody;

impl BodyReader for WholeBody {
    type Out = Vec<u8>;

    async fn read_body(&self, response: Response) -> Result<Vec<u8>, RequestFailure> {
        let status = response.status();
        let mut body = Vec::new();
        let mut arriving = IncomingBody::new(response);
        while let Some(piece) = arriving.next_chunk().await? {
            body.extend_from_slice(piece.as_ref());
        }
        let body = json_repair::repair_text(body);
        check_response(status, &body).map(|()| body)
    }
}

/// One list of an answer.
pub(super) struct ListBody<M> {
    shared: Arc<Mutex<SharedNames>>,
    record: PhantomData<fn() -> M>,
}

impl<M> ListBody<M> {
    /// `shared` is what this list has in common with others of the same reading.
    pub(super) fn new(shared: &Arc<Mutex<SharedNames>>) -> Self {
        ListBody { shared: shared.clone(), record: PhantomData }
    }
}

impl<M: WireRecord + Send + 'static> BodyReader for ListBody<M> {
    type Out = RecordList<M>;

    async fn read_body(&self, response: Response) -> Result<RecordList<M>, RequestFailure> {
        if !response.status().is_success() {
            let status = response.status();
            WholeBody.read_body(response).await?;
            return Err(RequestFailure::new(FailureKind::Permanent, format!("HTTP {}", status.as_u16())));
        }
        let (sender, receiver) = mpsc::channel(MAX_PIECES);
        let shared = self.shared.clone();
        // On a thread of its own: the jobs of a large site take half a second.
        let reading = tokio::task::spawn_blocking(move || {
            // What is shared are sets of names, which a panic cannot have left half written.
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            record_list::read_list(ChunkReader { receiver, piece: None, at: 0 }, &mut shared)
        });
        let arrived = forward_chunks(IncomingBody::new(response), sender).await;
        let read = reading.await.unwrap_or_else(|e| {
            Err(RequestFailure::new(FailureKind::Transient, format!("the answer was not read: {e}")))
        });
        // Where the answer broke off on the way, that is what went wrong, and not that it is no whole JSON.
        arrived.and(read)
    }
}

/// Hands on what arrives, until all is there or nobody wants more. Waits where the reader is slower.
async fn forward_chunks(
    mut arriving: IncomingBody,
    sender: mpsc::Sender<BodyChunk>,
) -> Result<(), RequestFailure> {
    while let Some(piece) = arriving.next_chunk().await? {
        if sender.send(piece).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// A body on its way.
struct IncomingBody {
    response: Response,
    /// Bytes that may still come.
    left: usize,
}

impl IncomingBody {
    fn new(response: Response) -> Self {
        IncomingBody { response, left: MAX_BODY_BYTES }
    }

    async fn next_chunk(&mut self) -> Result<Option<BodyChunk>, RequestFailure> {
        let Some(piece) = self.response.chunk().await.map_err(|e| transport_failure(&e))? else {
            return Ok(None);
        };
        let left = self.left.checked_sub(piece.len());
        self.left = left
            .ok_or_else(|| RequestFailure::new(FailureKind::Permanent, "the answer has more than 512 MiB"))?;
        Ok(Some(piece))
    }
}

/// The pieces of a body as one stream, for a thread that may wait.
struct ChunkReader {
    receiver: mpsc::Receiver<BodyChunk>,
    piece: Option<BodyChunk>,
    /// Bytes of `piece` that have been read.
    at: usize,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.piece.as_ref().and_then(|p| p.get(self.at..)).filter(|left| !left.is_empty());
            if let Some(left) = left {
                let count = left.len().min(buffer.len());
                buffer[..count].copy_from_slice(&left[..count]);
                self.at += count;
                return Ok(count);
            }
            (self.piece, self.at) = (self.receiver.blocking_recv(), 0);
            if self.piece.is_none() {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::Node;

    fn answer(status: u16, body: &'static str) -> Response {
        let mut response = axum::http::Response::new(body);
        *response.status_mut() = axum::http::StatusCode::from_u16(status).unwrap();
        Response::from(response)
    }

    async fn nodes(status: u16, body: &'static str) -> String {
        match ListBody::<Node>::new(&Arc::default()).read_body(answer(status, body)).await {
            Ok(listed) => format!("{} nodes", listed.records.len()),
            Err(f) => format!("{:?}: {}", f.kind, f.what),
        }
    }

    #[tokio::test]
    async fn a_list_is_read_and_an_error_told() {
        assert_eq!(nodes(200, r#"{"nodes": [{"name": "n1", "state": ["IDLE"]}]}"#).await, "1 nodes");
        let error = r#"{"errors": [{"error_number": 2002, "error": "Access/permission denied"}]}"#;
        assert_eq!(nodes(200, error).await, "Denied: Access/permission denied (2002)");
        assert_eq!(nodes(500, error).await, "Denied: Access/permission denied (2002) (HTTP 500)");
        assert_eq!(nodes(503, "<html>").await, "Transient: <html> (HTTP 503)");
        assert!(nodes(200, r#"{"nodes": [{"name":"#).await.starts_with("Transient: the answer is not what"));
    }

    #[tokio::test]
    async fn an_answer_is_bounded() {
        let mut arriving = IncomingBody { response: answer(200, "0123456789"), left: 10 };
        assert!(arriving.next_chunk().await.is_ok_and(|piece| piece.is_some()));
        let mut arriving = IncomingBody { response: answer(200, "0123456789"), left: 9 };
        let failure = arriving.next_chunk().await.unwrap_err();
        assert_eq!(
            (failure.kind, failure.what.as_str()),
            (FailureKind::Permanent, "the answer has more than 512 MiB")
        );
    }
}
