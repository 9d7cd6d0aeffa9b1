//! Reads the body of a response: as a whole, or record by record while it arrives. Both are bounded.

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

/// Largest body that is read. 40,000 jobs of 5 to 9 kB each take 200 to 360 MB.
pub(super) const MAX_BODY_BYTES: usize = 512 * 1024 * 1024;

/// Most chunks that wait to be read. Each has tens of kilobytes.
const MAX_PIECES: usize = 32;

type BodyChunk = bytes::Bytes;

/// Reads the body of a response.
pub(super) trait BodyReader: Sync {
    /// The result of reading.
    type Out: Send;
    /// Reads the body. Called again if the request is sent again.
    fn read_body(&self, response: Response)
    -> impl Future<Output = Result<Self::Out, RequestFailure>> + Send;
}

/// Reads all bytes of a response, and fails if Slurm reports an error in it.
pub(super) struct WholeBody;

impl BodyReader for WholeBody {
    type Out = Vec<u8>;

    async fn read_body(&self, response: Response) -> Result<Vec<u8>, RequestFailure> {
        let status = response.status();
        let mut body = Vec::new();
        let mut arriving = IncomingBody::new(response);
        while let Some(chunk) = arriving.next_chunk().await? {
            body.extend_from_slice(chunk.as_ref());
        }
        let body = json_repair::repair_text(body);
        check_response(status, &body)?;
        Ok(body)
    }
}

/// Reads one list of a response, record by record.
pub(super) struct ListBody<M> {
    shared: Arc<Mutex<SharedNames>>,
    record: PhantomData<fn() -> M>,
}

impl<M> ListBody<M> {
    /// `shared` holds the names that this list shares with others of the same reading.
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
        // On a separate thread: the jobs of a large site take half a second.
        let reading = tokio::task::spawn_blocking(move || {
            // A panic cannot have left these sets of names half written.
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            record_list::read_list(ChunkReader { receiver, chunk: None, position: 0 }, &mut shared)
        });
        let forwarded = forward_chunks(IncomingBody::new(response), sender).await;
        let list = reading.await.unwrap_or_else(|e| {
            Err(RequestFailure::new(FailureKind::Transient, format!("the answer was not read: {e}")))
        });
        // Where the transfer broke off, report that, and not that the JSON is incomplete.
        forwarded?;
        list
    }
}

/// Sends the arriving chunks to the reader, until the body ends or the reader has stopped. Waits where the
/// reader is slower.
async fn forward_chunks(
    mut arriving: IncomingBody,
    sender: mpsc::Sender<BodyChunk>,
) -> Result<(), RequestFailure> {
    while let Some(chunk) = arriving.next_chunk().await? {
        if sender.send(chunk).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// A body that is still arriving.
struct IncomingBody {
    response: Response,
    /// Bytes that may still arrive before the limit.
    left: usize,
}

impl IncomingBody {
    fn new(response: Response) -> Self {
        IncomingBody { response, left: MAX_BODY_BYTES }
    }

    async fn next_chunk(&mut self) -> Result<Option<BodyChunk>, RequestFailure> {
        let Some(chunk) = self.response.chunk().await.map_err(|e| transport_failure(&e))? else {
            return Ok(None);
        };
        let left = self.left.checked_sub(chunk.len());
        self.left = left
            .ok_or_else(|| RequestFailure::new(FailureKind::Permanent, "the answer has more than 512 MiB"))?;
        Ok(Some(chunk))
    }
}

/// The chunks of a body as one stream, for a thread that may block.
struct ChunkReader {
    receiver: mpsc::Receiver<BodyChunk>,
    chunk: Option<BodyChunk>,
    /// Bytes of `chunk` that have been read.
    position: usize,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let unread = self.chunk.as_ref().and_then(|chunk| chunk.get(self.position..));
            if let Some(unread) = unread.filter(|unread| !unread.is_empty()) {
                let count = unread.len().min(buffer.len());
                buffer[..count].copy_from_slice(&unread[..count]);
                self.position += count;
                return Ok(count);
            }
            self.chunk = self.receiver.blocking_recv();
            self.position = 0;
            if self.chunk.is_none() {
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
    async fn a_list_is_read_and_an_error_reported() {
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
